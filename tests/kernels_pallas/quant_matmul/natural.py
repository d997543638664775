"""Random matrices in natural planes, and what they stand for in float64."""

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from kernels_pallas.packing import FORMATS, Array, natural_specs

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def natural_planes(format: str, n: int, k: int, seed: int = 0) -> dict[str, Array]:
    """Every code that the format has may occur; scales are between a half and two, row scales too."""
    rng = np.random.default_rng(seed)
    form = FORMATS[format]
    planes: dict[str, Array] = {}
    for name, spec in natural_specs(format, n, k).items():
        positive = rng.uniform(0.5, 2, spec.shape)
        if name == "codes" and form.bits == 16:
            planes[name] = rng.standard_normal(spec.shape).astype(ml_dtypes.bfloat16)
        elif name == "codes" and form.bias:
            low = -form.bias + (form.bits == 8)
            planes[name] = rng.integers(low, form.bias, spec.shape).astype(np.int8)
        elif name == "codes" and format == "nvfp4":
            planes[name] = rng.integers(0, 16, spec.shape).astype(np.uint8)
        elif name == "codes":
            planes[name] = rng.standard_normal(spec.shape).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
        elif name == "scales" and spec.dtype == np.uint8:
            planes[name] = positive.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
        else:
            planes[name] = positive.astype(spec.dtype)
    return planes


def numbers(format: str, planes: dict[str, Array]) -> NDArray[np.float64]:
    """The matrix [n, k] of natural planes."""
    form = FORMATS[format]
    codes = planes["codes"]
    if format == "nvfp4":
        values = E2M1[codes]
    elif format == "fp8_row":
        values = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    else:
        values = codes.astype(np.float64)
    if form.group is not None:
        scales = planes["scales"]
        scales = scales.view(ml_dtypes.float8_e4m3fn) if scales.dtype == np.uint8 else scales
        values = values * np.repeat(scales.astype(np.float64), form.group, axis=1)
    if form.row_scaled:
        values = values * planes["row_scales"].astype(np.float64)[:, None]
    return values
