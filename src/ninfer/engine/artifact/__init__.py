"""Artifacts: the `.ninfer` container, its numeric formats and layouts, and conversion from safetensors.

Knows which tensors an architecture has, not what they compute; no JAX. docs/artifact.md describes the bytes.
"""

from ninfer.engine.artifact.conversion import convert
from ninfer.engine.artifact.errors import ArtifactError
from ninfer.engine.artifact.expected import TEXT
from ninfer.engine.artifact.reader import Artifact, Facts, PackedTensor
from ninfer.engine.artifact.resolve import default_cache_dir, default_hub_dir, find_source, resolve_artifact
from ninfer.engine.artifact.writer import Progress, Report

__all__ = [
    "TEXT",
    "Artifact",
    "ArtifactError",
    "Facts",
    "PackedTensor",
    "Progress",
    "Report",
    "convert",
    "default_cache_dir",
    "default_hub_dir",
    "find_source",
    "resolve_artifact",
]
