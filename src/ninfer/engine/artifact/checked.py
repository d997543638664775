"""Values out of JSON that nobody vouches for, taken one by one with their type checked.

Knows nothing of artifacts. Every mismatch is an `ArtifactError` that names the file and the path of the member.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from ninfer.engine.artifact.errors import MAX_OBJECT_CHARACTERS, ArtifactError

MAX_COUNT = 1 << 63
"""No size, offset or dimension reaches this: larger numbers are damage, and would overflow elsewhere."""


@attrs.frozen
class Checked:
    """One JSON value with the file and the path it came from."""

    value: object
    path: str
    file: Path
    offset: int | None = None

    def error(self, message: str) -> ArtifactError:
        """The error to raise about this value."""
        return ArtifactError(message, file=self.file, object=self.path, offset=self.offset)

    def _at(self, key: str, value: object) -> "Checked":
        return Checked(value, f"{self.path}.{key}" if self.path else key, self.file, self.offset)

    def object(self) -> Mapping[str, object]:
        """The value as a JSON object."""
        if not isinstance(self.value, dict):
            raise self.error(f"must be a JSON object, not {_kind(self.value)}")
        return self.value

    def has(self, key: str) -> bool:
        """Whether the object holds `key` with anything but null."""
        return self.object().get(key) is not None

    def member(self, key: str) -> "Checked":
        """The member `key`, which must be there."""
        members = self.object()
        if key not in members:
            raise self._at(key, None).error("is missing")
        return self._at(key, members[key])

    def members(self) -> Iterator[tuple[str, "Checked"]]:
        """All members of the object, in file order."""
        return ((key, self._at(key, value)) for key, value in self.object().items())

    def only(self, *known: str) -> None:
        """Refuse a member of the object that is not `known`."""
        for name, member in self.members():
            if name not in known:
                raise member.error(f"is not known here; there are {', '.join(known)}")

    def items(self) -> list["Checked"]:
        """The elements of the array."""
        if not isinstance(self.value, list):
            raise self.error(f"must be an array, not {_kind(self.value)}")
        return [
            Checked(value, f"{self.path}[{index}]", self.file, self.offset) for index, value in enumerate(self.value)
        ]

    def text(self) -> str:
        """The value as a string that is not empty."""
        if not isinstance(self.value, str) or not self.value:
            raise self.error(f"must be a string that is not empty, not {_kind(self.value)}")
        return self.value

    def label(self) -> str:
        """The value as a name that can be shown: printable, not empty."""
        text = self.text()
        if not text.isprintable():
            raise self.error("must be printable")
        return text

    def count(self) -> int:
        """The value as an integer from 0 to 2**63 - 1."""
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise self.error(f"must be an integer, not {_kind(self.value)}")
        if not 0 <= self.value < MAX_COUNT:
            raise self.error("must be an integer from 0 to 2**63 - 1")
        return self.value

    def counts(self) -> tuple[int, ...]:
        """The value as an array of integers from 0 to 2**63 - 1."""
        return tuple(item.count() for item in self.items())


def parse_json(data: bytes, *, file: Path, object: str | None, offset: int | None = None) -> Checked:
    """Parse `data`, which must be UTF-8 JSON without repeated members, whatever it really is."""
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_members)
    except RecursionError:
        raise ArtifactError("is nested too deeply", file=file, object=object, offset=offset) from None
    except json.JSONDecodeError as error:
        at = error.pos + (offset or 0)
        raise ArtifactError(f"malformed JSON: {error.msg}", file=file, object=object, offset=at) from None
    except ValueError as error:  # not UTF-8, a number with thousands of digits, or a repeated member
        raise ArtifactError(f"malformed JSON: {error}", file=file, object=object, offset=offset) from None
    return Checked(value, object or "", file, offset)


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """The members of an object. A repeated name is refused, since either value could be meant."""
    members = dict(pairs)
    if len(members) != len(pairs):
        repeated, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"member {repeated[:MAX_OBJECT_CHARACTERS]!r} stands there twice")
    return members


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")
