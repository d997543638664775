"""Tool calls in replies: cases from the field, then the properties that no text may break."""

import itertools
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.reply.tool_markup import Fallback
from ninfer.reply.tools import ToolDiagnostics, ToolFront, ToolOutcome, recover_from_reasoning

TOOLS: dict[str, dict[str, object]] = {
    "f": {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "s": {"type": "string"}}},
    "ls": {},
    "weather": {"properties": {"city": {"type": "string"}, "unit": {"type": "string"}}},
    "sh": {"properties": {"all": {"type": "boolean"}, "cmd": {"type": "string"}}},
}

Calls = list[tuple[str, dict[str, Any]]]


def read(
    text: str, *, tolerant: bool = False, cut_by_limit: bool = False, pieces: Iterable[str] | None = None
) -> tuple[str, ToolOutcome]:
    """(content, outcome)."""
    front = ToolFront(TOOLS, tolerant=tolerant)
    shown = "".join(map(front.feed, [text] if pieces is None else pieces))
    outcome = front.finish(cut_by_limit=cut_by_limit)
    return shown + outcome.text, outcome


def calls(outcome: ToolOutcome) -> Calls:
    return [(call.name, dict(call.arguments)) for call in outcome.calls]


def call(name: str = "f", body: str = "<parameter=a>\n1\n</parameter>\n") -> str:
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


ONE = ("f", {"a": 1})

STRICT: dict[str, tuple[str, str, Calls]] = {
    "the family's form": (call(), "", [ONE]),
    "no arguments": (call("ls", ""), "", [("ls", {})]),
    "content before": ("I look.\n\n" + call(), "I look.", [ONE]),  # TOOL-09
    "white space around": ("\n\n" + call() + "\n", "", [ONE]),  # TOOL-08
    "two calls": (call() + "\n" + call("ls", ""), "", [ONE, ("ls", {})]),
    "several parameters": (
        call("f", "<parameter=b>\n2\n</parameter>\n<parameter=a>\n1\n</parameter>\n"),
        "",
        [("f", {"b": 2, "a": 1})],
    ),
    "quoted closers": (  # TOOL-01
        call("f", "<parameter=s>\nEnd a call with </function></tool_call> on one line.\n</parameter>\n"),
        "",
        [("f", {"s": "End a call with </function></tool_call> on one line."})],
    ),
    "quoted call": (
        call("f", f"<parameter=s>\n{call('ls', '')}\n</parameter>\n"),
        "",
        [("f", {"s": call("ls", "")})],
    ),
    "quoted parameter": (  # TOOL-12
        call(
            "sh",
            "<parameter=all>\nTrue\n</parameter>\n"
            "<parameter=cmd>\nsed 's#<parameter=x>1</parameter>#y#' f\n</parameter>\n",
        ),
        "",
        [("sh", {"all": True, "cmd": "sed 's#<parameter=x>1</parameter>#y#' f"})],
    ),
    "quoted parameter's closer": (
        call("f", "<parameter=s>\necho '</parameter>' x\n</parameter>\n"),
        "",
        [("f", {"s": "echo '</parameter>' x"})],
    ),
    "what only looks like a parameter": (
        call("f", "<parameter=s>\ngrep '<parameter=' f\n<parameter=>\n</parameter>\n"),
        "",
        [("f", {"s": "grep '<parameter=' f\n<parameter=>"})],
    ),
    "inline value": (call("f", "<parameter=s> x </parameter>"), "", [("f", {"s": " x "})]),
    "framing only once": (call("f", "<parameter=s>\n\n x\n\n</parameter>"), "", [("f", {"s": "\n x\n"})]),
    "empty string": (call("f", "<parameter=s>\n\n</parameter>\n"), "", [("f", {"s": ""})]),
    "empty number": (call("f", "<parameter=a>\n\n</parameter>\n"), "", [("f", {})]),
    "other line breaks": (call("f", "<parameter=s>\r\nx\r\n</parameter>\r\n"), "", [("f", {"s": "x"})]),
    "mismatch": (call("f", "<parameter=a>\nx\n</parameter>\n"), "", [("f", {"a": "x"})]),  # TOOL-04
    "repeated": (call("f", "<parameter=a>1</parameter><parameter=a>2</parameter>"), "", [("f", {"a": 2})]),
    "name attribute": (
        '<tool_call><function name="f"><parameter name="a">1</parameter></function></tool_call>',
        "",
        [ONE],
    ),
    "invoke": ('<function_calls>\n<invoke name="f">\n<param=a>1</param>\n</invoke>\n</function_calls>', "", [ONE]),
    "invoke twice": (
        '<function_calls><invoke name="ls"></invoke><invoke name="ls"></invoke></function_calls>',
        "",
        [("ls", {})] * 2,
    ),
    "short tags": ('<tool_call><function=f><param name="a">1</param></function></tool_call>', "", [ONE]),
    "no wrapper": ("Now: <function=f><parameter=a>1</parameter></function>", "Now:", [ONE]),
    "no wrapper, after a closed one": (
        "<tool_call> x </tool_call> <function=ls></function>",
        "<tool_call> x </tool_call>",
        [("ls", {})],
    ),
    "quoted marker before": ("Use <tool_call> so: " + call(), "Use <tool_call> so:", [ONE]),
    "back-ticks within a line": (  # K4
        f"```ls -la``` lists files. Running it.\n\n{call()}",
        "```ls -la``` lists files. Running it.",
        [ONE],
    ),
    "a line of back-ticks": (f"Run this:\n```npm test```\n\n{call()}", "Run this:\n```npm test```", [ONE]),  # K4
    "a fence in a list": (  # K4
        f"- ```bash\n  ls\n  ```\n\nRunning.\n\n{call()}",
        "- ```bash\n  ls\n  ```\n\nRunning.",
        [ONE],
    ),
    "a fence in a list that ends open": (f"1. ~~~\n   ls\n\n{call()}", "1. ~~~\n   ls", [ONE]),
    "a fence in a quote": (f"> ```\n> ls\n\n{call()}", "> ```\n> ls", [ONE]),
    "fence before": (f"```\n{call()}\n```\n{call('ls', '')}", f"```\n{call()}\n```", [("ls", {})]),
}


