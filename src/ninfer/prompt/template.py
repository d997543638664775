"""Chat templates: the artifact's Jinja text, rendered verbatim inside a sandbox.

It knows nothing of turns or tokens; it turns variables into text. A template reaches no file, no attribute with an
underscore and no module, it cannot change what it is given, and its output and its loops are bounded. What a template
refuses is the caller's fault (`InvalidRequest`, code invalid_prompt); one that does not compile is `BadTemplate`.
"""

import datetime
import json
import time
from collections.abc import Callable, Mapping
from typing import NoReturn

import jinja2
import jinja2.meta
import jinja2.nodes
from jinja2.ext import LoopControlExtension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ninfer.conversation import InvalidRequest

MAX_RENDERED_CHARS = 64 << 20
"""Far above any context; a rendering that is longer ends there."""

MAX_RENDER_S = 20.0
"""A rendering takes milliseconds; one that takes this long never ends."""


class BadTemplate(ValueError):
    """The text is no usable template; the message says where."""


class _Refusal(jinja2.TemplateError):
    """The template itself has called `raise_exception`."""


class _Sandbox(ImmutableSandboxedEnvironment):
    """The sandbox, with products of strings and sequences bounded: they are the one way to make memory from nothing."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: object, right: object) -> object:
        """Refuse what would be huge; everything else is the plain operator."""
        if operator == "*" and max(_product_items(left, right), _product_items(right, left)) > MAX_RENDERED_CHARS:
            raise jinja2.TemplateRuntimeError("a product is too large")
        if operator == "**" and isinstance(right, int | float) and right > 64:
            raise jinja2.TemplateRuntimeError("a power is too large")
        return super().call_binop(context, operator, left, right)


class ChatTemplate:
    """A compiled chat template. Immutable and safe to share between threads."""

    def __init__(
        self,
        source: str,
        *,
        constants: Mapping[str, object] | None = None,
        local_time: Callable[[], datetime.datetime] = datetime.datetime.now,
    ) -> None:
        """Compile `source`; `local_time` is what a template's `strftime_now` formats.

        `constants` are JSON values that belong to the template: variables of a request cannot take their names.

        Raises:
            BadTemplate: the source is not valid Jinja.
        """
        self.source = source
        self._constants = dict(constants or {})
        self.own_text = source + json.dumps(self._constants, ensure_ascii=False)
        """All text that the template can write without being given it."""
        self._environment = environment = _Sandbox(
            trim_blocks=True, lstrip_blocks=True, extensions=[LoopControlExtension]
        )
        environment.filters["tojson"] = to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda pattern: local_time().strftime(pattern)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise BadTemplate(f"chat template, line {error.lineno}: {error.message}") from error

    @property
    def variables(self) -> frozenset[str]:
        """Names that the template reads and nowhere sets itself."""
        tree = self._environment.parse(self.source)
        # What only some branches set counts as undeclared; a template that does so means its own variable.
        own = {name.name for name in tree.find_all(jinja2.nodes.Name) if name.ctx == "store"}
        return frozenset(jinja2.meta.find_undeclared_variables(tree) - own)

    def render(self, variables: Mapping[str, object]) -> str:
        """The text for `variables`, which the template cannot change.

        Raises:
            InvalidRequest: code invalid_prompt; the template refuses them or cannot handle them.
        """
        pieces: list[str] = []
        chars, deadline_s = 0, time.monotonic() + MAX_RENDER_S
        try:
            for piece in self._template.generate({**variables, **self._constants}):
                pieces.append(piece)
                chars += len(piece)
                if chars > MAX_RENDERED_CHARS or time.monotonic() > deadline_s:
                    raise jinja2.TemplateRuntimeError("the rendering is too long")
        except _Refusal as error:
            raise _invalid(str(error)) from error
        except jinja2.TemplateError as error:
            raise _invalid(error.message or type(error).__name__) from error
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            # A template has no types: what does not fit its logic fails in Python's words.
            raise _invalid(f"{type(error).__name__}: {error}") from error
        return "".join(pieces)


def _invalid(reason: str) -> InvalidRequest:
    return InvalidRequest(f"The chat template cannot render this conversation: {reason}", code="invalid_prompt")


def _product_items(value: object, times: object) -> int:
    """Length of a repeated sequence; 0 if that is not what the product makes."""
    return len(value) * times if isinstance(value, str | list | tuple) and isinstance(times, int) else 0


def _refuse(message: object) -> NoReturn:
    raise _Refusal(str(message))


def to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as the models were trained on it: no HTML escapes, no ASCII escapes, members in their order."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
