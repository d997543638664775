"""The step benchmark reads variants as its help says, and each variant lowers to the same kernels."""

from functools import partial

import attrs
import jax
import pytest

from benchmarks.gpu_step import Bench, read_variant
from kernels_pallas.target import count_kernels, lower_for_cuda
from ninfer.engine.bench.subject import matrix_formats
from ninfer.engine.model.published import PUBLISHED
from ninfer.engine.programs.stacked.random import random_stacked
from ninfer.engine.programs.stacked.reading import MIB, READING, ReadingPlan, Wish

pytestmark = pytest.mark.filterwarnings("ignore:.*Triton backend.*:DeprecationWarning")


@pytest.mark.parametrize(
    ("text", "plan", "changes"),
    [
        ("-", READING, {}),
        ("none", ReadingPlan(), {}),
        ("none,in.out=0.5", ReadingPlan(mixer_in=(Wish("mixer_out", MIB // 2),)), {}),
        ("down.next=0", attrs.evolve(READING, down=()), {}),
        ("down.warps=8,attend.splits=64", READING, {"down": {"warps": 8}, "attend": {"splits": 64}}),
        ("all.release=0", READING, {name: {"release": 0} for name in ("in", "out", "gate_up", "down", "head")}),
    ],
)
def test_what_a_variant_means(text: str, plan: ReadingPlan, changes: dict[str, dict[str, int]]) -> None:
    assert read_variant(text) == (plan, changes)


def test_a_kernel_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="there are in, out"):
        read_variant("gate.warps=8")


def test_variants_run_the_same_kernels() -> None:
    config = attrs.evolve(PUBLISHED["27b"], layer_types=PUBLISHED["27b"].layer_types[:4])
    weights = jax.eval_shape(lambda: random_stacked(config, matrix_formats(config, "q4").__getitem__))
    bench = Bench(config=config, weights=weights, kv_format="int8", rows=1, context_tokens=1024, steps=64)

    def kernels(text: str) -> int:
        form = bench.form(text)
        step = partial(form.decode_step, config.vocab_size)
        lowered = lower_for_cuda(step, weights, jax.eval_shape(bench.memory), bench.plan(form, 0))
        return sum(count_kernels(lowered).values())

    assert kernels("-") == kernels("none,out.release=0,attend.splits=64,down.warps=8") == 3 * 5 + 6 + 1 + 2
