"""The delta net over a prompt: the reference against the engine's formulas, and cuts that do not show."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas.gdn_chunk import gdn_chunk
from kernels_pallas.gdn_chunk.reference import gdn_chunk_reference
from kernels_pallas.gdn_chunk.specs import chunk_specs
from kernels_pallas.gdn_chunk.triton import gdn_chunk_triton
from kernels_pallas.gdn_step import GdnState
from kernels_pallas.gdn_step.reference import gdn_step_reference
from kernels_pallas.target import Target, alias_bytes, count_kernels, lower_for_cuda, temp_bytes
from ninfer.engine.model import delta_net
from tests.kernels_pallas.gdn_step.cases import (
    EPS,
    TINY,
    config_of,
    engine_norm,
    engine_weights,
    products,
    random_rows,
    random_state,
    random_weights,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*Triton backend.*:DeprecationWarning")

LAYER, SLOT, TOKENS = 1, 2, 192
reference = jax.jit(functools.partial(gdn_chunk_reference, eps=EPS, out_dtype=jnp.dtype("float32")))
kernel = jax.jit(functools.partial(gdn_chunk_triton, eps=EPS, out_dtype=jnp.dtype("float32"), interpret=True))
step = jax.jit(functools.partial(gdn_step_reference, eps=EPS, out_dtype=jnp.dtype("float32")))


def ints(*values: int) -> jax.Array:
    return jnp.asarray(values, jnp.int32)


@functools.cache
def prompt(seed: int = 3, tokens: int = TOKENS) -> tuple[jax.Array, jax.Array]:
    """projected and scores of a random prompt."""
    projected, x = random_rows(seed, tokens)
    return projected, products(random_weights(0), LAYER, x)


def run(state: GdnState, at: int, tokens: int, count: int, form=reference) -> tuple[jax.Array, GdnState]:  # type: ignore[no-untyped-def]
    """`count` tokens of the prompt from `at` on, in a call for `tokens`."""
    part = tuple(jnp.pad(array, ((0, TOKENS), (0, 0)), constant_values=7.0)[at : at + tokens] for array in prompt())
    result: tuple[jax.Array, GdnState] = form(
        *part, state, random_weights(0), ints(LAYER), ints(SLOT), ints(at), ints(count)
    )
    return result


@jax.jit
def engine(count: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The prompt through the engine's functions: output before out_proj, state."""
    mixed, z = jnp.split(prompt()[0], [TINY.channels], axis=-1)
    weights = engine_weights(random_weights(0), LAYER, TINY)
    gates = delta_net.project(weights, jnp.concatenate(prompt(), axis=-1))
    convolved = delta_net.convolve(weights, mixed, jnp.zeros((TINY.channels, 3)))
    heads = delta_net.split_heads(config_of(TINY), convolved)
    zero = jnp.zeros((TINY.value_heads, TINY.key_dim, TINY.value_dim))
    out, state = delta_net.delta_rule_prompt(zero, heads, gates.log_decay, gates.beta, count)
    return engine_norm(weights, out, z), state


@pytest.mark.parametrize("count", [1, 2, 64, 100, 128, TOKENS])
def test_the_reference_is_the_engine(count: int) -> None:
    out, after = run(random_state(1), 0, TOKENS, count)
    expected, state = engine(jnp.int32(count))
    np.testing.assert_allclose(out[:count], expected[:count], atol=2e-4)
    assert not np.asarray(out[count:]).any()
    np.testing.assert_allclose(after.recurrent[LAYER, SLOT], state, atol=2e-5)
    for back in range(1, min(count, 3) + 1):
        np.testing.assert_array_equal(
            after.conv[LAYER, SLOT, (count - back) % 4], prompt()[0][count - back, : TINY.channels]
        )


