"""What gets compiled: the prefill program and the decode program, as functions of (weights, memory, plan).

Memory is donated and comes back changed in place. Knows shapes and the plan's layout; decides nothing.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from ninfer.engine.model.config import TextConfig
from ninfer.engine.model.head import logits
from ninfer.engine.model.state import TextState, zero_state
from ninfer.engine.model.trunk import PromptChunk, run_prompt, run_rows
from ninfer.engine.programs.form import Memory, StepOutput
from ninfer.engine.programs.plan import unpack_decode, unpack_prefill
from ninfer.engine.programs.stored_weights import StoredWeights
from ninfer.engine.programs.tokens import feed, finish_chunk, finish_round
from ninfer.engine.sampling.sampler import Chosen, SamplerRows, choose
from ninfer.engine.types import PAGE_TOKENS


def zero_memory(config: TextConfig, *, pages: int, slots: int) -> Memory:
    """Fresh memory; the only place that decides its size."""
    return Memory(
        text=zero_state(config, pages=pages, slots=slots),
        last_token=jnp.zeros((slots,), jnp.int32),
        counts=jnp.zeros((slots, config.vocab_size), jnp.int32),
    )


def prefill_step(
    config: TextConfig, used_tokens: int, table_pages: int, weights: StoredWeights, memory: Memory, plan: jax.Array
) -> tuple[Memory, StepOutput]:
    """One prefill unit, tile by tile: every product of every chunk has 64 rows, so its length changes no bit."""
    unit = unpack_prefill(plan, pages=table_pages)
    chunk = unit.chunk

    def tile(index: jax.Array, carry: tuple[TextState, jax.Array]) -> tuple[TextState, jax.Array]:
        text, _ = carry
        at = index * PAGE_TOKENS
        length = jnp.minimum(chunk.length - at, PAGE_TOKENS)
        own = PromptChunk(slot=chunk.slot, pages=chunk.pages, start=chunk.start + at, length=length)
        out, text = run_prompt(
            config, weights.opened(), text, own, lax.dynamic_slice_in_dim(unit.tokens, at, PAGE_TOKENS)
        )
        return text, lax.dynamic_slice_in_dim(out.normed, length - 1, 1)

    tiles = (chunk.length + PAGE_TOKENS - 1) // PAGE_TOKENS
    text, last = lax.fori_loop(
        0, tiles, tile, (memory.text, jnp.zeros((1, config.hidden_size), weights.opened().embed.dtype))
    )

    def score(row: jax.Array) -> jax.Array:
        return logits(weights.opened(), row, used_tokens)

    return finish_chunk(memory, text, unit, last, score, partial(_choose, used_tokens))


def decode_step(
    config: TextConfig, used_tokens: int, weights: StoredWeights, memory: Memory, plan: jax.Array
) -> tuple[Memory, StepOutput]:
    """One decode round: feed a token per row, choose the next."""
    unit = unpack_decode(plan)
    memory, fed = feed(memory, unit)
    opened = weights.opened()
    out, text = run_rows(config, opened, memory.text, unit.rows, fed)
    scores = logits(opened, out.normed, used_tokens)
    return finish_round(memory, text, unit, scores, partial(_choose, used_tokens))


def _choose(used_tokens: int, scores: jax.Array, counts: jax.Array, slots: jax.Array, sampler: SamplerRows) -> Chosen:
    return choose(scores, counts[slots], sampler, used_tokens)
