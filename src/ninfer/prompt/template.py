"""Chat templates as the prompt sees them: variables in, text out, under bounds.

`ChatTemplate` renders here, and is for templates whose text is ours: between two pieces of output nothing bounds it. A
stranger's template is a `foreign.ForeignTemplate`. What a template refuses is the caller's fault (`InvalidRequest`,
code invalid_prompt); one that does not compile is `BadTemplate`. It knows nothing of turns or tokens.
"""

import datetime
import json
from collections.abc import Callable, Mapping
from typing import Protocol

from ninfer.conversation import InvalidRequest, RequestError
from ninfer.prompt.bounds import RenderBounds
from ninfer.sandbox.environment import BadSource, Compiled, Refused, to_json

__all__ = ["BadTemplate", "ChatTemplate", "RenderingStopped", "RenderingTooLong", "Template", "to_json"]


class BadTemplate(ValueError):
    """The text is no usable template; the message says where."""


class RenderingStopped(InvalidRequest):
    """A rendering was stopped at one of its bounds."""


class RenderingTooLong(RenderingStopped):
    """The rendering has more characters than it may have."""


class Template(Protocol):
    """A compiled chat template. Safe to share between threads."""

    @property
    def own_text(self) -> str:
        """All text that the template can write without being given it."""
        ...

    @property
    def variables(self) -> frozenset[str]:
        """Names that the template reads and nowhere sets itself."""
        ...

    @property
    def shows_every_turn(self) -> bool:
        """Whether each turn and call has its frame in every rendering, leading system and developer turns aside."""
        ...

    @property
    def in_place(self) -> bool:
        """Whether a rendering takes time in proportion to its variables, so that small ones need no other thread."""
        ...

    def render(self, variables: Mapping[str, object], bounds: RenderBounds | None = None) -> str:
        """The text for `variables`, which the template cannot change.

        Raises:
            InvalidRequest: code invalid_prompt; the template refuses them or cannot handle them.
            RenderingStopped: a bound was reached.
            Abandoned: the cancellation in `bounds` has told so.
        """
        ...

    def close(self) -> None:
        """Give back what rendering takes beside this process. Idempotent."""
        ...


class ChatTemplate:
    """A template whose text is ours, rendered in this process. Immutable."""

    in_place = True

    def __init__(
        self,
        source: str,
        *,
        constants: Mapping[str, object] | None = None,
        shows_every_turn: bool = False,
        local_time: Callable[[], datetime.datetime] = datetime.datetime.now,
    ) -> None:
        """Compile `source`; `local_time` is what a template's `strftime_now` formats.

        `constants` are JSON values that belong to the template: variables of a request cannot take their names.

        Raises:
            BadTemplate: the source is not valid Jinja.
        """
        self.source = source
        self.shows_every_turn = shows_every_turn
        self._constants = dict(constants or {})
        self.own_text = source + json.dumps(self._constants, ensure_ascii=False)
        """All text that the template can write without being given it."""
        try:
            self._compiled = Compiled(source, local_time)
        except BadSource as error:
            raise bad_template(str(error)) from error

    @property
    def variables(self) -> frozenset[str]:
        """Names that the template reads and nowhere sets itself."""
        return self._compiled.variables

    def render(self, variables: Mapping[str, object], bounds: RenderBounds | None = None) -> str:
        """The text for `variables`, which the template cannot change; see `Template.render`."""
        bounds = bounds or RenderBounds()
        pieces: list[str] = []
        chars = 0
        try:
            for piece in self._compiled.pieces({**variables, **self._constants}):
                pieces.append(piece)
                chars += len(piece)
                bounds.cancellation.check()
                if chars > bounds.chars:
                    raise too_long(bounds)
                if bounds.left_s < 0:
                    raise too_slow(bounds)
        except Refused as error:
            raise InvalidRequest(refusal(str(error)), code=REFUSAL_CODE) from error
        except MemoryError as error:
            raise RenderingStopped(refusal("it takes more memory than there is"), code=REFUSAL_CODE) from error
        return "".join(pieces)

    def close(self) -> None:
        """Nothing to give back."""


REFUSAL_CODE = "invalid_prompt"


_REFUSED = "The chat template cannot render this conversation: "


def refusal(reason: str) -> str:
    """The message of a conversation that a template does not render."""
    return f"{_REFUSED}{reason}"


def reason(error: RequestError) -> str:
    """What was given to `refusal`."""
    return error.message.removeprefix(_REFUSED)


def too_long(bounds: RenderBounds) -> RenderingTooLong:
    """The error of a rendering with more characters than `bounds` allow."""
    return RenderingTooLong(refusal(f"it is too long: more than {bounds.chars} characters"), code=REFUSAL_CODE)


def too_slow(bounds: RenderBounds) -> RenderingStopped:
    """The error of a rendering that takes longer than `bounds` allow."""
    return RenderingStopped(refusal(f"it takes longer than {bounds.seconds:g} s"), code=REFUSAL_CODE)


def bad_template(reason: str) -> BadTemplate:
    """The error of a template that is none, in one line."""
    return BadTemplate(" ".join(reason.split()))
