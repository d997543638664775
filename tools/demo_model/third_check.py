"""The third set's cases as conversations, and what replies to them come to: numbers alone, so that it stays unread.

Knows no model and no engine; judges by the rule that stands with the cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tools.demo_model import third_set
from tools.demo_model.render import Example, assistant
from tools.demo_model.second_check import take_apart

CASES: tuple[Any, ...] = (*third_set.SENTENCES, *third_set.REQUESTS)


def _rendered(message: Any) -> dict[str, Any]:
    """A message with what rendering needs: earlier replies without their thoughts."""
    return assistant(message["content"]) if message["role"] == "assistant" else dict(message)


def examples(*, thinking: bool) -> list[Example]:
    """The cases with an answer to come, sentences first."""
    return [
        Example(
            task="third",
            messages=[*map(_rendered, case.messages), assistant("")],
            tools=list(getattr(case, "tools", ())) or None,
            thinking=thinking,
        )
        for case in CASES
    ]


def report(replies: Sequence[str], *, thinking: bool) -> str:
    """One line: how many sentences got a sensible answer, how many requests the right calls."""
    sensible = right = 0
    for case, reply in zip(CASES, replies, strict=True):
        if isinstance(case, third_set.Sentence):
            sensible += third_set.is_sensible(case, take_apart(reply, (), thinking=thinking))
        else:
            right += third_set.is_right_call(case, take_apart(reply, case.tools, thinking=thinking))
    return (
        f"third set, {'thinking' if thinking else 'not thinking'}: sensible {sensible} of {len(third_set.SENTENCES)},"
        f" right calls {right} of {len(third_set.REQUESTS)}"
    )
