"""What a chat template can do, learnt by rendering small conversations once when it is loaded.

Nothing here depends on a model's name. It knows templates and the spelling of a think block, no tokens.
"""

from collections.abc import Mapping, Sequence

import attrs

from ninfer.conversation import InvalidRequest
from ninfer.prompt.template import ChatTemplate

THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"

_MARK = "probe-of-a-leading-turn"


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

    @classmethod
    def probe(cls, template: ChatTemplate, named_tokens: Mapping[str, str]) -> "TemplateTraits":
        """Render the probes; a probe that the template refuses counts as "no"."""

        def render(roles: Sequence[str], **options: bool) -> str | None:
            turns = [{"role": role, "content": f"{_MARK}-{at}"} for at, role in enumerate(roles)]
            variables = {**named_tokens, "messages": turns, "tools": None, "add_generation_prompt": True, **options}
            try:
                return template.render(variables)
            except InvalidRequest:
                return None

        unset, on, off = (
            render(["user"]),
            render(["user"], enable_thinking=True),
            render(["user"], enable_thinking=False),
        )
        return cls(
            shows_developer=f"{_MARK}-0" in (render(["developer", "user"]) or ""),
            shows_second_system=f"{_MARK}-1" in (render(["system", "system", "user"]) or ""),
            thinking_switchable=on is not None and off is not None and on != off,
            thinks_by_default=unset is not None and unset == on and unset != off,
        )
