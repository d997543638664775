"""llama.cpp's observations: the figures by tables, their places in a stream."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.conversation import Committed, PromptProgress, Started, TextDelta, Timings
from ninfer.protocols.openai_chat.observations import timings_object
from ninfer.testing import finished
from tests.protocols.openai_chat.test_encode import STARTED, TIMINGS, chunks

contract = pytest.mark.contract

MEMBERS = [
    "cache_n",
    "prompt_n",
    "prompt_ms",
    "prompt_per_token_ms",
    "prompt_per_second",
    "predicted_n",
    "predicted_ms",
    "predicted_per_token_ms",
    "predicted_per_second",
]


def timings(prompt: int, cached: int, completion: int, prompt_s: float, generation_s: float) -> dict[str, Any]:
    return timings_object(
        prompt_tokens=prompt,
        cached_tokens=cached,
        completion_tokens=completion,
        timings=Timings(prompt_s=prompt_s, generation_s=generation_s),
    )


@contract("OBS-003", "OBS-004", "OBS-007", "OBS-008")
def test_the_figures_of_the_reference() -> None:
    found = timings(8192, 4096, 129, 0.083, 1.14)
    assert list(found) == MEMBERS
    assert (found["cache_n"], found["prompt_n"], found["predicted_n"]) == (4096, 4096, 129)
    assert found["prompt_per_token_ms"] == pytest.approx(0.020263671875)
    assert found["prompt_per_second"] == pytest.approx(49349.39759036145)
    assert found["predicted_per_token_ms"] == pytest.approx(8.90625)
    assert found["predicted_per_second"] == pytest.approx(112.28070175438596)


@contract("OBS-009")
@pytest.mark.parametrize(
    ("figures", "rates"),
    [
        ((10, 0, 0, 0.5, 0.0), (50.0, 20.0, 0.0, 0.0)),
        ((10, 0, 1, 0.5, 0.0), (50.0, 20.0, 0.0, 0.0)),
        ((10, 10, 5, 0.5, 0.4), (0.0, 0.0, 100.0, 10.0)),
        ((10, 0, 5, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0)),
        ((10, 0, 2, 0.5, 0.0005), (50.0, 20.0, 0.5, 2000.0)),
    ],
    ids=["no token", "one token", "everything reused", "no time", "half a millisecond"],
)
def test_what_cannot_be_divided_is_zero(figures: Any, rates: tuple[float, ...]) -> None:
    found = timings(*figures)
    names = ("prompt_per_token_ms", "prompt_per_second", "predicted_per_token_ms", "predicted_per_second")
    assert tuple(found[name] for name in names) == pytest.approx(rates)


@contract("OBS-004", "OBS-009")
@given(st.integers(0, 1 << 20), st.integers(0, 1 << 20), st.integers(0, 1 << 20), st.floats(0, 1e6), st.floats(0, 1e6))
def test_every_figure_is_finite(computed: int, cached: int, completion: int, prompt_s: float, made_s: float) -> None:
    found = timings(computed + cached, cached, completion, prompt_s, made_s)
    assert all(math.isfinite(value) for value in found.values())
    assert found["cache_n"] + found["prompt_n"] == computed + cached


@contract("OBS-002")
@pytest.mark.parametrize("include_usage", [False, True])
def test_timings_stand_on_the_last_chunk_alone(include_usage: bool) -> None:
    found = chunks((STARTED, TextDelta("a", "answer"), finished()), include_usage=include_usage)
    assert ["timings" in chunk for chunk in found] == [False] * (len(found) - 1) + [True]
    assert found[-1]["timings"] == TIMINGS  # no draft figures without draft work
    assert bool(found[-1]["choices"]) is not include_usage


@contract("OBS-011")
def test_timings_per_token() -> None:
    events = (
        STARTED,
        TextDelta("hm", "reasoning", Committed(2, Timings(prompt_s=0.25, generation_s=0.1))),
        TextDelta("a", "answer", Committed(6, Timings(prompt_s=0.25, generation_s=0.4))),
        finished(),
    )
    found = chunks(events, timings_per_token=True)
    assert [chunk["timings"]["predicted_n"] for chunk in found[1:]] == [2, 6, 7]
    assert "timings" not in found[0]
    assert [chunk["timings"]["predicted_ms"] for chunk in found[1:3]] == pytest.approx([100, 400])
    assert all(chunk["timings"]["prompt_n"] == 7 for chunk in found[1:])
    assert found[-1]["timings"] == chunks(events)[-1]["timings"]
    assert [chunk["choices"] for chunk in found] == [chunk["choices"] for chunk in chunks(events)]


def unit(processed: int, elapsed_s: float, total: int = 8192, cached: int = 4096) -> PromptProgress:
    return PromptProgress(total_tokens=total, cached_tokens=cached, processed_tokens=processed, elapsed_s=elapsed_s)


@contract("OBS-013", "OBS-014", "OBS-015", "OBS-017")
def test_progress() -> None:
    units = (unit(6144, 0.0419), unit(8192, 0.09))
    events = (Started(8192, 4096), *units, TextDelta("a", "answer"), finished())
    found = chunks(events, progress=True)
    reports = [chunk["prompt_progress"] for chunk in found if "prompt_progress" in chunk]
    assert reports == [
        {"total": 8192, "cache": 4096, "processed": 4096, "time_ms": 0},
        {"total": 8192, "cache": 4096, "processed": 6144, "time_ms": 41},
        {"total": 8192, "cache": 4096, "processed": 8192, "time_ms": 90},
    ]
    places = [at for at, chunk in enumerate(found) if "prompt_progress" in chunk]
    assert places == [1, 2, 3]
    assert not any("prompt_progress" in chunk for chunk in chunks(events))


def test_progress_where_everything_is_reused() -> None:
    events = (Started(64, 64), unit(64, 0.01, 64, 64), TextDelta("a", "answer"), finished())
    reports = [chunk["prompt_progress"] for chunk in chunks(events, progress=True) if "prompt_progress" in chunk]
    assert reports == [{"total": 64, "cache": 64, "processed": 64, "time_ms": 0}]
