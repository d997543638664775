"""The prefill matmul from packed weights: has it the bits of the one from an unpacked copy, and how fast is it?

    python -m benchmarks.kernels.prefill_packed 'q4_g64 down 64' 'q4_g64 gate_up 1024 tokens=128,in_flight=0' ...

A case is a format, a product, the rows of x and fields of `PackedTiles` (none: several). Everything is compiled first,
in threads. Then each case is compared bit for bit with `matmul(x, dequantise(matrix))` and both are timed, over
different layers. Prints a line as soon as it is known.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import jax
import jax.numpy as jnp

from benchmarks.kernels.prefill_dequantise import random_planes
from kernels_pallas.arrays import PackedMatrix
from kernels_pallas.packing import plane_specs
from kernels_pallas.prefill_matmul import dequantise, matmul, packed
from kernels_pallas.prefill_matmul.epilogue import Epilogue
from kernels_pallas.prefill_matmul.packed_tuning import PackedTiles, fitted, packed_tiles_for

LAYERS = 8
PRODUCTS: dict[str, tuple[int, int, Epilogue]] = {
    "delta_in": (16384, 5120, "none"),
    "out": (5120, 6144, "residual_add"),
    "gate_up": (34816, 5120, "silu_product"),
    "down": (5120, 17408, "residual_add"),
}
BURST_S = 0.006
ROUNDS = 4


@attrs.frozen(kw_only=True)
class Case:
    """A product of a format and its rows; without tiles it is the product of an unpacked copy."""

    form: str
    product: str
    t: int
    tiles: PackedTiles | None

    @property
    def dtype(self) -> jnp.dtype:
        return jnp.dtype(jnp.bfloat16 if self.form == "bf16" else jnp.float16)

    @property
    def out_dtype(self) -> jnp.dtype:
        return jnp.dtype(jnp.float32) if self.epilogue == "residual_add" else self.dtype

    @property
    def epilogue(self) -> Epilogue:
        return PRODUCTS[self.product][2]


def run(case: Case, x: jax.Array, matrix: PackedMatrix, layer: jax.Array, residual: jax.Array | None) -> jax.Array:
    """The product as the program would call it."""
    options = {"epilogue": case.epilogue, "residual": residual, "out_dtype": case.out_dtype}
    options["shift"] = 0 if case.epilogue == "none" else 4
    if case.tiles is None:
        return matmul(x, dequantise(matrix, layer, case.dtype, impl="kernel"), impl="kernel", **options)
    return packed.matmul(x, matrix, layer, tiles=case.tiles, **options)


def spec_of(case: Case) -> PackedMatrix:
    n, k, _ = PRODUCTS[case.product]
    return PackedMatrix(
        format=case.form,
        **{
            name: jax.ShapeDtypeStruct((LAYERS, *s.shape), jnp.dtype(s.dtype.name))
            for name, s in plane_specs(case.form, n, k).items()
        },
    )


def build(case: Case) -> jax.stages.Compiled | Exception:
    n, k, _ = PRODUCTS[case.product]
    shapes = [jax.ShapeDtypeStruct((case.t, k), case.dtype), spec_of(case), jax.ShapeDtypeStruct((1,), jnp.int32)]
    residual = jax.ShapeDtypeStruct((case.t, n), jnp.float32) if case.epilogue == "residual_add" else None
    try:
        return jax.jit(functools.partial(run, case), donate_argnums=3).lower(*shapes, residual).compile()
    except Exception as error:  # one bad case must not cost the others their turn on the device
        return error


def stepper(case: Case, call: jax.stages.Compiled, x: jax.Array, matrix: PackedMatrix) -> Callable[[int], jax.Array]:
    """Layer after layer; a residual goes round and round."""
    n, _, _ = PRODUCTS[case.product]
    layers = [jnp.array([layer], jnp.int32) for layer in range(LAYERS)]
    if case.epilogue != "residual_add":
        return lambda at: call(x, matrix, layers[at % LAYERS], None)
    held = [jax.random.normal(jax.random.key(9), (case.t, n), jnp.float32)]

    def step(at: int) -> jax.Array:
        held[0] = call(x, matrix, layers[at % LAYERS], held[0])
        return held[0]

    return step


def burst_s(step: Callable[[int], jax.Array], calls: int) -> float:
    start = time.perf_counter()
    for at in range(calls):
        last = step(at)
    jax.block_until_ready(last)
    return (time.perf_counter() - start) / calls


def measure(cases: list[Case], calls: list[jax.stages.Compiled | Exception], found: list[dict[str, object]]) -> None:
    """Cases of one format and product and number of rows, the first without tiles: bits, then times in turns."""
    first = cases[0]
    n, k, _ = PRODUCTS[first.product]
    matrix = jax.block_until_ready(PackedMatrix(format=first.form, **random_planes(first.form, n, k, LAYERS)))
    x = jax.random.normal(jax.random.key(first.t), (first.t, k), first.dtype)
    good = [(case, call) for case, call in zip(cases, calls, strict=True) if not isinstance(call, Exception)]
    for case, call in zip(cases, calls, strict=True):
        if isinstance(call, Exception):
            print(f"FAILED {case}: {str(call)[:160]}", flush=True)
    results = [stepper(case, call, x, matrix)(1) for case, call in good]
    differ = [int((result != results[0]).sum()) for result in results]
    gaps = [float(jnp.abs(result - results[0]).max() / jnp.abs(results[0]).max()) for result in results]
    del results
    steps = [stepper(case, call, x, matrix) for case, call in good]
    counts = [max(4, int(BURST_S / burst_s(step, 4))) for step in steps]
    rounds = [[burst_s(step, count) for step, count in zip(steps, counts, strict=True)] for _ in range(ROUNDS)]
    for (case, _), own, different, gap in zip(good, zip(*rounds, strict=True), differ, gaps, strict=True):
        took_s = sorted(own)[ROUNDS // 2 - 1]
        rate = 2 * case.t * n * k / took_s / 1e12
        print(
            f"{case.form} {case.product:8} T={case.t:5} {took_s * 1e6:8.1f} us (best {min(own) * 1e6:7.1f})"
            f" {rate:5.0f} TFLOP/s differ {different} gap {gap:.0e} {short(case.tiles)}",
            flush=True,
        )
        found.append(
            {
                "case": attrs.asdict(case, recurse=False) | {"tiles": short(case.tiles)},
                "us": took_s * 1e6,
                "differ": different,
            }
        )


def short(tiles: PackedTiles | None) -> str:
    if tiles is None:
        return "unpacked"
    return (
        f"tokens {tiles.tokens} operands {tiles.operands} warpgroups {tiles.warpgroups} units {tiles.units}"
        f" stages {tiles.stages} in flight {tiles.in_flight}"
    )


def options(form: str, product: str, t: int, text: str) -> list[PackedTiles]:
    """What is tried: the chosen tiles, and the fields in `text` or a few."""
    own = Case(form=form, product=product, t=t, tiles=None)
    gated = own.epilogue == "silu_product"
    shape = packed.shape_of(spec_of(own), gated=gated, out_bytes=own.out_dtype.itemsize)
    sets = [{key: int(value) for key, _, value in (o.partition("=") for o in text.split(","))}] if text else []
    if not sets:
        gated_pairs = [(64, 2, 1), (128, 2, 1), (144, 2, 1), (160, 2, 1)]
        pairs = gated_pairs if gated else [(64, 1, 1), (128, 1, 1), (160, 2, 1), (176, 2, 0), (192, 1, 1), (256, 1, 1)]
        sets = [{"tokens": c, "operands": o, "in_flight": f} for c, o, f in pairs if c <= t and (t <= 256 or c >= 128)]
    unique = {packed_tiles_for(shape, t): None}
    for chosen in sets:
        try:
            unique[fitted(shape, **chosen)] = None
        except (NotImplementedError, ValueError) as error:
            print(f"no tiles for {product} {chosen}: {error}", flush=True)
    return list(unique)


def main(arguments: list[str]) -> None:
    groups: dict[tuple[str, str, int], list[Case]] = {}
    for argument in arguments:
        form, product, t, *rest = argument.split()
        key = (form, product, int(t))
        cases = groups.setdefault(key, [Case(form=form, product=product, t=int(t), tiles=None)])
        cases += [Case(form=form, product=product, t=int(t), tiles=o) for o in options(*key, ",".join(rest))]
    found: list[dict[str, object]] = []
    begin_s = time.perf_counter()
    with ThreadPoolExecutor(14) as pool:
        building = {key: [pool.submit(build, case) for case in cases] for key, cases in groups.items()}
        built = {key: [job.result() for job in jobs] for key, jobs in building.items()}
    print(f"compiled {sum(map(len, built.values()))} cases after {time.perf_counter() - begin_s:.1f} s", flush=True)
    for key, cases in groups.items():
        measure(cases, built[key], found)
    folder = os.environ.get("JOB_OUT")
    if folder:
        Path(folder, "prefill_packed.json").write_text(json.dumps(found, default=str), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
