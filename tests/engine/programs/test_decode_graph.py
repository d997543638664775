"""The decode round of the 27B shape, compiled for an H200 that is not there: one CUDA graph, in place, few kernels.

Four layers of the real widths stand for sixty-four: what a layer costs does not depend on how many there are.
"""

from functools import partial

import attrs
import jax
import pytest

from kernels_pallas.target import (
    Target,
    command_buffers,
    compile_apart,
    count_kernels,
    lower_for_cuda,
    outside_command_buffers,
)
from ninfer.engine.bench.subject import matrix_formats
from ninfer.engine.device import DecodeRow, SampleRow
from ninfer.engine.model.published import PUBLISHED
from ninfer.engine.programs.stacked import Stacked
from ninfer.engine.programs.stacked.random import random_stacked
from ninfer.engine.types import Sampling

CONFIG = attrs.evolve(PUBLISHED["27b"], layer_types=PUBLISHED["27b"].layer_types[:4])
CONTEXT_PAGES, POOL_PAGES = 1024, 2048
DELTA_KERNELS, ATTENTION_KERNELS, HEAD_KERNELS, SELECTION_KERNELS = 5, 6, 1, 2
OTHER_LAUNCHES = 48
"""What embedding, rotary tables, page tables and the sampler may take together."""
TEMPORARY_BYTES = 24 << 20
"""Logits of eight rows and what the sampler sorts; one layer's keys and values would be more."""


def decode_program(recipe: str, kv_format: str, rows: int) -> tuple[jax.stages.Wrapped, tuple[object, object, object]]:
    """The step that `JaxDevice` compiles, and its arguments as shapes."""
    formats = matrix_formats(CONFIG, recipe)
    weights = jax.eval_shape(lambda: random_stacked(CONFIG, formats.__getitem__))
    form = Stacked(CONFIG, weights, kv_format=kv_format, impl="triton")
    memory = jax.eval_shape(lambda: form.zero_memory(pages=POOL_PAGES, slots=rows, table_pages=CONTEXT_PAGES))
    sample = SampleRow(sampling=Sampling(temperature=0), position=1)
    idle = tuple(DecodeRow(slot=slot, pages=(0,), position=0, token=1, sample=sample) for slot in range(rows))
    plan = form.pack_decode(idle, table_pages=CONTEXT_PAGES)
    step = jax.jit(partial(form.decode_step, CONFIG.vocab_size), donate_argnums=1)
    return step, (weights, memory, plan)


def compile_q4_alone(target: Target) -> jax.stages.Compiled:
    """One row, 4-bit weights."""
    step, shapes = decode_program("q4", "int8", 1)
    return target.compile(step, *target.like(shapes))


def compile_nvfp4_eight(target: Target) -> jax.stages.Compiled:
    """Eight rows, NVFP4 weights."""
    step, shapes = decode_program("nvfp4", "bf16", 8)
    return target.compile(step, *target.like(shapes))


@pytest.mark.parametrize(
    ("compiled", "recipe", "kv_format", "rows"),
    [(compile_q4_alone, "q4", "int8", 1), (compile_nvfp4_eight, "nvfp4", "bf16", 8)],
    ids=["q4 alone", "nvfp4, eight rows"],
)
def test_a_round_is_one_graph_and_copies_nothing(
    h200: Target, compiled: object, recipe: str, kv_format: str, rows: int
) -> None:
    found = compile_apart(f"{__name__}:{getattr(compiled, '__name__', '')}", "decode_step")
    assert command_buffers(found.thunks) == 1
    assert outside_command_buffers(found.thunks) == []
    step, shapes = decode_program(recipe, kv_format, rows)
    assert found.alias_bytes == sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes[1]))
    assert found.temp_bytes < TEMPORARY_BYTES
    kernels = 3 * DELTA_KERNELS + ATTENTION_KERNELS + HEAD_KERNELS + SELECTION_KERNELS
    assert sum(count_kernels(lower_for_cuda(step, *shapes)).values()) == kernels
    assert len(found.thunks) - 1 <= kernels + OTHER_LAUNCHES
