"""The Jinja environment of chat templates: what models' templates expect of it, inside a sandbox.

A template reaches no file, no attribute with an underscore and no module, and cannot change what it is given. It can
still run for ever and take all memory, within one expression and while it is compiled: only a process bounds that.
"""

import datetime
import json
from collections.abc import Callable, Iterator, Mapping
from typing import NoReturn

import jinja2
import jinja2.meta
from jinja2 import nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_ITEMS = 64 << 20
"""Most characters or items of a product that a template may make."""

MAX_REASON_CHARS = 2000


class BadSource(ValueError):
    """The text is no usable template; the message says why and where."""


class Refused(Exception):
    """The template refuses its variables, or cannot handle them; the message says why."""


class _RaisedByTemplate(jinja2.TemplateError):
    """The template itself has called `raise_exception`."""


class _Generation(Extension):
    """`{% generation %}`: trainers find the model's own words by it; here its body is rendered, and nothing else."""

    def __init__(self, environment: jinja2.Environment) -> None:
        super().__init__(environment)
        self.tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        """The body, in a scope of its own as trainers' tools have it."""
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class _Sandbox(ImmutableSandboxedEnvironment):
    """The sandbox, with products of strings and sequences bounded."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: object, right: object) -> object:
        """Refuse what would be huge; everything else is the plain operator."""
        if operator == "*" and max(_product_items(left, right), _product_items(right, left)) > MAX_ITEMS:
            raise jinja2.TemplateRuntimeError("a product is too large")
        if operator == "**" and isinstance(right, int | float) and right > 64:
            raise jinja2.TemplateRuntimeError("a power is too large")
        return super().call_binop(context, operator, left, right)


class Compiled:
    """A compiled template. Immutable and safe to share between threads."""

    def __init__(self, source: str, local_time: Callable[[], datetime.datetime] = datetime.datetime.now) -> None:
        """Compile `source`; `local_time` is what a template's `strftime_now` formats.

        Raises:
            BadSource: the source is not valid Jinja, or is more than the compiler can take.
        """
        environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[LoopControlExtension, _Generation])
        environment.filters["tojson"] = to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda pattern: local_time().strftime(pattern)
        try:
            self._template = environment.from_string(source)
            self.variables = _read_only(environment.parse(source))
            """Names that the template reads and nowhere sets itself."""
        except jinja2.TemplateSyntaxError as error:
            raise BadSource(f"line {error.lineno}: {error.message}") from error
        except Exception as error:  # constants are computed by the compiler, nesting is limited by Python's own
            raise BadSource(_named(error)) from error

    def pieces(self, variables: Mapping[str, object]) -> Iterator[str]:
        """The rendering of `variables`, piece by piece.

        Raises:
            Refused: the template refuses them or cannot handle them.
        """
        try:
            yield from self._template.generate(variables)
        except _RaisedByTemplate as error:
            raise Refused(_shortened(str(error))) from error
        except jinja2.TemplateError as error:
            raise Refused(_shortened(error.message or type(error).__name__)) from error
        except MemoryError:
            raise
        except Exception as error:  # a template has no types: what does not fit its logic fails in Python's words
            raise Refused(_named(error)) from error


def to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as the models were trained on it: no HTML escapes, no ASCII escapes, members in their order."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _read_only(tree: nodes.Template) -> frozenset[str]:
    # What only some branches set counts as undeclared; a template that does so means its own variable.
    own = {name.name for name in tree.find_all(nodes.Name) if name.ctx == "store"}
    return frozenset(jinja2.meta.find_undeclared_variables(tree) - own)


def _product_items(value: object, times: object) -> int:
    """Length of a repeated sequence; 0 if that is not what the product makes."""
    return len(value) * times if isinstance(value, str | list | tuple) and isinstance(times, int) else 0


def _refuse(message: object) -> NoReturn:
    raise _RaisedByTemplate(str(message))


def _named(error: Exception) -> str:
    return _shortened(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


def _shortened(reason: str) -> str:
    """A template may refuse in a megabyte of words."""
    return reason if len(reason) <= MAX_REASON_CHARS else f"{reason[:MAX_REASON_CHARS]}..."
