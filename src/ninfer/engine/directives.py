"""The directive language of the scripted engine (D37): what a prompt asks the engine without a model to say.

Directives stand in the last user turn that has any, as `[[kind]]`, `[[kind:argument]]` or `[[kind:argument {json}]]`:

    say:WORD, say {json}    answer with this word, or with this JSON
    raw:BASE64              exactly this text is the model's output, control tokens and tool markup included
    call:NAME {json}        call a tool; several are parallel calls, in the family's own markup
    then:NAME {json}        call a tool in the turn after the results of the calls before it
    think                   reason before the answer, where the prompt lets the model reason
    pad:N                   N more words after the answer
    trunc                   stop at an output limit where the answer ends, instead of a stop token
    slow:MS, pace:MS        wait before the first token; wait between tokens
    err[:KIND]              fail before the first token: a failed check, or KIND oom, lost (the same, and the device's
                            memory with it), device, crash; err:STATUS is refused before it comes here, see
                            `service.scripted`
    miderr, drop            fail after a few tokens
    ka, ping                nothing: keep-alives are sent by the server whenever a request is slow

Anything else in double brackets is text like any other: clients send shell scripts and wiki links.
It works on the rendered prompt, cut at the family's turn markers. Knows no tokens, no lanes, no time.
"""

import base64
import binascii
import json
import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

import attrs

Fault: TypeAlias = Literal["check", "oom", "lost", "device", "crash"]

GREETING = "pong. Hello from the engine without a model, in small pieces."
THOUGHT = "Let me think about that."
PADDING = " lorem"
RESULT_CHARACTERS = 120
"""How much of a tool's result the answer repeats."""
TOKENS_BEFORE_ERROR = 3
MOST_PADDING = 1e6

_DIRECTIVE = re.compile(r"\[\[(?P<kind>[a-z]+)(?::(?P<argument>[^\s\]{]+))?\s*")
_RESULT = re.compile(r"<tool_response>\n?(.*?)\n?</tool_response>", re.DOTALL)
_FAULTS: dict[str, Fault] = {"oom": "oom", "lost": "lost", "device": "device", "crash": "crash"}
_NUMBERS = frozenset({"slow", "pace", "pad"})
_FLAGS = frozenset({"think", "trunc", "miderr", "drop", "ka", "ping"})
_KINDS = _NUMBERS | _FLAGS | {"say", "raw", "call", "then", "err"}


@attrs.frozen
class Directive:
    """One directive as it is written."""

    kind: str
    argument: str | None
    payload: object
    """The JSON after the argument, None without one."""


@attrs.frozen
class RenderedTurn:
    """One turn of the rendered prompt, without its markers."""

    role: str
    text: str


@attrs.frozen(kw_only=True)
class Script:
    """What to say, and how to fail."""

    text: str
    """All of the output up to the stop token."""
    exact: bool = False
    """Whether token borders are drawn by chance instead of by the tokenizer."""
    truncated: bool = False
    """Whether the output ends at a limit."""
    first_s: float = 0.0
    each_s: float = 0.0
    fault: Fault | None = None
    """What happens instead of the first token."""
    faulty_token: int | None = None
    """Index of the token whose logits are not finite."""


def find_directives(text: str) -> list[Directive]:
    """All directives of `text`, in order. Such that lie in JSON strings (`{\\"a\\": 1}`) are read too."""
    if '{\\"' in text:
        text = text.replace('\\"', '"')
    found: list[Directive] = []
    at = 0
    while (match := _DIRECTIVE.search(text, at)) is not None:
        at = match.end()
        if match["kind"] not in _KINDS:
            continue
        payload: object = None
        if text.startswith("{", at):
            try:
                payload, at = json.JSONDecoder().raw_decode(text, at)
            except (ValueError, RecursionError):
                continue
        found.append(Directive(match["kind"], match["argument"], payload))
    return found


