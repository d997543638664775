"""The prefill matmul and its dequantisation on a GPU: errors, equality of a row's bits, TFLOP/s by tiles, GB/s.

    python -m benchmarks.kernels.prefill_matmul [--parts check,tiles,rows,dequantise] [--out FOLDER]

Beside every rate stands XLA's `x @ w.T` of the same run. Everything is compiled first, in threads; then timed alone.
Prints a line as soon as it is known, and writes prefill_matmul.json into the folder.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from benchmarks.kernels import prefill_dequantise
from kernels_pallas.prefill_matmul import mosaic, reference
from kernels_pallas.prefill_matmul.specs import PRODUCTS, Product
from kernels_pallas.prefill_matmul.tuning import Tiles, fitted, tiles_for

Arrays = tuple[jax.Array, ...]
Spec = Callable[[tuple[int, ...], DTypeLike], jax.ShapeDtypeStruct]
DTYPE = jnp.float16
CHECK_ROWS = (64, 128, 192, 1024, 2048, 8192)
TIMED_ROWS = (64, 256, 1024, 2048, 8192)
ALL_ROWS_CHECKED = ("mixer out", "gate and up")  # the others differ from these in N and K only
SPAN_S = 0.04


@dataclasses.dataclass(frozen=True)
class Case:
    """One compiled product: what it is, its rows, its tiles (None: XLA)."""

    product: Product
    t: int
    tiles: Tiles | None
    run: jax.stages.Compiled


def out_dtype(product: Product) -> np.dtype:
    return jnp.dtype(jnp.float32 if product.epilogue == "residual_add" else DTYPE)


def tile_options(product: Product) -> Iterator[Tiles]:
    """The tiles that are tried for a product: shapes, clusters and orders of the grid."""
    gated = product.epilogue == "silu_product"
    make = functools.partial(fitted, gated=gated, out_bytes=out_dtype(product).itemsize)
    shapes = [(128, 256), (256, 128)] + ([(256, 160)] if product.n % 160 == 0 and not gated else [])
    for rows, columns in shapes:
        for cluster in (None, "t", "n"):
            if cluster == "n" and product.n % (2 * columns):
                continue
            yield make(rows, columns, cluster=cluster)
    best = shapes[-1]
    if out_dtype(product) == jnp.float32:
        yield make(*best, out_slots=1)
        yield make(*best, out_slots=1, cluster="t")
    yield make(*best, walk_width=4)
    yield make(*best, walk_width=16)
    yield make(*best, walk="n")
    yield make(*best, in_flight=0)


def compiled(product: Product, t: int, tiles: Tiles | None, spec: Spec = jax.ShapeDtypeStruct) -> Case:
    shapes = [spec((t, product.k), DTYPE), spec((product.n, product.k), DTYPE)]
    meaning = functools.partial(
        reference.matmul if tiles is None else functools.partial(mosaic.matmul, tiles=tiles),
        epilogue=product.epilogue,
        out_dtype=out_dtype(product),
        shift=4 if product.epilogue == "silu_product" else 0,
    )
    if product.epilogue != "residual_add":
        return Case(product, t, tiles, jax.jit(lambda x, w: meaning(x, w, residual=None)).lower(*shapes).compile())
    shapes.append(spec((t, product.n), jnp.float32))
    added = jax.jit(lambda x, w, r: meaning(x, w, residual=r), donate_argnums=2)
    return Case(product, t, tiles, added.lower(*shapes).compile())


def compile_all(wanted: Iterable[tuple[Product, int, Tiles | None]]) -> Iterator[Case]:
    """Every case that compiles; a line for every one that does not."""
    with ThreadPoolExecutor(8) as pool:
        jobs = [(w, pool.submit(compiled, *w)) for w in wanted]
        for (product, t, tiles), job in jobs:
            try:
                yield job.result()
            except Exception as error:  # one bad option must not cost the others their turn on the device
                print(f"FAILED {product.name} T={t} {tiles}: {str(error).splitlines()[:1]}", flush=True)


@functools.lru_cache(maxsize=2)
def operands(product: Product, t: int) -> Arrays:
    x_key, w_key, r_key = jax.random.split(jax.random.key(product.n + product.k), 3)
    x = jax.random.normal(x_key, (max(t, max(CHECK_ROWS)), product.k), DTYPE)[:t]
    w = jax.random.normal(w_key, (product.n, product.k), DTYPE) * DTYPE(0.02)
    r = jax.random.normal(r_key, (max(t, max(CHECK_ROWS)), product.n if product.epilogue == "residual_add" else 1))[:t]
    return jax.block_until_ready((x, w, r))


def result(case: Case) -> jax.Array:
    x, w, r = operands(case.product, case.t)
    return case.run(x, w, r.copy()) if case.product.epilogue == "residual_add" else case.run(x, w)


def seconds(step: Callable[[], object]) -> float:
    """Best of three means over about SPAN_S each."""
    step()
    jax.block_until_ready(step())
    best, repeats = float("inf"), 3
    for _ in range(4):
        start = time.perf_counter()
        for _ in range(repeats):
            last = step()
        jax.block_until_ready(last)
        mean = (time.perf_counter() - start) / repeats
        best, repeats = (mean, max(3, int(SPAN_S / mean))) if repeats == 3 else (min(best, mean), repeats)
    return best


def case_seconds(case: Case) -> float:
    x, w, r = operands(case.product, case.t)
    if case.product.epilogue != "residual_add":
        return seconds(lambda: case.run(x, w))
    held = [r.copy()]

    def step() -> jax.Array:
        held[0] = case.run(x, w, held[0])
        return held[0]

    return seconds(step)


def error_to_float64(case: Case) -> float:
    """Largest difference over a few rows and columns, as a share of the largest value there."""
    x, w, r = operands(case.product, case.t)
    rows = np.array([0, 1, case.t // 2, case.t - 1])
    columns = np.random.default_rng(1).choice(case.product.n // 2, 128, replace=False)
    columns = np.concatenate([columns, columns + case.product.n // 2])
    y = np.asarray(x[rows], np.float64) @ np.asarray(w[columns], np.float64).T
    got = np.asarray(result(case)[rows][:, columns[: 128 if case.product.epilogue == "silu_product" else 256]])
    if case.product.epilogue == "residual_add":
        y += np.asarray(r[rows][:, columns], np.float64)
    elif case.product.epilogue == "silu_product":
        gate, up = y[:, :128], y[:, 128:]
        y = gate / (1 + np.exp(-gate)) * up / 16
    return float(np.abs(got - y).max() / np.abs(y).max())


def check(found: list[dict[str, object]]) -> None:
    """Errors against float64, and a row's bits for every number of rows against those of the most rows."""
    wanted = [
        (p, t, tiles_for(t, p.n, p.k, gated=p.epilogue == "silu_product", out_bytes=out_dtype(p).itemsize))
        for p in PRODUCTS
        for t in reversed(CHECK_ROWS if p.name in ALL_ROWS_CHECKED else CHECK_ROWS[:1] + CHECK_ROWS[-1:])
    ]
    whole: jax.Array | None = None
    for case in compile_all(wanted):
        got = result(case)
        whole = got if case.t == max(CHECK_ROWS) else whole
        assert whole is not None
        equal = bool((got == whole[: case.t]).all())
        error = error_to_float64(case)
        print(f"check {case.product.name:14} T={case.t:5} rows equal {equal} error {error:.2e}", flush=True)
        found.append({"check": case.product.name, "t": case.t, "rows_equal": equal, "error": error})


