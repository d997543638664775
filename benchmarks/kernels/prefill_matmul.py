"""The prefill matmul and its dequantisation on a GPU: errors, equality of a row's bits, TFLOP/s by tiles, GB/s.

    python -m benchmarks.kernels.prefill_matmul [--parts check,tiles,rows,sustained,dequantise] [--rows 64,2048]

Beside every rate stands XLA's `x @ w.T` of the same run. Everything is compiled first, in threads; then timed alone.
Prints a line as soon as it is known, and writes prefill_matmul.json into the folder.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
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
from kernels_pallas.prefill_matmul.tuning import Axis, Tiles, fitted, tiles_for

Arrays = tuple[jax.Array, ...]
Spec = Callable[[tuple[int, ...], DTypeLike], jax.ShapeDtypeStruct]
DTYPE = jnp.float16
CHECK_ROWS = (64, 128, 192, 256, 1024, 2048, 8192)
MANY_ROWS = 1024
ALL_ROWS_CHECKED = ("mixer out", "gate and up")  # the others differ from these in N and K only
BURST_S = 0.008
SUSTAINED_S = 0.4
ROUNDS = 7


@dataclasses.dataclass(frozen=True)
class Case:
    """One compiled product: what it is, its rows, its tiles (None: XLA)."""

    product: Product
    t: int
    tiles: Tiles | None
    run: jax.stages.Compiled


def out_dtype(product: Product) -> np.dtype:
    return jnp.dtype(jnp.float32 if product.epilogue == "residual_add" else DTYPE)


def chosen(product: Product, t: int) -> Tiles:
    """What the public function takes."""
    gated, out_bytes = product.epilogue == "silu_product", out_dtype(product).itemsize
    return tiles_for(t, product.n, product.k, gated=gated, out_bytes=out_bytes)


def tile_options(product: Product, t: int) -> Iterator[Tiles]:
    """The tiles that are tried for a product: those of many rows, or those of few, which are bound by reading w."""
    gated = product.epilogue == "silu_product"
    make = functools.partial(fitted, gated=gated, out_bytes=out_dtype(product).itemsize)
    yield chosen(product, t)
    if t >= MANY_ROWS:
        main = (256, 160) if product.n % 160 == 0 and not gated else (128, 256)
        for in_flight, cluster in itertools.product((0, 1), (None, "t", "n")):
            yield make(*main, in_flight=in_flight, cluster=cluster)
        yield make(*main, in_flight=0, out_slots=1)
        for walk_width in (4, 16):
            yield make(*main, in_flight=0, walk_width=walk_width)
        yield make(256, 128, in_flight=0)
        return
    few: list[tuple[int, int, Axis]] = [(64, 32, "n"), (64, 64, "n"), (64, 128, "n")] if t <= 64 else []
    more: list[tuple[int, int, Axis]] = [(128, c, "t") for c in ((40, 64, 80, 128) if t <= 128 else (64, 80, 128, 256))]
    most: list[tuple[int, int, Axis]] = [(256, c, "t") for c in (64, 80, 128)] if t > 128 else []
    for (rows, columns, shared), depth in itertools.product(few + more + most, (64, 128)):
        if product.n % columns == 0 and not (gated and columns < 64):
            yield make(rows, columns, shared=shared, depth=depth)


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


def stepper(case: Case) -> Callable[[], jax.Array]:
    """One run of a case on the device's own operands; a residual goes round and round."""
    x, w, r = operands(case.product, case.t)
    if case.product.epilogue != "residual_add":
        return lambda: case.run(x, w)
    held = [r.copy()]

    def step() -> jax.Array:
        held[0] = case.run(x, w, held[0])
        return held[0]

    return step


def burst_s(step: Callable[[], jax.Array], calls: int) -> float:
    """Mean seconds of a call."""
    start = time.perf_counter()
    for _ in range(calls):
        last = step()
    jax.block_until_ready(last)
    return (time.perf_counter() - start) / calls


