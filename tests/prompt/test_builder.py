"""Requests to prompts: lowering of turns, thinking modes, continuation, refusals."""

import json
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.conversation import (
    ContextExceeded,
    GenerationRequest,
    InvalidRequest,
    Part,
    Reasoning,
    Role,
    Text,
    ThinkingFields,
    Turn,
)
from ninfer.prompt import ChatTemplate, PreparedPrompt, PromptBuilder
from ninfer.prompt.bounds import MAX_RENDERED_CHARS
from ninfer.prompt.encoded import MOST_TOKENS
from tests.prompt import published, tiny

TINY = tiny.tokenizer()
OPEN = "<|im_start|>assistant\n<think>\n"
CLOSED = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
NEVER = ChatTemplate("{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}")

Flag = Literal["no_thinking", "preserve_thinking"]
Pair = tuple[Role, str]


def turn(role: Role, *parts: str | Part) -> Turn:
    return Turn(role=role, parts=tuple(Text(part) if isinstance(part, str) else part for part in parts))


def build(
    *turns: Turn | Pair,
    enabled: bool | None = None,
    preserve: bool | None = None,
    template: ChatTemplate | None = None,
    flags: tuple[Flag, ...] = (),
) -> PreparedPrompt:
    builder = PromptBuilder(TINY, template or tiny.template(), **dict.fromkeys(flags, True))
    request = GenerationRequest(
        turns=tuple(item if isinstance(item, Turn) else turn(*item) for item in turns),
        thinking=ThinkingFields(enabled=enabled, preserve=preserve),
    )
    return builder.build(request)


def text(prompt: PreparedPrompt) -> str:
    return TINY.decode(prompt.tokens)


@pytest.mark.contract("CHAT-004", "CHAT-005")
@pytest.mark.parametrize(
    ("turns", "rendered"),
    [
        ([("user", "hi")], "<|im_start|>user\nhi<|im_end|>\n"),
        ([turn("user", "a", "b ", "", " c")], "<|im_start|>user\nab  c<|im_end|>\n"),
        ([turn("user", "")], "<|im_start|>user\n<|im_end|>\n"),
        ([turn("user")], "<|im_start|>user\n<|im_end|>\n"),
        (
            [("user", ""), turn("assistant"), ("user", "x")],
            "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n<|im_start|>user\nx<|im_end|>\n",
        ),
        (
            [turn("system", "A", "B"), ("user", "x")],
            "<|im_start|>system\nAB<|im_end|>\n<|im_start|>user\nx<|im_end|>\n",
        ),
    ],
)
def test_turns(turns: list[Turn | Pair], rendered: str) -> None:
    """TPL-05, TPL-06, TPL-08: null, missing and empty content are one prompt."""
    assert text(build(*turns)) == rendered + OPEN


@pytest.mark.parametrize(
    ("turns", "rendered"),
    [
        ([("developer", "be brief")], "be brief"),  # TPL-02
        ([("system", "A"), ("system", "B")], "A\n\nB"),  # TPL-01
        ([("system", "A"), ("developer", "B"), ("system", "C")], "A\n\nB\n\nC"),
        ([("developer", ""), ("system", "C")], "C"),
    ],
)
@pytest.mark.contract("TMPL-021")
def test_leading_turns_of_a_template_that_takes_one_system_turn(turns: list[Pair], rendered: str) -> None:
    prompt = build(*turns, ("user", "hi"))
    assert text(prompt) == f"<|im_start|>system\n{rendered}<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n{OPEN}"


def test_leading_turns_of_a_template_that_takes_any() -> None:
    prompt = build(("system", "A"), ("developer", "B"), ("system", "C"), template=NEVER)
    assert text(prompt) == "system:A;developer:B;system:C;"


def test_templates_may_name_tokens() -> None:
    assert text(build(("user", "x"), template=ChatTemplate("x{{ bos_token }}{{ eos_token }}"))) == "x<|im_end|>"


@pytest.mark.contract("D36")
def test_content_in_parts_and_in_one_is_one_prompt() -> None:
    parts = build(("user", "x"), turn("system", "A", "", "B"), ("user", "y"), template=NEVER)
    assert parts == build(("user", "x"), ("system", "AB"), ("user", "y"), template=NEVER)


def test_a_template_that_drops_developer_turns_does_not_take_them() -> None:
    source = "{% for m in messages %}{% if m.role != 'developer' %}{{ m.role }}:{{ m.content }};{% endif %}{% endfor %}"
    assert text(build(("developer", "B"), template=ChatTemplate(source))) == "system:B;"


