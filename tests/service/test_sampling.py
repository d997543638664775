"""Which sampler a request gets."""

import attrs
import pytest

from ninfer.conversation import SamplingFields
from ninfer.engine.types import Sampling
from ninfer.service.sampling import SamplerRules, fresh_seed

NOTHING = SamplingFields()


def resolve(
    asked: SamplingFields = NOTHING,
    flags: SamplingFields = NOTHING,
    *,
    architecture: str = "qwen3_5",
    thinking: bool = True,
    greedy: bool = False,
) -> Sampling:
    rules = SamplerRules(architecture=architecture, flags=flags, greedy=greedy, new_seed=lambda: 77)
    return rules.resolve(asked, thinking=thinking)


@pytest.mark.parametrize(
    ("architecture", "thinking", "expected"),
    [
        pytest.param("qwen3_5", True, (1.0, 0.95, 20, 0.0, 0.0, 0.0), marks=pytest.mark.contract("SAMP-002")),
        pytest.param("qwen3_5", False, (0.7, 0.80, 20, 0.0, 1.5, 0.0), marks=pytest.mark.contract("SAMP-003")),
        pytest.param("qwen3_5_moe", True, (1.0, 0.95, 20, 0.0, 1.5, 0.0), marks=pytest.mark.contract("SAMP-004")),
        pytest.param("qwen3_5_moe", False, (0.7, 0.80, 20, 0.0, 1.5, 0.0), marks=pytest.mark.contract("SAMP-004")),
        pytest.param("anything", True, (1.0, 0.95, 20, 0.0, 0.0, 0.0), marks=pytest.mark.contract("SAMP-009")),
        pytest.param("anything", False, (0.7, 0.80, 20, 0.0, 1.5, 0.0), marks=pytest.mark.contract("SAMP-009")),
    ],
)
@pytest.mark.contract("SAMP-001")
def test_presets(architecture: str, thinking: bool, expected: tuple[float, ...]) -> None:
    found = resolve(architecture=architecture, thinking=thinking)
    assert (
        found.temperature, found.top_p, found.top_k, found.min_p, found.presence_penalty, found.frequency_penalty,
    ) == expected  # fmt: skip
    assert found.seed == 77


ASKED = SamplingFields(
    temperature=0.0, top_p=0.0, top_k=0, min_p=0.0, presence_penalty=0.0, frequency_penalty=0.0, seed=0
)
FLAGS = SamplingFields(
    temperature=0.3, top_p=0.4, top_k=5, min_p=0.1, presence_penalty=0.6, frequency_penalty=0.8, seed=9
)


@pytest.mark.contract("SAMP-005", "SAMP-006")
@pytest.mark.parametrize("name", [field.name for field in attrs.fields(SamplingFields)])
@pytest.mark.parametrize("thinking", [False, True])
def test_precedence_of_every_value(name: str, thinking: bool) -> None:
    preset = getattr(resolve(thinking=thinking), name)
    asked = SamplingFields(**{name: getattr(ASKED, name)})  # zeros: falsy values count as given
    flags = SamplingFields(**{name: getattr(FLAGS, name)})
    assert getattr(resolve(NOTHING, flags, thinking=thinking), name) == getattr(FLAGS, name) != preset
    assert getattr(resolve(asked, flags, thinking=thinking), name) == getattr(ASKED, name)
    assert getattr(resolve(asked, thinking=thinking), name) == getattr(ASKED, name)
    others = attrs.evolve(resolve(asked, flags, thinking=thinking), **{name: preset})
    assert others == resolve(thinking=thinking)


@pytest.mark.contract("SAMP-005")
def test_greedy_is_stronger_than_the_request() -> None:
    found = resolve(SamplingFields(temperature=1.5, seed=4), SamplingFields(temperature=0.5), greedy=True)
    assert (found.temperature, found.seed) == (0.0, 4)


@pytest.mark.contract("SAMP-007")
def test_seeds() -> None:
    fresh = {SamplerRules(architecture="x").resolve(NOTHING, thinking=True).seed for _ in range(20)}
    assert len(fresh) == 20
    assert all(0 <= fresh_seed() < 1 << 63 for _ in range(100))
    flags = SamplingFields(seed=5)
    assert resolve(NOTHING, flags).seed == 5
    assert resolve(SamplingFields(seed=-3), flags).seed == -3
    assert resolve(SamplingFields(seed=0), flags).seed == 0


@pytest.mark.contract("SAMP-006")
def test_no_request_samples_from_more_than_the_cap() -> None:
    with pytest.raises(ValueError, match="top_k"):
        resolve(SamplingFields(top_k=21))