def interleaved_s(cases: list[Case]) -> list[list[float]]:
    """Seconds of a call of every case, in ROUNDS bursts that take turns: the clock falls as the device warms up."""
    steps = [stepper(case) for case in cases]
    calls = [max(3, int(BURST_S / burst_s(step, 3))) for step in steps for _ in [burst_s(step, 2)]]
    rounds = [[burst_s(step, n) for step, n in zip(steps, calls, strict=True)] for _ in range(ROUNDS)]
    return [sorted(of_case) for of_case in zip(*rounds, strict=True)]


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
        (p, t, chosen(p, t))
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
    """TFLOP/s of cases of one product and number of rows, and whether the kernels' bits agree."""
    cases = list(compile_all(wanted))
    first: jax.Array | None = None
    same: list[bool | None] = []
    for case in cases:
        got = result(case) if case.tiles is not None else None
        first = got if first is None else first
        same.append(None if got is None else bool((got == first).all()))
    for case, taken_s, equal in zip(cases, interleaved_s(cases), same, strict=True):
        flop = 2 * case.t * case.product.n * case.product.k
        best, median = (flop / taken_s[at] / 1e12 for at in (0, ROUNDS // 2))
        print(
            f"{part} {case.product.name:14} T={case.t:5} {taken_s[ROUNDS // 2] * 1e6:8.1f} us {median:6.1f} TFLOP/s"
            f" (best {best:6.1f}) {'XLA' if case.tiles is None else _short(case.tiles)} {equal}",
            flush=True,
        )
        tiles = None if case.tiles is None else dataclasses.asdict(case.tiles)
        found.append(
            {part: case.product.name, "t": case.t, "tflops": median, "best": best, "tiles": tiles, "same": equal}
        )


def sustained(found: list[dict[str, object]]) -> None:
    """XLA and the kernel in turn for so long that the clock has settled; a sampler of clocks may run beside."""
    for product in PRODUCTS:
        for case in list(compile_all((product, 2048, tiles) for tiles in (None, chosen(product, 2048)))) * 2:
            step = stepper(case)
            calls = max(1, int(SUSTAINED_S / burst_s(step, 20)))
            start_s = time.time()
            rate = 2 * case.t * product.n * product.k / burst_s(step, calls) / 1e12
            kind = "XLA" if case.tiles is None else "kernel"
            print(
                f"sustained {product.name:14} {kind:6} {rate:6.1f} TFLOP/s from {start_s:.2f} to {time.time():.2f}",
                flush=True,
            )
            found.append({"sustained": product.name, "kind": kind, "tflops": rate})


def _short(tiles: Tiles) -> str:
    return (
        f"{tiles.rows}x{tiles.columns}x{tiles.depth} stages {tiles.stages} shared {tiles.shared}"
        f" walk {tiles.walk}{tiles.walk_width} cluster {tiles.cluster} in flight {tiles.in_flight}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="check,tiles,rows,dequantise")
    parser.add_argument("--rows", type=lambda text: [int(t) for t in text.split(",")], default=[2048])
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("JOB_OUT", ".")))
    given = parser.parse_args()
    found: list[dict[str, object]] = []
    started_s = time.perf_counter()
    for part in given.parts.split(","):
        if part == "check":
            check(found)
        elif part == "tiles":
            for t, product in itertools.product(given.rows, PRODUCTS[:1] + PRODUCTS[2:]):
                rates(part, [(product, t, tiles) for tiles in (None, *tile_options(product, t))], found)
        elif part == "rows":
            for product, t in itertools.product(PRODUCTS, given.rows):
                rates(part, [(product, t, None), (product, t, chosen(product, t))], found)
        elif part == "sustained":
            sustained(found)
        elif part == "dequantise":
            prefill_dequantise.run(found)
        (given.out / "prefill_matmul.json").write_text(json.dumps(found), encoding="utf-8")
        print(f"{part} done after {time.perf_counter() - started_s:.1f} s", flush=True)


if __name__ == "__main__":
    main()
