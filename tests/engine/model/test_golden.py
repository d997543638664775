"""The golden model: every form of the trunk computes what the reference computed."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ninfer.engine.model.head import logits
from ninfer.engine.model.sequence import mtp_sequence_logits, sequence_hidden, sequence_layers, sequence_logits
from ninfer.engine.model.state import TextState, zero_state
from ninfer.engine.model.trunk import NOWHERE, PromptChunk, Rows, TrunkOutput, run_prompt, run_rows
from ninfer.engine.model.weights import TextWeights
from ninfer.engine.types import PAGE_TOKENS
from tests.engine.model.golden import bits, golden

CONFIG, WEIGHTS, EXPECTED = golden().config, golden().weights, golden().expected
SLOT, PAGES = 1, (5, 2, 7, 0)
PADDED = 192


@jax.jit
def prompt(state: TextState, chunk: PromptChunk, tokens: jax.Array) -> tuple[jax.Array, TrunkOutput, TextState]:
    """One program for every chunk: up to 192 tokens, padded."""
    out, state = run_prompt(CONFIG, WEIGHTS, state, chunk, tokens)
    return logits(WEIGHTS, out.normed), out, state


@jax.jit
def rows(state: TextState, where: Rows, tokens: jax.Array) -> tuple[jax.Array, TextState]:
    out, state = run_rows(CONFIG, WEIGHTS, state, where, tokens)
    return logits(WEIGHTS, out.normed), state


def feed(tokens: tuple[int, ...], sizes: list[int]) -> tuple[np.ndarray, list[np.ndarray], TextState]:
    """Prefill in chunks of `sizes` (the last one repeats): logits [T, V], residual streams, state."""
    state = zero_state(CONFIG, pages=8, slots=2)
    scores, streams, start = [], [], 0
    for size in sizes + sizes[-1:] * len(tokens):
        part = tokens[start : start + size]
        if not part:
            break
        padded = np.zeros(PADDED, np.int32)
        padded[: len(part)] = part
        where = PromptChunk(np.int32(SLOT), np.array(PAGES, np.int32), np.int32(start), np.int32(len(part)))
        score, out, state = prompt(state, where, padded)
        scores.append(np.asarray(score)[: len(part)])
        streams.append([np.asarray(layer)[: len(part)] for layer in (*out.layers[:-1], out.normed)])
        start += len(part)
    return np.concatenate(scores), [np.concatenate(layer) for layer in zip(*streams, strict=True)], state


def check_states(state: TextState, name: str, tokens: int) -> None:
    """Within 1e-4 of each state's largest value."""

    def close(ours: np.ndarray, theirs: np.ndarray) -> None:
        np.testing.assert_allclose(ours, theirs, atol=1e-4 * float(np.abs(theirs).max()))

    linear = [layer for layer, kind in enumerate(CONFIG.layer_types) if kind == "linear_attention"]
    full = [layer for layer, kind in enumerate(CONFIG.layer_types) if kind == "full_attention"]
    for layer, recurrent, conv in zip(linear, state.recurrent, state.conv, strict=True):
        close(np.asarray(recurrent)[SLOT], EXPECTED[f"{name}.state.{layer}.recurrent"])
        close(np.asarray(conv)[SLOT], EXPECTED[f"{name}.state.{layer}.conv"][:, 1:])
    for layer, keys, values in zip(full, state.keys, state.values, strict=True):
        for pool, kind in ((keys, "k"), (values, "v")):
            lane = np.asarray(pool)[list(PAGES)].reshape(-1, CONFIG.num_key_value_heads, CONFIG.head_dim)[:tokens]
            close(lane.swapaxes(0, 1), EXPECTED[f"{name}.state.{layer}.{kind}"])


@pytest.mark.parametrize("index", [0, 1])
def test_one_prefill(index: int) -> None:
    tokens = golden().prompts[index]
    scores, streams, state = feed(tokens, [PADDED])
    np.testing.assert_allclose(scores, EXPECTED[f"p{index}.logits"], atol=1e-3)
    for layer, stream in enumerate(streams):
        np.testing.assert_allclose(stream, EXPECTED[f"p{index}.hidden.{layer}"], atol=1e-3)
    check_states(state, f"p{index}", len(tokens))


@pytest.mark.parametrize("size", range(1, 66))
def test_chunks_of_every_size(size: int) -> None:
    """Off the grid too, where the engine never starts a chunk."""
    tokens = golden().prompts[1]
    scores, streams, state = feed(tokens, [size])
    np.testing.assert_allclose(scores, EXPECTED["p1.logits"], atol=1e-3)
    for layer, stream in enumerate(streams):
        np.testing.assert_allclose(stream, EXPECTED[f"p1.hidden.{layer}"], atol=1e-3)
    check_states(state, "p1", len(tokens))


