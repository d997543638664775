"""What the lanes of a product hold: static facts of the kernel, index tensors, and the loads that they name.

Tensors are [warps, 128], four neighbours a lane: `mma`'s registers. A lane of weight rows r and r + 8 is also the lane
of row r of x and of a quarter of K. Invariant: nothing here depends on M but the clamping of rows past it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import triton as plt

from kernels_pallas.ahead import Share
from kernels_pallas.packing import FORMATS
from kernels_pallas.quant_matmul.ptx import product
from kernels_pallas.quant_matmul.tuning import Config

Ref = Any  # pallas refs have no public type
Multiply = Callable[..., jax.Array]
COLUMNS = 8
"""Rows of x in one `mma`."""


def multiply(format: str, j: int, acc: jax.Array, *operands: jax.Array) -> jax.Array:
    """acc + chunk j of a block's weights times x, each [warps, 128]: four neighbours are one lane's registers."""
    text, constraints = product(format, j)
    return plt.elementwise_inline_asm(
        text,
        args=[acc, *operands],
        constraints=constraints,
        pack=4,
        result_shape_dtypes=[jax.ShapeDtypeStruct(acc.shape, jnp.float32)],
    )[0]


@attrs.frozen(kw_only=True)
class Job:
    """All static facts of one kernel."""

    format: str
    rows: int
    """M."""
    n: int
    k: int
    epilogue: str
    """plain, gated or residual."""
    config: Config
    squares: bool
    shift: int
    """Of the input."""
    eps: float
    out_shift: int
    ahead: tuple[Share, ...] = ()
    """What each program asks for at its end."""
    multiply: Multiply = multiply
    on_device: bool = True

    @property
    def blocks(self) -> int:
        """Blocks along K."""
        return self.k // (4 * FORMATS[self.format].chunk)

    @property
    def halves(self) -> int:
        """Groups of 8 rows of x."""
        return -(-self.rows // COLUMNS)

    @property
    def tiles(self) -> int:
        """Tiles that a program accumulates."""
        return self.config.tiles * (2 if self.epilogue == "gated" else 1)

    @property
    def steps(self) -> int:
        """Steps of an item along K."""
        return -(-self.blocks // self.config.warps)

    @property
    def items(self) -> int:
        """Groups of tiles that are summed together."""
        return self.n // 16 // self.tiles

    @property
    def programs(self) -> int:
        """Programs of the grid; with fewer than items, each walks several."""
        return self.config.programs or self.items

    def hold(self) -> None:
        """A barrier. It keeps loads before the computation: the assembler would sink them to their first use."""
        if self.on_device:  # it has no interpretation
            plt.debug_barrier()


class Lanes:
    """Who reads what: index tensors [warps, 128], four neighbours a lane."""

    def __init__(self, job: Job) -> None:
        shape = (job.config.warps, 128)
        self.warp = lax.broadcasted_iota(jnp.int32, shape, 0)
        self.element = element = lax.broadcasted_iota(jnp.int32, shape, 1)
        self.register = lax.rem(element, 4)  # lax.rem and lax.div: `%` and `//` hide contiguity from Triton
        self.column = lax.rem(lax.div(element, 4), 4)  # lane % 4: its part of K
        self.row = lax.div(element, 16)  # lane / 4: row of weights and row of x


def load_x(job: Job, lanes: Lanes, x_ref: Ref, block: jax.Array) -> list[list[list[jax.Array]]]:
    """[half][j][piece], uint32 [warps, 128]: 8 values of one row of x a lane and piece."""
    chunk = FORMATS[job.format].chunk
    words = job.k // 2
    block = jnp.minimum(block, job.blocks - 1)  # past the end weights are zero, but x has to be inside

    loaded = []
    for half in range(job.halves):
        token = lanes.row + COLUMNS * half
        if job.rows < COLUMNS * (half + 1):
            token = jnp.minimum(token, job.rows - 1)
        start = token * words + block * (2 * chunk) + lanes.register
        per_chunk: list[list[jax.Array]] = []
        for j in range(4):
            if chunk == 64:
                at = [start + 32 * j + 8 * lanes.column + 4 * piece for piece in (0, 1)]
            elif chunk == 32:
                at = [start + 16 * j + 4 * lanes.column]
            elif j % 2 == 0:
                at = [start + 8 * j + 4 * lanes.column]
            else:  # two chunks share one piece of x
                per_chunk.append(per_chunk[-1])
                continue
            per_chunk.append([plt.load(x_ref.at[index,]) for index in at])
        loaded.append(per_chunk)
    return loaded


def load_weights(job: Job, lanes: Lanes, refs: dict[str, Ref], at: tuple[Any, Any], step: Any) -> list[list[jax.Array]]:
    """Per chunk j: the code words, then high bits and scales as ptx.py wants them. `at`: layer and tile."""
    config, form = job.config, FORMATS[job.format]
    block = step * config.warps
    mask = lanes.warp < job.blocks - block if job.blocks % config.warps else None
    rows = block + lanes.warp

    def load(ref: Ref, *index: Any) -> jax.Array:
        guard = {} if mask is None else {"mask": mask, "other": jnp.zeros((), ref.dtype)}
        return plt.load(ref.at[(*at, *index)], eviction_policy="evict_first", **guard)

    words = [load(refs["codes"], rows, j, lanes.element) for j in range(4)]
    extra: list[list[jax.Array]] = [[] for _ in range(4)]
    if "high" in refs:
        extra = [[load(refs["high"], rows, j, lanes.element)] for j in range(4)]
    if form.group == 16:
        scales = load(refs["scales"], rows, lanes.element)
        extra = [[scales] for _ in range(4)]
    elif form.group is not None:
        scales = load(refs["scales"], rows, 4 * lanes.row + lanes.register)
        extra = [[*before, scales] for before in extra]
    return [[word, *more] for word, more in zip(words, extra, strict=True)]


def multiply_block(job: Job, weights: list[list[jax.Array]], xs: list[list[jax.Array]], acc: jax.Array) -> jax.Array:
    """The sums `acc` of a lane with one block more: four chunks of K, in their order."""
    for j in range(4):
        word, *extra = weights[j]
        acc = job.multiply(job.format, j, acc, word, *xs[j], *extra)
    return acc


def factor(job: Job, squares_ref: Ref, half: int) -> jax.Array:
    """float32 [8]: what the output of each row of x is multiplied by, but for its shift."""
    parts = job.k // 16
    width = next(w for w in (64, 32, 16, 8, 4) if parts % w == 0)
    token = lax.broadcasted_iota(jnp.int32, (COLUMNS, width), 0) + COLUMNS * half
    part = lax.broadcasted_iota(jnp.int32, (COLUMNS, width), 1)
    token = jnp.minimum(token, job.rows - 1)
    total = plt.load(squares_ref.at[token, part])
    for i in range(1, parts // width):
        total = total + plt.load(squares_ref.at[token, part + i * width])
    return lax.rsqrt(jnp.sum(total, axis=1) * (1.0 / job.k) + job.eps)


class Output:
    """Who holds what after the sum over warps: index tensors [128]."""

    def __init__(self) -> None:
        element = lax.broadcasted_iota(jnp.int32, (128,), 0)
        self.row = lax.div(element, 16) + 8 * lax.div(lax.rem(element, 4), 2)
        self.token = 2 * lax.rem(lax.div(element, 4), 4) + lax.rem(element, 2)

    @staticmethod
    def by_token(values: jax.Array) -> jax.Array:
        """[8] to [128]: every element its token's."""
        return jnp.broadcast_to(values.reshape(1, 4, 1, 2), (8, 4, 2, 2)).reshape(128)

    @staticmethod
    def sum_rows(values: jax.Array) -> jax.Array:
        """[128] to [8]: over the 16 rows of a tile.

        By pairs: of two numbers there is one sum, while the order of a longer one is up to the layout that Triton
        picks, and it picks another one for more than 8 rows.
        """
        pairs = jnp.sum(values.reshape(2, 2, 2, 4, 2, 2), axis=4)
        for _ in range(3):
            pairs = jnp.sum(pairs, axis=0)
        return pairs.reshape(8)