@pytest.mark.parametrize("cut", [64, 128])
def test_cuts_on_the_grid_do_not_show(cut: int) -> None:
    whole, end = run(random_state(1), 0, TOKENS, 150)
    first, middle = run(random_state(1), 0, cut, cut)
    second, last = run(middle, cut, TOKENS, 150 - cut)
    np.testing.assert_array_equal(jnp.concatenate([first, second])[:150], whole[:150])
    for left, right in zip(jax.tree.leaves(last), jax.tree.leaves(end), strict=True):
        np.testing.assert_array_equal(np.asarray(left)[LAYER, SLOT], np.asarray(right)[LAYER, SLOT])


@pytest.mark.parametrize("start", [1, 2, 3, 65, 130])
def test_steps_go_on_where_a_prompt_ended(start: int) -> None:
    """The convolution's ring and the state have one meaning for both forms."""
    weights = random_weights(0)
    whole, end = run(random_state(1), 0, TOKENS, start + 5)
    _, state = run(random_state(1), 0, TOKENS, start)
    x = random_rows(3, TOKENS)[1]
    for position in range(start, start + 5):
        own = jax.tree.map(lambda array, at=position: array[at : at + 1], x)
        projected = prompt()[0][position : position + 1]
        out, state = step(projected, own, state, weights, ints(LAYER), ints(SLOT), ints(position))
        np.testing.assert_allclose(out.values[0], whole[position], atol=2e-4)
    np.testing.assert_allclose(state.recurrent, end.recurrent, atol=2e-5)


def test_other_slots_and_layers_stay() -> None:
    before = random_state(1)
    _, after = run(before, 0, 64, 10)
    for old, new in ((before.recurrent, after.recurrent), (before.conv, after.conv)):
        same = np.asarray(old == new).reshape(*old.shape[:2], -1).all(axis=-1)
        assert same.tolist() == [[True, True, True], [True, True, False]]


@pytest.mark.parametrize("count", [1, 150])
def test_the_kernel_is_the_reference(count: int) -> None:
    """Queries, keys and values are float16 in the kernel: half a thousandth of the largest value."""
    (expected, state), (got, after) = (run(random_state(1), 0, TOKENS, count, form) for form in (reference, kernel))
    assert float(jnp.sqrt(jnp.mean((got - expected) ** 2) / jnp.mean(expected**2))) < 2e-3
    assert not np.asarray(got[count:]).any()
    np.testing.assert_allclose(after.recurrent, state.recurrent, atol=3e-3)
    np.testing.assert_array_equal(after.conv, state.conv)


def test_cuts_on_the_grid_do_not_show_in_the_kernel() -> None:
    whole, end = run(random_state(1), 0, TOKENS, 150, kernel)
    first, middle = run(random_state(1), 0, 64, 64, kernel)
    second, last = run(middle, 64, 128, 86, kernel)
    np.testing.assert_array_equal(jnp.concatenate([first, second]), whole)
    for left, right in zip(jax.tree.leaves(last), jax.tree.leaves(end), strict=True):
        np.testing.assert_array_equal(left, right)


def on_the_27b(*arguments: object) -> object:
    return gdn_chunk(*arguments, eps=EPS, out_dtype="float16", impl="triton")  # type: ignore[arg-type]


def test_five_launches() -> None:
    launched = count_kernels(lower_for_cuda(on_the_27b, *chunk_specs(8192)))
    assert launched == {"gdn_convolve": 2, "gdn_prepare": 1, "gdn_scan": 1, "gdn_finish": 1}


def test_the_state_is_changed_in_place(h200: Target) -> None:
    specs = chunk_specs(512)
    compiled = h200.compile(jax.jit(on_the_27b, donate_argnums=2), *h200.like(specs))
    assert alias_bytes(compiled) == sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(specs[2]))
    assert temp_bytes(compiled) < 32 << 20


def test_what_does_not_exist_is_refused() -> None:
    arguments = (random_state(1), random_weights(0), ints(0), ints(0), ints(0), ints(1))
    with pytest.raises(ValueError, match="there are: auto, reference, triton"):
        gdn_chunk(*prompt(), *arguments, eps=EPS, out_dtype="float16", impl="mosaic")
    with pytest.raises(ValueError, match="multiple of 64"):
        gdn_chunk(*(part[1:] for part in prompt()), *arguments, eps=EPS, out_dtype="float16")
