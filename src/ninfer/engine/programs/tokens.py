"""What every form does around its trunk: which token is fed, which one is chosen, and what is remembered of both.

A generated token is counted for the penalties when it is fed, so a forced token counts like a chosen one, and a token
that the host dropped never counts. Knows the memory and the plans; neither weights nor how a form chooses.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from ninfer.engine.programs.form import Memory, StepOutput, Tree
from ninfer.engine.programs.plan import DecodePlan, PrefillPlan
from ninfer.engine.sampling.sampler import Chosen, SamplerRows

Choose: TypeAlias = Callable[[jax.Array, jax.Array, jax.Array, SamplerRows], Chosen]
"""Logits float32 [R, V], counts int32 [slots, V], each row's slot int32 [R] and its sampler -> one token a row."""


def feed(memory: Memory, unit: DecodePlan) -> tuple[Memory, jax.Array]:
    """The token int32 [R] that each row feeds, and the memory with these counted."""
    slots = unit.rows.slots
    fed = jnp.where(unit.forced < 0, memory.last_token[slots], unit.forced)
    return replace(memory, counts=memory.counts.at[slots, fed].add(1, mode="drop")), fed


def finish_round(
    memory: Memory, text: Tree, unit: DecodePlan, scores: jax.Array, choose: Choose
) -> tuple[Memory, StepOutput]:
    """Choose from scores float32 [R, V]; `text` is what the trunk remembers now."""
    slots = unit.rows.slots
    chosen = choose(scores, memory.counts, slots, unit.sampler)
    last_token = memory.last_token.at[slots].set(chosen.token, mode="drop")
    return replace(memory, text=text, last_token=last_token), _output(chosen, scores)


def finish_chunk(
    memory: Memory,
    text: Tree,
    unit: PrefillPlan,
    last: jax.Array,
    score: Callable[[jax.Array], jax.Array],
    choose: Choose,
) -> tuple[Memory, StepOutput]:
    """After a prompt's last chunk choose from `score` (float32 [1, V]) of its `last` row; after others only remember.

    A prompt that begins at 0 begins its slot's counts anew.
    """
    slot, vocabulary = unit.chunk.slot, memory.counts.shape[1]
    counts = memory.counts.at[slot].multiply(jnp.where(unit.chunk.start == 0, 0, 1), mode="drop")

    def sample(row: jax.Array) -> StepOutput:
        scores = score(row)
        return _output(choose(scores, counts, slot[None], unit.sampler), scores)

    def skip(_: jax.Array) -> StepOutput:
        return StepOutput(jnp.zeros((2, 1), jnp.int32), jnp.zeros((1, vocabulary), jnp.float32))

    output: StepOutput = lax.cond(unit.samples, sample, skip, last)
    kept = jnp.where(unit.samples, output.chosen[0, 0], memory.last_token[slot])
    last_token = memory.last_token.at[slot].set(kept, mode="drop")
    return Memory(text=text, last_token=last_token, counts=counts), output


def _output(chosen: Chosen, scores: jax.Array) -> StepOutput:
    return StepOutput(jnp.stack([chosen.token, chosen.faulty.astype(jnp.int32)]), scores)
