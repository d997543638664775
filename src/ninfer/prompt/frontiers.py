"""Cache frontiers: which numbers of a prompt's tokens end where something worth keeping ends.

A place is found by rendering the conversation once more with a private character in it: if the rendering is the same
but for that character, its place there is the place in the prompt. A place that changes the rendering, or lies within
a token, is no frontier and is left out; the prompt itself never changes (CACHE-HINT-010). Nothing is stored here.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

import attrs

from ninfer.prompt.caller import CallerText, Variables, bind
from ninfer.prompt.control import SafeRendering
from ninfer.prompt.encoded import EncodedRendering
from ninfer.prompt.messages import FIRST_TURN
from ninfer.prompt.template import to_json


@attrs.frozen(kw_only=True)
class CacheFrontiers:
    """Numbers of tokens at the beginning of one prompt."""

    asked: tuple[int, ...] = ()
    """Ends of the prefixes that the caller marks, ascending."""
    leading: int | None = None
    """End of the tools and the leading system turn: where the first turn of the conversation begins."""
    opener: int | None = None
    """Where the assistant's turn that is to be written begins."""


@attrs.frozen(kw_only=True)
class Wanted:
    """The places of one conversation that may be worth keeping."""

    asked: tuple[int, ...] = ()
    """Keys of the marks in contents for which the caller has asked."""
    behind_calls: tuple[int, ...] = ()
    """Places in `messages` of the turns behind whose last call the caller asks for one."""
    behind_tools: tuple[int, ...] = ()
    """Places in `tools` of the declarations behind which the caller asks for one."""
    leads: bool = False
    """Tools or a system turn come first."""
    opener: str | None = None
    """What the template may end with: the beginning of the assistant's turn."""


def cache_frontiers(
    rendering: SafeRendering, encoded: EncodedRendering, variables: Mapping[str, Variables], wanted: Wanted
) -> CacheFrontiers:
    """The frontiers of a conversation that was rendered from `variables`.

    Raises:
        InvalidRequest: code invalid_prompt; the texts leave no private character, or a bound of renderings was reached.
    """
    turn_start = rendering.first_control(wanted.opener) if wanted.opener else None
    leads = wanted.leads and turn_start is not None
    found = _find_marks(rendering, [*wanted.asked, *([FIRST_TURN] if leads else [])])
    first = found.pop(FIRST_TURN, None)
    if leads and first is None:  # text in that turn changes it; up to its content nothing has changed
        (character,) = rendering.private_characters(1)
        changed = rendering.again(lambda text: rendering.marked(text, {FIRST_TURN: character}, trimmed=False))
        first = None if changed is None else _shared_chars(rendering.text, changed)
    places = [*found.values(), *_ends_of_calls(rendering, variables, wanted.behind_calls)]
    counts = [encoded.tokens_before(place) for place in places]
    for place in _ends_of_tools(rendering, variables, wanted.behind_tools):
        rest = rendering.text[place:]
        # A line break that the template writes behind a declaration is often part of the declaration's last token.
        separated = place + len(rest) - len(rest.lstrip())
        counts.append(encoded.tokens_before(place) or encoded.tokens_before(separated))
    leading = rendering.text.rfind(turn_start, 0, first) if first is not None and turn_start is not None else 0
    opened, opener = rendering.opened, wanted.opener
    return CacheFrontiers(
        asked=tuple(sorted({count for count in counts if count})),
        leading=encoded.tokens_before(leading) if leading > 0 else None,
        opener=encoded.tokens_before(len(opened) - len(opener)) if opener and opened.endswith(opener) else None,
    )


def _find_marks(rendering: SafeRendering, keys: Sequence[int]) -> dict[int, int]:
    """Key -> place, of the marks that can be found: all at once, or else each for itself."""
    if not keys:
        return {}
    characters = dict(zip(keys, rendering.private_characters(len(keys)), strict=True))
    found = _find_characters(rendering, characters, trimmed=False)
    if found is not None:
        return found
    alone: dict[int, int] = {}
    for key, character in characters.items():
        for trimmed in (False, True):
            one = _find_characters(rendering, {key: character}, trimmed=trimmed)
            if one is not None:
                alone |= one
                break
    return alone


def _find_characters(
    rendering: SafeRendering, characters: Mapping[int, str], *, trimmed: bool
) -> dict[int, int] | None:
    """Key -> place, of all `characters`; None if they change the rendering or one is not there exactly once."""

    def spell(text: CallerText) -> str:
        return rendering.marked(text, characters, trimmed=trimmed) if text.marks else rendering.spell(text)

    rendered = rendering.again(spell)
    if rendered is None:
        return None
    key_of = {character: key for key, character in characters.items()}
    parts = re.split(f"([{''.join(key_of)}])", rendered)
    if "".join(parts[::2]) != rendering.text or sorted(parts[1::2]) != sorted(key_of):
        return None
    found: dict[int, int] = {}
    place = 0
    for text, character in zip(parts[::2], parts[1::2], strict=False):
        place += len(text)
        found[key_of[character]] = place
    return found


def _ends_of_tools(
    rendering: SafeRendering, variables: Mapping[str, Variables], marked: Sequence[int]
) -> Iterator[int]:
    """Where the declarations at the places `marked` end, in a template that shows them as JSON, one after the other."""
    tools = variables["tools"]
    if not marked or not isinstance(tools, list):
        return
    end = 0
    for at, tool in enumerate(tools[: max(marked) + 1]):
        shown = to_json(bind(tool, rendering.spell))
        place = rendering.text.find(shown, end)
        if place < 0:
            return
        end = place + len(shown)
        if at in marked:
            yield end


def _ends_of_calls(
    rendering: SafeRendering, variables: Mapping[str, Variables], marked: Sequence[int]
) -> Iterator[int]:
    """Where the last calls of the messages at the places `marked` end: up to there one more call changes nothing."""
    messages = variables["messages"]
    assert isinstance(messages, list)
    for at in marked:
        message = messages[at]
        assert isinstance(message, dict)
        calls = message["tool_calls"]
        assert isinstance(calls, list)
        (character,) = rendering.private_characters(1)
        extra: Variables = {"type": "function", "id": character, "function": {"name": character, "arguments": {}}}
        longer: list[Variables] = [*messages[:at], {**message, "tool_calls": [*calls, extra]}, *messages[at + 1 :]]
        rendered = rendering.again(rendering.spell, {**variables, "messages": longer})
        if rendered is not None and character in rendered:
            yield _shared_chars(rendering.text, rendered)


def _shared_chars(one: str, other: str) -> int:
    """Characters that both texts begin with."""
    sizes = range(1, min(len(one), len(other)) + 1)
    return bisect_left(sizes, True, key=lambda size: one[:size] != other[:size])
