"""How a reply is to be thought about: what the request says, then the server's flags, then the template's own default.

It knows no template and no tokens. None always means: nobody has said anything, the template decides (D6).
"""

import attrs

from ninfer.conversation import NO_EFFORT, InvalidRequest, ThinkingFields


@attrs.frozen(kw_only=True)
class PromptDefaults:
    """The server's flags, for requests that do not say."""

    no_thinking: bool = False
    preserve_thinking: bool = False
    effort: str | None = None
    """A standard effort level or "none" (D7)."""


@attrs.frozen(kw_only=True)
class Mode:
    """What the template is told."""

    enabled: bool | None
    effort: str | None
    """As it was asked for; which levels the template accepts is its own business."""
    preserve: bool | None


def resolve_mode(said: ThinkingFields, defaults: PromptDefaults) -> Mode:
    """What `said` and the flags come to.

    A request that names an effort means to think: `--no-thinking` does not hold for it.

    Raises:
        InvalidRequest: code conflicting_template_option; no effort, and thinking switched on.
    """
    enabled, effort = said.enabled, said.effort
    if effort == NO_EFFORT:
        if enabled:
            raise InvalidRequest(
                'reasoning effort "none" contradicts thinking that is switched on', code="conflicting_template_option"
            )
        enabled, effort = False, None
    elif enabled is None and effort is None and (defaults.no_thinking or defaults.effort == NO_EFFORT):
        enabled = False
    if effort is None and enabled is not False and defaults.effort != NO_EFFORT:
        effort = defaults.effort
    preserve = True if said.preserve is None and defaults.preserve_thinking else said.preserve
    return Mode(enabled=enabled, effort=effort, preserve=preserve)
