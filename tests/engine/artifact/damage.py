"""Make wrong artifacts and checkpoints: rewrite a directory with its digests right, write safetensors by hand."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ninfer.engine.artifact.framing import HEADER_BYTES, Header, digest, read_header

DTYPE_NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def rewrite_directory(source: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Copy a one-volume artifact with its directory changed and everything else, digests included, consistent."""
    data = source.read_bytes()
    header = read_header(memoryview(data), source)
    directory = json.loads(data[HEADER_BYTES : header.content_bytes])
    change(directory)
    return write_directory(target, json.dumps(directory).encode(), data[header.payload_offset :])


def write_directory(target: Path, directory: bytes, payload: bytes) -> Path:
    """An entry file with exactly this directory and payload."""
    header = Header(volume=0, volumes=1, directory_bytes=len(directory), artifact_id=digest(directory))
    padding = bytes(header.payload_offset - header.content_bytes)
    target.write_bytes(header.pack() + directory + padding + payload)
    return target


def write_safetensors(file: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """A safetensors file with these tensors."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, values in tensors.items():
        header[name] = {
            "dtype": DTYPE_NAMES[values.dtype.name],
            "shape": list(values.shape),
            "data_offsets": [end, end + values.nbytes],
        }
        end += values.nbytes
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(value.tobytes() for value in tensors.values()))
