"""Greedy runs of the engine over an artifact: prompts in, tokens out, eight at a time; drafts judged later.

Uses the engine as `serve` does, without HTTP. Knows nothing of tasks.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import trio
from tokenizers import Tokenizer

from ninfer.engine.artifact import Artifact
from ninfer.engine.engine import RunningEngine, open_engine
from ninfer.engine.model.config import TextConfig, parse_text_config
from ninfer.engine.model.sequence import sequence_hidden
from ninfer.engine.model.weights import AttentionWeights, TextWeights, load_weights
from ninfer.engine.programs.jax_device import JaxDevice
from ninfer.engine.programs.per_layer import PerLayer
from ninfer.engine.types import EngineLimits, Failed, Plan, Prompt, Sampling, Tokens
from tools.demo_model.drafts import DEPTHS, accepted
from tools.demo_model.model import logits, mtp_depths

CONTEXT_TOKENS = 2048
LANES = 8


@attrs.frozen
class Loaded:
    """An artifact in memory: its shape, weights with the draft head, tokenizer and stop tokens."""

    config: TextConfig
    weights: TextWeights
    tokenizer: Tokenizer
    stops: frozenset[int]


def load(path: Path) -> Loaded:
    """Read an artifact whole."""
    with Artifact.open(path) as artifact:
        config = parse_text_config(artifact.config("text"))
        weights = jax.block_until_ready(load_weights(config, lambda name: np.array(artifact.read(name)), mtp=True))
        tokenizer = Tokenizer.from_str(bytes(artifact.resource("tokenizer.json")).decode())
    return Loaded(
        config, weights, tokenizer, frozenset(tokenizer.token_to_id(t) for t in ("<|im_end|>", "<|endoftext|>"))
    )


@asynccontextmanager
async def running(loaded: Loaded, cache: Path | None) -> AsyncIterator[RunningEngine]:
    """An engine of eight lanes over the weights. cache: folder for compiled programs."""
    with tempfile.TemporaryDirectory() as fallback:
        device = JaxDevice(
            PerLayer(loaded.config, attrs_without_mtp(loaded.weights)),
            lanes=LANES,
            total_pages=LANES * CONTEXT_TOKENS // 64,
            prefill_chunk_tokens=CONTEXT_TOKENS // 2,
            max_context_tokens=CONTEXT_TOKENS,
            compile_cache=cache or Path(fallback),
        )
        limits = EngineLimits(
            max_context_tokens=CONTEXT_TOKENS,
            lanes=LANES,
            kv_capacity_tokens=LANES * CONTEXT_TOKENS,
            prefill_chunk_tokens=CONTEXT_TOKENS // 2,
        )
        async with open_engine(device, limits) as engine:
            yield engine


def attrs_without_mtp(weights: TextWeights) -> TextWeights:
    """The trunk alone."""
    return TextWeights(embed=weights.embed, layers=weights.layers, norm=weights.norm, head=weights.head, mtp=None)


async def complete(
    engine: RunningEngine, loaded: Loaded, prompts: Sequence[str], most: int
) -> list[tuple[list[int], list[int]]]:
    """(prompt tokens, reply tokens without the stop token) of each prompt, greedily."""
    results: list[tuple[list[int], list[int]]] = [([], []) for _ in prompts]
    plan = Plan(sampling=Sampling(temperature=0.0), max_new_tokens=most, stop_tokens=loaded.stops)
    gate = trio.CapacityLimiter(LANES + 2)

    async def one(at: int) -> None:
        async with gate:
            ids = loaded.tokenizer.encode(prompts[at], add_special_tokens=False).ids
            reply: list[int] = []
            async with engine.submit(Prompt(tuple(ids)), plan) as events:
                async for event in events:
                    if isinstance(event, Tokens):
                        reply += event.tokens
                    elif isinstance(event, Failed):
                        raise event.error
            results[at] = (ids, [token for token in reply if token not in loaded.stops])

    async with trio.open_nursery() as nursery:
        for at in range(len(prompts)):
            nursery.start_soon(one, at)
    return results


def draft_tree(weights: TextWeights) -> dict[str, Any]:
    """What `mtp_depths` needs, from the engine's tree."""
    head = weights.mtp
    if head is None or not isinstance(head.layer.mixer, AttentionWeights):
        raise ValueError("the artifact has no draft head")
    mixer, mlp = head.layer.mixer, head.layer.mlp
    layer = {
        "q": mixer.q_proj,
        "k": mixer.k_proj,
        "v": mixer.v_proj,
        "o": mixer.o_proj,
        "q_norm": mixer.q_norm,
        "k_norm": mixer.k_norm,
        "input_norm": head.layer.input_norm,
        "post_norm": head.layer.post_attention_norm,
        "gate": mlp.gate_proj,
        "up": mlp.up_proj,
        "down": mlp.down_proj,
    }
    return {
        "embed": weights.embed,
        "mtp": {
            "fc": head.fc,
            "norm_embedding": head.embedding_norm,
            "norm_hidden": head.hidden_norm,
            "norm": head.norm,
            "layer": layer,
        },
    }


def acceptance(
    loaded: Loaded,
    runs: Sequence[tuple[list[int], list[int]]],
    length: int = 1024,
    rows: int = 8,
    enough: int = 6000,
) -> tuple[int, int]:
    """(accepted, drafted) over the replies of many runs; runs longer than `length` tokens are cut there.

    enough: drafted tokens after which no further runs are looked at: a run costs more here than to decode.
    """
    tree = draft_tree(loaded.weights)

    @jax.jit
    def hits(tokens: jax.Array) -> jax.Array:
        hidden = sequence_hidden(loaded.config, loaded.weights, tokens)
        outs = mtp_depths(tree, hidden, tokens, jnp.zeros(tokens.shape, jnp.int32), DEPTHS, loaded.config)
        return jnp.stack([jnp.argmax(logits(tree, out), -1) == jnp.roll(tokens, -2, 1) for out in outs])

    good = drafted = 0
    end = min(loaded.stops)
    for at in range(0, len(runs), rows):
        part = runs[at : at + rows]
        tokens = np.full((rows, length), end, np.int32)
        for row, (ids, reply) in enumerate(part):
            whole = (ids + reply)[:length]
            tokens[row, : len(whole)] = whole
        seen = np.asarray(hits(jnp.asarray(tokens)))
        for row, (ids, reply) in enumerate(part):
            a, b = accepted(seen[:, row], len(ids), min(len(ids) + len(reply), length))
            good, drafted = good + a, drafted + b
        if drafted >= enough:
            break
    return good, drafted
