"""Puts a house together: artifact, tokenizer and template, engine, service. The one place that knows every room.

Synchronous reading first (`open_house`), then the running parts (`House.open_engine`). Whatever a user can mend leaves
as a `Failure` of one line.
"""

import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import cast

import attrs
import trio

from ninfer.cli.failure import Failure
from ninfer.cli.options import DEFAULT_MAX_CONTEXT, MOST_KV_TOKENS, CapacityOptions, ModelOptions, ServeOptions
from ninfer.cli.prompt_files import TEMPLATE, check_folder, read_tokenizer
from ninfer.conversation import ModelCard
from ninfer.engine.artifact import (
    TEXT,
    Artifact,
    ArtifactError,
    Report,
    default_cache_dir,
    default_hub_dir,
    resolve_artifact,
)
from ninfer.engine.artifact.mapping import read_small
from ninfer.engine.cache import pages_for
from ninfer.engine.cost_presets import Presets, read_presets
from ninfer.engine.engine import RunningEngine
from ninfer.engine.memory import DEFAULT_HEADROOM_MIB, MIB, PoolRequest
from ninfer.engine.model.config import TextConfig, parse_text_config
from ninfer.engine.scripted import open_scripted_engine
from ninfer.engine.types import PAGE_TOKENS, Engine, EngineLimits, KvDtype
from ninfer.prompt import (
    THINK_CLOSE,
    THINK_OPEN,
    BadTemplate,
    BadTokenizer,
    PromptBuilder,
    Tokenizer,
    open_template,
)
from ninfer.reply import ReplyTokens
from ninfer.service import ProtocolFlags, SamplerRules, ScriptedPreparer, Service, ServiceSettings, ThinkingRules

log = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class House:
    """Everything that is read from an artifact, ready for an engine and a service."""

    artifact: Artifact
    tokenizer: Tokenizer
    builder: PromptBuilder
    config: TextConfig
    limits: EngineLimits
    """As wanted; how much KV memory there will really be is known when the model is loaded."""
    pool: PoolRequest
    presets: Presets | None
    kv_dtype: KvDtype
    split_workspace_bytes: int
    decode_ahead_of_time: bool
    card: ModelCard
    cache_dir: Path

    @property
    def used_tokens(self) -> int:
        """Vocabulary rows that stand for a token."""
        return self.tokenizer.vocabulary_tokens

    @property
    def program_cache(self) -> Path:
        """Private folder for compiled programs."""
        return self.cache_dir / "programs"

    def open_engine(self, kind: str) -> AbstractAsyncContextManager[RunningEngine]:
        """The engine as an async block; entering waits until it is ready."""
        if kind == "scripted":
            return open_scripted_engine(self.tokenizer, self.limits)
        return self._open_model_engine()

    @asynccontextmanager
    async def _open_model_engine(self) -> AsyncIterator[RunningEngine]:
        # Importing JAX takes seconds, and there are clients to answer meanwhile; abandoned, it ends with the process.
        opens = await trio.to_thread.run_sync(_import_model_engine, abandon_on_cancel=True)
        async with opens(self) as engine:
            yield engine

    def service(self, engine: Engine, options: ServeOptions) -> Service:
        """The request path over a running engine."""
        capacity, sampler = options.capacity, options.sampler
        controls = self.tokenizer.control_tokens
        return Service(
            engine=engine,
            preparer=ScriptedPreparer(self.builder) if options.model.engine == "scripted" else self.builder,
            reply_tokens=ReplyTokens(
                token_bytes=self.tokenizer.token_bytes,
                hidden=self.tokenizer.hidden_tokens,
                reasoning_open=controls.get(THINK_OPEN),
                reasoning_close=controls.get(THINK_CLOSE),
            ),
            stop_tokens=self.tokenizer.stop_tokens,
            thinking=ThinkingRules.of(
                self.tokenizer,
                default_tokens=options.model.default_thinking_budget,
                message=options.model.thinking_budget_message,
            ),
            model=self.card,
            sampler=SamplerRules(
                architecture=self.artifact.architecture, flags=sampler.fields(), greedy=sampler.greedy
            ),
            settings=ServiceSettings(
                max_pending_requests=capacity.max_pending_requests,
                pending_timeout_s=capacity.pending_timeout_ms / 1000,
                default_max_tokens=capacity.default_max_tokens,
                tolerant_tool_calls=options.model.tolerant_tool_calls,
                flags=ProtocolFlags(
                    usage_chunk_choice=options.network.usage_chunk_choice,
                    response_store_max_records=options.store.response_store_max_records,
                    response_store_max_mib=options.store.response_store_max_mib,
                    check_events=options.logs.check_events,
                ),
            ),
        )


def _import_model_engine() -> "Callable[[House], AbstractAsyncContextManager[RunningEngine]]":
    from ninfer.cli.model_engine import open_model_engine

    return open_model_engine


