"""Tools that a caller declares, and the calls that an assistant turn makes of them.

Whoever runs the tools is the caller: nothing here is executed. Names are the ones that the model sees; a protocol
with wider names (namespaces) maps them to these and back.
"""

import re
from collections.abc import Mapping

import attrs

from ninfer.conversation.errors import InvalidRequest

TOOL_NAME = re.compile(r"[A-Za-z0-9_.\-]*")
"""The characters of a tool's name. The model writes it into its markup, where calls are read by the same ones."""

MAX_TOOL_NAME_CHARS = 512
"""Room for two names of 128 characters and what joins them, so that a namespace's function can be called as well."""


@attrs.frozen(kw_only=True)
class Tool:
    """One declared tool. Its name is made of `TOOL_NAME` alone: every tool that is declared can be called."""

    name: str = attrs.field()
    declaration: Mapping[str, object]
    """What the template shows: `{"type": "function", "function": {...}}`, members in the order they were received in
    (TMPL-005)."""
    parameters: Mapping[str, object] | None = None
    """JSON Schema of the arguments; types the values of a call, decides nothing else (TOOL-001, TOOL-002)."""
    free_form: bool = False
    """A tool with one string for its whole input, shown as a function with one string parameter (CHAT-021)."""
    cache_point: bool = False
    """The caller marks a prefix worth keeping that ends with this declaration."""

    @name.validator
    def _can_be_called(self, _: object, name: str) -> None:
        if not 0 < len(name) <= MAX_TOOL_NAME_CHARS or not TOOL_NAME.fullmatch(name):
            raise InvalidRequest(
                f"a tool's name is 1 to {MAX_TOOL_NAME_CHARS} letters, digits, _, - or ., got {name[:60]!a}"
            )


@attrs.frozen(kw_only=True)
class ToolCall:
    """A call, in the history or freshly made. Arguments keep the order in which the model wrote them (TMPL-006)."""

    id: str
    name: str
    arguments: Mapping[str, object]
