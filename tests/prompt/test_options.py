"""What requests and server flags say to the template: efforts, thinking, further variables."""

import pytest

from ninfer.conversation import EFFORTS, GenerationRequest, InvalidRequest, Reasoning, Text, ThinkingFields, Turn
from ninfer.prompt import ChatTemplate, PromptBuilder
from ninfer.prompt.traits import EffortLevels
from tests.prompt import tiny

TINY = tiny.tokenizer()
SHOWN = """\
{%- if reasoning_effort is defined and reasoning_effort not in LEVELS %}{{ raise_exception('no ' ~ reasoning_effort) }}\
{%- endif %}{{ reasoning_effort }}/{{ enable_thinking }}/{{ preserve_thinking }}"""


def accepting(*levels: str) -> str:
    return SHOWN.replace("LEVELS", repr(list(levels)))


def request(**thinking: bool | str | None) -> GenerationRequest:
    return GenerationRequest(turns=(Turn(role="user"),), thinking=ThinkingFields(**thinking))  # type: ignore[arg-type]


def said(asked: GenerationRequest, source: str = accepting(*EFFORTS), **flags: bool | str) -> str:
    builder = PromptBuilder(TINY, ChatTemplate(source), **flags)  # type: ignore[arg-type]
    return TINY.decode(builder.build(asked).tokens)


NEAREST = [
    # accepted levels, then what minimal, low, medium, high, xhigh and max become
    (("low", "medium", "xhigh"), ("low", "low", "medium", "xhigh", "xhigh", "xhigh")),
    (("minimal", "medium"), ("minimal", "medium", "medium", "medium", "medium", "medium")),
    (("minimal", "max"), ("minimal", "minimal", "minimal", "max", "max", "max")),
    (("low", "xhigh"), ("low", "low", "low", "xhigh", "xhigh", "xhigh")),
    (("high",), ("high",) * 6),
    (EFFORTS, EFFORTS),
]


@pytest.mark.contract("THINK-014", "THINK-015")
@pytest.mark.parametrize(("accepted", "becomes"), NEAREST)
def test_a_level_that_is_refused_becomes_the_nearest(accepted: tuple[str, ...], becomes: tuple[str, ...]) -> None:
    for effort, expected in zip(EFFORTS, becomes, strict=True):
        assert said(request(effort=effort), accepting(*accepted)) == f"{expected}//"


@pytest.mark.contract("THINK-013")
def test_each_level_is_rendered_once_on_a_chat_of_one_message() -> None:
    class Recorder(ChatTemplate):
        seen: list[object] = []  # noqa: RUF012

        def render(self, variables: object) -> str:
            self.seen.append(variables)
            return super().render(variables)  # type: ignore[arg-type]

    template = Recorder("x")
    EffortLevels.probe(template, {})
    assert [seen["reasoning_effort"] for seen in template.seen] == list(EFFORTS)  # type: ignore[index]
    assert {len(seen["messages"]) for seen in template.seen} == {1}  # type: ignore[index]


