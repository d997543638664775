"""Puts a house together: artifact, tokenizer and template, engine, service. The one place that knows every room.

Synchronous reading first (`open_house`), then the running parts (`Plan.open_engine`). Whatever a user can mend leaves
as a `Failure` of one line.
"""

import logging
import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import attrs

from ninfer.cli.failure import Failure
from ninfer.cli.options import DEFAULT_MAX_CONTEXT, CapacityOptions, ServeOptions
from ninfer.conversation import ModelCard
from ninfer.engine.artifact import (
    Artifact,
    ArtifactError,
    Report,
    default_cache_dir,
    default_hub_dir,
    resolve_artifact,
)
from ninfer.engine.engine import RunningEngine, open_engine
from ninfer.engine.model.config import TextConfig, parse_text_config
from ninfer.engine.scripted import open_scripted_engine
from ninfer.engine.types import PAGE_TOKENS, Engine, EngineLimits
from ninfer.prompt import THINK_CLOSE, THINK_OPEN, BadTemplate, BadTokenizer, ChatTemplate, PromptBuilder, Tokenizer
from ninfer.reply import ReplyTokens
from ninfer.service import ProtocolFlags, SamplerRules, Service, ServiceSettings

log = logging.getLogger(__name__)

_TEXT = "text"


@attrs.frozen(kw_only=True)
class House:
    """Everything that is read from an artifact, ready for an engine and a service."""

    artifact: Artifact
    tokenizer: Tokenizer
    builder: PromptBuilder
    config: TextConfig
    limits: EngineLimits
    card: ModelCard
    cache_dir: Path

    def open_engine(self, kind: str) -> AbstractAsyncContextManager[RunningEngine]:
        """The engine as an async block; entering waits until it is ready."""
        if kind == "scripted":
            return open_scripted_engine(self.tokenizer, self.limits)
        return _open_model_engine(self)

    def service(self, engine: Engine, options: ServeOptions) -> Service:
        """The request path over a running engine."""
        capacity, sampler = options.capacity, options.sampler
        controls = self.tokenizer.control_tokens
        return Service(
            engine=engine,
            preparer=self.builder,
            reply_tokens=ReplyTokens(
                token_bytes=self.tokenizer.token_bytes,
                hidden=self.tokenizer.hidden_tokens,
                reasoning_open=controls.get(THINK_OPEN),
                reasoning_close=controls.get(THINK_CLOSE),
            ),
            stop_tokens=self.tokenizer.stop_tokens,
            model=self.card,
            sampler=SamplerRules(
                architecture=self.artifact.architecture, flags=sampler.fields(), greedy=sampler.greedy
            ),
            settings=ServiceSettings(
                max_pending_requests=capacity.max_pending_requests,
                pending_timeout_s=capacity.pending_timeout_ms / 1000,
                default_max_tokens=capacity.default_max_tokens,
                flags=ProtocolFlags(
                    usage_chunk_choice=options.network.usage_chunk_choice,
                    response_store_max_records=options.store.response_store_max_records,
                    response_store_max_mib=options.store.response_store_max_mib,
                ),
            ),
        )


def open_house(path: Path, options: ServeOptions, report: Report) -> House:
    """Read the artifact that `path` means (a Hugging Face folder is converted once) and check the options against it.

    Raises:
        Failure: the artifact, its tokenizer or template, or an option that does not fit them.
    """
    model, capacity = options.model, options.capacity
    cache_dir = model.cache_dir or default_cache_dir(os.environ)
    try:
        entry = resolve_artifact(path, cache_dir, report, hub_dir=default_hub_dir(os.environ))
        artifact = Artifact.open(entry)
        config = parse_text_config(artifact.config(_TEXT))
        tokenizer = _tokenizer(artifact)
    except (ArtifactError, BadTokenizer) as error:
        raise Failure(str(error)) from error
    max_context_tokens = context_ceiling(capacity.max_context, config.max_position_embeddings)
    return House(
        artifact=artifact,
        tokenizer=tokenizer,
        builder=PromptBuilder(
            tokenizer,
            _template(artifact, model.chat_template),
            no_thinking=model.no_thinking,
            preserve_thinking=model.preserve_thinking,
        ),
        config=config,
        limits=engine_limits(capacity, max_context_tokens),
        card=_card(artifact, config, tokenizer, model.model_id, max_context_tokens),
        cache_dir=cache_dir,
    )