Mode = tuple[bool, bool]  # (opens_in_reasoning, thinking)


@pytest.mark.contract("D6", "TMPL-018", "TMPL-019")
@pytest.mark.parametrize(
    ("enabled", "flags", "ending"),
    [
        (None, (), OPEN),
        (True, (), OPEN),
        (False, (), CLOSED),
        (None, ("no_thinking",), CLOSED),
        (True, ("no_thinking",), OPEN),
        (False, ("no_thinking",), CLOSED),
    ],
)
def test_thinking(enabled: bool | None, flags: tuple[Flag, ...], ending: str) -> None:
    prompt = build(("user", "x"), enabled=enabled, flags=flags)
    assert text(prompt).endswith(ending)
    assert (prompt.opens_in_reasoning, prompt.thinking) == (ending == OPEN, ending == OPEN)


@pytest.mark.contract("D6", "TMPL-019", "TMPL-020")
@pytest.mark.parametrize(
    ("preserve", "flags", "kept"),
    [
        (None, (), False),
        (None, ("preserve_thinking",), True),
        (False, ("preserve_thinking",), False),
        (True, (), True),
    ],
)
def test_preserving(preserve: bool | None, flags: tuple[Flag, ...], kept: bool) -> None:
    history = turn("assistant", Reasoning("because"), "yes")
    prompt = build(("user", "x"), history, ("user", "y"), preserve=preserve, flags=flags)
    assert ("<think>\nbecause\n</think>\n\nyes" in text(prompt)) == kept
    assert "yes" in text(prompt)


MODES = {
    "always open": ("x<think>", (True, True), (True, True), (True, True)),
    "no such thing": ("x", (False, False), (False, False), (False, False)),
    "off unless asked": (
        "{% if enable_thinking is defined and enable_thinking %}<think>{% else %}<think></think>{% endif %}",
        (False, False),
        (True, True),
        (False, False),
    ),
    "the model opens": (
        "x{% if add_generation_prompt and enable_thinking is defined and not enable_thinking %}"
        "<think></think>{% endif %}",
        (False, True),
        (False, True),
        (False, False),
    ),
    "asked, and closed all the same": (
        "{% if enable_thinking is defined and enable_thinking %}x{% endif %}<think></think>",
        (False, False),
        (False, False),
        (False, False),
    ),
    "history left open": ("<think><|im_end|><|im_start|>", (False, False), (False, False), (False, False)),
}


@pytest.mark.parametrize(("source", "unset", "on", "off"), MODES.values(), ids=MODES)
def test_the_mode_is_read_from_the_rendering(source: str, unset: Mode, on: Mode, off: Mode) -> None:
    """RSN-01, RSN-02: flags decide what is rendered, the rendering decides where the reply begins."""
    for enabled, expected in ((None, unset), (True, on), (False, off)):
        prompt = build(("user", "x"), enabled=enabled, template=ChatTemplate(source))
        assert (prompt.opens_in_reasoning, prompt.thinking) == expected


def test_think_blocks_of_earlier_turns_do_not_count() -> None:
    """RSN-04."""
    turns = [turn("user", "x"), turn("assistant", Reasoning("r"), "y"), turn("user", "<think>")]
    assert not build(*turns, enabled=False, preserve=True).opens_in_reasoning
    assert build(*turns, preserve=True).opens_in_reasoning


@pytest.mark.contract("TMPL-002")
@pytest.mark.parametrize(
    ("enabled", "flags", "allowed"),
    [
        (False, (), True),
        (None, ("no_thinking",), True),
        (None, (), False),
        (True, (), False),
        (True, ("no_thinking",), False),
    ],
)
def test_a_final_assistant_turn_is_continued(enabled: bool | None, flags: tuple[Flag, ...], allowed: bool) -> None:
    turns: list[Turn | Pair] = [("user", "x"), ("assistant", "Once <|im_end|> upon ")]
    if allowed:
        prompt = build(*turns, enabled=enabled, flags=flags)
        assert text(prompt) == f"<|im_start|>user\nx<|im_end|>\n{CLOSED}Once <|im_end|> upon "
        assert not prompt.opens_in_reasoning
    else:
        with pytest.raises(InvalidRequest, match="thinking must be switched off") as caught:
            build(*turns, enabled=enabled, flags=flags)
        assert caught.value.code == "invalid_prompt"


