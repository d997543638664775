"""Tool calls in the text of a reply: content before, calls after, and why markup was not taken.

A pure function of the text, with an incremental front that shows content as soon as it cannot be part of a call: a
trailing beginning of a marker, white space before it, and a region that is still well-formed are held. The first
region that reads as nothing but calls up to the end of the text is the turn's calls; other markup, and markup in a
code fence, is content. It knows no tokens and no protocol; executing calls is nobody's business here.

Invariant: without calls the content is the text, byte for byte; with calls it is the text before the region without
the white space at its end.
"""

import re
from collections.abc import Mapping

import attrs

from ninfer.conversation import JSONValue
from ninfer.reply.fences import FenceTracker
from ninfer.reply.tool_arguments import type_arguments
from ninfer.reply.tool_markup import HEADS, WRAPPERS, Fallback, Region

MAX_REJECTED_CHARS = 1 << 18
"""Once regions of this length together have failed the rest is content: a degenerate reply, which opens calls without
end and closes none, must not take quadratic time."""

_TAGS = (*WRAPPERS, *WRAPPERS.values(), *HEADS)
_TAG = re.compile("|".join(map(re.escape, _TAGS)))
_BEGINNINGS = frozenset(tag[:end] for tag in _TAGS for end in range(1, len(tag)))
_LONGEST_BEGINNING = max(map(len, _BEGINNINGS))


@attrs.frozen(kw_only=True)
class ParsedCall:
    """One call with typed arguments, in the order in which the model named them."""

    name: str
    arguments: Mapping[str, JSONValue]


@attrs.frozen(kw_only=True)
class ToolDiagnostics:
    """What happened; no argument and no generated text."""

    marker_seen: bool = False
    """A complete opening tag stood outside code fences."""
    fallback: Fallback = Fallback.NONE
    empty_arguments_omitted: int = 0
    arguments_mismatched: int = 0
    duplicate_parameters_repaired: int = 0
    tolerant_recovered: bool = False
    """Tolerant reading made calls of what strict reading refuses."""
    recovered_from_reasoning: bool = False
    """The calls stood in a think block that was never closed."""


@attrs.frozen(kw_only=True)
class ToolOutcome:
    """The end of a reply."""

    text: str
    """Content that was held until now."""
    calls: tuple[ParsedCall, ...]
    discarded: str
    """What followed the recovered calls and is neither content nor call (tolerant mode only)."""
    diagnostics: ToolDiagnostics


