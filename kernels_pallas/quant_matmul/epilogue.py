"""What a product does with its sums: scale them, apply the epilogue, write; where K is split, meet the others first.

A split leaves its sums in `partials` and counts itself in; the last program of the group adds the sums of all splits in
their order and does the epilogue. Knows the epilogues of `Job`, nothing of how sums came about. Invariants: whoever is
last, the additions are the same; a counter is zero again when its group is done.
"""

from __future__ import annotations

import functools
from typing import Any

import attrs
import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from kernels_pallas.arrays import F16_MAX
from kernels_pallas.quant_matmul.lanes import COLUMNS, Job, Output, Ref, factor
from kernels_pallas.quant_matmul.ptx import OUT_SCALE

Sums = list[list[jax.Array]]
"""[tile][half], float32 [128]: the order of elements is that of `Output`."""


@attrs.frozen
class Place:
    """What a program is at: which group of tiles, and which part of K."""

    group: Any
    split: Any

    @staticmethod
    def of(job: Job, item: Any) -> Place:
        """The place of an item: splits of one group are neighbours, so they arrive about the same time."""
        splits = job.config.splits
        return Place(item, 0) if splits == 1 else Place(lax.div(item, splits), lax.rem(item, splits))

    def first_block(self, job: Job) -> Any:
        """Where its part of K begins."""
        return self.split * job.share

    def own(self, job: Job) -> list[Any]:
        """Row tiles that the group writes."""
        return [self.group * job.config.tiles + t for t in range(job.config.tiles)]

    def tiles(self, job: Job) -> list[Any]:
        """Row tiles that the group reads: a gated product's up tiles come behind its gate tiles."""
        own = self.own(job)
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

    def early(self, place: Place) -> Early | None:
        """What can be loaded before the sums are ready; None where only the last of several programs will need it."""
        return self._load(place) if self.job.config.splits == 1 else None

    def _load(self, place: Place) -> Early:
        job, refs, out = self.job, self.refs, self.out
        scales = refs.get("row_scales")
        row_scales = [
            None if scales is None else plt.load(scales.at[self.layer, 16 * tile + out.row])
            for tile in place.tiles(job)
        ]
        if job.epilogue != "residual":
            return Early(row_scales, [], [])
        index, own = refs["gain_index"][0], place.own(job)
        tokens = [jnp.minimum(out.token + COLUMNS * half, job.rows - 1) for half in range(job.halves)]
        return Early(
            row_scales,
            [plt.load(refs["gains"].at[index, 16 * tile + out.row]) for tile in own],
            [[plt.load(refs["residual"].at[token, 16 * tile + out.row]) for token in tokens] for tile in own],
        )

    def end(self, place: Place, accs: Any, factors: list[Any], early: Early | None) -> None:
        """Sum over warps ([tile][half], [warps, 128]) and write; or leave the sums to the last program of the group."""
        sums = [[jnp.sum(acc, axis=0) for acc in halves] for halves in accs]
        if early is not None:
            self._write(place, sums, factors, early)
            return
        splits, partials, counters = self.job.config.splits, self.refs["partials"], self.refs["counters_out"]
        element = lax.broadcasted_iota(jnp.int32, (128,), 0)
        for t, halves in enumerate(sums):
            for half, values in enumerate(halves):
                plt.store(partials.at[place.group, place.split, t, half, element], values)
        self.job.hold()  # every thread's sums are written before one of them says so
        arrived = plt.atomic_add(counters, (place.group,), jnp.int32(1))

        @pl.when(arrived == splits - 1)
        def _() -> None:
            counters[place.group] = 0
            loaded = self._load(place)
            parts = [
                [
                    [plt.load(partials.at[place.group, s, t, half, element]) for s in range(splits)]
                    for half in range(self.job.halves)
                ]
                for t in range(self.job.tiles)
            ]
            total = [[functools.reduce(jnp.add, each) for each in halves] for halves in parts]
            self._write(place, total, factors, loaded)

    def _write(self, place: Place, sums: Sums, factors: list[Any], early: Early) -> None:
        job, own = self.job, place.own(self.job)
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
