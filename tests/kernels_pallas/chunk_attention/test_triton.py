"""The chunk kernels: interpreted against the reference, lowered for CUDA, compiled for an H200 where possible."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas.chunk_attention import attend_chunk, reference, triton
from kernels_pallas.chunk_attention.specs import chunk_specs
from kernels_pallas.chunk_attention.triton import choose_form
from kernels_pallas.chunk_attention.tuning import TUNING, ChunkTuning
from kernels_pallas.kv_cache import KvPool, zero_pool
from kernels_pallas.kv_cache.reference import append_chunk
from kernels_pallas.target import Target, count_kernels, lower_for_cuda, missing_plugin, temp_bytes

HEADS, GROUP, WIDTH = 2, 3, 32
LAYER = jnp.array([1], jnp.int32)
CLOSE = {"bf16": 1e-2, "int8": 3e-3, "fp8": 3e-3}

pytestmark = pytest.mark.filterwarnings("ignore:.*Triton backend.*:DeprecationWarning")


@functools.partial(jax.jit, static_argnames=("tuning", "workspace"))
def interpreted(*arguments: jax.Array, tuning: ChunkTuning, workspace: int) -> jax.Array:
    return triton.attend_chunk(*arguments, split_workspace_bytes=workspace, tuning=tuning, interpret=True)


def case(name: str, start: int, count: int, tokens: int) -> tuple[jax.Array | KvPool, ...]:
    rng = np.random.default_rng(start + count)
    pool = jax.jit(lambda: zero_pool(name, layers=2, pages=7, heads=HEADS, width=WIDTH))()
    pages = jnp.asarray(rng.permutation(7)[:5], jnp.int32)
    rows = rng.standard_normal((2, 320, HEADS, WIDTH)).astype(np.float32)
    pool = jax.jit(append_chunk)(pool, LAYER, *rows, pages, 0, start + count)
    query = jnp.asarray(rng.standard_normal((tokens, HEADS * GROUP, WIDTH)), jnp.float16)
    return query, pool, LAYER, pages, jnp.int32(start), jnp.int32(count)


@pytest.mark.parametrize(
    ("name", "start", "count", "tokens", "segment", "workspace"),
    [
        ("bf16", 64, 100, 128, 8192, 0),
        ("int8", 0, 1, 64, 8192, 0),
        ("int8", 192, 128, 128, 128, 0),
        ("int8", 192, 128, 128, 128, 1 << 30),
        ("fp8", 64, 192, 192, 128, 1 << 30),
    ],
)
@pytest.mark.contract("KVFMT-025")
def test_every_form_is_the_reference(
    name: str, start: int, count: int, tokens: int, segment: int, workspace: int
) -> None:
    arguments = case(name, start, count, tokens)
    tuning = ChunkTuning(segment_tokens=segment, block_tokens=32)
    got = np.float32(interpreted(*arguments, tuning=tuning, workspace=workspace))
    wanted = np.float32(jax.jit(reference.attend_chunk)(*arguments))
    np.testing.assert_allclose(got[:count], wanted[:count], atol=CLOSE[name])
    assert np.isfinite(got).all()


@pytest.mark.parametrize(
    ("tokens", "rows", "table_tokens", "workspace_mib", "form"),
    [
        (64, 64, 8192, 256, "one"),
        (64, 64, 262144, 256, "split"),
        (64, 64, 262144, 0, "walk"),
        (512, 128, 262144, 256, "walk"),
        (512, 128, 262144, 1024, "split"),
        (2048, 128, 65536, 1 << 14, "walk"),
    ],
)
@pytest.mark.contract("KVFMT-007", "KVFMT-020", "KVFMT-022")
def test_keys_are_split_within_the_workspace(
    tokens: int, rows: int, table_tokens: int, workspace_mib: int, form: str
) -> None:
    shape = (tokens, 24, 256)
    assert choose_form(tokens // rows, -(-table_tokens // 8192), shape, workspace_mib << 20) == form


def test_what_the_kernel_cannot_do_is_refused() -> None:
    query, _, *rest = case("bf16", 0, 1, 64)
    with pytest.raises(NotImplementedError, match="bf16, int8, fp8"):
        attend_chunk(query, zero_pool("fp32", layers=2, pages=7, heads=HEADS, width=WIDTH), *rest, impl="triton")
    with pytest.raises(NotImplementedError, match="multiple of 64"):
        attend_chunk(query[:60], zero_pool("bf16", layers=2, pages=7, heads=HEADS, width=WIDTH), *rest, impl="triton")


def on_the_27b(*arguments: jax.Array) -> jax.Array:
    return attend_chunk(*arguments, impl="triton")


@pytest.mark.parametrize("name", list(TUNING))
def test_launches(name: str) -> None:
    assert count_kernels(lower_for_cuda(on_the_27b, *chunk_specs(name, 2048))) == {"attend_chunk": 1}
    assert count_kernels(lower_for_cuda(on_the_27b, *chunk_specs(name, 64))) == {"attend_chunk": 1, "sum_segments": 1}


@pytest.mark.skipif(missing_plugin() is not None, reason=str(missing_plugin()))
@pytest.mark.parametrize(("name", "tokens"), [("bf16", 512), ("int8", 64), ("fp8", 8192)])
def test_it_assembles_and_keeps_no_copy(name: str, tokens: int) -> None:
    target, specs = Target(), chunk_specs(name, tokens)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        compiled = target.compile(jax.jit(on_the_27b), *target.like(specs))
    assert temp_bytes(compiled) < 256 << 20, "sums of segments and nothing else"
