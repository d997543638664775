"""A prompt's rows between its products: kernels interpreted against the reference, cut anywhere, and compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas import prompt_rows
from kernels_pallas.prompt_rows import reference, triton
from kernels_pallas.target import Target, temp_bytes

LAYER = jnp.array([1], jnp.int32)
EPS = 1e-6
F16 = jnp.dtype(jnp.float16)


def normals(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


@pytest.mark.parametrize("width", [320, 2048])
def test_norm(width: int) -> None:
    residual, gains = 7 * normals(6, width), normals(3, width, seed=1)
    want = reference.normalise(residual, gains, LAYER, eps=EPS, out_dtype=F16)
    got = triton.normalise(residual, gains, LAYER, eps=EPS, out_dtype=F16, interpret=True)
    np.testing.assert_allclose(np.float32(got), np.float32(want), rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("depth", [64, 512])
def test_gates(depth: int) -> None:
    x, weights = normals(128, depth).astype(F16), normals(2, 32, depth, seed=1).astype(jnp.bfloat16)
    got = triton.gates(x, weights, LAYER, interpret=True)
    np.testing.assert_allclose(got, reference.gates(x, weights, LAYER), rtol=1e-4, atol=1e-3)
    with pytest.raises(NotImplementedError):
        triton.gates(x, weights[:, :24], LAYER)


def test_heads() -> None:
    tokens, queries, groups, width, half = 32, 4, 2, 64, 16
    projected = normals(tokens, (2 * queries + 2 * groups) * width).astype(F16)
    gains, angles = normals(2, 2, width, seed=1), normals(tokens, half, seed=2)
    given = (projected, gains[0], gains[1], LAYER, (jnp.cos(angles), jnp.sin(angles)))
    want = reference.heads(*given, groups=groups, eps=EPS, out_dtype=F16)
    got = triton.heads(*given, groups=groups, eps=EPS, out_dtype=F16, interpret=True)
    for ours, theirs in zip(got, want, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(np.float32(ours), np.float32(theirs), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("tokens", [64, 1024])
def test_it_compiles_for_27b(h200: Target, tokens: int) -> None:
    """The 27B's shapes; only the parts of the gates' sums need memory of their own."""

    def rows(residual, gains, ab, projected, head_gains, layer, cos, sin):  # type: ignore[no-untyped-def]
        inner = prompt_rows.normalise(residual, gains, layer, eps=EPS, out_dtype=F16, impl="kernel")
        scores = prompt_rows.gates(inner, ab, layer, impl="kernel")
        tables, sizes = (cos, sin), {"groups": 4, "eps": EPS, "out_dtype": F16}
        return (
            inner,
            scores,
            prompt_rows.heads(projected, head_gains, head_gains, layer, tables, impl="kernel", **sizes),
        )

    compiled = h200.compile(
        jax.jit(rows),
        h200.spec((tokens, 5120), jnp.float32),
        h200.spec((129, 5120), jnp.float32),
        h200.spec((48, 96, 5120), jnp.bfloat16),
        h200.spec((tokens, 14336), jnp.float16),
        h200.spec((16, 256), jnp.float32),
        h200.spec((1,), jnp.int32),
        h200.spec((tokens, 32), jnp.float32),
        h200.spec((tokens, 32), jnp.float32),
    )
    assert temp_bytes(compiled) <= 4 * 4 * tokens * 96