@pytest.mark.parametrize(
    ("turns", "template", "reason"),
    [
        ([], None, "No messages"),
        ([("user", "x"), ("system", "late")], None, "at the beginning"),
        ([("user", "x")], ChatTemplate("{{ '' }}"), "to nothing"),
    ],
)
def test_refused(turns: list[Pair], template: ChatTemplate | None, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as caught:
        build(*turns, template=template)
    assert caught.value.code == "invalid_prompt"


@pytest.mark.parametrize(("cut", "kept"), [("a\ud83d", "a\ufffd"), ("\ude00b", "\ufffdb"), ("\ud83d\ude00", "😀")])
def test_strings_cut_inside_a_character(cut: str, kept: str) -> None:
    prompt = build(("system", cut), ("user", cut), turn("assistant", Reasoning(cut), cut), ("user", cut), preserve=True)
    assert text(prompt).count(kept) == 5


roles = st.sampled_from(["system", "developer", "user", "assistant", "tool"])


@given(st.lists(st.tuples(roles, st.text()), max_size=6))
def test_any_conversation_is_prepared_or_refused(turns: list[Pair]) -> None:
    leading = [role in ("system", "developer") for role, _ in turns]
    if not turns or turns[-1][0] == "assistant" or leading != sorted(leading, reverse=True):
        with pytest.raises(InvalidRequest):
            build(*turns)
    else:
        prompt = build(*turns)
        assert prompt.tokens
        assert prompt.opens_in_reasoning


@pytest.mark.contract("TMPL-020")
@pytest.mark.parametrize("family", ["qwen3_5_nothink", "qwen3_5_think", "qwen3_6", "qwen3_8"])
def test_published_renderings(shared: Path, family: str) -> None:
    """Every text-only case of the family gives the tokens of its published rendering."""
    tokenizer = published.tokenizer(shared)
    builder = PromptBuilder(tokenizer, published.template(shared, family))
    cases = json.loads((shared / "data/templates/rendered_cases.json").read_text())
    seen = 0
    for case in cases:
        kwargs = dict(case["kwargs"])
        thinking = ThinkingFields(
            enabled=kwargs.pop("enable_thinking", None), preserve=kwargs.pop("preserve_thinking", None)
        )
        turns = [_plain_turn(message) for message in case["messages"]]
        skipped = kwargs or case["tools"] or "rendered" not in case or not case["add_generation_prompt"]
        # A think block inside the content is quoted text to us; the template's own splitting is not wanted.
        if case["template"] != family or skipped or None in turns or case["name"] == "history_inline_think":
            continue
        seen += 1
        request = GenerationRequest(turns=tuple(item for item in turns if item is not None), thinking=thinking)
        prompt = builder.build(request)
        assert prompt.tokens == tokenizer.encode(case["rendered"]), case["name"]
        opens = case["rendered"].endswith("<think>\n")
        assert (prompt.opens_in_reasoning, prompt.thinking) == (opens, opens)
    assert seen >= 8


def _plain_turn(message: dict[str, object]) -> Turn | None:
    """The turn, or None if it has parts that are not text."""
    content, reasoning = message.get("content"), message.get("reasoning_content")
    if message.get("tool_calls") or not isinstance(content, str | None):
        return None
    parts = [] if reasoning is None else [Reasoning(str(reasoning))]
    return turn(message["role"], *parts, content or "")  # type: ignore[arg-type]


@pytest.mark.contract("ERR-012", "EXEC-014")
@pytest.mark.parametrize("text", ["in in " * MOST_TOKENS, "<|im_end|>" * MOST_TOKENS])
def test_what_no_context_holds_is_not_encoded(text: str) -> None:
    # Encoded whole these take a gigabyte each; a body of a hundred megabytes took the machine with it.
    with pytest.raises(ContextExceeded, match=f"more than {MOST_TOKENS} tokens"):
        build(("user", text))


@pytest.mark.contract("ERR-012")
def test_what_no_rendering_holds_is_not_even_rendered() -> None:
    never = ChatTemplate("{{ raise_exception('rendered') if messages | length > 1 }}x")
    half = "x" * (MAX_RENDERED_CHARS // 2)
    with pytest.raises(ContextExceeded, match=f"more than {MAX_RENDERED_CHARS} characters"):
        build(("user", half), ("user", half + "yy"), template=never)
