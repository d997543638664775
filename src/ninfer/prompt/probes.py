"""Renderings of small conversations by which a template is known, when it is loaded and when it is converted.

They are a few hundred, of a stranger's template: together they take no longer than one rendering may, and each is
short. A template that reaches a bound with a conversation of a few words is no template. Knows no tokens.
"""

from collections.abc import Mapping

from ninfer.conversation import EngineUnavailable, InvalidRequest
from ninfer.prompt.bounds import MAX_RENDER_S, RenderBounds
from ninfer.prompt.template import RenderingStopped, Template, bad_template, reason

MAX_PROBE_CHARS = 1 << 18
"""Official templates write some thousand characters around a probe, most of them about tools."""

MARK = "probe-of-a-leading-turn"


class Probes:
    """A template for its first renderings: the same texts, under bounds that they share."""

    def __init__(self, template: Template, *, seconds: float = MAX_RENDER_S) -> None:
        """The clock starts now."""
        self._template = template
        self._bounds = RenderBounds(seconds=seconds, chars=MAX_PROBE_CHARS)

    def render(self, variables: Mapping[str, object]) -> str:
        """The text for `variables`.

        Raises:
            InvalidRequest: the template refuses them.
            BadTemplate: a bound was reached, or the process that renders has ended.
        """
        try:
            return self._template.render(variables, self._bounds)
        except (RenderingStopped, EngineUnavailable) as error:
            raise bad_template(f"a conversation of a few words: {reason(error)}") from error


def check_renders(template: Template, named_tokens: Mapping[str, str]) -> None:
    """Make sure that a template renders a user's message, alone or behind a system's, and that its text is in there.

    Raises:
        BadTemplate: it does not; the message says why.
    """
    probes = Probes(template)
    user = {"role": "user", "content": MARK}
    refused = ""
    for chat in ([user], [{"role": "system", "content": "x"}, user]):
        try:
            variables = {**named_tokens, "messages": chat, "tools": None, "add_generation_prompt": True}
            if MARK in probes.render(variables):
                return
        except InvalidRequest as error:
            refused = refused or reason(error)
    raise bad_template(
        f"the template renders not even a chat of one message: {refused}"
        if refused
        else "the text of a user's message is not in what the template renders: the model would never see it"
    )
