"""The compile-only H200 tells of a program what the runtime would do with it."""

import warnings

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from kernels_pallas.target import (
    Target,
    alias_bytes,
    command_buffers,
    compile_apart,
    count_kernels,
    launches,
    lower_for_cuda,
    outside_command_buffers,
    temp_bytes,
)

ROWS = jax.ShapeDtypeStruct((64, 128), jnp.float32)
SCALE = jax.ShapeDtypeStruct((1,), jnp.float32)

pytestmark = pytest.mark.filterwarnings("ignore:.*Triton backend.*:DeprecationWarning")


def scaled(rows: jax.Array, scale: jax.Array) -> jax.Array:
    """`rows` [64, 128] times `scale` [1], in place."""

    def body(source: jax.Array, factor: jax.Array, target: jax.Array) -> None:
        target[...] = source[...] * factor[0]

    return pl.pallas_call(
        body,
        out_shape=ROWS,
        grid=(4,),
        in_specs=[pl.BlockSpec((16, 128), lambda tile: (tile, 0)), pl.BlockSpec((1,), lambda tile: (0,))],
        out_specs=pl.BlockSpec((16, 128), lambda tile: (tile, 0)),
        input_output_aliases={0: 0},
        compiler_params=plt.CompilerParams(num_warps=4, num_stages=2),
        name="scaled",
    )(rows, scale)


def three_times(rows: jax.Array, scale: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Three kernels in a row, two of them through one jitted part, and a sum that XLA does."""
    again = jax.jit(scaled)
    rows = scaled(again(again(rows, scale), scale), scale)
    return rows, jnp.sum(rows, axis=0)


def compile_three_times(target: Target) -> jax.stages.Compiled:
    """What `thunks` calls in its child."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        step = jax.jit(three_times, donate_argnums=0)
        return target.compile(step, *map(target.like, (ROWS, SCALE)))


def test_a_program_lowers_for_cuda_without_a_plugin() -> None:
    assert count_kernels(lower_for_cuda(three_times, ROWS, SCALE)) == {"scaled": 3}


def test_a_compiled_program_shows_its_memory(h200: Target) -> None:
    compiled = compile_three_times(h200)
    assert alias_bytes(compiled) == 64 * 128 * 4
    assert temp_bytes(compiled) < 1024


def test_a_hidden_copy_shows(h200: Target) -> None:
    compiled = h200.compile(three_times, h200.like(ROWS), h200.like(SCALE))
    assert alias_bytes(compiled) == 0


def test_the_launches_of_a_program(h200: Target) -> None:
    """Four are too few for a CUDA graph, so they stand by themselves."""
    found = compile_apart(f"{__name__}:{compile_three_times.__name__}", three_times.__name__)
    assert launches(found.thunks)["scaled"] == 3
    assert sum(launches(found.thunks).values()) == len(outside_command_buffers(found.thunks)) == 4
    assert command_buffers(found.thunks) == 0
    assert found.alias_bytes == 64 * 128 * 4


def test_what_did_not_compile_says_why(h200: Target) -> None:
    with pytest.raises(RuntimeError, match="no_such_function"):
        compile_apart(f"{__name__}:no_such_function", "anything")
