"""Turn a Hugging Face folder into an artifact.

Joins `checkpoint.py` (what is there) and `writer.py` (how it is stored) and decides one thing: which numeric format
each tensor gets. Knows no command line and no cache.
"""

from pathlib import Path
from typing import Literal

import attrs

from ninfer.engine.artifact.checkpoint import Checkpoint, CheckpointTensor, open_checkpoint
from ninfer.engine.artifact.errors import ArtifactError
from ninfer.engine.artifact.formats import BF16, FP32, INT8_ROW, Format
from ninfer.engine.artifact.layouts import Contiguous
from ninfer.engine.artifact.safetensors import DTYPES
from ninfer.engine.artifact.writer import (
    DEFAULT_VOLUME_LIMIT_BYTES,
    Contents,
    Report,
    TensorSource,
    write_artifact,
)

FormatChoice = Literal["source", "fp32", "bf16", "int8_row"]
"""`source` keeps every value as it is; `bf16` and `int8_row` round matrices and leave the rest (norms, decay rates,
and for `int8_row` the convolution's few taps) in fp32."""


@attrs.frozen(kw_only=True)
class Conversion:
    """What a conversion did that its user may not expect."""

    notes: tuple[str, ...]


def convert(
    folder: Path,
    entry: Path,
    *,
    name: str | None = None,
    form: FormatChoice = "source",
    volume_limit_bytes: int = DEFAULT_VOLUME_LIMIT_BYTES,
    replace: bool = False,
    report: Report = lambda progress: None,
) -> Conversion:
    """Convert the Hugging Face folder `folder` into the artifact `entry`.

    `name` becomes metadata.name; without it the folder's name does. Memory use does not grow with the model.

    Raises:
        ArtifactError: the folder cannot be converted or the artifact not written; nothing is left behind.
    """
    checkpoint = open_checkpoint(folder)
    notes = [f"left out {what}" for what in checkpoint.left_out]
    notes += [
        f"no {resource} in {folder}: the artifact can be inspected, but not served"
        for resource in ("tokenizer.json", "chat_template.jinja")
        if resource not in checkpoint.resources
    ]
    write_artifact(
        entry,
        _contents(checkpoint, name or folder_name(folder), form),
        volume_limit_bytes=volume_limit_bytes,
        replace=replace,
        report=report,
    )
    return Conversion(notes=tuple(notes))


def folder_name(folder: Path) -> str | None:
    """The model's name as its folder tells it: the last part, or the repository's in a Hugging Face hub cache."""
    path = folder.absolute()
    if path.parent.name == "snapshots" and path.parent.parent.name.startswith("models--"):
        return path.parent.parent.name.rpartition("--")[2] or None
    return path.name or None


def _contents(checkpoint: Checkpoint, name: str | None, form: FormatChoice) -> Contents:
    return Contents(
        architecture=checkpoint.architecture,
        name=name,
        components=checkpoint.components,
        resources=checkpoint.resources,
        tensors=[
            TensorSource(
                name=tensor.name,
                component=tensor.component,
                shape=tensor.shape,
                format=_format(tensor, form),
                layout=Contiguous(),
                load=tensor.load,
            )
            for tensor in checkpoint.tensors
        ],
        provenance={"source": "safetensors", "format": form},
    )


def _format(tensor: CheckpointTensor, form: FormatChoice) -> Format:
    """The numeric format to store a tensor in."""
    if tensor.stored_type not in DTYPES:
        tensor.load()  # raises the error that names type and place
        raise ArtifactError(f"has type {tensor.stored_type}", file=tensor.source.file, object=f"tensor {tensor.name}")
    if form == "source":
        return BF16 if tensor.stored_type == "BF16" else FP32
    if form == "int8_row":
        return INT8_ROW if len(tensor.shape) == 2 else FP32
    return BF16 if form == "bf16" and len(tensor.shape) > 1 else FP32