def context_ceiling(asked_tokens: int | None, native_tokens: int) -> int:
    """Most tokens of one request.

    Raises:
        Failure: more were asked for than the model has.
    """
    if asked_tokens is None:
        return min(DEFAULT_MAX_CONTEXT, native_tokens)
    if asked_tokens > native_tokens:
        raise Failure(f"--max-context {asked_tokens}: the model's native context is {native_tokens}")
    return asked_tokens


def engine_limits(capacity: CapacityOptions, max_context_tokens: int) -> EngineLimits:
    """The engine's limits: whole pages, and whole tiles for the prefill chunk (D38)."""
    chunk = max(PAGE_TOKENS, capacity.prefill_chunk // PAGE_TOKENS * PAGE_TOKENS)
    log.info("effective prefill chunk: %d tokens (--prefill-chunk %d)", chunk, capacity.prefill_chunk)
    if capacity.kv_capacity == "auto":
        # Nothing is shared or kept between requests yet: more than all lanes at their ceiling would never be used.
        pages = capacity.max_concurrency * -(-max_context_tokens // PAGE_TOKENS)
    else:
        pages = capacity.kv_capacity // PAGE_TOKENS
    if pages < 1:
        raise Failure(f"--kv-capacity {capacity.kv_capacity}: at least {PAGE_TOKENS} tokens are needed")
    return EngineLimits(
        max_context_tokens=max_context_tokens,
        lanes=capacity.max_concurrency,
        kv_capacity_tokens=pages * PAGE_TOKENS,
        prefill_chunk_tokens=chunk,
    )


def _tokenizer(artifact: Artifact) -> Tokenizer:
    tokenizer = artifact.resource("tokenizer.json")
    if tokenizer is None:
        raise Failure(f"{artifact.file}: the artifact has no tokenizer.json")
    return Tokenizer.from_files(
        tokenizer,
        tokenizer_config=artifact.resource("tokenizer_config.json"),
        generation_config=artifact.resource("generation_config.json"),
    )


def _template(artifact: Artifact, replacement: Path | None) -> ChatTemplate:
    where = artifact.file if replacement is None else replacement
    try:
        source = artifact.resource("chat_template.jinja") if replacement is None else replacement.read_bytes()
        if source is None:
            raise Failure(f"{where}: the artifact has no chat template; --chat-template gives one")
        return ChatTemplate(source.decode("utf-8"))
    except OSError as error:
        raise Failure(f"--chat-template {where}: {error.strerror}") from error
    except (BadTemplate, UnicodeDecodeError, ArtifactError) as error:
        raise Failure(f"chat template of {where}: {error}") from error


def _card(
    artifact: Artifact, config: TextConfig, tokenizer: Tokenizer, model_id: str | None, max_context_tokens: int
) -> ModelCard:
    facts = artifact.facts(_TEXT)
    return ModelCard(
        id=model_id or artifact.name or artifact.architecture,
        max_context_tokens=max_context_tokens,
        native_context_tokens=config.max_position_embeddings,
        vocabulary_tokens=min(tokenizer.vocabulary_tokens, config.vocab_size),
        embedding_width=config.hidden_size,
        parameters=facts.parameters,
        weight_bytes=facts.weight_bytes,
        dominant_format=facts.dominant_format,
        created_unix_s=int(artifact.file.stat().st_mtime),
    )


def _open_model_engine(house: House) -> AbstractAsyncContextManager[RunningEngine]:
    # Imported here: a scripted engine and `--help` need no JAX, which takes seconds to import.
    from ninfer.engine.model.weights import load_weights
    from ninfer.engine.programs.jax_device import JaxDevice

    device = JaxDevice(
        house.config,
        load_weights(house.config, house.artifact.read),
        lanes=house.limits.lanes,
        total_pages=house.limits.kv_capacity_tokens // PAGE_TOKENS,
        prefill_chunk_tokens=house.limits.prefill_chunk_tokens,
        max_context_tokens=house.limits.max_context_tokens,
        used_tokens=house.tokenizer.vocabulary_tokens,
        compile_cache=house.cache_dir / "programs",
        progress=_log_progress,
    )
    return open_engine(device, house.limits)


def _log_progress(name: str, done: int, total: int) -> None:
    log.info("preparing the device: %s (%d of %d)", name, done, total)