class ToolFront:
    """Reads the text of one channel. `feed` it, show what it returns, and `finish` it."""

    def __init__(self, declared: Mapping[str, Mapping[str, object]], *, tolerant: bool = False) -> None:
        """`declared`: tool name -> JSON Schema of its parameters object. `tolerant` recovers damaged calls."""
        self._declared = declared
        self._tolerant = tolerant
        self._shown: list[str] = []  # content for the next answer
        self._space: list[str] = []  # white space at the end of the content: it is not shown before a region
        self._unread = ""  # what may yet become a tag
        self._region: Region | None = None
        self._region_text: list[str] = []  # the region's text so far, its first tag included
        self._marker_seen = False
        self._rejected_chars = 0
        self._fences = FenceTracker()
        self._wrapper_closer: str | None = None  # of a wrapper that failed: functions in it are no regions
        self._fallback = Fallback.NONE

    def feed(self, text: str) -> str:
        """Take new text, return the content that can be shown now."""
        if self._region is None:
            self._unread += text
        else:
            self._region_text.append(text)
            self._region.feed(text)
        self._advance()
        return self._take()

    def finish(self, *, cut_by_limit: bool = False) -> ToolOutcome:
        """The text ends here; `cut_by_limit` if the output limit or the context ended it, not the model."""
        while self._region is not None:
            self._region.finish()
            outcome = self._structured(self._region, cut_by_limit)
            if outcome is not None:
                return outcome
            self._reject(self._region)
            self._advance()
        self._content(self._unread)
        self._unread = ""
        diagnostics = ToolDiagnostics(marker_seen=self._marker_seen, fallback=self._fallback)
        return ToolOutcome(text=self._take() + "".join(self._space), calls=(), discarded="", diagnostics=diagnostics)

    def _take(self) -> str:
        shown = "".join(self._shown)
        self._shown.clear()
        return shown

    def _content(self, text: str) -> None:
        """`text` is content, whatever follows."""
        self._fences.feed(text)
        body = text.rstrip()
        if body:
            self._shown += [*self._space, body]
            self._space.clear()
        self._space.append(text[len(body) :])

    def _advance(self) -> None:
        """Go as far as the text so far decides."""
        while True:
            if self._region is not None:
                if self._region.failure is None or (self._region.calls and self._tolerant):
                    return
                self._reject(self._region)
            tired = self._rejected_chars > MAX_REJECTED_CHARS
            found = None if tired else _TAG.search(self._unread)
            if found is None:
                keep = 0 if tired else _beginning_chars(self._unread)
                self._content(self._unread[: len(self._unread) - keep])
                self._unread = self._unread[len(self._unread) - keep :]
                return
            self._content(self._unread[: found.start()])
            self._unread = self._unread[found.start() :]
            if self._opens_region(found.group()):
                self._marker_seen = True
                self._region = Region(self._declared, tolerant=self._tolerant)
                self._region_text, self._unread = [self._unread], ""
                self._region.feed(self._region_text[0])
            else:
                self._pass(found.group())

    def _opens_region(self, tag: str) -> bool:
        """Whether `tag`, with all content before it known, begins a region."""
        if self._fences.inside:
            return False
        if tag == self._wrapper_closer:
            self._wrapper_closer = None
        return tag in WRAPPERS or (tag in HEADS and self._wrapper_closer is None)

    def _pass(self, tag: str) -> None:
        """The tag at the beginning of the unread text is content."""
        self._content(tag)
        self._unread = self._unread[len(tag) :]

    def _reject(self, region: Region) -> None:
        """The region's first tag is content; its text is read again from there."""
        self._rejected_chars += region.read_chars
        self._region, self._unread = None, "".join(self._region_text)
        self._region_text.clear()
        if self._fallback is Fallback.NONE:
            self._fallback = region.failure or Fallback.MALFORMED_STRUCTURE
        tag = next(tag for tag in (*WRAPPERS, *HEADS) if self._unread.startswith(tag))
        self._wrapper_closer = WRAPPERS.get(tag, self._wrapper_closer)
        self._pass(tag)

    def _structured(self, region: Region, cut_by_limit: bool) -> ToolOutcome | None:
        """The outcome if the region, which has ended, holds calls; else None."""
        calls, broken = region.calls, region.failure is not None
        if broken and not self._tolerant:
            return None
        if not calls and region.cut is not None and cut_by_limit and region.ended_inside:
            calls = [region.cut]
        if not calls:
            return None
        typed = [type_arguments(call.parameters, self._declared.get(call.name, {})) for call in calls]
        return ToolOutcome(
            text=self._take(),
            calls=tuple(
                ParsedCall(name=call.name, arguments=arguments.values)
                for call, arguments in zip(calls, typed, strict=True)
            ),
            discarded="".join(self._region_text)[region.used_chars :] if broken else "",
            diagnostics=ToolDiagnostics(
                marker_seen=True,
                fallback=Fallback.TRUNCATED_TAIL if broken else Fallback.NONE,
                empty_arguments_omitted=sum(arguments.empty_omitted for arguments in typed),
                arguments_mismatched=sum(arguments.mismatched for arguments in typed),
                duplicate_parameters_repaired=sum(arguments.duplicates for arguments in typed),
                tolerant_recovered=broken or region.repaired,
            ),
        )


def recover_from_reasoning(reasoning: str, declared: Mapping[str, Mapping[str, object]]) -> ToolOutcome | None:
    """The calls at the end of a think block that the model never closed; None if there are none.

    Read strictly, and `text` is the reasoning before them. To be asked in tolerant mode only, of a reply that the
    model ended by itself inside its thinking, without content and without calls (TOOL-025).
    """
    front = ToolFront(declared)
    before = front.feed(reasoning)
    outcome = front.finish()
    if not outcome.calls:
        return None
    diagnostics = attrs.evolve(outcome.diagnostics, tolerant_recovered=True, recovered_from_reasoning=True)
    return attrs.evolve(outcome, text=before + outcome.text, diagnostics=diagnostics)


def _beginning_chars(text: str) -> int:
    """Length of the longest end of `text` that may begin a tag."""
    sizes = range(min(_LONGEST_BEGINNING, len(text)), 0, -1)
    return next((size for size in sizes if text[-size:] in _BEGINNINGS), 0)
