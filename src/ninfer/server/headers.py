"""Request headers as a mapping that does not care for case, for the framework has folded it already."""

from collections.abc import Iterable, Iterator, Mapping


class HeaderMap(Mapping[str, str]):
    """Headers by lower-cased name; of one that came twice the last value counts."""

    def __init__(self, items: Iterable[tuple[str, str]]) -> None:
        self._values = {name.lower(): value for name, value in items}

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