@pytest.mark.parametrize("sizes", [[64], [128], [64, 128]])
def test_chunks_on_the_grid_are_equal_in_bits(sizes: list[int]) -> None:
    tokens = golden().prompts[1]
    whole, _, state = feed(tokens, [PADDED])
    parts, _, parts_state = feed(tokens, sizes)
    np.testing.assert_array_equal(bits(whole), bits(parts))
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(parts_state), strict=True):
        np.testing.assert_array_equal(bits(one), bits(other))


@pytest.mark.parametrize("index", [0, 1])
def test_greedy_rows(index: int) -> None:
    """Decode from the prefilled state: the reference's logits and tokens. The second row is padding."""
    tokens, greedy = golden().prompts[index], golden().greedy[index]
    scores, _, state = feed(tokens, [PADDED])
    found = [int(scores[-1].argmax())]
    for step in range(len(greedy) - 1):
        where = Rows(
            np.array([SLOT, NOWHERE], np.int32),
            np.array([PAGES, PAGES], np.int32),
            np.array([len(tokens) + step] * 2, np.int32),
        )
        row, state = rows(state, where, np.array([found[-1]] * 2, np.int32))
        np.testing.assert_allclose(row[0], EXPECTED[f"p{index}.greedy_logits"][step + 1], atol=1e-3)
        found.append(int(row[0].argmax()))
    assert tuple(found) == greedy


def test_the_prompt_one_token_at_a_time() -> None:
    """The recurrent form over a whole prompt agrees with the chunked one."""
    state = zero_state(CONFIG, pages=8, slots=2)
    for position, token in enumerate(golden().prompts[1]):
        where = Rows(
            np.array([SLOT, NOWHERE], np.int32), np.array([PAGES] * 2, np.int32), np.array([position] * 2, np.int32)
        )
        row, state = rows(state, where, np.array([token] * 2, np.int32))
        np.testing.assert_allclose(row[0], EXPECTED["p1.logits"][position], atol=1e-3)
    check_states(state, "p1", position + 1)


@cache
def whole() -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Both prompts as one batch from zero states: logits, residual streams, logits of the prediction head."""
    longest = max(map(len, golden().prompts))
    tokens = jnp.array([prompt + (0,) * (longest - len(prompt)) for prompt in golden().prompts])
    following = [(*prompt[1:], greedy[0]) for prompt, greedy in zip(golden().prompts, golden().greedy, strict=True)]
    following = [row + (0,) * (longest - len(row)) for row in following]

    @jax.jit
    def run(weights: TextWeights) -> tuple[jax.Array, tuple[jax.Array, ...], jax.Array]:
        hidden = sequence_hidden(CONFIG, weights, tokens)
        layers = (*sequence_layers(CONFIG, weights, tokens)[:-1], hidden)
        ahead = mtp_sequence_logits(CONFIG, weights, hidden, jnp.array(following))
        return sequence_logits(CONFIG, weights, tokens), layers, ahead

    scores, layers, ahead = run(WEIGHTS)
    return np.asarray(scores), [np.asarray(layer) for layer in layers], np.asarray(ahead)


@pytest.mark.parametrize("index", [0, 1])
def test_whole_sequences(index: int) -> None:
    scores, layers, _ = whole()
    length = len(golden().prompts[index])
    np.testing.assert_allclose(scores[index, :length], EXPECTED[f"p{index}.logits"], atol=1e-3)
    for layer, stream in enumerate(layers):
        np.testing.assert_allclose(stream[index, :length], EXPECTED[f"p{index}.hidden.{layer}"], atol=1e-3)


@pytest.mark.parametrize("index", [0, 1])
def test_the_prediction_head(index: int) -> None:
    length = len(golden().prompts[index])
    np.testing.assert_allclose(whole()[2][index, :length], EXPECTED[f"p{index}.mtp_logits"], atol=1e-3)


@pytest.mark.slow
def test_gradients_are_finite_and_do_not_depend_on_remat() -> None:
    tokens = jnp.array([golden().prompts[1][:80]])

    def loss(weights: object, remat: bool) -> jax.Array:
        scores = sequence_logits(CONFIG, weights, tokens, remat=remat)  # type: ignore[arg-type]
        picked = jax.nn.log_softmax(scores[:, :-1])
        return -jnp.take_along_axis(picked, tokens[:, 1:, None], -1).mean()

    gradient = jax.jit(jax.grad(loss), static_argnums=1)
    plain, again = gradient(WEIGHTS, False), gradient(WEIGHTS, True)
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(again), strict=True):
        assert bool(jnp.isfinite(one).all())
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_rows_without_a_token_are_never_likely() -> None:
    scores = logits(WEIGHTS, jnp.ones((2, CONFIG.hidden_size)), used_tokens=300)
    assert bool((scores[:, 300:] == -jnp.inf).all())
    assert bool(jnp.isfinite(scores[:, :300]).all())


def test_the_grid_is_a_page() -> None:
    """Chunks of the delta rule, tiles of a prefill and pages of keys share one grid: rule 8 of the architecture."""
    from ninfer.engine.model.delta_net import CHUNK_TOKENS

    assert CHUNK_TOKENS == PAGE_TOKENS == 64
