"""The one error of this package.

Whatever is wrong with a file that somebody gave us (an artifact, a Hugging Face folder, the disk below them) is an
`ArtifactError` with the file, the object in it and the byte offset, as far as they are known. Its text is one line.
"""

from pathlib import Path

MAX_OBJECT_CHARACTERS = 120


class ArtifactError(Exception):
    """A model file cannot be read, written or trusted. `offset` counts bytes from the start of `file`."""

    def __init__(self, message: str, *, file: Path, object: str | None = None, offset: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.object = object
        self.offset = offset

    def __str__(self) -> str:
        """One line: file, object, offset, what is wrong."""
        where = [str(self.file)]
        if self.object is not None:
            where.append(self.object[:MAX_OBJECT_CHARACTERS])
        if self.offset is not None:
            where.append(f"offset {self.offset}")
        return one_line(f"{': '.join(where)}: {self.message}")


def one_line(text: str) -> str:
    """`text` with everything a terminal would act on spelled out: names come from damaged files."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
