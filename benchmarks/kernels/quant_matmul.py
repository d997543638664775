"""Products of packed matrices on the GPU: error against float64, then time of the real shapes for sets of options.

    python benchmarks/kernels/quant_matmul.py check [format ...]
    python benchmarks/kernels/quant_matmul.py time 'product format M options' ...
    python benchmarks/kernels/quant_matmul.py layer 'format M' ...

Options are fields of `Config` with commas, and ahead_bytes: 'gate_up q4_g64 1 warps=4,ahead_bytes=16777216'; `check`
takes them after a colon, 'q4_g64:warps=8'. Products are those of specs.py, or 'NxK' (plain) with N and K given.
Kernels run in chains of 64 over different weights, one jitted call, so that launches look as in a decode step; the
option sets of one product take turns, so that a clock that drifts drifts for all. JSON goes into the folder $OUT when
it is set.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from kernels_pallas.arrays import F16_MAX, Activation, Ahead, PackedMatrix
from kernels_pallas.packing import FORMATS, pack, plane_specs
from kernels_pallas.quant_matmul import activation_dtype, triton
from kernels_pallas.quant_matmul.specs import PRODUCTS
from kernels_pallas.quant_matmul.tuning import Config, config_for
from tests.kernels_pallas.quant_matmul.natural import natural_planes, numbers

CHAIN = 64
STACK_BYTES = 3 << 30
SHAPES = {spec.name: (spec.epilogue, spec.n, spec.k) for spec in PRODUCTS}
EPS = 1e-6


def say(*words: object) -> None:
    """Print at once: a run may be cut off."""
    print(*words, flush=True)


def scalar(value: int) -> jax.Array:
    """int32 [1]."""
    return jnp.array([value], jnp.int32)


# ------------------------------------------------------------------ errors against float64


N = 256


@functools.cache
def known_matrix(format: str, k: int) -> tuple[PackedMatrix, np.ndarray]:
    """A stack of three matrices [256, k], and the numbers of the second."""
    planes = [natural_planes(format, N, k, seed) for seed in (0, 1, 2)]
    packed = [pack(format, each) for each in planes]
    stacked = {name: jnp.asarray(np.stack([each[name] for each in packed])) for name in packed[0]}
    return PackedMatrix(format=format, **stacked), numbers(format, planes[1])


def check_case(format: str, epilogue: str, rows: int, k: int, config: Config) -> tuple[str, float, np.ndarray]:
    """(case, largest error over largest value, bits of the first row), layer 1 of a stack of 3."""
    n = N
    matrix, weights = known_matrix(format, k)
    rng = np.random.default_rng(7)
    dtype = activation_dtype(format)
    values = jnp.asarray(rng.standard_normal((16, k))[:rows] / 8, dtype)
    squares = jnp.asarray(rng.uniform(0.5, 2, (16, k // 16))[:rows], jnp.float32)
    residual = jnp.asarray(100 * rng.standard_normal((16, n))[:rows], jnp.float32)
    gains = jnp.asarray(rng.uniform(0.5, 2, (2, n)), jnp.float32)
    normed = epilogue != "residual"
    x = Activation(values=values, squares=squares if normed else None, shift=6 if normed else 4, eps=EPS)
    factor = 2.0**x.shift
    if normed:
        factor = factor / np.sqrt(np.asarray(squares, np.float64).sum(1, keepdims=True) / k + EPS)
    y = np.asarray(values, np.float64) @ weights.T * factor
    ahead = (Ahead(matrix, scalar(2), AHEAD_BYTES),)
    more = {"config": config, "ahead": ahead}
    if epilogue == "plain":
        run = jax.jit(lambda x, m, at: triton.project(x, m, at, out_dtype=jnp.float32, **more))
        got = [run(x, matrix, scalar(1))]
        expected = [y]
    elif epilogue == "gated":
        x = Activation(values=x.values * 2.0**-6, squares=x.squares, shift=x.shift, eps=EPS)
        y = y * 2.0**-6
        run = jax.jit(lambda x, m, at: triton.project_gated(x, m, at, out_dtype=dtype, shift=4, **more).values)
        got = [run(x, matrix, scalar(1))]
        gate, up = np.split(y, 2, axis=1)
        silu = gate / (1 + np.exp(-np.clip(gate, -500, 500))) * up / 16
        expected = [np.clip(silu, -F16_MAX, F16_MAX) if dtype == np.float16 else silu]
    else:
        run = jax.jit(
            lambda x, m, at, r, g: triton.project_residual(
                x, m, at, r, g, at, out_dtype=dtype, shift=6, eps=EPS, **more
            ),
            donate_argnums=3,
        )
        before = np.asarray(residual, np.float64)
        new, following = run(x, matrix, scalar(1), residual, gains)
        got = [new, following.values, following.squares]
        total = before + y
        expected = [total, total * np.asarray(gains[1]) / 64, (total**2).reshape(rows, -1, 16).sum(2)]
    error = max(
        float(np.abs(np.asarray(g, np.float64) - e).max() / np.abs(e).max()) for g, e in zip(got, expected, strict=True)
    )
    name = f"{format} {epilogue} M={rows} K={k} {config.warps}w t{config.tiles} r{config.ring},{config.ring_rows}"
    return name, error, np.concatenate([np.asarray(g[0], np.float32).ravel() for g in got]).view(np.uint32)


def check(formats: list[str], rows: tuple[int, ...] = (1, 3, 8, 16)) -> list[dict[str, object]]:
    """Every format and epilogue; a row's bits must be those of M = 1."""
    cases = []
    for text in formats:
        format, _, option = text.partition(":")
        for k in (5120, 6144, 17408):
            known_matrix(format, k)
        for epilogue, k in (("plain", 5120), ("gated", 5120), ("residual", 6144), ("residual", 17408)):
            n = {"plain": 16384, "gated": 34816, "residual": 5120}[epilogue]
            config = options(option) if option else config_for(format, n, k, epilogue)
            cases += [(format, epilogue, m, k, config) for m in rows]
    found, first = [], {}
    with ThreadPoolExecutor(12) as pool:
        for case, (name, error, bits) in zip(cases, pool.map(lambda c: check_case(*c), cases), strict=True):
            key = (case[0], case[1], case[3], case[4])
            same = bool(np.array_equal(first.setdefault(key, bits), bits))
            limit = {"plain": 1e-5}.get(case[1], 6e-3 if case[0] == "bf16" else 1e-3)
            verdict = "ok" if error < limit and same else "WRONG"
            say(f"{verdict:6s}{name:44s} error {error:.1e}  row 0 as at M=1: {same}")
            found.append({"case": name, "error": error, "same_bits": same})
    return found


