"""The delta net over a prompt on the GPU: error against float64 token by token, then time for sets of options.

    python benchmarks/kernels/gdn_chunk.py check ['options' ...]
    python benchmarks/kernels/gdn_chunk.py time 'T options' ...      e.g. '8192 columns=64,scan_warps=8'

Shapes are those of the 27B model; the oracle follows every eighth value head. A timed call runs four layers one after
the other; kernel times are the profiler's. JSON goes to $JOB_OUT or $OUT when one is set.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.kernels.gdn_step import EPS, SIZES, SLOTS, ints, kernel_times, random_layers, random_rows, relative, say
from kernels_pallas.gdn_chunk.triton import gdn_chunk_triton
from kernels_pallas.gdn_chunk.tuning import DEFAULT, GdnChunkOptions
from kernels_pallas.gdn_step import GdnWeights
from kernels_pallas.gdn_step.reference import project_ab
from kernels_pallas.gdn_step.specs import state_27b
from kernels_pallas.gdn_step.triton import gdn_step_triton

LAYERS, LAYER, SLOT = 2, 1, 3
HEADS = range(0, SIZES.value_heads, 8)
Tokens = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def random_tokens(count: int, correlation: float, seed: int) -> Tokens:
    """mixed, z, a, b; `correlation` near 1 makes all keys alike."""
    rng = np.random.default_rng(seed)

    def mixture(width: int) -> np.ndarray:
        common = rng.standard_normal((1, width))
        own = rng.standard_normal((count, width))
        return correlation * common + (1 - correlation**2) ** 0.5 * own

    mixed, z = mixture(SIZES.channels).astype(np.float16), rng.standard_normal((count, SIZES.values)).astype(np.float16)
    a, b = (rng.standard_normal((count, SIZES.value_heads)).astype(np.float32) for _ in range(2))
    return mixed, z, a, b


def joined(tokens: Tokens) -> tuple[jax.Array, jax.Array]:
    """projected and scores, as the kernel takes them."""
    mixed, z, a, b = tokens
    return jnp.concatenate([mixed, z], axis=-1), jnp.concatenate([a, b], axis=-1)


def oracle(tokens: Tokens, weights: GdnWeights) -> tuple[np.ndarray, np.ndarray]:
    """float64 from an empty state: outputs before the norm [T, heads, dv], the last state."""
    mixed, _, a, b = (np.asarray(part, np.float64) for part in tokens)
    own = {
        field.name: np.asarray(getattr(weights, field.name)[LAYER], np.float64) for field in dataclasses.fields(weights)
    }
    joined = np.concatenate([np.zeros((3, SIZES.channels)), mixed])
    total = sum(joined[tap : tap + len(mixed)] * own["conv"][tap] for tap in range(4))
    convolved = total / (1 + np.exp(-total))

    def unit(part: np.ndarray) -> np.ndarray:
        part = part.reshape(len(mixed), SIZES.key_heads, SIZES.key_dim)
        part = part / np.sqrt((part**2).sum(-1, keepdims=True) + 1e-6)
        return part[:, [head // SIZES.share for head in HEADS]]

    query = unit(convolved[:, : SIZES.keys]) * SIZES.key_dim**-0.5
    key = unit(convolved[:, SIZES.keys : 2 * SIZES.keys])
    value = convolved[:, 2 * SIZES.keys :].reshape(len(mixed), SIZES.value_heads, SIZES.value_dim)[:, HEADS]
    decay = np.exp(-np.exp(own["a_log"]) * np.logaddexp(0, a + own["dt_bias"]))[:, HEADS]
    beta = (1 / (1 + np.exp(-b)))[:, HEADS]
    state, outs = np.zeros((len(HEADS), SIZES.key_dim, SIZES.value_dim)), []
    for t in range(len(mixed)):
        state *= decay[t][:, None, None]
        change = beta[t][:, None] * (value[t] - np.einsum("hkv,hk->hv", state, key[t]))
        state += key[t][:, :, None] * change[:, None, :]
        outs.append(np.einsum("hkv,hk->hv", state, query[t]))
    return np.stack(outs), state


def gated(out: np.ndarray, z: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """The output norm, float64: out [T, heads, dv]."""
    z = np.asarray(z, np.float64).reshape(len(z), SIZES.value_heads, SIZES.value_dim)[:, HEADS]
    return out / np.sqrt((out**2).mean(-1, keepdims=True) + EPS) * np.asarray(gain, np.float64) * z / (1 + np.exp(-z))


def check(option_sets: list[str], tokens: int = 1088, count: int = 1030) -> list[dict[str, object]]:
    """Random and nearly equal keys, usual and no decay; bits of a call against the same prompt in three cuts."""
    state, weights = random_layers(LAYERS, SLOTS, np.random.default_rng(0))
    found = []
    for name, correlation, a_log in (("random", 0.0, None), ("keys alike", 0.98, None), ("no decay", 0.9, -9.0)):
        own = weights if a_log is None else dataclasses.replace(weights, a_log=jnp.full_like(weights.a_log, a_log))
        prompt = random_tokens(tokens, correlation, 1)
        outs, last = oracle(tuple(part[:count] for part in prompt), own)  # type: ignore[arg-type]
        truth = gated(outs, prompt[1][:count], own.norm[LAYER])
        for text in option_sets:
            run = jax.jit(
                functools.partial(gdn_chunk_triton, eps=EPS, out_dtype=jnp.dtype("float32"), options=options(text))
            )
            whole, after = run(*joined(prompt), state, own, ints(LAYER), ints(SLOT), ints(0), ints(count))
            by_head = np.asarray(whole).reshape(tokens, SIZES.value_heads, SIZES.value_dim)
            out_error = float(np.abs(by_head[:count, HEADS] - truth).max() / np.abs(truth).max())
            rms_error = float(np.sqrt(((by_head[:count, HEADS] - truth) ** 2).mean() / (truth**2).mean()))
            state_error = relative(after.recurrent[LAYER, SLOT][HEADS.start :: HEADS.step], last)
            pieces, cut_state = [], state
            for start, end in ((0, 64), (64, 704), (704, tokens)):
                part = tuple(array[start:end] for array in joined(prompt))
                real = min(count, end) - start
                piece, cut_state = run(*part, cut_state, own, ints(LAYER), ints(SLOT), ints(start), ints(real))
                pieces.append(piece)
            same = bool((jnp.concatenate(pieces) == whole).all())
            same &= all(
                bool((left == right).all())
                for left, right in zip(jax.tree.leaves(cut_state), jax.tree.leaves(after), strict=True)
            )
            ring = all(
                bool((after.conv[LAYER, SLOT, (count - back) % 4] == prompt[0][count - back]).all())
                for back in (1, 2, 3)
            )
            rest = not bool(whole[count:].any())
            kept = bool((after.recurrent[0] == state.recurrent[0]).all()) and bool(
                (after.conv[:, :SLOT] == state.conv[:, :SLOT]).all()
            )
            good = rms_error < 2e-3 and state_error < 2e-3 and same and ring and rest and kept
            say(
                f"{'ok' if good else 'WRONG':6s}{name:12s}{text:24s} "
                f"out max {out_error:.1e} rms {rms_error:.1e} state {state_error:.1e} "
                f"cuts alike: {same}, ring: {ring}, rest kept: {kept and rest}"
            )
            found.append(
                {
                    "case": name,
                    "options": text,
                    "out_max": out_error,
                    "out_rms": rms_error,
                    "state": state_error,
                    "same_bits": same,
                }
            )
    return found


def agree(tokens: int = 128, steps: int = 8) -> dict[str, object]:
    """The last tokens of a prompt by steps instead: how far the two forms are apart."""
    rng = np.random.default_rng(3)
    state, weights = random_layers(LAYERS, SLOTS, rng)
    projected, x = random_rows(tokens, rng)
    prompt = projected, project_ab(x, weights.ab[LAYER])
    chunk = jax.jit(functools.partial(gdn_chunk_triton, eps=EPS, out_dtype=jnp.dtype("float32")))
    step = jax.jit(functools.partial(gdn_step_triton, eps=EPS, out_dtype=jnp.dtype("float32")))
    where = ints(LAYER), ints(SLOT)
    whole, end = chunk(*prompt, state, weights, *where, ints(0), ints(tokens))
    _, state = chunk(*prompt, state, weights, *where, ints(0), ints(tokens - steps))
    errors = []
    for at in range(tokens - steps, tokens):
        own = jax.tree.map(lambda array, at=at: array[at : at + 1], x)
        out, state = step(projected[at : at + 1], own, state, weights, *where, ints(at))
        errors.append(relative(out.values[0], np.asarray(whole[at], np.float64)))
    state_error = relative(state.recurrent[LAYER, SLOT], np.asarray(end.recurrent[LAYER, SLOT], np.float64))
    good = max(errors) < 5e-3 and state_error < 2e-3
    say(f"{'ok' if good else 'WRONG':6s}steps after a prompt: out {max(errors):.1e} state {state_error:.1e}")
    return {"case": "steps after a prompt", "out_max": max(errors), "state": state_error}


def options(text: str) -> GdnChunkOptions:
    """'columns=64,scan_warps=8' as options."""
    return dataclasses.replace(
        DEFAULT, **{name: int(value) for name, _, value in (pair.partition("=") for pair in text.split(",") if pair)}
    )


def measure(cases: list[str]) -> list[dict[str, object]]:
    """Time of each 'T options' and of its kernels."""
    _, weights = random_layers(4, 1, np.random.default_rng(1))
    state = state_27b(layers=4, slots=2)

    def program(text: str):  # type: ignore[no-untyped-def]
        count, _, chosen = text.partition(" ")

        @jax.jit
        def link(prompt, state, weights, layer):  # type: ignore[no-untyped-def]
            where = (layer, ints(1), ints(0), ints(int(count)))
            return gdn_chunk_triton(
                *prompt, state, weights, *where, eps=EPS, out_dtype=jnp.dtype("float16"), options=options(chosen)
            )

        def many(state, prompt, weights):  # type: ignore[no-untyped-def]
            outs = []
            for layer in range(4):
                out, state = link(prompt, state, weights, ints(layer))
                outs.append(out[-1])
            return state, outs

        return int(count), jax.jit(many, donate_argnums=0)

    tokens = {int(case.split()[0]) for case in cases}
    prompts = {count: joined(random_tokens(count, 0.3, 2)) for count in tokens}
    work = [program(case) for case in cases]

    def build(item):  # type: ignore[no-untyped-def]
        try:
            return item[1].lower(state, prompts[item[0]], weights).compile()
        except jax.errors.JaxRuntimeError as error:  # too much shared memory
            return str(error).splitlines()[0]

    with ThreadPoolExecutor(8) as pool:
        compiled = list(pool.map(build, work))
    found = []
    for case, (count, _), call in zip(cases, work, compiled, strict=True):
        if isinstance(call, str):
            say(f"T {case:50s} {call[:120]}")
            continue
        state, out = call(state, prompts[count], weights)
        jax.block_until_ready(out)
        begin = time.perf_counter()
        for _ in range(3):
            state, out = call(state, prompts[count], weights)
        jax.block_until_ready(out)
        us = (time.perf_counter() - begin) / 12 * 1e6
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                state, out = call(state, prompts[count], weights)
                jax.block_until_ready(out)
            kernels = kernel_times(Path(folder), 4)
        say(f"T {case:50s} {us:8.1f} us a layer; " + ", ".join(f"{name} {took:.0f}" for name, took in kernels.items()))
        found.append({"case": case, "us": us, "kernels_us": kernels})
    return found


def main(arguments: list[str]) -> None:
    """Run one part and leave its rows as JSON."""
    kind, *rest = arguments
    rows = [agree(), *check(rest or [""])] if kind == "check" else measure(rest)
    folder = os.environ.get("JOB_OUT") or os.environ.get("OUT")
    if folder:
        Path(folder, f"gdn_chunk_{kind}.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