def write_script(turns: Sequence[RenderedTurn]) -> Script:
    """What the engine says after `turns`, the last of which is the assistant's, begun by the template.

    `turns` has to reach back to the user turn with the directives; earlier turns make no difference. A directive
    that cannot be followed is answered with a sentence that says so: no request fails for a typing error.
    """
    asked: list[Directive] = []
    calls_made = 0
    results: list[str] = []
    for turn in turns[:-1]:
        found = [] if turn.role != "user" else [part.strip() for part in _RESULT.findall(turn.text)]
        if found:
            results += found
        elif turn.role == "user" and (directives := find_directives(turn.text)):
            asked, calls_made = directives, 0
        elif turn.role == "assistant" and "<tool_call>" in turn.text:
            calls_made += 1
    opening = turns[-1].text if turns else ""
    try:
        return _follow(asked, opening, calls_made=calls_made, results=results)
    except ValueError as error:
        return Script(text=f"{_reasoning(opening, think=False)}{error}")


def _follow(asked: Sequence[Directive], opening: str, *, calls_made: int, results: Sequence[str]) -> Script:
    numbers = dict.fromkeys(_NUMBERS, 0.0)
    flags: set[str] = set()
    steps: list[list[str]] = [[]]
    said: str | None = None
    raw: str | None = None
    fault: Fault | None = None
    for directive in asked:
        match directive.kind:
            case "say":
                said = directive.argument if directive.payload is None else _compact(directive.payload)
            case "raw":
                raw = _decoded(directive.argument)
            case "call":
                steps[-1].append(_call(directive))
            case "then":
                steps.append([_call(directive)])
            case "err":
                fault = _FAULTS.get(directive.argument or "", "check")
            case kind if kind in _NUMBERS:
                numbers[kind] = _number(directive)
            case kind:
                flags.add(kind)
    steps = [step for step in steps if step]
    if raw is not None:
        text = raw
    else:
        text = _reasoning(opening, think="think" in flags)
        if calls_made < len(steps):
            text += "\n".join(steps[calls_made])
        else:
            quotes_result = results and (steps or not asked)
            text += f"Tool said: {results[-1][:RESULT_CHARACTERS]}" if quotes_result else said or GREETING
            text += PADDING * int(numbers["pad"])
    return Script(
        text=text,
        exact=raw is not None,
        truncated="trunc" in flags,
        first_s=numbers["slow"] / 1000,
        each_s=numbers["pace"] / 1000,
        fault=fault,
        faulty_token=TOKENS_BEFORE_ERROR if {"miderr", "drop"} & flags else None,
    )


def _reasoning(opening: str, *, think: bool) -> str:
    """What comes before the answer, given how the template has begun the assistant's turn."""
    if "</think>" in opening:
        return ""
    if "<think>" in opening:
        return f"{THOUGHT}\n</think>\n\n" if think else "</think>\n\n"
    return f"<think>\n{THOUGHT}\n</think>\n\n" if think else ""


def _call(directive: Directive) -> str:
    if directive.argument is None:
        raise ValueError(f"[[{directive.kind}]] needs the name of a tool.")
    arguments = {} if directive.payload is None else directive.payload
    if not isinstance(arguments, dict):
        raise ValueError(f"The arguments of [[{directive.kind}:{directive.argument}]] are not a JSON object.")
    parameters = "".join(
        f"<parameter={name}>\n{value if isinstance(value, str) else _compact(value)}\n</parameter>\n"
        for name, value in arguments.items()
    )
    return f"<tool_call>\n<function={directive.argument}>\n{parameters}</function>\n</tool_call>"


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _decoded(argument: str | None) -> str:
    try:
        return base64.b64decode(argument or "", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError(f"[[raw]] holds no base64 of UTF-8 text: {error}.") from error


def _number(directive: Directive) -> float:
    try:
        value = float(directive.argument or "")
    except ValueError as error:
        raise ValueError(f"[[{directive.kind}]] needs a number.") from error
    if not 0 <= value < (MOST_PADDING if directive.kind == "pad" else 1e9):
        raise ValueError(f"[[{directive.kind}:{directive.argument}]] is out of range.")
    return value
