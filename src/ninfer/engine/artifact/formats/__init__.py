"""Numeric formats: what the stored codes of a tensor mean as numbers. `base.py` says what a format is.

Decoders are the references for kernels. docs/artifact.md has the table.
"""

from collections.abc import Mapping
from types import MappingProxyType

from ninfer.engine.artifact.formats.base import Array, Format, Plane, Shape
from ninfer.engine.artifact.formats.direct import BF16, FP32, INT8_ROW
from ninfer.engine.artifact.formats.fp8 import FP8_ROW
from ninfer.engine.artifact.formats.integers import INT8_G32, Q4_G64, Q5_G64, Q6_G64
from ninfer.engine.artifact.formats.nvfp4 import NVFP4, NVFP4_SEARCH

FORMATS: Mapping[str, Format] = MappingProxyType(
    {form.name: form for form in (FP32, BF16, INT8_ROW, FP8_ROW, INT8_G32, Q4_G64, Q5_G64, Q6_G64, NVFP4)}
)
"""The formats this build reads, by name."""

__all__ = [
    "BF16",
    "FORMATS",
    "FP8_ROW",
    "FP32",
    "INT8_G32",
    "INT8_ROW",
    "NVFP4",
    "NVFP4_SEARCH",
    "Q4_G64",
    "Q5_G64",
    "Q6_G64",
    "Array",
    "Format",
    "Plane",
    "Shape",
]
