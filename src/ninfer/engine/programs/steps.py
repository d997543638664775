"""What gets compiled: the prefill program and the decode program, as functions of (weights, memory, plan).

Memory is donated and comes back changed in place. A generated token is counted for the penalties when it is fed, so
a forced token counts like a chosen one, and a token that the host dropped never counts. Knows shapes and the plan's
layout; decides nothing.
"""

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
from ninfer.engine.sampling.sampler import choose
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
    counts = memory.counts.at[chunk.slot].multiply(jnp.where(chunk.start == 0, 0, 1))

    def sample(_: None) -> StepOutput:
        scores = logits(weights.opened(), last, used_tokens)
        chosen = choose(scores, counts[chunk.slot][None], unit.sampler, used_tokens)
        return StepOutput(jnp.stack([chosen.token, chosen.faulty.astype(jnp.int32)]), scores)

    def skip(_: None) -> StepOutput:
        return StepOutput(jnp.zeros((2, 1), jnp.int32), jnp.zeros((1, config.vocab_size), jnp.float32))

    output = lax.cond(unit.samples, sample, skip, None)
    kept = jnp.where(unit.samples, output.chosen[0, 0], memory.last_token[chunk.slot])
    return Memory(text=text, last_token=memory.last_token.at[chunk.slot].set(kept), counts=counts), output


def decode_step(
    config: TextConfig, used_tokens: int, weights: StoredWeights, memory: Memory, plan: jax.Array
) -> tuple[Memory, StepOutput]:
    """One decode round: feed a token per row, choose the next."""
    unit = unpack_decode(plan)
    slots = unit.rows.slots
    fed = jnp.where(unit.forced < 0, memory.last_token[slots], unit.forced)
    counts = memory.counts.at[slots, fed].add(1, mode="drop")
    opened = weights.opened()
    out, text = run_rows(config, opened, memory.text, unit.rows, fed)
    scores = logits(opened, out.normed, used_tokens)
    chosen = choose(scores, counts[slots], unit.sampler, used_tokens)
    last_token = memory.last_token.at[slots].set(chosen.token, mode="drop")
    output = StepOutput(jnp.stack([chosen.token, chosen.faulty.astype(jnp.int32)]), scores)
    return Memory(text=text, last_token=last_token, counts=counts), output