def rates(part: str, wanted: list[tuple[Product, int, Tiles | None]], found: list[dict[str, object]]) -> None:
    """TFLOP/s of every case, and whether its bits are those of the first kernel of the same product and rows."""
    first: dict[tuple[str, int], jax.Array] = {}
    for case in list(compile_all(wanted)):
        key = (case.product.name, case.t)
        same: bool | None = None
        if case.tiles is not None:
            got = result(case)
            same = bool((got == first.setdefault(key, got)).all())
            del got
        taken_s = case_seconds(case)
        rate = 2 * case.t * case.product.n * case.product.k / taken_s / 1e12
        kind = "XLA" if case.tiles is None else _short(case.tiles)
        print(
            f"{part} {case.product.name:14} T={case.t:5} {taken_s * 1e6:8.1f} us {rate:6.1f} TFLOP/s {kind} {same}",
            flush=True,
        )
        tiles = None if case.tiles is None else dataclasses.asdict(case.tiles)
        found.append(
            {part: case.product.name, "t": case.t, "us": taken_s * 1e6, "tflops": rate, "tiles": tiles, "same": same}
        )


def _short(tiles: Tiles) -> str:
    return (
        f"{tiles.rows}x{tiles.columns} stages {tiles.stages} shared {tiles.shared} walk {tiles.walk}{tiles.walk_width}"
        f" cluster {tiles.cluster} in flight {tiles.in_flight}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="check,tiles,rows,dequantise")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("JOB_OUT", ".")))
    given = parser.parse_args()
    found: list[dict[str, object]] = []
    started_s = time.perf_counter()
    for part in given.parts.split(","):
        if part == "check":
            check(found)
        elif part == "tiles":
            for product in sorted(PRODUCTS[:1] + PRODUCTS[2:], key=lambda p: -p.k):
                rates(part, [(product, 2048, tiles) for tiles in (None, *tile_options(product))], found)
        elif part == "rows":
            for p in PRODUCTS:
                gated, out_bytes = p.epilogue == "silu_product", out_dtype(p).itemsize
                chosen = [(p, t, tiles_for(t, p.n, p.k, gated=gated, out_bytes=out_bytes)) for t in TIMED_ROWS]
                rates(part, chosen + [(p, t, None) for t in TIMED_ROWS], found)
        elif part == "dequantise":
            prefill_dequantise.run(found)
        (given.out / "prefill_matmul.json").write_text(json.dumps(found), encoding="utf-8")
        print(f"{part} done after {time.perf_counter() - started_s:.1f} s", flush=True)


if __name__ == "__main__":
    main()
