"""8-bit floating point (E4M3FN) codes with one multiplier for each row: value = code * multiplier."""

from collections.abc import Sequence

import attrs
import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ninfer.engine.artifact.formats.base import Array, Plane, Shape

E4M3: "np.dtype[np.generic]" = np.dtype(ml_dtypes.float8_e4m3fn)
E4M3_MAX = 448.0


@attrs.frozen
class Fp8Row:
    """The multiplier is a bfloat16 number, kept in float32 as kernels take it."""

    name: str = attrs.field(default="fp8_row", init=False)

    def planes(self, shape: Shape) -> tuple[Plane, ...]:
        """`codes` uint8 [N, K], the bits of E4M3FN, and `row_scales` float32 [N]."""
        if len(shape) != 2:
            raise ValueError(f"fp8_row scales the rows of a matrix, and shape {list(shape)} is none")
        return Plane("codes", np.dtype("u1"), shape), Plane("row_scales", np.dtype("<f4"), shape[:1])

    def encode(self, values: Array) -> tuple[Array, ...]:
        """Values and multipliers are rounded to bfloat16 first; a row's largest magnitude becomes 448. Ties to even."""
        rows = values.astype(ml_dtypes.bfloat16).astype(np.float32)
        largest = np.max(np.abs(rows), axis=1, initial=0.0)
        multipliers = (largest / np.float32(E4M3_MAX)).astype(ml_dtypes.bfloat16).astype("<f4")
        divisors = np.where(multipliers > 0, multipliers, np.float32(1))
        # A multiplier that was rounded down takes the largest magnitude past 448, which has no code but NaN.
        scaled = np.clip(rows / divisors[:, None], -E4M3_MAX, E4M3_MAX)
        return scaled.astype(E4M3).view(np.uint8), multipliers

    def decode(self, planes: Sequence[Array]) -> NDArray[np.float32]:
        """One product per value, in float32."""
        codes, multipliers = planes
        return codes.view(E4M3).astype(np.float32) * multipliers.astype(np.float32)[:, None]


FP8_ROW = Fp8Row()
