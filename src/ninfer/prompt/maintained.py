"""The maintained variant of the family's template: which templates it stands for, and what it reads from them.

The format's frame is ours (`maintained.jinja`); the sentences that models were trained on are read from the artifact's
template by probe renderings. They are text, every expression is ours: so the variant is rendered in this process, and
its time grows with its variables alone. Recognition knows no model's name: a template is the family's if the variant
made of it renders every check conversation as it does, to the character. It knows no tokens.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files

import attrs

from ninfer.conversation import EFFORTS, InvalidRequest
from ninfer.prompt.family_checks import CHECKS, MARK, TOOLS
from ninfer.prompt.probes import Probes
from ninfer.prompt.template import ChatTemplate, Template, to_json

_SOURCE = files("ninfer.prompt").joinpath("maintained.jinja")

_KNOWN_VARIABLES = frozenset(
    {
        "messages", "tools", "add_generation_prompt",
        "enable_thinking", "preserve_thinking", "reasoning_effort",
        "add_vision_id",  # matters to images alone
        "namespace", "raise_exception", "range", "strftime_now",
    }
)  # fmt: skip
_CHOICES: Mapping[str, bool | None] = {"unset": None, "on": True, "off": False}
_HEAD, _TURN, _END = "<|im_start|>system\n", f"<|im_start|>user\n{MARK}<|im_end|>\n", "<|im_end|>\n"
_OPENER = "<|im_start|>assistant\n"


@attrs.frozen(kw_only=True)
class FamilyFormat:
    """What an official template says, and in what it differs from the others of its family."""

    tools_head: str
    """What stands before the first declaration, without the line break right before it."""
    tools_tail: str
    """What stands behind the last one."""
    efforts: Mapping[str, Mapping[str, str]]
    """`enable_thinking` (unset, on, off) -> effort level or unset -> its sentence; refused levels are absent."""
    openers: Mapping[str, str]
    """`enable_thinking` -> what follows the header of the assistant's turn that is to be written."""
    keeps: Mapping[str, bool]
    """`preserve_thinking` (unset, on, off) -> whether reasoning of closed turns stays."""
    shows_empty_system: bool
    plain_scalars: bool
    """Arguments that are numbers, booleans or null are not shown as JSON."""
    trims_results: bool


def maintained_variant(template: Template) -> ChatTemplate | None:
    """The maintained variant that stands for `template`; None where `template` is not of the family.

    Raises:
        BadTemplate: a probe reached the bounds of a first rendering.
    """
    if not template.variables <= _KNOWN_VARIABLES:
        return None  # it may mean anything by what it is told
    probes = Probes(template)
    try:
        family = _read(probes)
    except (InvalidRequest, _NotOfTheFamilyError):
        return None
    variant = ChatTemplate(
        _SOURCE.read_text(encoding="utf-8"), constants={"family": attrs.asdict(family)}, shows_every_turn=True
    )
    return variant if all(_agree(probes, variant, variables) for variables in CHECKS) else None


class _NotOfTheFamilyError(Exception):
    """A probe was rendered in a form that the family does not have."""


def _agree(official: Probes, variant: ChatTemplate, variables: Mapping[str, object]) -> bool:
    try:
        expected = official.render(variables)
    except InvalidRequest:
        return True  # what the official one refuses is ours to say
    try:
        return variant.render(variables) == expected
    except InvalidRequest:
        return False


def _read(template: Probes) -> FamilyFormat:
    """Raises `InvalidRequest` or `_NotOfTheFamilyError` for a template that is not of the family."""
    user = {"role": "user", "content": MARK}
    told = {"role": "assistant", "content": MARK, "reasoning_content": "why"}
    call = {"function": {"name": "f", "arguments": {"a": True}}}
    turn = {"role": "assistant", "content": "", "tool_calls": [call]}
    results = _render(template, [user, turn, {"role": "tool", "content": " x"}])
    shown = "\n" + "\n".join(map(to_json, TOOLS))
    with_tools = _render(template, [user], tools=TOOLS, enable_thinking=False)  # no sentence about effort
    head = _between(with_tools, _HEAD, shown)
    with_system = _render(template, [{"role": "system", "content": ""}, user], enable_thinking=False)
    return FamilyFormat(
        tools_head=head,
        tools_tail=_between(with_tools, _HEAD + head + shown, _END + _TURN),
        efforts={name: _efforts(template, enabled) for name, enabled in _CHOICES.items()},
        openers={
            name: _render(template, [user], add_generation_prompt=True, enable_thinking=enabled).rpartition(
                _TURN + _OPENER
            )[2]
            for name, enabled in _CHOICES.items()
        },
        keeps={
            name: "why" in _render(template, [user, told, user], preserve_thinking=preserve)
            for name, preserve in _CHOICES.items()
        },
        shows_empty_system=with_system != _TURN,
        plain_scalars="\nTrue\n" in results,
        trims_results="\n<tool_response>\nx\n" in results,
    )


def _efforts(template: Probes, enabled: bool | None) -> dict[str, str]:
    """Effort level or unset -> the sentence that it puts before everything else, "" for none."""
    sentences: dict[str, str] = {}
    for level in (None, *EFFORTS):
        try:
            chat = [{"role": "user", "content": MARK}]
            rendered = _render(template, chat, enable_thinking=enabled, reasoning_effort=level)
        except InvalidRequest:
            continue
        sentences[level or "unset"] = "" if rendered == _TURN else _between(rendered, _HEAD, _END + _TURN)
    return sentences


def _render(template: Probes, messages: Sequence[Mapping[str, object]], **options: object) -> str:
    """A probe; options that are None are not given."""
    given = {name: value for name, value in options.items() if value is not None}
    return template.render({"messages": list(messages), "tools": None, "add_generation_prompt": False} | given)


def _between(text: str, before: str, after: str) -> str:
    """What stands between `before`, with which the text begins, and the first `after`."""
    inner, found, _ = text.removeprefix(before).partition(after)
    if not text.startswith(before) or not found:
        raise _NotOfTheFamilyError
    return inner