@pytest.mark.contract("TOOL-002", "TOOL-008", "TOOL-009", "TOOL-012", "TOOL-016")
@pytest.mark.parametrize(("text", "content", "expected"), STRICT.values(), ids=STRICT)
def test_calls(text: str, content: str, expected: Calls) -> None:
    for tolerant in (False, True):
        shown, outcome = read(text, tolerant=tolerant)
        assert (shown, calls(outcome)) == (content, expected)
        assert outcome.diagnostics.fallback is Fallback.NONE
        assert outcome.diagnostics.marker_seen
        assert not outcome.diagnostics.tolerant_recovered
        assert outcome.discarded == ""


@pytest.mark.contract("TOOL-011", "TOOL-017")
def test_two_calls_with_prose_between() -> None:
    """Strictly the first region that reads as calls to the end; tolerantly the first that holds a call."""
    text = call() + " is how. " + call("ls", "")
    shown, outcome = read(text)
    assert (shown, calls(outcome)) == (call() + " is how.", [("ls", {})])
    shown, outcome = read(text, tolerant=True)
    assert (shown, calls(outcome), outcome.discarded) == ("", [ONE], " is how. " + call("ls", ""))


TEXT: dict[str, tuple[str, Fallback]] = {
    "nothing": ("", Fallback.NONE),
    "prose": ("a < b, <tool_cal", Fallback.NONE),
    "a look-alike": ("<tool_call is what the docs call it.", Fallback.NONE),  # TOOL-16
    "in a fence": (f"```\n{call()}\n```", Fallback.NONE),
    "in an open fence": (f"```xml\n{call()}", Fallback.NONE),
    "in a fence of a list": (f"- ```\n    {call().replace(chr(10), chr(10) + 4 * ' ')}\n    ```", Fallback.NONE),
    "quoted": ("I must not emit <tool_call><function=ls></function></tool_call> here.", Fallback.TRAILING_CONTENT),
    "suffix": (call() + "\nDone.", Fallback.TRAILING_CONTENT),
    "bad second call": (call() + "\n<tool_call>\nx", Fallback.MALFORMED_STRUCTURE),
    "undeclared": (call("rm"), Fallback.UNDECLARED_TOOL),
    "no name": (call(""), Fallback.INVALID_TOOL_NAME),
    "bad name": (call("a b"), Fallback.INVALID_TOOL_NAME),
    "long name": (call("x" * 513), Fallback.INVALID_TOOL_NAME),
    "missing bracket": (call().replace("=f>", "=f"), Fallback.MALFORMED_STRUCTURE),
    "no wrapper's end": (call().removesuffix("</tool_call>"), Fallback.MALFORMED_STRUCTURE),  # TOOL-13
    "second without wrapper's end": (
        call().removesuffix("</tool_call>") + "<function=ls></function>",
        Fallback.MALFORMED_STRUCTURE,
    ),
    "no parameter's end": (  # TOOL-03
        call("weather", "<parameter=city>\nOslo\n<parameter=unit>\nC\n</parameter>\n"),
        Fallback.MALFORMED_STRUCTURE,
    ),
    "unmatched inner opener": (
        call("f", "<parameter=s>\nsee <parameter=x> there\n</parameter>\n"),
        Fallback.MALFORMED_STRUCTURE,
    ),
    "quoted closer before a tag": (
        call("f", "<parameter=s>\n</parameter>\n</function> is it\n</parameter>\n"),
        Fallback.MALFORMED_STRUCTURE,
    ),
    "cut in a value": (call()[:45], Fallback.MALFORMED_STRUCTURE),
    "cut in a tag": (call()[:14], Fallback.MALFORMED_STRUCTURE),
    "text inside": (call("f", "hello"), Fallback.MALFORMED_STRUCTURE),
    "json": ('<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>', Fallback.MALFORMED_STRUCTURE),
    "no wrapper, cut": ("<function=f><parameter=a>1</parameter>", Fallback.MALFORMED_STRUCTURE),
    "stray closers": ("</tool_call></function>", Fallback.NONE),
}


