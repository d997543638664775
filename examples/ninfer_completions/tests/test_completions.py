"""The protocol on `ninfer.testing`: what goes in, what comes out, what is refused."""

import json
from typing import Any

import pytest
from ninfer_completions import LegacyCompletions

from ninfer.conversation import SamplingFields
from ninfer.testing import (
    CARD,
    ASGIAnswer,
    FakeHost,
    create_app,
    error_samples,
    generations,
    post_json,
    script,
    sse_data,
)


async def complete(host: FakeHost, **members: Any) -> ASGIAnswer:
    body = {"model": CARD.id, "prompt": "Tell", **members}
    return await post_json(create_app(host, [LegacyCompletions(host)]), "/v1/completions", body)


@pytest.mark.parametrize("name", generations())
async def test_a_whole_answer_says_what_its_stream_says(name: str) -> None:
    steps = generations()[name]
    streamed = sse_data((await complete(FakeHost(steps=steps), stream=True)).body)
    assert streamed[-1] == "[DONE]"
    chunks = [json.loads(data)["choices"][0] for data in streamed[:-1]]
    (whole,) = (await complete(FakeHost(steps=steps))).json()["choices"]
    assert whole["text"] == "".join(chunk["text"] for chunk in chunks)
    assert whole["finish_reason"] == chunks[-1]["finish_reason"] == ("length" if "limit" in name else "stop")


async def test_what_is_asked_for() -> None:
    host = FakeHost()
    asked = {"temperature": 0.5, "top_p": 0.9, "seed": 4, "max_tokens": 9, "stop": ["a", "b"], "n": 1, "echo": False}
    assert (await complete(host, **asked)).status == 200
    (request,) = host.requests
    assert request.sampling == SamplingFields(temperature=0.5, top_p=0.9, seed=4)
    assert (request.turns[0].text, request.max_output_tokens, request.stop) == ("Tell", 9, ("a", "b"))
    await complete(host, stop="a")
    await complete(host, stop="")
    assert [one.stop for one in host.requests[1:]] == [("a",), ()]


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"prompt": ["a"]}, "prompt"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"stop": [""]}, "stop[0]"),
        ({"n": 2}, "n"),
        ({"best_of": 2}, "best_of"),
        ({"echo": True}, "echo"),
        ({"suffix": "."}, "suffix"),
        ({"logprobs": 0}, "logprobs"),
        ({"logit_bias": {"1": 5}}, "logit_bias"),
    ],
)
async def test_refusals(members: dict[str, Any], param: str) -> None:
    host = FakeHost()
    answer = await complete(host, **members)
    assert (answer.status, answer.json()["error"]["param"], host.requests) == (400, param, [])


@pytest.mark.parametrize("error", error_samples(), ids=lambda error: type(error).__name__)
async def test_errors(error: Any) -> None:
    before = await complete(FakeHost(on_enter=[error]))
    assert (before.status >= 400, before.json()["error"]["message"]) == (True, error.message)
    inside = await complete(FakeHost(steps=[*script("Hel")[:-1], error]), stream=True)
    assert json.loads(sse_data(inside.body)[-1]) == before.json()
