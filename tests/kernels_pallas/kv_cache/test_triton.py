"""The append kernel and the PTX that widens codes: interpreted, emulated, lowered, compiled where that is possible."""

import re
import warnings

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from kernels_pallas.kv_cache import append_chunk, reference, triton, zero_pool
from kernels_pallas.kv_cache.codes import E4M3_TO_F16, INT8_TO_F16
from kernels_pallas.kv_cache.specs import HEADS, TABLE_PAGES, WIDTH, integers, pool_spec
from kernels_pallas.target import Target, alias_bytes, count_kernels, lower_for_cuda, missing_plugin, temp_bytes

LAYER = jnp.array([1], jnp.int32)
KERNEL_FORMATS = ("bf16", "int8", "fp8")

pytestmark = pytest.mark.filterwarnings("ignore:.*Triton backend.*:DeprecationWarning")


@pytest.mark.parametrize("name", KERNEL_FORMATS)
@pytest.mark.parametrize(("start", "count", "tokens"), [(0, 100, 128), (70, 64, 64), (64, 1, 64)])
def test_a_chunk_is_written_as_the_reference_writes_it(name: str, start: int, count: int, tokens: int) -> None:
    rng = np.random.default_rng(start)
    pool = jax.jit(lambda: zero_pool(name, layers=2, pages=7, heads=2, width=32))()
    rows = jnp.asarray(rng.standard_normal((2, tokens, 2, 32)), jnp.bfloat16)
    pages = jnp.asarray(rng.permutation(7)[:5], jnp.int32)
    run = jax.jit(lambda *arguments: triton.append_chunk(*arguments, interpret=True))
    got = run(pool, LAYER, *rows, pages, start, count)
    wanted = jax.jit(reference.append_chunk)(pool, LAYER, *rows, pages, start, count)
    for mine, theirs in zip(got.arrays(), wanted.arrays(), strict=True):
        np.testing.assert_array_equal(np.float32(mine), np.float32(theirs))


def run_ptx(text: str, word: np.ndarray) -> np.ndarray:
    """Run a block that widens four codes in each uint32 of `word` [n]: float16 [n, 4]."""
    registers = {"$2": word}

    def value(name: str) -> np.ndarray:
        return registers[name] if name in registers else np.full(word.shape, int(name, 0), np.uint32)

    def halves(bits: np.ndarray) -> np.ndarray:
        return bits.astype("<u4").view(np.float16)

    def permute(a: np.ndarray, b: np.ndarray, selector: np.ndarray) -> np.ndarray:
        both = np.concatenate([x.astype("<u4").view(np.uint8).reshape(-1, 4) for x in (a, b)], axis=1)
        return both[:, [int(selector[0]) >> 4 * i & 7 for i in range(4)]].copy().view("<u4")[:, 0]

    operations = {
        "mov.b32": lambda a: a,
        "xor.b32": lambda a, b: a ^ b,
        "prmt.b32": permute,
        "sub.rn.f16x2": lambda a, b: (halves(a) - halves(b)).view("<u4"),
        "cvt.rn.f16x2.e4m3x2": lambda a: a.astype("<u2").view(ml_dtypes.float8_e4m3fn).astype(np.float16).view("<u4"),
    }
    for line in text.strip("{} ").split(";"):
        name, _, rest = line.strip().partition(" ")
        if not name or name == ".reg":
            continue
        target, *sources = re.findall(r"\{[^}]*\}|[^,\s]+", rest)
        if target.startswith("{"):
            low, high = (part.strip() for part in target.strip("{}").split(","))
            registers[low], registers[high] = value(sources[0]) & 0xFFFF, value(sources[0]) >> 16
        else:
            registers[target] = operations[name](*map(value, sources))
    return (
        np.stack([halves(registers["$0"]), halves(registers["$1"])]).reshape(2, -1, 2).transpose(1, 0, 2).reshape(-1, 4)
    )


@pytest.mark.parametrize(("text", "kind"), [(INT8_TO_F16, np.int8), (E4M3_TO_F16, ml_dtypes.float8_e4m3fn)])
def test_every_code_is_widened_exactly(text: str, kind: type) -> None:
    codes = np.arange(256, dtype=np.uint8).reshape(-1, 4)
    wide = run_ptx(text, codes.view("<u4")[:, 0])
    np.testing.assert_array_equal(wide, codes.view(kind).astype(np.float16))


def on_the_27b(*arguments: jax.Array) -> object:
    return append_chunk(*arguments, impl="triton")


@pytest.mark.parametrize("name", KERNEL_FORMATS)
def test_one_launch_in_place(name: str) -> None:
    rows = jax.ShapeDtypeStruct((2048, HEADS, WIDTH), jnp.bfloat16)
    specs = (rows, rows, pool_spec(name), integers(1), integers(TABLE_PAGES), integers(), integers())
    assert count_kernels(lower_for_cuda(on_the_27b, *specs)) == {"append_chunk": 1}
    if missing_plugin() is None:
        target = Target()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            compiled = target.compile(jax.jit(on_the_27b, donate_argnums=2), *target.like(specs))
        assert alias_bytes(compiled) == sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(specs[2]))
        assert temp_bytes(compiled) < 1 << 20


def test_what_the_kernel_cannot_do_is_refused() -> None:
    pool = zero_pool("fp32", layers=2, pages=7, heads=2, width=32)
    rows = jnp.zeros((64, 2, 32))
    with pytest.raises(NotImplementedError, match="fp32"):
        append_chunk(rows, rows, pool, LAYER, jnp.zeros(5, jnp.int32), 0, 1, impl="triton")
