"""Rule 8 of the architecture: whatever shares the batch, the logits behind every token are equal bit for bit.

The golden model is too small to show the fault (reductions change where rows x width reaches 4,096), so the same is
done with a wide random model; that one compiles for half a minute and is marked slow, except for two narrow cuts.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ninfer.engine.model.head import logits
from ninfer.engine.model.state import zero_state
from ninfer.engine.model.trunk import PromptChunk, Rows, run_prompt, run_rows
from ninfer.engine.programs import JaxDevice, PerLayer
from tests.engine.model.golden import WIDE, bits, random_weights
from tests.engine.programs.conftest import CHUNK_TOKENS, LANES, POOL_PAGES
from tests.engine.programs.drive import Lane, decode, pages_for

LENGTHS = (150, 3, 64, 65, 130, 127, 191, 192)
STEPS = 4


def prompts(vocabulary: int) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(11)
    return [tuple(rng.integers(0, vocabulary, length).tolist()) for length in LENGTHS]


def check(device: JaxDevice, lanes: int, pool: int, chunks: Sequence[int], vocabulary: int) -> int:
    """Every prompt alone, then in batches of every size at other slots, pages, neighbours and chunk sizes."""
    given = prompts(vocabulary)
    alone = []
    for prompt in given:
        one = Lane(device, 0, pages_for(len(prompt) + STEPS, range(pool)), prompt)
        one.prefill(chunks[-1])
        decode([one], STEPS)
        alone.append(one)
    rng = np.random.default_rng(5)
    compared = 0
    for batch in range(1, lanes + 1):
        free = rng.permutation(pool).tolist()
        slots = rng.permutation(lanes)
        together = []
        for place, index in enumerate(rng.permutation(len(given))[:batch]):
            pages = pages_for(len(given[index]) + STEPS, free)
            free = free[len(pages) :]
            one = Lane(device, int(slots[place]), pages, given[index])
            one.prefill(chunks[place % len(chunks)])
            together.append((index, one))
        decode([one for _, one in together], STEPS)
        for index, one in together:
            np.testing.assert_array_equal(bits(one.logits), bits(alone[index].logits))
            assert one.tokens == alone[index].tokens
            compared += len(one.logits)
    return compared


def test_golden_model(device: JaxDevice) -> None:
    assert check(device, LANES, POOL_PAGES, (64, 128, CHUNK_TOKENS), 290) == 10 * (STEPS + 1)


@pytest.mark.slow
def test_wide_model() -> None:
    device = JaxDevice(
        PerLayer(WIDE, random_weights(WIDE)), lanes=8, total_pages=40, prefill_chunk_tokens=192, max_context_tokens=256
    )
    device.prepare()
    assert check(device, 8, 40, (64, 128, 192), 8192) == 36 * (STEPS + 1)


def test_rows_of_two_and_of_eight() -> None:
    """The pair of batch sizes between which XLA's own reductions change, at the model functions."""
    model, weights = WIDE, random_weights(WIDE)

    @jax.jit
    def step(state, rows, tokens):  # type: ignore[no-untyped-def]
        out, state = run_rows(model, weights, state, rows, tokens)
        return logits(weights, out.normed), state

    def rounds(slots: Sequence[int], pages: np.ndarray, slots_in_all: int) -> list[np.ndarray]:
        state = zero_state(model, pages=17, slots=slots_in_all)
        scores = []
        for position in range(3):
            where = Rows(np.array(slots, np.int32), pages, np.full(len(slots), position, np.int32))  # type: ignore[arg-type]
            row, state = step(state, where, np.array([7 * s + position for s in range(len(slots))], np.int32))
            scores.append(bits(row))
        return scores

    pages = np.arange(8, dtype=np.int32)[:, None]
    eight = rounds(range(8), pages, 8)
    two = rounds((5, 3), pages[[9 - 8, 4]], 8)
    for whole, part in zip(eight, two, strict=True):
        np.testing.assert_array_equal(whole[:2], part)


def test_tiles_in_one_program() -> None:
    """A program that takes several 64-row tiles at once gives each row the bits of one that takes one tile."""
    config, weights, tiles = WIDE, random_weights(WIDE), 3
    tokens = np.random.default_rng(2).integers(0, 8192, 64 * tiles).astype(np.int32)
    pages = jnp.arange(4)
    length = 64 * tiles - 17

    @jax.jit
    def run(state, start, length, tokens):  # type: ignore[no-untyped-def]
        out, state = run_prompt(config, weights, state, PromptChunk(np.int32(0), pages, start, length), tokens)  # type: ignore[arg-type]
        return logits(weights, out.normed), state

    whole, whole_state = run(zero_state(config, pages=4, slots=1), 0, length, tokens)
    state, parts = zero_state(config, pages=4, slots=1), []
    for start in range(0, 64 * tiles, 64):
        scores, state = run(state, start, min(64, length - start), tokens[start : start + 64])
        parts.append(scores)
    np.testing.assert_array_equal(bits(np.concatenate(parts))[:length], bits(whole)[:length])
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(whole_state), strict=True):
        np.testing.assert_array_equal(bits(one), bits(other))
