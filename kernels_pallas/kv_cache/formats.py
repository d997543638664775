"""Storage formats of keys and values, and the arithmetic of their codes.

A scaled format stores a row (one token of one head, d numbers) as 8-bit codes and one float32 scale: code = x / scale,
scale = largest |x| of the row / largest code. A row's codes depend on the row alone, not on the chunk that brought it;
backends that divide otherwise may differ by one code in a million. Knows no pages.

Invariant: what `encode` returns is finite, even for a row that is not. Kernels multiply stale memory by zero, and
0 * NaN would carry one request's fault into another's sums.
"""

from __future__ import annotations

from typing import Any

import attrs
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike


@attrs.frozen(kw_only=True)
class StorageFormat:
    """How a number of a key or value is stored."""

    name: str
    dtype: Any
    """NumPy scalar type of the codes"""
    largest: float
    """Greatest magnitude of a code"""
    scaled: bool
    """Whether each row has a float32 scale"""

    @property
    def code_bytes(self) -> int:
        """Bytes of one code."""
        return int(jnp.dtype(self.dtype).itemsize)

    def row_bytes(self, width: int) -> int:
        """Bytes of one token of one head of `width` numbers, scale included; keys or values alone."""
        return width * self.code_bytes + (4 if self.scaled else 0)


FORMATS = {
    "fp32": StorageFormat(name="fp32", dtype=jnp.float32, largest=3.4028234663852886e38, scaled=False),
    "bf16": StorageFormat(name="bf16", dtype=jnp.bfloat16, largest=3.3895313892515355e38, scaled=False),
    "int8": StorageFormat(name="int8", dtype=jnp.int8, largest=127.0, scaled=True),
    "fp8": StorageFormat(name="fp8", dtype=jnp.float8_e4m3fn, largest=448.0, scaled=True),
}
"""By name. fp32 is for comparing programs bit by bit on a CPU; no GPU kernel reads it."""


def storage_format(name: str) -> StorageFormat:
    """The format of that name; ValueError that lists the names otherwise."""
    if name not in FORMATS:
        raise ValueError(f"KV format {name!r} is not one of {', '.join(FORMATS)}")
    return FORMATS[name]


def encode(rows: jax.Array, fmt: StorageFormat) -> tuple[jax.Array, jax.Array | None]:
    """rows float32 [..., d] -> codes [..., d] of the format's dtype and scales float32 [...] (None without scales)."""
    rows = finite(rows.astype(jnp.float32))
    if not fmt.scaled:
        return jnp.clip(rows, -fmt.largest, fmt.largest).astype(fmt.dtype), None
    scales, inverse = row_scales(jnp.max(jnp.abs(rows), axis=-1), fmt)
    scaled = jnp.clip(rows * inverse[..., None], -fmt.largest, fmt.largest)
    return rounded_codes(scaled, fmt.dtype), scales


def row_scales(greatest: jax.Array, fmt: StorageFormat) -> tuple[jax.Array, jax.Array]:
    """Scale and its inverse of rows whose greatest magnitudes are given; a row of zeros has scale 0 and inverse 0.

    Magnitudes below 1e-30 count as zero: their inverse would overflow.
    """
    seen = greatest > 1e-30
    scales = jnp.where(seen, greatest * (1.0 / fmt.largest), 0.0)
    return scales, jnp.where(seen, fmt.largest / jnp.where(seen, greatest, 1.0), 0.0)


def rounded_codes(scaled: jax.Array, dtype: DTypeLike) -> jax.Array:
    """Numbers within the format's range -> codes, ties to even."""
    return (jnp.round(scaled) if jnp.issubdtype(dtype, jnp.integer) else scaled).astype(dtype)


def finite(rows: jax.Array) -> jax.Array:
    """NaN becomes 0, an infinity the greatest float32."""
    return jnp.nan_to_num(rows, nan=0.0)


def decode(codes: jax.Array, scales: jax.Array | None) -> jax.Array:
    """codes [..., d] and scales [...] -> float32 [..., d]."""
    numbers = codes.astype(jnp.float32)
    return numbers if scales is None else numbers * scales[..., None]
