"""Tools that a caller declares, and the calls that an assistant turn makes of them.

Whoever runs the tools is the caller: nothing here is executed. Names are the ones that the model sees; a protocol
with wider names (namespaces) maps them to these and back.
"""

from collections.abc import Mapping

import attrs


@attrs.frozen(kw_only=True)
class Tool:
    """One declared tool."""

    name: str
    declaration: Mapping[str, object]
    """What the template shows: `{"type": "function", "function": {...}}`, members in the order they were received in
    (TMPL-005)."""
    parameters: Mapping[str, object] | None = None
    """JSON Schema of the arguments; types the values of a call, decides nothing else (TOOL-001, TOOL-002)."""
    free_form: bool = False
    """A tool with one string for its whole input, shown as a function with one string parameter (CHAT-021)."""
    cache_point: bool = False
    """The caller marks a prefix worth keeping that ends with this declaration."""


@attrs.frozen(kw_only=True)
class ToolCall:
    """A call, in the history or freshly made. Arguments keep the order in which the model wrote them (TMPL-006)."""

    id: str
    name: str
    arguments: Mapping[str, object]
