"""Find the artifact that a path means: a `.ninfer` file as it is, a Hugging Face folder converted once into a cache.

Knows nothing of serving. Invariant: the path returned is an artifact that `Artifact.open` has just accepted. Two
processes that convert the same folder at once both succeed: equal inputs give equal bytes, and renaming is atomic.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from ninfer.engine.artifact.checkpoint import CONFIG, INDEX, RESOURCES, weight_files
from ninfer.engine.artifact.conversion import convert, folder_name
from ninfer.engine.artifact.errors import ArtifactError
from ninfer.engine.artifact.framing import VERSION
from ninfer.engine.artifact.mapping import read_file
from ninfer.engine.artifact.reader import Artifact
from ninfer.engine.artifact.writer import Report

CACHE_VARIABLE = "NINFER_CACHE_DIR"
CONVERSION = 1
"""Raise this when a conversion of the same folder starts to give other bytes: cached artifacts are then made anew."""


def default_cache_dir(environment: Mapping[str, str]) -> Path:
    """Where converted artifacts are kept: `NINFER_CACHE_DIR`, else the user's cache folder."""
    chosen = environment.get(CACHE_VARIABLE)
    return Path(chosen) if chosen else Path(platformdirs.user_cache_path("ninfer"))


def resolve_artifact(path: Path, cache_dir: Path, report: Report = lambda progress: None) -> Path:
    """The entry file of the artifact that `path` means; converts a Hugging Face folder unless that was done before.

    Blocking. Whatever `report` raises (a cancellation, say) ends the conversion, with nothing left behind.

    Raises:
        ArtifactError: `path` is neither, or cannot be converted.
    """
    if not path.is_dir():
        Artifact.open(path).close()
        return path
    if not (path / CONFIG).exists():
        raise ArtifactError(f"neither a .ninfer file nor a Hugging Face folder: no {CONFIG} in it", file=path)
    entry = cache_dir / f"{folder_name(path) or 'model'}-{_identity(path)}.ninfer"
    if entry.exists():
        try:
            Artifact.open(entry).close()
        except ArtifactError:
            pass  # damaged in the cache: made anew below
        else:
            return entry
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(f"cannot make the cache folder: {error.strerror}", file=cache_dir) from None
    convert(path, entry, replace=True, report=report)
    Artifact.open(entry).close()
    return entry


def _identity(folder: Path) -> str:
    """A key of everything that a conversion reads: small files by content, weights by name, size and time."""
    state = hashlib.blake2b(json.dumps([VERSION, CONVERSION, folder_name(folder)]).encode(), digest_size=8)
    for name in (CONFIG, INDEX, *RESOURCES):
        if (folder / name).exists():
            state.update(json.dumps([name, hashlib.blake2b(read_file(folder / name)).hexdigest()]).encode())
    for file in weight_files(folder):
        try:
            status = file.stat()
        except OSError as error:
            raise ArtifactError(f"cannot read: {error.strerror}", file=file) from None
        state.update(json.dumps([file.name, status.st_size, status.st_mtime_ns]).encode())
    return state.hexdigest()
