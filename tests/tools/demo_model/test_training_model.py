"""The training form is the engine's model: same hidden states and drafts, each conversation as if it were alone."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ninfer.engine.model import sequence
from tools.demo_model import checkpoint, decode, geometry, model

CONFIG = geometry.tiny()
TOKENS = np.random.default_rng(2).integers(0, CONFIG.vocab_size, (2, 192)).astype(np.int32)


@pytest.fixture(scope="module")
def params() -> Any:
    fresh = model.fresh(CONFIG, 0)
    rng = np.random.default_rng(1)
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf + 0.05 * rng.standard_normal(leaf.shape).astype(np.float32)), fresh
    )


@pytest.mark.slow
def test_hidden_states_and_drafts_equal_the_engines(params: Any) -> None:
    starts = np.zeros(TOKENS.shape, bool)
    starts[:, 0] = starts[0, 100] = True

    @jax.jit
    def ours(params: Any) -> tuple[jax.Array, jax.Array]:
        hidden, segment = model.trunk(params, TOKENS, starts, CONFIG, jnp.float32)
        return hidden, model.logits(params, model.mtp_depths(params, hidden, TOKENS, segment, 2, CONFIG)[0])

    @jax.jit
    def the_engines(params: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        weights = model.to_weights(params)
        whole = sequence.sequence_hidden(CONFIG, weights, TOKENS[1:])
        second = sequence.sequence_hidden(CONFIG, weights, TOKENS[:1, 100:])
        return whole, second, sequence.mtp_sequence_logits(CONFIG, weights, whole, np.roll(TOKENS[1:], -1, 1))

    hidden, drafts = ours(params)
    whole, second, expected = the_engines(params)
    np.testing.assert_allclose(hidden[1], whole[0], atol=2e-4)
    np.testing.assert_allclose(hidden[0, 100:], second[0], atol=2e-4)
    np.testing.assert_allclose(drafts[1], expected[0], atol=1e-3)


def test_the_second_draft_sees_the_keys_of_the_first_ones_frontier(params: Any) -> None:
    """Depth 2 at p may not read depth-1 keys of p: they hold token p + 1 beside the trunk's state of p."""
    segment = jnp.zeros((1, 64), jnp.int32)
    hidden = jax.random.normal(jax.random.key(0), (1, 64, CONFIG.hidden_size))
    tokens = jnp.asarray(TOKENS[:1, :64])

    @jax.jit
    def second(hidden: jax.Array) -> jax.Array:
        return model.mtp_depths(params, hidden, tokens, segment, 2, CONFIG)[1][0, 40]

    changed = second(hidden.at[0, 40].add(1.0))
    np.testing.assert_array_equal(changed, second(hidden))
    assert np.abs(second(hidden.at[0, 39].add(1.0)) - changed).max() > 1e-4


@pytest.mark.slow
def test_greedy_decoding_follows_the_trunk(params: Any) -> None:
    known = TOKENS[1, :70].tolist()
    reply = decode.complete(params, [known, TOKENS[1, :30].tolist()], 3, 0, CONFIG, batch=2, length=128)[0]

    @jax.jit
    def scores(row: jax.Array) -> jax.Array:
        hidden, _ = model.trunk(params, row, jnp.eye(1, 128, dtype=bool), CONFIG, jnp.float32)
        return model.logits(params, hidden)[0]

    for token in reply:
        row = jnp.array([known + [0] * (128 - len(known))], jnp.int32)
        assert token == int(jnp.argmax(scores(row)[len(known) - 1]))
        known.append(token)


def test_embedding_gradient_is_the_scatters(params: Any) -> None:
    def total(rows: jax.Array) -> jax.Array:
        return jnp.sum(rows**2)

    own = jax.grad(lambda table: total(model.embed(table, TOKENS)))(params["embed"])
    plain = jax.grad(lambda table: total(table[TOKENS]))(params["embed"])
    np.testing.assert_allclose(own, plain, atol=1e-5)


def test_checkpoints_come_back_as_bfloat16(params: Any, tmp_path: Path) -> None:
    checkpoint.save_small(params, tmp_path, "m", part_bytes=1 << 20)
    assert len(list(tmp_path.iterdir())) > 1
    back = checkpoint.load_small(params, tmp_path, "m")
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1 / 128), back, params)
    with pytest.raises(ValueError, match="numbers, but the model has"):
        checkpoint.load_small({"other": np.zeros(3)}, tmp_path, "m")


def test_parameters_survive_the_engines_form(params: Any) -> None:
    back = model.from_weights(model.to_weights(params))
    assert jax.tree.structure(back) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, back, params)
