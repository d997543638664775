"""The template that renders prompts, chosen by the text of a template from an artifact or a file."""

from collections.abc import Mapping

from ninfer.prompt.foreign import ForeignTemplate
from ninfer.prompt.maintained import maintained_variant
from ninfer.prompt.probes import check_renders
from ninfer.prompt.template import Template


def open_template(source: str, named_tokens: Mapping[str, str], *, as_it_is: bool = False) -> Template:
    """The template of `source`, in a process of its own; for one of the family our variant, unless `as_it_is`.

    Raises:
        BadTemplate: it does not compile, does not render a chat, or leaves out the user's text.
    """
    template = ForeignTemplate(source)
    try:
        check_renders(template, named_tokens)
        variant = None if as_it_is else maintained_variant(template)
    except BaseException:
        template.close()
        raise
    if variant is None:
        return template
    template.close()
    return variant
