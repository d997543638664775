"""Turn a Hugging Face folder into an artifact.

Joins `checkpoint.py` (what is there), `recipe.py` (which format each tensor gets) and `writer.py` (how it is stored).
Knows no command line and no cache.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import attrs

from ninfer.engine.artifact.checkpoint import Checkpoint, CheckpointTensor, open_checkpoint
from ninfer.engine.artifact.errors import ArtifactError
from ninfer.engine.artifact.placing import Contents
from ninfer.engine.artifact.recipe import BUILT_IN, Chosen, Given, Recipe
from ninfer.engine.artifact.safetensors import DTYPES
from ninfer.engine.artifact.tensor_source import encoded
from ninfer.engine.artifact.writer import DEFAULT_VOLUME_LIMIT_BYTES, Report, write_artifact

ENCODING = 2
"""Raise this when a conversion starts to give other bytes for the same folder: no attempt goes on with older ones, and
artifacts in the cache are made anew."""


Check: TypeAlias = Callable[[Path, Mapping[str, bytes], Mapping[str, object]], None]
"""Looks at a folder that is to be converted, its resources by their names, and its text model's config."""


@attrs.frozen(kw_only=True)
class Conversion:
    """What a conversion did."""

    notes: tuple[str, ...]
    """What its user may not expect."""
    relative_errors: Mapping[str, float]
    """||stored - given|| / ||given|| by tensor name, where something could be lost."""


def convert(
    folder: Path,
    entry: Path,
    *,
    name: str | None = None,
    recipe: Recipe = BUILT_IN["source"],
    volume_limit_bytes: int = DEFAULT_VOLUME_LIMIT_BYTES,
    replace: bool = False,
    resume: bool = False,
    report: Report = lambda progress: None,
    check: Check = lambda folder, resources, config: None,
) -> Conversion:
    """Convert the Hugging Face folder `folder` into the artifact `entry`.

    `name` becomes metadata.name; without it the folder's name does. Memory use does not grow with the model. With
    `resume` an attempt that fails keeps what it has finished, and goes on from what an earlier one of the same
    conversion finished. What `check` raises ends the conversion before anything is written.

    Raises:
        ArtifactError: the folder cannot be converted or the artifact not written; without `resume` nothing is left.
    """
    checkpoint = open_checkpoint(folder)
    check(folder, checkpoint.resources, checkpoint.text_config)
    notes = [f"left out {what}" for what in checkpoint.left_out]
    notes += [
        f"no {resource} in {folder}: the artifact can be inspected, but not served"
        for resource in ("tokenizer.json", "chat_template.jinja")
        if resource not in checkpoint.resources
    ]
    chosen = recipe.choose({tensor.name: _given(tensor) for tensor in checkpoint.tensors})
    written = write_artifact(
        entry,
        _contents(checkpoint, name or folder_name(folder), chosen, recipe),
        volume_limit_bytes=volume_limit_bytes,
        replace=replace,
        resume_key=_key(checkpoint, recipe, name, volume_limit_bytes) if resume else None,
        report=report,
    )
    notes += chosen.notes
    if written.resumed_bytes:
        notes.append(f"{written.resumed_bytes:,} bytes were there from an earlier attempt")
    return Conversion(notes=tuple(notes), relative_errors=written.relative_errors)


def folder_name(folder: Path) -> str | None:
    """The model's name as its folder tells it: the last part, or the repository's in a Hugging Face hub cache."""
    path = folder.absolute()
    if path.parent.name == "snapshots" and path.parent.parent.name.startswith("models--"):
        return path.parent.parent.name.rpartition("--")[2] or None
    return path.name or None


def _given(tensor: CheckpointTensor) -> Given:
    """The tensor as a recipe sees it."""
    if tensor.stored_type not in DTYPES:
        tensor.load()  # raises the error that names type and place
        raise ArtifactError(f"has type {tensor.stored_type}", file=tensor.source.file, object=f"tensor {tensor.name}")
    return Given(shape=tensor.shape, stored_type=tensor.stored_type)


def _contents(checkpoint: Checkpoint, name: str | None, chosen: Chosen, recipe: Recipe) -> Contents:
    return Contents(
        architecture=checkpoint.architecture,
        name=name,
        components=checkpoint.components,
        resources=checkpoint.resources,
        tensors=[
            encoded(
                name=tensor.name,
                component=tensor.component,
                shape=tensor.shape,
                format=chosen.choices[tensor.name].format,
                layout=chosen.choices[tensor.name].layout,
                load=tensor.load,
            )
            for tensor in checkpoint.tensors
        ],
        provenance={"source": "safetensors", "recipe": recipe.to_json()},
    )


def _key(checkpoint: Checkpoint, recipe: Recipe, name: str | None, volume_limit_bytes: int) -> str:
    """What stands for every byte of the result: settings, small files by content, weights by name, size and time."""
    state = hashlib.blake2b(digest_size=16)
    settings = [ENCODING, str(checkpoint.folder.absolute()), name, volume_limit_bytes, recipe.to_json()]
    state.update(json.dumps([*settings, checkpoint.text_config]).encode())
    for resource, data in checkpoint.resources.items():
        state.update(json.dumps([resource, hashlib.blake2b(data).hexdigest()]).encode())
    for file in sorted({tensor.source.file for tensor in checkpoint.tensors}):
        status = file.stat()
        state.update(json.dumps([file.name, status.st_size, status.st_mtime_ns]).encode())
    return state.hexdigest()
