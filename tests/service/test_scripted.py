"""What directives ask of the request path: refusals by status, and thinking where a request asks for it."""

import attrs
import pytest

from ninfer.conversation import (
    EngineUnavailable,
    Forbidden,
    GenerationRequest,
    InternalError,
    InvalidRequest,
    NotFound,
    Overloaded,
    QueueTimeout,
    RequestError,
    RequestTooLarge,
    Text,
    ThinkingFields,
    Turn,
    Unauthenticated,
)
from ninfer.prompt import Cancellation, PreparedPrompt
from ninfer.service import ScriptedPreparer

contract = pytest.mark.contract


@attrs.define
class Recorder:
    """Keeps what it was asked to build."""

    built: list[GenerationRequest] = attrs.field(factory=list)
    in_place: bool = True

    def build(
        self, request: GenerationRequest, *, most_tokens: int | None = None, cancellation: Cancellation | None = None
    ) -> PreparedPrompt:
        self.built.append(request)
        return PreparedPrompt(tokens=(1,), opens_in_reasoning=False, thinking=False)


NOTHING_SAID = ThinkingFields()


def request(*said: str, thinking: ThinkingFields = NOTHING_SAID) -> GenerationRequest:
    """A request whose turns alternate, the user first."""
    roles = ("user", "assistant")
    turns = tuple(Turn(role=roles[at % 2], parts=(Text(text),)) for at, text in enumerate(said))
    return GenerationRequest(turns=turns, thinking=thinking)


def texts(asked: GenerationRequest) -> list[str]:
    recorder = Recorder()
    ScriptedPreparer(recorder).build(asked)
    return [turn.text for turn in recorder.built[0].turns]


@contract("D37")
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequest),
        (401, Unauthenticated),
        (403, Forbidden),
        (404, NotFound),
        (413, RequestTooLarge),
        (429, Overloaded),
        (500, InternalError),
        (503, EngineUnavailable),
        (504, QueueTimeout),
        (529, Overloaded),
    ],
)
@pytest.mark.parametrize("code", ["", ":some_code"])
def test_a_status_is_its_error(status: int, kind: type[RequestError], code: str) -> None:
    recorder = Recorder()
    with pytest.raises(kind) as raised:
        ScriptedPreparer(recorder).build(request("one", "two", f"x [[pad:3]] [[err:{status}{code}]]"))
    assert type(raised.value) is kind
    assert raised.value.code == (code[1:] or kind.default_code)
    assert not recorder.built


@pytest.mark.parametrize("said", ["[[err]]", "[[err:oom]]", "[[err:77]]", "err:400", "[[say:err:400]]"])
def test_other_failures_are_the_engines(said: str) -> None:
    assert texts(request(said)) == [said]


def test_only_the_last_turn_with_directives_counts() -> None:
    said = ("[[err:400]]", "so", "[[say:x]]", "x", "thanks")
    assert texts(request(*said)) == list(said)
    with pytest.raises(InvalidRequest):
        texts(request("[[say:x]]", "x", "[[err:400]]", "hm", "thanks"))
    assert texts(request("hello", "[[err:400]]")) == ["hello", "[[err:400]]"]


@contract("D37")
@pytest.mark.parametrize(
    ("thinking", "added"),
    [
        (ThinkingFields(), ""),
        (ThinkingFields(enabled=False, effort="high"), ""),
        (ThinkingFields(preserve=True), ""),
        (ThinkingFields(enabled=True), " [[think]]"),
        (ThinkingFields(effort="low"), " [[think]]"),
        (ThinkingFields(budget_tokens=9), " [[think]]"),
    ],
)
def test_who_asks_for_thinking_gets_it(thinking: ThinkingFields, added: str) -> None:
    assert texts(request("a", "b", "c", thinking=thinking)) == ["a", "b", f"c{added}"]
    assert texts(request("[[say:a]]", "b", "c", thinking=thinking)) == [f"[[say:a]]{added}", "b", "c"]


def test_without_a_user_nobody_asks() -> None:
    asked = GenerationRequest(turns=(Turn(role="tool", parts=(Text("21"),)),), thinking=ThinkingFields(enabled=True))
    assert texts(asked) == ["21"]
