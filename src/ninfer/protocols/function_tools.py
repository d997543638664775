"""What the protocols ask of the functions that a caller declares, whatever form the declaration has.

It knows names and numbers of calls, no wire form. Names become part of the markup that the model writes.
"""

from collections.abc import Sequence

from ninfer.conversation import TOOL_NAME, InvalidRequest, Tool
from ninfer.protocols.refusal import unsupported
from ninfer.protocols.values import shown

UNCONSTRAINED_ARGUMENTS = "arguments are not constrained by their schema in this build"
UNLIMITED_CALLS = "the number of calls cannot be limited in this build"
CALLED_BY_THE_MODEL = "tools are called by the model alone"

MOST_NAME_CHARS = 128


def check_name(path: str, name: str) -> None:
    """Raise `InvalidRequest` unless `name`, which stands at `path`, is 1 to 128 letters, digits, _, - or dots."""
    if not 0 < len(name) <= MOST_NAME_CHARS or not TOOL_NAME.fullmatch(name):
        raise InvalidRequest(
            f"{path}: expected 1 to {MOST_NAME_CHARS} letters, digits, _, - or ., got {shown(name)}", param=path
        )


def declared_twice(path: str, name: str) -> InvalidRequest:
    """The refusal of a second tool of one name, whose name stands at `path`."""
    return InvalidRequest(f"{path}: {shown(name)} is declared twice", param=path)


def check_parallel(parallel_tool_calls: bool, tools: Sequence[Tool]) -> None:
    """Raise `Unsupported` where one call at most would have to be enforced."""
    if not parallel_tool_calls and tools:
        raise unsupported("parallel_tool_calls", False, UNLIMITED_CALLS)
