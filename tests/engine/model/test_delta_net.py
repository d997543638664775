"""The delta rule: both forms against float64 numpy, and the chunk inverse on keys that break the easy ways."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer.engine.model import delta_net
from ninfer.engine.model.delta_net import Heads
from tests.engine.model.golden import bits

TOKENS, HEADS, KEY, VALUE = 192, 2, 16, 8


def oracle(state: np.ndarray, query: np.ndarray, key: np.ndarray, value: np.ndarray, g: np.ndarray, beta: np.ndarray):  # type: ignore[no-untyped-def]
    """float64, one token and one head at a time: output [T, Hv, dv], states [T, Hv, dk, dv]."""
    state = state.astype(np.float64)
    outputs, states = [], []
    for t in range(len(query)):
        state = state * np.exp(g[t].astype(np.float64))[:, None, None]
        error = value[t] - np.einsum("hkv,hk->hv", state, key[t])
        state = state + np.einsum("hk,hv->hkv", key[t], beta[t][:, None] * error)
        outputs.append(np.einsum("hkv,hk->hv", state, query[t]))
        states.append(state)
    return np.stack(outputs), np.stack(states)


def inputs(seed: int, correlation: float, decay: float):  # type: ignore[no-untyped-def]
    """A random case; `correlation` near 1 makes all keys alike, `decay` scales how fast the state is forgotten."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal((1, HEADS, KEY))
    key = correlation * common + (1 - correlation) * rng.standard_normal((TOKENS, HEADS, KEY))
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    query = rng.standard_normal((TOKENS, HEADS, KEY))
    query /= np.linalg.norm(query, axis=-1, keepdims=True) * KEY**0.5
    value = rng.standard_normal((TOKENS, HEADS, VALUE))
    g = -decay * rng.exponential(size=(TOKENS, HEADS))
    beta = rng.uniform(0, 1, (TOKENS, HEADS))
    state = rng.standard_normal((HEADS, KEY, VALUE))
    return tuple(x.astype(np.float32) for x in (state, query, key, value, g, beta))


@jax.jit
def chunked(state, query, key, value, g, beta, count):  # type: ignore[no-untyped-def]
    return delta_net.delta_rule_prompt(state, Heads(query, key, value), g, beta, count)


@jax.jit
def in_sequence(state, query, key, value, g, beta):  # type: ignore[no-untyped-def]
    state, query, key, value, g, beta = (part[None] for part in (state, query, key, value, g, beta))
    out, state = delta_net.delta_rule_sequence(state, Heads(query, key, value), g, beta)
    return out[0], state[0]


@jax.jit
def recurrent(state, query, key, value, g, beta):  # type: ignore[no-untyped-def]
    def step(state, row):  # type: ignore[no-untyped-def]
        query, key, value, g, beta = (part[None] for part in row)
        out, state = delta_net.recurrent_step(state, Heads(query, key, value), g, beta)
        return state, (out[0], state[0])

    return jax.lax.scan(step, state[None], (query, key, value, g, beta))[1]


@settings(max_examples=25)
@given(
    seed=st.integers(0, 1 << 30),
    correlation=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    decay=st.sampled_from([0.0, 0.01, 1.0, 40.0]),
    count=st.integers(1, TOKENS),
)
def test_all_forms_agree_with_the_oracle(seed: int, correlation: float, decay: float, count: int) -> None:
    case = inputs(seed, correlation, decay)
    expected, states = oracle(*case)
    scale = max(1.0, float(np.abs(states).max()))
    for out, state, upto in (
        (*chunked(*case, count), count),
        (*in_sequence(*case), TOKENS),
        (lambda out, state: (out, state[-1], TOKENS))(*recurrent(*case)),
    ):
        np.testing.assert_allclose(out[:upto], expected[:upto], atol=1e-4 * scale)
        np.testing.assert_allclose(state, states[upto - 1], atol=1e-4 * scale)


invert = jax.jit(delta_net.unit_lower_inverse)


@given(strict=st.sampled_from([0.0, 0.3, 1.0]), seed=st.integers(0, 1 << 30))
@settings(max_examples=10)
def test_the_inverse_is_one(strict: float, seed: int) -> None:
    """With equal keys all entries are about beta: there powers of the matrix overflow float32's precision."""
    matrix = np.tril(np.full((64, 64), strict) * np.random.default_rng(seed).uniform(0.9, 1, (64, 64)), -1)
    inverse = invert(matrix.astype(np.float32))
    np.testing.assert_allclose(inverse @ (np.eye(64) + matrix), np.eye(64), atol=1e-5)


def test_the_inverse_has_the_derivative_of_an_inverse() -> None:
    rng = np.random.default_rng(0)
    matrix = jnp.asarray(np.tril(rng.standard_normal((64, 64)), -1) * 0.1, jnp.float32)
    pull = jnp.asarray(rng.standard_normal((64, 64)), jnp.float32)
    ours = jax.jit(jax.grad(lambda m: (delta_net.unit_lower_inverse(m) * pull).sum()))(matrix)
    solved = np.linalg.inv(np.eye(64) + np.asarray(matrix, np.float64)).T
    plain = np.tril(-(solved @ np.asarray(pull, np.float64) @ solved), -1)
    np.testing.assert_allclose(ours, plain, atol=1e-3)


@pytest.mark.parametrize("cut", [1, 2, 3, 63, 64, 65, 100, 191])
def test_the_convolution_does_not_see_where_it_was_cut(cut: int) -> None:
    rng = np.random.default_rng(cut)
    mixed = jnp.asarray(rng.standard_normal((TOKENS, 24)), jnp.float32)
    tail = jnp.asarray(rng.standard_normal((24, 3)), jnp.float32)
    taps = jnp.asarray(rng.standard_normal((24, 4)), jnp.float32)
    whole = convolved(taps, mixed, tail)
    first = convolved(taps, mixed[:cut], tail)
    middle = delta_net.join_tail(mixed, tail)[cut : cut + 3].T
    second = convolved(taps, mixed[cut:], middle)
    np.testing.assert_array_equal(np.concatenate([bits(first), bits(second)]), bits(whole))


class _ConvolutionOnly:
    def __init__(self, conv1d: jax.Array) -> None:
        self.conv1d = conv1d


@jax.jit
def convolved(taps: jax.Array, mixed: jax.Array, tail: jax.Array) -> jax.Array:
    return delta_net.convolve(_ConvolutionOnly(taps), mixed, tail)  # type: ignore[arg-type]


@pytest.mark.parametrize(("heads", "key_width", "value_width"), [(6, 64, 64), (1, 64, 64), (6, 16, 32), (2, 128, 128)])
def test_a_row_alone_has_the_bits_that_it_has_among_eight(heads: int, key_width: int, value_width: int) -> None:
    rng = np.random.default_rng(heads)
    query, key = rng.standard_normal((2, 8, heads, key_width)).astype(np.float32)
    value = rng.standard_normal((8, heads, value_width)).astype(np.float32)
    state = rng.standard_normal((8, heads, key_width, value_width)).astype(np.float32)
    gates = -rng.exponential(size=(8, heads)).astype(np.float32), rng.uniform(0, 1, (8, heads)).astype(np.float32)
    step = jax.jit(delta_net.recurrent_step)
    whole = step(state, Heads(query, key, value), *gates)
    for count in (1, 2, 3):
        first = Heads(query[:count], key[:count], value[:count])
        for part, rows in zip(step(state[:count], first, *(gate[:count] for gate in gates)), whole, strict=True):
            np.testing.assert_array_equal(bits(part), bits(rows)[:count])