# ------------------------------------------------------------------ time


def random_matrix(format: str, n: int, k: int, layers: int) -> PackedMatrix:
    """Random codes; scales are 1/64 or 1."""
    specs = plane_specs(format, n, k)
    key = jax.random.key(0)

    def words() -> jax.Array:
        shape = specs["codes"].shape
        bits = [jax.random.bits(jax.random.fold_in(key, i), shape, jnp.uint32) for i in range(4)]
        stack = jnp.stack([bits[i % 4] for i in range(layers)])
        return stack & jnp.uint32(0xBF7FBF7F) if format == "bf16" else stack & jnp.uint32(0xB7B7B7B7)

    planes = {"codes": jax.jit(words)()}
    fill = {"high": 0x5A, "scales": 0x3838 if format == "nvfp4" else 0x24002400, "row_scales": 1}
    for name in specs.keys() - {"codes"}:
        planes[name] = jnp.full((layers, *specs[name].shape), fill[name], specs[name].dtype)
    return PackedMatrix(format=format, **planes)


def chain(epilogue: str, matrix: PackedMatrix, rows: int, config: Config, ahead_bytes: int):  # type: ignore[no-untyped-def]
    """A jitted function of CHAIN kernels over the layers of `matrix`, and its arguments."""
    dtype = activation_dtype(matrix.format)
    normed = epilogue != "residual"
    squares = jnp.ones((rows, matrix.k // 16), jnp.float32) if normed else None
    x = Activation(values=jnp.full((rows, matrix.k), 0.01, dtype), squares=squares, shift=6, eps=EPS)
    n_out = matrix.n // 2 if epilogue == "gated" else matrix.n
    out_dtype = dtype if epilogue == "gated" else jnp.float32
    gains = jnp.ones((2, matrix.n), jnp.float32)

    @jax.jit
    def link(x, matrix, layer, following, state, gains):  # type: ignore[no-untyped-def]
        ahead = (Ahead(matrix, following, ahead_bytes),) if ahead_bytes else ()
        if epilogue == "residual":
            like = {"out_dtype": dtype, "shift": 6, "eps": EPS, "config": config, "ahead": ahead}
            return triton.project_residual(x, matrix, layer, state, gains, ZERO, **like)[0]
        job = triton.plan(x, matrix, epilogue, 4, config, ahead)
        outputs = {"out": jax.ShapeDtypeStruct((rows, n_out), out_dtype)}
        return triton.run(job, x, matrix, layer, outputs, {"chain": state}, {}, ahead)[0]

    def many(x, matrix, state, gains):  # type: ignore[no-untyped-def]
        for i in range(CHAIN):
            state = link(x, matrix, LAYERS[i % matrix.layers], LAYERS[(i + 1) % matrix.layers], state, gains)
        return state

    state = jnp.zeros((rows, n_out), out_dtype)
    return jax.jit(many, donate_argnums=2), (x, matrix, state, gains)


AHEAD_BYTES = 8 << 20
ZERO = np.zeros(1, np.int32)
LAYERS = [np.array([i], np.int32) for i in range(512)]


def pure_read() -> float:
    """Bytes per second of a sum over 4 GB of bfloat16."""
    data = jnp.ones((1 << 31,), jnp.bfloat16)
    total = jax.jit(lambda a: jnp.sum(a, dtype=jnp.float32))
    total(data).block_until_ready()
    best = 1e9
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(4):
            result = total(data)
        result.block_until_ready()
        best = min(best, (time.perf_counter() - begin) / 4)
    return data.nbytes / best


def options(text: str) -> Config:
    """A `Config` from 'warps=8,pin=False'; ahead_bytes is none of its fields and left out."""
    names = dict(part.split("=") for part in text.split(",") if part and part != "-")
    names.pop("ahead_bytes", None)
    return Config(
        **{name: value == "True" if value in ("True", "False") else int(value) for name, value in names.items()}
    )


def ahead_bytes_of(text: str) -> int:
    """How much of the next matrix a kernel asks for: 'ahead_bytes=8388608' among the options."""
    names = dict(part.split("=") for part in text.split(",") if part and part != "-")
    return int(names.get("ahead_bytes", 0))


def shape_of(name: str) -> tuple[str, int, int]:
    """(epilogue, N, K) of a product's name."""
    if name in SHAPES:
        return SHAPES[name]
    n, k = name.split("x")
    return "plain", int(n), int(k)


def time_all(texts: list[str]) -> list[dict[str, object]]:
    """Compile ahead in threads, time alone; lines 'shape format M options', stacks are made once for neighbours."""
    ceiling = pure_read()
    say(f"pure read {ceiling / 1e12:.2f} TB/s")
    found: list[dict[str, object]] = []
    groups: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for text in texts:
        shape, format, rows, option = text.split()
        groups.setdefault((shape, format), []).append((int(rows), option))
    with ThreadPoolExecutor(14) as pool:
        for (shape, format), variants in groups.items():
            epilogue, n, k = shape_of(shape)
            size = sum(int(np.prod(s.shape)) * s.dtype.itemsize for s in plane_specs(format, n, k).values())
            matrix = random_matrix(format, n, k, min(max(2, STACK_BYTES // size), 512))

            def prepare(variant, matrix=matrix, epilogue=epilogue):  # type: ignore[no-untyped-def]
                many, arguments = chain(epilogue, matrix, variant[0], options(variant[1]), ahead_bytes_of(variant[1]))
                try:
                    return many.lower(*arguments).compile(), arguments
                except Exception as error:
                    return None, repr(error)[:300]

            ready = list(pool.map(prepare, variants))
            for (rows, option), (compiled, reason) in zip(variants, ready, strict=True):
                if compiled is None:
                    say("FAILED", shape, format, rows, option, reason)
            kept = [i for i, (compiled, _) in enumerate(ready) if compiled is not None]
            times = time_in_turns([ready[i] for i in kept])
            for i, each in zip(kept, times, strict=True):
                rows, option = variants[i]
                best, median = min(each), sorted(each)[len(each) // 2]
                line = {"shape": shape, "format": format, "rows": rows, "options": option, "us": best * 1e6}
                line |= {"median_us": median * 1e6, "tb_s": size / best / 1e12, "share": size / best / ceiling}
                found.append(line)
                say(
                    f"{shape:12s}{format:9s}M={rows:<3d}{best * 1e6:7.2f} ({median * 1e6:6.2f}) us "
                    f"{line['tb_s']:5.2f} TB/s {100 * size / best / ceiling:5.1f} %  {option}"
                )
            del matrix, ready
    return found


def time_in_turns(ready, turns: int = 5, calls: int = 4):  # type: ignore[no-untyped-def]
    """Seconds a kernel, a list for each (compiled chain, arguments)."""
    states = [arguments[2] for _, arguments in ready]
    times: list[list[float]] = [[] for _ in ready]
    for _ in range(turns):
        for i, (compiled, (x, matrix, _, gains)) in enumerate(ready):
            states[i] = jax.block_until_ready(compiled(x, matrix, states[i], gains))
            begin = time.perf_counter()
            for _ in range(calls):
                states[i] = compiled(x, matrix, states[i], gains)
            jax.block_until_ready(states[i])
            times[i].append((time.perf_counter() - begin) / calls / CHAIN)
    return times


LAYER_SHAPES = {name: SHAPES[name][1:] for name in ("out", "gate_up", "down", "delta_in")}


def layer_function(format: str, count: int):  # type: ignore[no-untyped-def]
    """A jitted walk through the four products of `count` layers, as a decode step makes them."""
    dtype = activation_dtype(format)

    @jax.jit
    def layer(mixed, matrices, at, state, gains):  # type: ignore[no-untyped-def]
        out, gate_up, down, following = matrices
        places = [(Ahead(matrix, at, AHEAD_BYTES),) for matrix in matrices]
        like = {"out_dtype": dtype, "shift": 6, "eps": EPS}
        residual, x = triton.project_residual(mixed, out, at, state, gains, ZERO, **like, ahead=places[1])
        x = triton.project_gated(x, gate_up, at, out_dtype=dtype, shift=4, ahead=places[2])
        residual, x = triton.project_residual(x, down, at, residual, gains, ZERO, **like, ahead=places[3])
        projected = triton.project(x, following, at, out_dtype=jnp.float32, ahead=places[0])
        return residual, projected

    def many(mixed, matrices, state, gains):  # type: ignore[no-untyped-def]
        for i in range(count):
            state, projected = layer(mixed, matrices, LAYERS[i % matrices[0].layers], state, gains)
        return state, projected

    return jax.jit(many, donate_argnums=2)


def time_layers(texts: list[str]) -> list[dict[str, object]]:
    """'format rows': time of a layer's four products with the cuts of the table."""
    ceiling = pure_read()
    say(f"pure read {ceiling / 1e12:.2f} TB/s")
    found: list[dict[str, object]] = []
    for text in texts:
        format, rows_text = text.split()
        rows, dtype = int(rows_text), activation_dtype(format)
        sizes = [plane_specs(format, n, k).values() for n, k in LAYER_SHAPES.values()]
        size = sum(int(np.prod(s.shape)) * s.dtype.itemsize for specs in sizes for s in specs)
        layers = max(3, STACK_BYTES // size)
        matrices = [random_matrix(format, n, k, layers) for n, k in LAYER_SHAPES.values()]
        mixed = Activation(values=jnp.full((rows, 6144), 0.01, dtype))
        gains = jnp.ones((2, 5120), jnp.float32)
        state = jnp.ones((rows, 5120), jnp.float32)
        run = layer_function(format, 24).lower(mixed, matrices, state, gains).compile()
        best = 1e9
        for _ in range(5):
            begin = time.perf_counter()
            for _ in range(3):
                state, projected = run(mixed, matrices, state, gains)
            projected.block_until_ready()
            best = min(best, (time.perf_counter() - begin) / 3 / 24)
        share = size / best / ceiling
        say(f"layer {format:9s}M={rows:<3d}{best * 1e6:7.2f} us {size / best / 1e12:5.2f} TB/s {100 * share:5.1f} %")
        found.append({"format": format, "rows": rows, "us": best * 1e6, "share": share})
    return found


def main() -> None:
    """See the module's head."""
    what, *rest = sys.argv[1:]
    say(jax.devices(), jax.__version__)
    found = {"check": lambda names: check(names or list(FORMATS)), "time": time_all, "layer": time_layers}[what](rest)
    if folder := os.environ.get("OUT"):
        Path(folder, f"quant_matmul_{what}.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
