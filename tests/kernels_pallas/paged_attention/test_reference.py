"""The references against the model's own attention: they must mean the same thing at any size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas import chunk_attention, kv_cache, paged_attention
from kernels_pallas.kv_cache import KvPool, zero_pool
from kernels_pallas.paged_attention import Partials
from ninfer.engine.model import attention
from ninfer.engine.model.norms import rms_norm
from ninfer.engine.model.rotary import rotate

EPS = 1e-6
append_chunk = jax.jit(kv_cache.append_chunk, static_argnames="impl")
attend_chunk = jax.jit(chunk_attention.attend_chunk, static_argnames="impl")
attend_rows = jax.jit(paged_attention.attend_rows, static_argnames=("eps", "impl"))
combine = jax.jit(paged_attention.combine, static_argnames=("out_dtype", "impl"))
model_rows = jax.jit(attention.attend_rows)
model_prompt = jax.jit(attention.attend_prompt)
LAYERS, PAGES, HEADS, GROUP, WIDTH, ROTARY, TABLE = 2, 9, 2, 3, 16, 8, 4
QUERIES = HEADS * GROUP
LAYER = jnp.array([1], jnp.int32)
TOLERANCE = {"fp32": 2e-6, "bf16": 2e-2, "int8": 4e-2, "fp8": 1.5e-1}


class Lane:
    """Random keys and values of one lane, a table of pages for them, and the rotation of every position."""

    def __init__(self, seed: int, tokens: int) -> None:
        rng = np.random.default_rng(seed)
        self.key, self.value = rng.standard_normal((2, tokens, HEADS, WIDTH)).astype(np.float32)
        self.pages = jnp.asarray(rng.permutation(PAGES)[:TABLE], jnp.int32)
        angles = np.arange(256)[:, None] * 100.0 ** -(np.arange(ROTARY // 2) / (ROTARY // 2))
        self.cos, self.sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        self.rng = rng

    def fill(self, pool: KvPool) -> KvPool:
        """The pool with the lane's tokens in it, in chunks that cut anywhere."""
        for start, stop in ((0, 70), (70, 75), (75, len(self.key))):
            rows = slice(start, min(stop, len(self.key)))
            chunk = [jnp.pad(x[rows], ((0, 200 - len(x[rows])), (0, 0), (0, 0))) for x in (self.key, self.value)]
            if len(self.key[rows]):
                pool = append_chunk(*chunk, pool, LAYER, self.pages, start, len(self.key[rows]), impl="reference")
        return pool

    def model_pools(self, tokens: int) -> tuple[jax.Array, jax.Array]:
        """Keys and values as the model's functions want them: [pages, 64, kv, d]."""
        at = np.arange(tokens)
        pools = []
        for rows in (self.key, self.value):
            pool = jnp.full((PAGES, 64, HEADS, WIDTH), jnp.nan)
            pools.append(attention.write_pool(pool, rows[:tokens], self.pages[at // 64], at % 64))
        return pools[0], pools[1]


def new_pool(name: str) -> KvPool:
    return zero_pool(name, layers=LAYERS, pages=PAGES, heads=HEADS, width=WIDTH)


@pytest.mark.parametrize(
    ("name", "position"),
    [("fp32", 0), ("fp32", 63), ("fp32", 64), ("fp32", 200), ("bf16", 200), ("int8", 200), ("fp8", 200)],
)
def test_decode_rows_mean_the_models_attention(name: str, position: int) -> None:
    lane = Lane(position, position)
    projected = lane.rng.standard_normal((2, 2 * QUERIES * WIDTH + 2 * HEADS * WIDTH)).astype(np.float32)
    weights = lane.rng.standard_normal((2, LAYERS, WIDTH)).astype(np.float32) * 0.1
    rope = lane.cos[position][None].repeat(2, 0), lane.sin[position][None].repeat(2, 0)
    partials, pool = attend_rows(
        projected,
        lane.fill(new_pool(name)),
        (1 + weights[0], 1 + weights[1]),
        LAYER,
        jnp.stack([lane.pages, lane.pages]),
        jnp.array([position, -1], jnp.int32),
        *rope,
        eps=EPS,
        impl="reference",
    )
    out = combine(partials, projected, out_dtype=jnp.float32, impl="reference").values

    with_gate = projected[:1, : 2 * QUERIES * WIDTH].reshape(1, QUERIES, 2, WIDTH)
    key, value = projected[:1, 2 * QUERIES * WIDTH :].reshape(1, 2, HEADS, WIDTH).transpose(1, 0, 2, 3)
    tables = rope[0][:1], rope[1][:1]
    query = rotate(rms_norm(with_gate[:, :, 0], weights[0, 1], EPS), tables) * WIDTH**-0.5
    lane.key = np.concatenate([lane.key, rotate(rms_norm(jnp.asarray(key), weights[1, 1], EPS), tables)])
    lane.value = np.concatenate([lane.value, value])
    pools = lane.model_pools(position + 1)
    attended = model_rows(query.reshape(1, HEADS, GROUP, WIDTH), *pools, lane.pages[None], jnp.array([position]))
    gated = attended.reshape(1, -1) * jax.nn.sigmoid(with_gate[:, :, 1].reshape(1, -1))
    np.testing.assert_allclose(out[0], gated[0], atol=TOLERANCE[name], rtol=0)
    assert not np.asarray(out[1]).any()
    assert not np.asarray(pool.keys[0]).astype(np.float32).any(), "the other layer is untouched"


@pytest.mark.parametrize(
    ("name", "start", "count"),
    [("fp32", 0, 1), ("fp32", 0, 128), ("fp32", 64, 100), ("bf16", 64, 100), ("int8", 128, 64), ("fp8", 64, 100)],
)
def test_a_chunk_means_the_models_attention(name: str, start: int, count: int) -> None:
    lane = Lane(start + count, start + count)
    query = lane.rng.standard_normal((128, QUERIES, WIDTH)).astype(np.float32)
    out = attend_chunk(query, lane.fill(new_pool(name)), LAYER, lane.pages, start, count, impl="reference")
    grouped = (query * WIDTH**-0.5).reshape(128, HEADS, GROUP, WIDTH)
    expected = model_prompt(grouped, *lane.model_pools(start + count), lane.pages, start, count)
    np.testing.assert_allclose(out[:count], expected.reshape(query.shape)[:count], atol=TOLERANCE[name], rtol=0)
    assert not np.asarray(out[count:]).any()


def test_neighbours_change_no_bit() -> None:
    lane = Lane(7, 150)
    pool = lane.fill(new_pool("int8"))
    projected = lane.rng.standard_normal((5, 2 * QUERIES * WIDTH + 2 * HEADS * WIDTH)).astype(np.float32)
    norms = (jnp.ones((LAYERS, WIDTH)), jnp.ones((LAYERS, WIDTH)))

    def last_of(rows: slice) -> Partials:
        count = len(projected[rows])
        positions = np.array([-1] * (count - 1) + [150], np.int32)
        rope = np.stack([lane.cos[150]] * count), np.stack([lane.sin[150]] * count)
        tables = np.stack([lane.pages] * count)
        return attend_rows(projected[rows], pool, norms, LAYER, tables, positions, *rope, eps=EPS, impl="reference")[0]

    alone, together = last_of(slice(4, 5)), last_of(slice(0, 5))
    np.testing.assert_array_equal(alone.mixed[-1], together.mixed[-1])


def test_an_implementation_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="reference"):
        attend_chunk(jnp.zeros((64, 6, 16)), new_pool("bf16"), LAYER, jnp.zeros(4, jnp.int32), 0, 1, impl="mosaic")


def test_rows_of_a_lane_mean_one_row_after_the_other() -> None:
    lane = Lane(3, 62)
    projected = lane.rng.standard_normal((4, 2 * QUERIES * WIDTH + 2 * HEADS * WIDTH)).astype(np.float32)
    norms = (jnp.ones((LAYERS, WIDTH)), jnp.ones((LAYERS, WIDTH)))
    positions = np.array([62, 63, 64, -1], np.int32)
    rope = lane.cos[positions], lane.sin[positions]
    pool = lane.fill(new_pool("fp32"))
    partials, together = attend_rows(
        projected, pool, norms, LAYER, lane.pages[None], positions, *rope, eps=EPS, impl="reference"
    )
    out = combine(partials, projected, out_dtype=jnp.float32, impl="reference").values
    for row in range(3):
        one = slice(row, row + 1)
        partials, pool = attend_rows(
            projected[one],
            pool,
            norms,
            LAYER,
            lane.pages[None],
            positions[one],
            rope[0][one],
            rope[1][one],
            eps=EPS,
            impl="reference",
        )
        alone = combine(partials, projected[one], out_dtype=jnp.float32, impl="reference").values
        np.testing.assert_allclose(out[row], alone[0], atol=1e-6)
    np.testing.assert_array_equal(together.keys, pool.keys)
    assert not np.asarray(out[3]).any()
