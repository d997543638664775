"""Names that count how often they are compared: quadratic work shows by numbers, not by time."""


class CountedName(str):
    """A string that counts comparisons of any of its kind."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def counted_names(count: int) -> list[CountedName]:
    """So many different names, with nothing counted yet."""
    CountedName.compared = 0
    return [CountedName(f"name_{at}") for at in range(count)]