@pytest.mark.contract("TOOL-010", "TOOL-013", "TOOL-014", "TOOL-015")
@pytest.mark.parametrize(("text", "fallback"), TEXT.values(), ids=TEXT)
def test_what_is_no_call_is_content_byte_for_byte(text: str, fallback: Fallback) -> None:
    for padded in (text, f"\n {text}\n\n"):
        shown, outcome = read(padded, cut_by_limit=True)
        assert (shown, outcome.calls, outcome.discarded) == (padded, (), "")
        assert outcome.diagnostics.fallback is fallback
        assert outcome.diagnostics.marker_seen == (fallback is not Fallback.NONE)


TOLERANT: dict[str, tuple[str, bool, str, Calls, Fallback]] = {
    # text, cut by the limit, content, calls, fallback
    "suffix": ("x " + call() + "\nDone.", False, "x", [ONE], Fallback.TRUNCATED_TAIL),
    "bad second call": (call() + "\n<tool_call>\nx", False, "", [ONE], Fallback.TRUNCATED_TAIL),
    "cut second call": (
        call() + call("ls", "<parameter=a>\n1\n</parameter>\n<parameter=b>\n2")[:70],
        True,
        "",
        [ONE],
        Fallback.TRUNCATED_TAIL,
    ),
    "no wrapper's end": (call().removesuffix("</tool_call>"), False, "", [ONE], Fallback.TRUNCATED_TAIL),  # TOOL-13
    "cut after a parameter": (
        call().removesuffix("</function>\n</tool_call>"),
        True,
        "",
        [ONE],
        Fallback.TRUNCATED_TAIL,
    ),
    "cut in a tag": (call().removesuffix("nction>\n</tool_call>"), True, "", [ONE], Fallback.TRUNCATED_TAIL),
    "cut in a second value": (
        call("f", "<parameter=a>\n1\n</parameter>\n<parameter=s>\nlong te").removesuffix("</function>\n</tool_call>"),
        True,
        "",
        [ONE],
        Fallback.TRUNCATED_TAIL,
    ),
    "cut in a second parameter's tag": (
        call("f", "<parameter=a>\n1\n</parameter>\n<parameter=").removesuffix("</function>\n</tool_call>"),
        True,
        "",
        [ONE],
        Fallback.TRUNCATED_TAIL,
    ),
    "missing bracket": (call().replace("=f>", "=f"), False, "", [ONE], Fallback.NONE),
    "missing bracket and line": (call().replace("=f>\n", "=f"), False, "", [ONE], Fallback.NONE),
    "dropped bracket": (call().replace("<function=f", "function=f"), False, "", [ONE], Fallback.NONE),
    "dropped keyword": (call().replace("<function=f", "<=f"), False, "", [ONE], Fallback.NONE),
    "dropped wrapper": (call().removeprefix("<tool_call>\n"), False, "", [ONE], Fallback.NONE),
    "undeclared": (call("rm"), False, "", [("rm", {"a": 1})], Fallback.NONE),  # TOOL-021
    "no parameter's end": (  # TOOL-03
        call("weather", "<parameter=city>\nOslo\n<parameter=unit>\nC\n</parameter>\n"),
        False,
        "",
        [("weather", {"city": "Oslo", "unit": "C"})],
        Fallback.NONE,
    ),
}


