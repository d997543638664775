"""The sampler options of `serve`: unset by default, in range, and stronger than the model's presets."""

import subprocess
import sys
from typing import Any

import pytest

from ninfer.cli.options import SamplerOptions
from ninfer.conversation import SamplingFields
from ninfer.service import SamplerRules

ROWS = [
    # option, the field of a resolved sampler, a value that no preset has, the preset of the dense models in thinking
    pytest.param("temperature", 0.25, 1.0, marks=pytest.mark.contract("OPT-067")),
    pytest.param("top_p", 0.5, 0.95, marks=pytest.mark.contract("OPT-068")),
    pytest.param("top_k", 7, 20, marks=pytest.mark.contract("OPT-069")),
    pytest.param("min_p", 0.125, 0.0, marks=pytest.mark.contract("OPT-070")),
    pytest.param("presence_penalty", -0.5, 0.0, marks=pytest.mark.contract("OPT-071")),
    pytest.param("frequency_penalty", 1.5, 0.0, marks=pytest.mark.contract("OPT-072")),
]


def resolved(flags: SamplerOptions, **asked: Any) -> Any:
    rules = SamplerRules(architecture="qwen3_5", flags=flags.fields(), greedy=flags.greedy, new_seed=lambda: 99)
    return rules.resolve(SamplingFields(**asked), thinking=True)


@pytest.mark.parametrize(("name", "value", "preset"), ROWS)
def test_an_option_overrides_the_preset_and_a_request_the_option(name: str, value: float, preset: float) -> None:
    assert getattr(SamplerOptions(), name) is None
    assert getattr(resolved(SamplerOptions()), name) == preset
    assert getattr(resolved(SamplerOptions(**{name: value})), name) == value
    other = type(value)(1)
    assert getattr(resolved(SamplerOptions(**{name: value}), **{name: other}), name) == other


@pytest.mark.contract("OPT-069")
def test_a_top_k_of_zero_is_the_cap() -> None:
    assert resolved(SamplerOptions(top_k=0)).top_k == 0


@pytest.mark.contract("OPT-073")
def test_the_seed_is_for_requests_that_give_none() -> None:
    assert resolved(SamplerOptions()).seed == 99
    assert resolved(SamplerOptions(seed=-4)).seed == -4
    assert resolved(SamplerOptions(seed=-4), seed=5).seed == 5


@pytest.mark.contract("OPT-074")
def test_greedy_is_for_all_requests() -> None:
    assert SamplerOptions().greedy is False
    assert resolved(SamplerOptions(greedy=True, temperature=1.5), temperature=2.0).temperature == 0


@pytest.mark.contract("OPT-014", "OPT-017")
@pytest.mark.parametrize(
    ("flag", "kv_dtype", "said"),
    [
        ("--use-original-int8-prefill-kernel", None, "only with --kv-dtype int8"),
        ("--use-original-int8-prefill-kernel", "nvfp4", "only with --kv-dtype int8"),
        ("--use-original-nvfp4-prefill-kernel", None, "only with --kv-dtype nvfp4"),
        ("--use-original-nvfp4-prefill-kernel", "nvfp4", "not in this build"),
    ],
)
def test_a_prefill_kernel_belongs_to_its_format(flag: str, kv_dtype: str | None, said: str) -> None:
    command = [sys.executable, "-m", "ninfer", "serve", flag, *([] if kv_dtype is None else ["--kv-dtype", kv_dtype])]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.endswith(said)
