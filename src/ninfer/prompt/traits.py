"""What a chat template can do, learnt by rendering small conversations once when it is loaded.

Nothing here depends on a model's name. It knows templates and the spelling of a think block, no tokens.
"""

import contextlib
from collections.abc import Mapping, Sequence

import attrs

from ninfer.conversation import EFFORTS, InvalidRequest
from ninfer.prompt.probes import MARK, Probes

THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"


@attrs.frozen(kw_only=True)
class TemplateTraits:
    """Answers of a template's probe renderings."""

    shows_developer: bool
    """A developer turn at the head is accepted and its text rendered."""
    shows_second_system: bool
    """A second system turn at the head is accepted and its text rendered."""
    thinking_switchable: bool
    """`enable_thinking` changes the rendering."""
    thinks_by_default: bool
    """Leaving `enable_thinking` out is the same as true, and not the same as false."""
    openers: Mapping[bool | None, str]
    """`enable_thinking`, None for unset -> the text with which the assistant's turn to be written begins."""

    @classmethod
    def probe(cls, template: Probes, named_tokens: Mapping[str, str]) -> "TemplateTraits":
        """Render the probes; a probe that the template refuses counts as "no"."""

        def render(roles: Sequence[str], **options: bool) -> str | None:
            turns = [{"role": role, "content": f"{MARK}-{at}"} for at, role in enumerate(roles)]
            variables = {**named_tokens, "messages": turns, "tools": None, "add_generation_prompt": True} | options
            try:
                return template.render(variables)
            except InvalidRequest:
                return None

        modes: dict[bool | None, dict[str, bool]] = {
            None: {},
            True: {"enable_thinking": True},
            False: {"enable_thinking": False},
        }
        whole = {mode: render(["user"], **options) for mode, options in modes.items()}
        openers: dict[bool | None, str] = {}
        for mode, options in modes.items():
            closed, opened = render(["user"], **options, add_generation_prompt=False), whole[mode]
            if closed is not None and opened is not None and opened.startswith(closed):
                openers[mode] = opened[len(closed) :]
        unset, on, off = whole[None], whole[True], whole[False]
        return cls(
            shows_developer=f"{MARK}-0" in (render(["developer", "user"]) or ""),
            shows_second_system=f"{MARK}-1" in (render(["system", "system", "user"]) or ""),
            thinking_switchable=on is not None and off is not None and on != off,
            thinks_by_default=unset is not None and unset == on and unset != off,
            openers=openers,
        )


@attrs.frozen
class EffortLevels:
    """Effort levels that a template accepts, from least to most."""

    accepted: tuple[str, ...]

    @classmethod
    def probe(cls, template: Probes, named_tokens: Mapping[str, str]) -> "EffortLevels":
        """Render each standard level once, on a chat of one message (THINK-013)."""
        chat = [{"role": "user", "content": MARK}]
        variables = {**named_tokens, "messages": chat, "tools": None, "add_generation_prompt": True}
        accepted = []
        for level in EFFORTS:
            with contextlib.suppress(InvalidRequest):
                template.render({**variables, "reasoning_effort": level})
                accepted.append(level)
        return cls(tuple(accepted))

    def nearest(self, effort: str) -> str:
        """The accepted level nearest to `effort`, the higher one of two (THINK-014).

        Where no level is accepted, or `effort` is none of the standard ones, it stays for the template to judge.
        """
        if not self.accepted or effort not in EFFORTS:
            return effort
        asked = EFFORTS.index(effort)
        return min(self.accepted, key=lambda level: (abs(EFFORTS.index(level) - asked), -EFFORTS.index(level)))
