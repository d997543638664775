"""Which form a stored model runs in."""

import attrs
import numpy as np
import pytest
from numpy.typing import NDArray

from ninfer.engine.model.config import TextConfig
from ninfer.engine.programs.forms import FormError, plan_form
from ninfer.engine.programs.stacked import matrix_shapes
from ninfer.engine.programs.stacked.weights import Packed
from ninfer.engine.types import EngineLimits, KvDtype
from tests.engine.model.golden import golden

LIMITS = EngineLimits(max_context_tokens=128, lanes=2, kv_capacity_tokens=256, prefill_chunk_tokens=64)


@attrs.frozen
class Tensor:
    """A record as an artifact has it."""

    format: "Name"
    layout: "Name"


@attrs.frozen
class Name:
    """Something with a name."""

    name: str


@attrs.frozen
class Stored:
    """An artifact of which nobody reads a byte."""

    tensors: dict[str, Tensor]

    def packed(self, name: str) -> Packed:
        raise AssertionError(f"{name} was read")

    def read(self, name: str) -> NDArray[np.float32]:
        raise AssertionError(f"{name} was read")


def stored(config: TextConfig, *, plain: str | None = None) -> Stored:
    """Every matrix packed, but for the one called `plain`."""
    return Stored(
        {
            name: Tensor(Name("q4_g64"), Name("contiguous" if name == plain else "fragment"))
            for name in matrix_shapes(config)
        }
    )


CONFIG = attrs.evolve(golden().config, intermediate_size=128)


@pytest.mark.parametrize(
    ("plain", "on_gpu", "kv_dtype", "form"),
    [
        (None, True, "bf16", "stacked"),
        (None, True, "int8", "stacked"),
        (None, True, "fp8", "stacked"),
        (None, False, "bf16", "per layer"),
        ("layers.1.mlp.up_proj.weight", True, "bf16", "per layer"),
    ],
)
def test_choice(plain: str | None, on_gpu: bool, kv_dtype: KvDtype, form: str) -> None:
    assert plan_form(CONFIG, stored(CONFIG, plain=plain), LIMITS, kv_dtype=kv_dtype, on_gpu=on_gpu).name == form


@pytest.mark.contract("D40")
@pytest.mark.parametrize(
    ("plain", "on_gpu", "said"), [(None, False, "needs a GPU"), ("lm_head.weight", True, "recipe for kernels")]
)
def test_a_kv_format_is_never_ignored(plain: str | None, on_gpu: bool, said: str) -> None:
    with pytest.raises(FormError, match=f"--kv-dtype int8: .*{said}"):
        plan_form(CONFIG, stored(CONFIG, plain=plain), LIMITS, kv_dtype="int8", on_gpu=on_gpu)


@pytest.mark.contract("KVFMT-020", "KVFMT-022")
@pytest.mark.parametrize(
    ("on_gpu", "kv_dtype", "bound_bytes", "said"),
    [
        (True, "int8", 64 << 20, "within 64 MiB"),
        (True, "fp8", 0, "never split"),
        (True, "bf16", 0, "within 256 MiB"),  # has its own
        (False, "bf16", 64 << 20, "never split"),
    ],
)
def test_what_splitting_keys_may_take(on_gpu: bool, kv_dtype: KvDtype, bound_bytes: int, said: str) -> None:
    plan = plan_form(
        CONFIG, stored(CONFIG), LIMITS, kv_dtype=kv_dtype, split_workspace_bytes=bound_bytes, on_gpu=on_gpu
    )
    assert said in plan.splitting


def test_fewer_bits_need_less() -> None:
    def needs(kv_dtype: KvDtype) -> tuple[int, int]:
        plan = plan_form(CONFIG, stored(CONFIG), LIMITS, kv_dtype=kv_dtype, on_gpu=True)
        return plan.needs.page_bytes, plan.needs.weights_bytes

    assert needs("int8")[0] < needs("bf16")[0]
    assert needs("int8")[1] == needs("bf16")[1]
    per_layer = plan_form(CONFIG, stored(CONFIG), LIMITS, kv_dtype="bf16", on_gpu=False)
    assert needs("bf16")[1] < per_layer.needs.weights_bytes / 2
