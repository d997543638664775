"""The two nouns that kernels hand to each other: a round's activations and a stack of packed matrices.

Both are pytrees, so they pass through `jax.jit` and can be donated. They know nothing of models, layers' meanings or
requests. Invariant: every field that steers a compilation (format, shift, eps) is static; every array is a leaf.
"""

from __future__ import annotations

import dataclasses

import attrs
import jax
from jax.tree_util import register_dataclass

F16_MAX = 65504.0
"""Values of a float16 activation are clamped to this magnitude: a large number is better than an infinity."""


@register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Activation:
    """The input of a matrix product, M rows.

    It stands for `values * 2**shift`, or, where `squares` are there, for that times the norm's factor: products
    multiply their OUTPUT rows by `rsqrt(sum(squares) / K + eps) * 2**shift`.
    """

    values: jax.Array
    """float16 or bfloat16 [M, K], contiguous. With `squares`: residual * gain * 2**-shift."""
    squares: jax.Array | None = None
    """float32 [M, K/16]: sums of the squared residual over 16 neighbours each; None: not normalised."""
    shift: int = dataclasses.field(default=0, metadata={"static": True})
    eps: float = dataclasses.field(default=0.0, metadata={"static": True})


@register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class PackedMatrix:
    """L matrices [N, K] of one format in the order in which the lanes of a warp read them (packing.py).

    The first axis of every array is L, the second goes along N; so matrices with one input merge by concatenation of
    each plane along its second axis.
    """

    codes: jax.Array
    """uint32 [L, N/16, K/KB, J, 128], J chunks a block (4; fewer where K is small)."""
    high: jax.Array | None = None
    """The bits above the fourth: uint8 (q5_g64) or uint16 (q6_g64) [L, N/16, K/KB, J, 128]."""
    scales: jax.Array | None = None
    """Group scales: uint32 [L, N/16, K/KB, 8 J] (two float16) or, for nvfp4, uint16 [L, N/16, K/KB, 32 J]."""
    row_scales: jax.Array | None = None
    """float32 [L, N]: fp8_row and nvfp4."""
    format: str = dataclasses.field(metadata={"static": True})

    @property
    def layers(self) -> int:
        """L, how many matrices are stacked."""
        return int(self.codes.shape[0])

    @property
    def n(self) -> int:
        """Rows of one matrix: the outputs of its product."""
        return 16 * int(self.codes.shape[1])

    @property
    def k(self) -> int:
        """Columns of one matrix: the width of its input."""
        return int(self.codes.shape[2]) * int(self.codes.shape[3]) * CHUNK[self.format]

    @property
    def bytes_per_layer(self) -> int:
        """Stored bytes of one matrix, scales included."""
        planes = (self.codes, self.high, self.scales, self.row_scales)
        return sum(plane.size * plane.dtype.itemsize // plane.shape[0] for plane in planes if plane is not None)


CHUNK = {"bf16": 16, "fp8_row": 32, "int8_g32": 32, "q4_g64": 64, "q5_g64": 64, "q6_g64": 64, "nvfp4": 64}
"""Weights of a row in one chunk: 16 rows of a chunk are 512 bytes of `codes`, 16 bytes a lane."""


@attrs.frozen
class Ahead:
    """The first bytes of a matrix that the device reads next: a product may ask for them ahead of time (ahead.py)."""

    matrix: PackedMatrix
    layer: jax.Array
    """int32 [1]"""
    size_bytes: int = attrs.field(validator=attrs.validators.gt(0))
    """Of `codes`, the planes beside them in proportion; what lies beyond the end is not asked for."""
