"""The delta-net step: the reference against the engine, and what the kernel compiles to (its body: test_ptx.py)."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas.gdn_step import GdnWeights, gdn_step, sizes_of, zero_state
from kernels_pallas.gdn_step.reference import gdn_step_reference
from kernels_pallas.gdn_step.specs import step_specs
from kernels_pallas.target import Target, alias_bytes, count_kernels, lower_for_cuda, temp_bytes
from ninfer.engine.model import delta_net
from tests.kernels_pallas.gdn_step.cases import (
    EPS,
    LAYERS,
    SLOTS,
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

FLOAT32 = jnp.dtype("float32")
reference = jax.jit(functools.partial(gdn_step_reference, eps=EPS, out_dtype=FLOAT32))


def ints(*values: int) -> jax.Array:
    return jnp.asarray(values, jnp.int32)


@jax.jit
def engine(weights: GdnWeights, products_ab: jax.Array, projected: jax.Array, tail: jax.Array, before: jax.Array):  # type: ignore[no-untyped-def]
    """One row of layer 1 through the engine's functions: output before out_proj, state after it."""
    own = engine_weights(weights, 1, TINY)
    gates = delta_net.project(own, jnp.concatenate([projected, products_ab], axis=-1))
    heads = delta_net.split_heads(config_of(TINY), delta_net.convolve(own, gates.mixed, tail))
    mixed, after = delta_net.recurrent_step(before[None], heads, gates.log_decay, gates.beta)
    return engine_norm(own, mixed, gates.z), after[0]


@pytest.mark.parametrize("position", [0, 1, 2, 3, 4, 7, 1001])
def test_the_reference_is_the_engine(position: int) -> None:
    weights, state, layer, slot = random_weights(position), random_state(1), 1, 2
    projected, x = random_rows(2, 1)
    out, after = reference(projected, x, state, weights, ints(layer), ints(slot), ints(position))

    ring = np.asarray(state.conv[layer, slot])
    tail = [ring[(position - back) % 4] if position >= back else np.zeros_like(ring[0]) for back in (3, 2, 1)]
    before = state.recurrent[layer, slot] * (position > 0)
    expected, last = engine(weights, products(weights, layer, x), projected, jnp.asarray(np.stack(tail, -1)), before)
    np.testing.assert_allclose(out.values, expected, atol=2e-5)
    np.testing.assert_allclose(after.recurrent[layer, slot], last, atol=1e-5)
    np.testing.assert_array_equal(after.conv[layer, slot, position % 4], projected[0, : TINY.channels])


def test_a_step_touches_its_own_slots_only() -> None:
    state = random_state(5)
    projected, x = random_rows(6, 2)
    out, after = reference(projected, x, state, random_weights(4), ints(0), ints(1, -1), ints(9, 4))
    assert np.asarray(out.values[1] == 0).all()
    untouched = np.ones((LAYERS, SLOTS), bool)
    untouched[0, 1] = False
    for old, new in ((state.recurrent, after.recurrent), (state.conv, after.conv)):
        np.testing.assert_array_equal(np.asarray(new)[untouched], np.asarray(old)[untouched])
    ring = np.asarray(after.conv[0, 1] == state.conv[0, 1]).all(axis=-1)
    assert ring.tolist() == [True, False, True, True]  # position 9 lies in row 1


def test_a_fresh_state_has_the_sizes_it_was_made_for() -> None:
    state = zero_state(layers=1, slots=2, value_heads=6, key_dim=16, value_dim=32, channels=TINY.channels)
    assert sizes_of(state) == TINY
    with pytest.raises(ValueError, match="255 channels"):
        sizes_of(dataclasses.replace(state, conv=state.conv[..., :-1]))


def test_what_does_not_exist_is_refused() -> None:
    projected, x = random_rows(0, 1)
    arguments = (x, random_state(0), random_weights(0), ints(0), ints(0), ints(0))
    with pytest.raises(ValueError, match="there are: auto, reference, triton"):
        gdn_step(projected, *arguments, eps=EPS, out_dtype="float16", impl="mosaic")
    with pytest.raises(ValueError, match="columns"):
        gdn_step(projected[:, 1:], *arguments, eps=EPS, out_dtype="float16")


def on_the_27b(*arguments: object) -> object:
    return gdn_step(*arguments, eps=EPS, out_dtype="float16", impl="triton")  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [1, 8])
def test_one_launch(rows: int) -> None:
    assert count_kernels(lower_for_cuda(on_the_27b, *step_specs(rows))) == {"gdn_step": 1}


def test_the_state_is_changed_in_place(h200: Target) -> None:
    specs = step_specs(8)
    compiled = h200.compile(jax.jit(on_the_27b, donate_argnums=2), *h200.like(specs))
    assert alias_bytes(compiled) == sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(specs[2]))
    assert temp_bytes(compiled) < 1 << 20
