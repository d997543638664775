"""Wire bodies by structure: the path of what does not fit, and how little is read of a body that is all wrong."""

from collections.abc import Callable
from typing import Annotated, ClassVar

import attrs
import pytest

from ninfer.conversation import InvalidRequest
from ninfer.protocols.structure import Array, Fault, Integer, structure


@attrs.frozen
class NeverRight:
    """A rule that nothing keeps and that remembers what it has seen."""

    seen: ClassVar[list[object]] = []

    def apply(self, value: object, inner: Callable[[object], object]) -> object:
        """Refuse."""
        self.seen.append(value)
        raise Fault("something else", value)


@attrs.frozen(kw_only=True)
class Inner:
    """An object inside."""

    numbers: Annotated[tuple[Annotated[int, Integer(low=0)], ...], Array()] = ()
    wrong: Annotated[tuple[Annotated[object, NeverRight()], ...], Array()] = ()


@attrs.frozen(kw_only=True)
class Body:
    """A body of nested arrays."""

    inner: Annotated[str | tuple[Inner, ...], Array(or_string=True)] = ()


@pytest.mark.parametrize(
    ("value", "param"),
    [
        ([], None),
        ({"inner": 1}, "inner"),
        ({"inner": [{}, 1]}, "inner[1]"),
        ({"inner": [{}, {"numbers": {}}]}, "inner[1].numbers"),
        ({"inner": [{"numbers": [1]}, {"numbers": [1, 2, -1, -2]}]}, "inner[1].numbers[2]"),
    ],
)
def test_the_path_of_the_first_fault(value: object, param: str | None) -> None:
    with pytest.raises(InvalidRequest) as caught:
        structure(value, Body)
    assert caught.value.param == param
    assert caught.value.message.startswith(f"{param or 'body'}: expected ")
    with pytest.raises(InvalidRequest) as inside:
        structure(value, Body, at="tools[3]")
    assert inside.value.param == ("tools[3]" if param is None else f"tools[3].{param}")


def test_what_fits() -> None:
    inner = (Inner(numbers=(1, 2)), Inner())
    assert structure({"inner": [{"numbers": [1, 2]}, {"numbers": None}]}, Body) == Body(inner=inner)
    assert structure({"inner": "text"}, Body) == Body(inner="text")


def test_the_first_fault_ends_the_reading() -> None:
    NeverRight.seen.clear()
    with pytest.raises(InvalidRequest, match=r"inner\[0\].wrong\[0\]: expected something else, got 7"):
        structure({"inner": [{"wrong": [7, 8, 9]}] * 3}, Body)
    assert NeverRight.seen == [7]