@pytest.mark.contract("THINK-017")
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (accepting(), "no high"),
        ("{% if messages[0].role != 'system' %}{{ raise_exception('no system') }}{% endif %}" + accepting(), "no s"),
    ],
)
def test_a_template_that_refuses_every_level_keeps_the_requests(source: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        said(request(effort="high"), source)


def test_a_template_that_cannot_render_the_probe_may_still_know_the_level() -> None:
    source = "{% if messages[0].role != 'system' %}{{ raise_exception('') }}{% endif %}" + accepting("low")
    with_system = GenerationRequest(
        turns=(Turn(role="system"), Turn(role="user")), thinking=ThinkingFields(effort="low")
    )
    assert said(with_system, source) == "low//"


@pytest.mark.contract("D6", "THINK-012", "THINK-016", "TMPL-019")
@pytest.mark.parametrize(
    ("thinking", "flags", "expected"),
    [
        ({}, {}, "//"),
        ({"effort": "none"}, {}, "/False/"),
        ({"effort": "none", "enabled": False}, {}, "/False/"),
        ({}, {"effort": "max"}, "max//"),
        ({"effort": "low"}, {"effort": "max"}, "low//"),
        ({"effort": "none"}, {"effort": "max"}, "/False/"),
        ({"enabled": False}, {"effort": "max"}, "/False/"),
        ({"enabled": True}, {"effort": "max"}, "max/True/"),
        ({}, {"effort": "none"}, "/False/"),
        ({"enabled": True}, {"effort": "none"}, "/True/"),
        ({"effort": "low"}, {"effort": "none"}, "low//"),
        ({}, {"effort": "max", "no_thinking": True}, "/False/"),
        ({"enabled": True}, {"effort": "max", "no_thinking": True}, "max/True/"),
        ({"effort": "low"}, {"no_thinking": True}, "low//"),
        ({"effort": "low", "enabled": False}, {}, "low/False/"),
        ({"preserve": False}, {"preserve_thinking": True}, "//False"),
    ],
)
def test_who_is_heard(thinking: dict[str, bool | str], flags: dict[str, bool | str], expected: str) -> None:
    assert said(request(**thinking), **flags) == expected


@pytest.mark.contract("THINK-016")
def test_the_servers_level_is_mapped_too() -> None:
    assert said(request(), accepting("low", "medium", "xhigh"), effort="max") == "xhigh//"


@pytest.mark.contract("TMPL-017")
def test_no_effort_and_thinking_switched_on_contradict_each_other() -> None:
    with pytest.raises(InvalidRequest) as caught:
        said(request(effort="none", enabled=True))
    assert caught.value.code == "conflicting_template_option"


def kwargs(values: dict[str, object], source: str) -> str:
    asked = GenerationRequest(turns=(Turn(role="user", parts=(Text("hi"),)),), template_kwargs=values)
    return said(asked, source)


@pytest.mark.contract("TMPL-013", "TMPL-015")
@pytest.mark.parametrize(
    ("values", "source", "rendered"),
    [
        ({"a": "x"}, "{{ a }}", "x"),
        ({"a": None}, "{{ a }}/{{ a is none }}/{{ b is defined }}", "None/True/False"),
        ({"a": {"z": [1, 2.5], "b": True}}, "{{ a | tojson }}", '{"z": [1, 2.5], "b": true}'),
        ({"a": "cut \ud83d"}, "{{ a }}", "cut \ufffd"),
    ],
)
def test_further_variables(values: dict[str, object], source: str, rendered: str) -> None:
    assert kwargs(values, source) == rendered


@pytest.mark.contract("TMPL-011")
@pytest.mark.parametrize("control", tiny.CONTROLS)
def test_control_tokens_in_variables_are_text(control: str) -> None:
    builder = PromptBuilder(TINY, ChatTemplate("{{ a }}{{ b | tojson }}x<|im_end|>"))
    asked = GenerationRequest(
        turns=(Turn(role="user"),), template_kwargs={"a": control, "b": {control: [control, {"c": control}]}}
    )
    tokens = builder.build(asked).tokens
    assert TINY.decode(tokens).count(control) >= 4
    assert [token for token in tokens if token in TINY.control_tokens.values()] == [TINY.control_tokens["<|im_end|>"]]


RESERVED = ["messages", "tools", "add_generation_prompt", "bos_token", "eos_token", "pad_token", "unk_token"]


@pytest.mark.contract("TMPL-016")
@pytest.mark.parametrize("name", [*RESERVED, "enable_thinking", "preserve_thinking", "reasoning_effort"])
def test_variables_that_are_not_for_requests(name: str) -> None:
    with pytest.raises(InvalidRequest, match=name):
        kwargs({name: "x"}, "x")


CONTINUED = (
    Turn(role="user", parts=(Text("x"),)),
    Turn(role="assistant", parts=(Reasoning(" why\n"), Text(" so "))),
)


@pytest.mark.contract("TMPL-002", "TMPL-004", "D8")
def test_a_continued_turn_keeps_its_reasoning() -> None:
    asked = GenerationRequest(turns=CONTINUED, thinking=ThinkingFields(effort="none"))
    assert said(asked, tiny.FAMILY).endswith("<|im_start|>assistant\n<think>\nwhy\n</think>\n\n so ")
    with pytest.raises(InvalidRequest, match="with reasoning"):
        said(asked, "no block")