def open_house(path: Path, options: ServeOptions, report: Report) -> House:
    """Read the artifact that `path` means (a Hugging Face folder is converted once) and check the options against it.

    Raises:
        Failure: the artifact, its tokenizer or template, or an option that does not fit them.
    """
    model, capacity = options.model, options.capacity
    cache_dir = model.cache_dir or default_cache_dir(os.environ)
    try:
        entry = resolve_artifact(
            path,
            cache_dir,
            report,
            hub_dir=default_hub_dir(os.environ),
            check=partial(check_folder, template=model.chat_template is None),
        )
        artifact = Artifact.open(entry)
        config = parse_text_config(artifact.config(TEXT))
        tokenizer = read_tokenizer(artifact.resource, artifact.config(TEXT))
        presets = _presets(capacity.context_cost_presets)
    except BadTokenizer as error:
        raise Failure(f"{entry}: {error}") from error
    except ArtifactError as error:
        raise Failure(str(error)) from error
    if tokenizer is None:
        raise Failure(f"{entry}: the artifact has no tokenizer.json; convert it again from a folder that has one")
    config = attrs.evolve(config, rope_yarn_factor=model.rope_yarn_factor)
    max_context_tokens = context_ceiling(capacity.max_context, config)
    pool = pool_request(capacity, max_context_tokens)
    return House(
        artifact=artifact,
        tokenizer=tokenizer,
        builder=_builder(artifact, tokenizer, model, max_context_tokens),
        config=config,
        limits=engine_limits(capacity, max_context_tokens, pool),
        pool=pool,
        presets=presets,
        kv_dtype=cast(KvDtype, capacity.kv_dtype),  # the others were refused before
        split_workspace_bytes=options.kernels.prefill_split_workspace_mib * MIB,
        decode_ahead_of_time=not capacity.no_cuda_graph,
        card=_card(artifact, config, tokenizer, model.model_id, max_context_tokens),
        cache_dir=cache_dir,
    )


def context_ceiling(asked_tokens: int | None, config: TextConfig) -> int:
    """Most tokens of one request. YaRN raises the ceiling of what may be asked for, never the default (YARN-003).

    Raises:
        Failure: more were asked for than the model reaches.
    """
    native, ceiling = config.max_position_embeddings, config.ceiling_tokens
    if asked_tokens is None:
        return min(DEFAULT_MAX_CONTEXT, ceiling)
    if asked_tokens > ceiling:
        stretched = "" if ceiling == native else f", with --rope-yarn-factor {config.rope_yarn_factor:g} {ceiling}"
        raise Failure(f"--max-context {asked_tokens}: the model's native context is {native}{stretched}")
    return asked_tokens


def pool_request(capacity: CapacityOptions, max_context_tokens: int) -> PoolRequest:
    """The KV pool that is asked for (KV-003): automatic, or a number of tokens.

    Raises:
        Failure: less than a page, or a headroom where nothing is sized by what is free.
    """
    request_pages = pages_for(max_context_tokens)
    asked = capacity.kv_capacity
    if asked is None:
        asked = max_context_tokens if capacity.no_prefix_reuse else "auto"
    if asked != "auto":
        if capacity.vram_headroom_mib is not None:
            raise Failure(f"--vram-headroom-mib {capacity.vram_headroom_mib}: only for an automatic --kv-capacity")
        pages = request_pages if capacity.kv_capacity is None else asked // PAGE_TOKENS
        if pages < 1:
            raise Failure(f"--kv-capacity {asked}: at least {PAGE_TOKENS} tokens are needed")
        if asked > MOST_KV_TOKENS:
            raise Failure(f"--kv-capacity {asked}: at most {MOST_KV_TOKENS} tokens are possible")
        return PoolRequest(least_pages=pages, most_pages=pages)
    headroom_mib = DEFAULT_HEADROOM_MIB if capacity.vram_headroom_mib is None else capacity.vram_headroom_mib
    return PoolRequest(
        least_pages=request_pages,
        # Nothing is shared or kept between requests yet: more than all lanes at their ceiling would never be used.
        most_pages=capacity.max_concurrency * request_pages,
        headroom_bytes=headroom_mib * MIB,
    )


def engine_limits(capacity: CapacityOptions, max_context_tokens: int, pool: PoolRequest) -> EngineLimits:
    """The engine's limits: whole pages, and whole tiles for the prefill chunk (D38)."""
    chunk = max(PAGE_TOKENS, capacity.prefill_chunk // PAGE_TOKENS * PAGE_TOKENS)
    log.info("effective prefill chunk: %d tokens (--prefill-chunk %d)", chunk, capacity.prefill_chunk)
    return EngineLimits(
        max_context_tokens=max_context_tokens,
        lanes=capacity.max_concurrency,
        kv_capacity_tokens=pool.most_pages * PAGE_TOKENS,
        prefill_chunk_tokens=chunk,
    )


def _presets(file: Path | None) -> Presets | None:
    try:
        return None if file is None else read_presets(file)
    except ArtifactError as error:
        raise Failure(f"--context-cost-presets {error}") from error


def _builder(artifact: Artifact, tokenizer: Tokenizer, model: ModelOptions, max_context_tokens: int) -> PromptBuilder:
    """Prompts by the template of `--chat-template` as it is, or by the artifact's; of the family, by our variant."""
    replacement = model.chat_template
    where = artifact.file if replacement is None else replacement
    try:
        source = artifact.resource(TEMPLATE) if replacement is None else read_small(replacement)
        if source is None:
            raise Failure(f"{where}: the artifact has no chat template; --chat-template gives one")
        template = open_template(source.decode("utf-8"), tokenizer.named_tokens, as_it_is=replacement is not None)
        log.info(
            "chat template: %s",
            "maintained variant of its family" if template.shows_every_turn else f"as it is in {where.name}",
        )
        return PromptBuilder(
            tokenizer,
            template,
            no_thinking=model.no_thinking,
            preserve_thinking=model.preserve_thinking,
            effort=model.reasoning_effort,
            max_context_tokens=max_context_tokens,
        )
    except ArtifactError as error:
        raise Failure(f"chat template of {error}" if replacement is None else f"--chat-template {error}") from error
    except (BadTemplate, UnicodeDecodeError) as error:
        raise Failure(f"chat template of {where}: {error}") from error


def _card(
    artifact: Artifact, config: TextConfig, tokenizer: Tokenizer, model_id: str | None, max_context_tokens: int
) -> ModelCard:
    facts = artifact.facts()
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