@pytest.mark.contract("TOOL-017", "TOOL-018", "TOOL-019", "TOOL-021")
@pytest.mark.parametrize(("text", "cut", "content", "expected", "fallback"), TOLERANT.values(), ids=TOLERANT)
def test_recovered_calls(text: str, cut: bool, content: str, expected: Calls, fallback: Fallback) -> None:
    shown, outcome = read(text, tolerant=True, cut_by_limit=cut)
    assert (shown, calls(outcome)) == (content, expected)
    assert outcome.diagnostics.fallback is fallback
    assert outcome.diagnostics.tolerant_recovered
    assert text.endswith(outcome.discarded)
    strict_shown, strict = read(text, cut_by_limit=cut)
    assert (strict_shown, strict.calls) == (text, ())


@pytest.mark.contract("TOOL-018")
@pytest.mark.parametrize(
    ("text", "cut"),
    [
        (call().removesuffix("</function>\n</tool_call>"), False),  # the model stopped there by itself
        (call("f", "<parameter=s>\nlong te").removesuffix("</function>\n</tool_call>"), True),  # nothing is complete
        (call("f", "<parameter=a>\n1\n</parameter>\nhello "), True),  # it is wrong, not cut
        ("<tool_call> is the tag", False),
        (call("f", "<parameter=s>\nsee <parameter=x> there\n</parameter>\n"), False),
        (call("f", "<parameter=s>\n" * 8), False),  # too much is missing
    ],
)
def test_not_recovered(text: str, cut: bool) -> None:
    shown, outcome = read(text, tolerant=True, cut_by_limit=cut)
    assert (shown, outcome.calls) == (text, ())


@pytest.mark.contract("TOOL-023")
@pytest.mark.parametrize(
    ("reasoning", "before", "expected"),
    [
        ("Need the list.\n" + call("ls", ""), "Need the list.", [("ls", {})]),  # TOOL-10
        (call("ls", "") + call() + "\n", "", [("ls", {}), ONE]),
        (call("ls", "") + "\nNow wait.", None, []),  # prose follows
        (call("ls", "") + call()[:50], None, []),  # a cut call follows
        (call("rm"), None, []),  # undeclared
        (call().replace("=f>", "=f"), None, []),  # not strict
        ("nothing", None, []),
    ],
)
def test_recovery_from_reasoning(reasoning: str, before: str | None, expected: Calls) -> None:
    outcome = recover_from_reasoning(reasoning, TOOLS)
    if before is None:
        assert outcome is None
        return
    assert outcome is not None
    assert (outcome.text, calls(outcome)) == (before, expected)
    assert outcome.diagnostics.recovered_from_reasoning
    assert outcome.diagnostics.tolerant_recovered


