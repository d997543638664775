"""What a product does with its sums: scale them, apply the epilogue, write.

Knows the epilogues of `Job`, nothing of how sums came about. Invariant: what is written for a row depends on that row's
sums alone.
"""

from __future__ import annotations

from typing import Any

import attrs
import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import triton as plt

from kernels_pallas.arrays import F16_MAX
from kernels_pallas.quant_matmul.lanes import COLUMNS, Job, Output, Ref, factor
from kernels_pallas.quant_matmul.ptx import OUT_SCALE

Sums = list[list[jax.Array]]
"""[tile][half], float32 [128]: the order of elements is that of `Output`."""


def written_tiles(job: Job, item: Any) -> list[Any]:
    """Row tiles that an item writes."""
    return [item * job.config.tiles + t for t in range(job.config.tiles)]


def read_tiles(job: Job, item: Any) -> list[Any]:
    """Row tiles that an item reads: a gated product's up tiles come behind its gate tiles."""
    own = written_tiles(job, item)
    return own + [tile + job.n // 32 for tile in own] if job.epilogue == "gated" else own


@attrs.frozen
class Early:
    """What the epilogue needs from memory."""

    row_scales: list[jax.Array | None]
    """A tile that is read."""
    gains: list[jax.Array]
    """A tile that is written; residual only, as the next."""
    residual: list[list[jax.Array]]
    """[tile][half]"""


@attrs.frozen(kw_only=True)
class Epilogue:
    """The end of one program's products."""

    job: Job
    refs: dict[str, Ref]
    layer: Any
    out: Output = attrs.field(factory=Output)

    def factors(self) -> list[Any]:
        """Per half: the norm's factors of the rows of x, None where x is not normalised."""
        job = self.job
        return [factor(job, self.refs["squares"], half) if job.squares else None for half in range(job.halves)]

    def early(self, item: Any) -> Early:
        """What can be loaded before the sums are ready."""
        job, refs, out = self.job, self.refs, self.out
        scales, tiles = refs.get("row_scales"), read_tiles(job, item)
        row_scales = [
            None if scales is None else plt.load(scales.at[self.layer, 16 * tile + out.row]) for tile in tiles
        ]
        if job.epilogue != "residual":
            return Early(row_scales, [], [])
        index, own = refs["gain_index"][0], written_tiles(job, item)
        tokens = [jnp.minimum(out.token + COLUMNS * half, job.rows - 1) for half in range(job.halves)]
        return Early(
            row_scales,
            [plt.load(refs["gains"].at[index, 16 * tile + out.row]) for tile in own],
            [[plt.load(refs["residual"].at[token, 16 * tile + out.row]) for token in tokens] for tile in own],
        )

    def end(self, item: Any, accs: Any, factors: list[Any], early: Early) -> None:
        """Sum over warps ([tile][half], [warps, 128]), scale, and write what the epilogue says."""
        job, own = self.job, written_tiles(self.job, item)
        sums: Sums = [[jnp.sum(acc, axis=0) for acc in halves] for halves in accs]
        for half in range(job.halves):
            constant = OUT_SCALE[job.format] * 2.0**job.shift
            scale = self.out.by_token(factors[half] * constant) if job.squares else constant
            ys = []
            for t in range(job.tiles):
                y, row_scale = sums[t][half] * scale, early.row_scales[t]
                ys.append(y if row_scale is None else y * row_scale)
            token = self.out.token + COLUMNS * half
            inside = token < job.rows
            for t, tile in enumerate(own):
                at = (token, 16 * tile + self.out.row)
                if job.epilogue == "plain":
                    _store(self.refs["out"], at, ys[t], inside)
                elif job.epilogue == "gated":
                    gate, up = ys[t], ys[t + len(own)]
                    _store(self.refs["out"], at, gate * jax.nn.sigmoid(gate) * up * 2.0**-job.out_shift, inside)
                else:
                    residual = early.residual[t][half] + ys[t]
                    plt.store(self.refs["residual_out"].at[at], residual, mask=inside)
                    _store(self.refs["out"], at, residual * early.gains[t] * 2.0**-job.out_shift, inside)
                    self._store_squares(tile, half, residual)

    def _store_squares(self, tile: Any, half: int, residual: jax.Array) -> None:
        row = lax.broadcasted_iota(jnp.int32, (COLUMNS,), 0) + COLUMNS * half
        squares = self.out.sum_rows(residual * residual)
        plt.store(self.refs["squares_out"].at[row, tile], squares, mask=row < self.job.rows)


def _store(ref: Ref, at: tuple[jax.Array, jax.Array], values: jax.Array, inside: jax.Array) -> None:
    if ref.dtype == jnp.float16:
        values = jnp.clip(values, -F16_MAX, F16_MAX)
    plt.store(ref.at[at], values.astype(ref.dtype), mask=inside)
