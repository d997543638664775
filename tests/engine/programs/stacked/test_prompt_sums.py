"""Sums over a prompt's rows are kernels': XLA orders them by the number of rows, which would show in their bits."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import jaxprs_in_params

from kernels_pallas.dispatch import Impl
from ninfer.engine.model.published import PUBLISHED
from ninfer.engine.programs.stacked import Stacked
from ninfer.engine.programs.stacked.prompt import Chunk, run_chunk
from ninfer.engine.programs.stacked.random import random_stacked

CONFIG = attrs.evolve(PUBLISHED["27b"], layer_types=PUBLISHED["27b"].layer_types[:4])
SUMS = ("dot", "conv_general", "reduce", "cum", "scatter-add", "argm", "sort", "top_k")
"""How the names of JAX's operations begin whose result depends on the order of what they go over."""

pytestmark = pytest.mark.filterwarnings("ignore:.*Triton backend.*:DeprecationWarning")


def sums_outside_kernels(impl: Impl, recipe: str, tokens: int) -> Counter[str]:
    """Operations of the trunk of a chunk that add numbers, but for those inside of kernels."""
    weights = jax.eval_shape(lambda: random_stacked(CONFIG, lambda name: recipe))
    form = Stacked(CONFIG, weights, kv_format="int8", impl=impl)
    memory = jax.eval_shape(partial(form.zero_memory, pages=8, slots=1, table_pages=1024))
    number = jax.ShapeDtypeStruct((), jnp.int32)
    chunk = Chunk(slot=number, pages=jax.ShapeDtypeStruct((1024,), jnp.int32), start=number, length=number)
    ids = jax.ShapeDtypeStruct((tokens,), jnp.int32)
    traced = jax.make_jaxpr(partial(run_chunk, CONFIG, impl))(weights, memory.text, chunk, ids)
    return Counter(name for name in _names(traced.jaxpr) if name.startswith(SUMS))


def _names(jaxpr: Any) -> Iterator[str]:
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        if equation.primitive.name not in ("pallas_call", "core_map"):
            for inner in jaxprs_in_params(equation.params):
                yield from _names(inner)


@pytest.mark.parametrize(("recipe", "tokens"), [("q4_g64", 64), ("q4_g64", 4096), ("fp8_row", 1024), ("bf16", 256)])
@pytest.mark.usefixtures("h200")  # not for the GPU: with its jax come the kernels of products
def test_xla_sums_nothing(recipe: str, tokens: int) -> None:
    assert not sums_outside_kernels("kernel", recipe, tokens)


def test_without_kernels_it_does() -> None:
    assert sums_outside_kernels("reference", "q4_g64", 64)["dot_general"] > 0
