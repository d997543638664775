"""Find the artifact that a name means: a `.ninfer` file, or a Hugging Face folder or id converted once into a cache.

Knows nothing of serving. Invariant: the path returned is an artifact that `Artifact.open` has just accepted. Two
processes that convert the same folder at once both succeed: equal inputs give equal bytes, and renaming is atomic.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from ninfer.engine.artifact.checkpoint import RESOURCES, weight_files
from ninfer.engine.artifact.conversion import ENCODING, Check, convert, folder_name
from ninfer.engine.artifact.errors import ArtifactError
from ninfer.engine.artifact.foreign import CONFIG, INDEX, check_folder
from ninfer.engine.artifact.framing import VERSION
from ninfer.engine.artifact.mapping import exists, read_file
from ninfer.engine.artifact.partial import remove_abandoned
from ninfer.engine.artifact.reader import Artifact
from ninfer.engine.artifact.writer import Report

CACHE_VARIABLE = "NINFER_CACHE_DIR"
ENDING = ".ninfer"
CACHED_NAME_CHARACTERS = 50
_MODEL_ID = r"[\w.-]+/[\w.-]+"


def default_cache_dir(environment: Mapping[str, str]) -> Path:
    """Where converted artifacts are kept: `NINFER_CACHE_DIR`, else the user's cache folder."""
    chosen = environment.get(CACHE_VARIABLE)
    return Path(chosen) if chosen else Path(platformdirs.user_cache_path("ninfer"))


def default_hub_dir(environment: Mapping[str, str]) -> Path:
    """Where downloads of Hugging Face's own tools lie; nothing is downloaded here."""
    if chosen := environment.get("HF_HUB_CACHE"):
        return Path(chosen)
    home = environment.get("HF_HOME")
    return (Path(home) if home else Path.home() / ".cache" / "huggingface") / "hub"


def resolve_artifact(
    path: Path,
    cache_dir: Path,
    report: Report = lambda progress: None,
    *,
    hub_dir: Path | None = None,
    check: Check = lambda folder, resources, config: None,
) -> Path:
    """The entry file of the artifact that `path` means; converts a Hugging Face folder unless that was done before.

    With `hub_dir`, `path` may be the id of a model there (`find_source`). Blocking.
    Whatever `report` (a cancellation, say) or `check` raises ends the conversion, with nothing left behind.

    Raises:
        ArtifactError: `path` is neither, or cannot be converted.
    """
    if hub_dir is not None:
        path = find_source(path, hub_dir)
    if not exists(path) or not path.is_dir():
        Artifact.open(path).close()
        return path
    check_folder(path)
    # A file's name has 255 bytes at most.
    entry = cache_dir / f"{(folder_name(path) or 'model')[:CACHED_NAME_CHARACTERS]}-{_identity(path)}{ENDING}"
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
    remove_abandoned(cache_dir, "*.ninfer")
    convert(path, entry, replace=True, report=report, check=check)
    Artifact.open(entry).close()
    return entry


def find_source(path: Path, hub_dir: Path) -> Path:
    """`path` itself, or the folder in `hub_dir` of the downloaded model whose id (`owner/name`) it is.

    Raises:
        ArtifactError: it does not exist, looks like an id, and no such model was downloaded.
    """
    if exists(path) or not re.fullmatch(_MODEL_ID, str(path)) or path.suffix == ENDING or path.parent.exists():
        return path
    snapshot = _snapshot(hub_dir / f"models--{path.parent}--{path.name}")
    if snapshot is None:
        message = f"no such file or folder, and no such model in {hub_dir}: `hf download {path}` puts it there"
        raise ArtifactError(message, file=path)
    return snapshot


def _snapshot(repository: Path) -> Path | None:
    """The folder of a downloaded model's main revision."""
    main = repository / "refs" / "main"
    if not main.is_file():
        return None
    snapshot = repository / "snapshots" / read_file(main).decode("ascii", "replace").strip()
    return snapshot if snapshot.is_dir() else None


def _identity(folder: Path) -> str:
    """A key of everything that a conversion reads: small files by content, weights by name, size and time."""
    state = hashlib.blake2b(json.dumps([VERSION, ENCODING, folder_name(folder)]).encode(), digest_size=8)
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