def test_diagnostics_count() -> None:
    body = "<parameter=a>x</parameter><parameter=a>y</parameter><parameter=b></parameter>"
    _, outcome = read("no <tool_call> " + call("f", body) * 2)
    assert outcome.diagnostics == ToolDiagnostics(
        marker_seen=True, empty_arguments_omitted=2, arguments_mismatched=2, duplicate_parameters_repaired=2
    )


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["I look", ".\n", "\nSo ", "it is"], ["I look", ".", "\n\nSo", " it is"]),
        (["a <", "b"], ["a", " <b"]),
        (["x <tool", "_call", "> is"], ["x", "", " <tool_call> is"]),
        (["<tool_call>\n<function=", "rm", ">"], ["", "", "<tool_call>\n<function=rm>"]),
        ([call(), " ", "Done"], ["", "", call() + " Done"]),
        (["```\n", "<tool_call>"], ["```", "\n<tool_call>"]),
    ],
)
def test_text_is_held_only_while_it_may_be_a_call(pieces: list[str], shown: list[str]) -> None:
    front = ToolFront(TOOLS)
    assert [front.feed(piece) for piece in pieces] == shown


def test_one_delta_may_hold_everything() -> None:
    """TOOL-02."""
    whole = call("f", "<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n</parameter>\n")
    at = whole.index("<parameter")
    _, outcome = read(whole, pieces=[whole[:at], whole[at:]])
    assert calls(outcome) == [("f", {"a": 1, "b": 2})]


def test_a_degenerate_reply_ends() -> None:
    opened = "<tool_call>\n<function=f>\n<parameter=s>\n" * 2000
    for tolerant in (False, True):
        shown, outcome = read(opened, tolerant=tolerant)
        assert (shown, outcome.calls) == (opened, ())


fragments = st.one_of(
    st.sampled_from([call(), call("ls", ""), call("f", "<parameter=s>\nx <b> y\n</parameter>\n"), call("rm")]),
    st.sampled_from(
        [
            "<tool_call>",
            "</tool_call>",
            "<function=f>",
            "<function=ls",
            "</function>",
            "<parameter=a>",
            "<parameter=s>\n",
        ]
    ),
    st.sampled_from(["</parameter>", '<invoke name="f">', "</invoke>", "function=f>", "<param=a>", "</param>", "<=f>"]),
    st.sampled_from(["<", ">", "\n", "\n\n", " ", "```\n", "x", "1", "<function_calls>", "</function_calls>"]),
    st.text("<>/=_f\n ", max_size=3),
)
texts = st.lists(fragments, max_size=10).map("".join)


@given(texts, st.booleans(), st.booleans(), st.data())
def test_pieces_do_not_show(text: str, tolerant: bool, cut: bool, data: st.DataObject) -> None:
    borders = sorted(data.draw(st.sets(st.integers(0, len(text)))) | {0, len(text)})
    pieces = [text[a:b] for a, b in itertools.pairwise(borders)]
    expected = read(text, tolerant=tolerant, cut_by_limit=cut)
    assert read(text, tolerant=tolerant, cut_by_limit=cut, pieces=pieces) == expected
    assert read(text, tolerant=tolerant, cut_by_limit=cut, pieces=text) == expected


@given(texts, st.booleans(), st.booleans())
def test_no_byte_is_lost(text: str, tolerant: bool, cut: bool) -> None:
    shown, outcome = read(text, tolerant=tolerant, cut_by_limit=cut)
    if not outcome.calls:
        assert shown == text
        return
    assert text.startswith(shown)
    region = text[len(shown) :].lstrip()
    assert region.endswith(outcome.discarded)
    if not tolerant:
        assert outcome.discarded == ""
        assert read(region)[1].calls == outcome.calls  # the region alone says the same
    elif outcome.calls and not cut:
        used = region.removesuffix(outcome.discarded)
        assert read(used, tolerant=True)[1].calls == outcome.calls


values = st.text("ab<>/=\n parmet", max_size=20).filter(lambda text: "</parameter>" not in text)


@pytest.mark.contract("TOOL-008")
@given(st.lists(st.tuples(st.sampled_from("stu"), values), max_size=3, unique_by=lambda item: item[0]))
def test_string_values_come_back_as_they_were(parameters: list[tuple[str, str]]) -> None:
    body = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in parameters)
    _, outcome = read(call("f", body))
    assert calls(outcome) == [("f", dict(parameters))]
