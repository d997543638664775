"""What the determinism rule costs: one decode round in the form that anybody would write first.

The same model, weights, memory, packed plan and sampler as the engine's own program, but: exact rows, products as
`x @ W.T`, `mean` and `sum` where they are wanted, the library's exponentials, and attention as one softmax over the
gathered pages of a fixed width. Correct to rounding, and not independent of the batch. Both forms are compiled and
driven alike; they take turns.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial

import attrs
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.engine_models import BenchModel
from ninfer.engine.device import DecodeRow, SampleRow
from ninfer.engine.model.config import TextConfig
from ninfer.engine.model.rotary import rotary_tables, text_positions
from ninfer.engine.model.state import TextState
from ninfer.engine.model.weights import AttentionWeights, DeltaNetWeights, LayerWeights, MlpWeights
from ninfer.engine.programs.plan import decode_plan_shape, pack_decode, unpack_decode
from ninfer.engine.programs.steps import Memory, StepOutput, decode_step, zero_memory
from ninfer.engine.programs.stored_weights import StoredWeights, as_they_are, store
from ninfer.engine.sampling.sampler import choose
from ninfer.engine.types import PAGE_TOKENS, Sampling

Step = Callable[[StoredWeights, Memory, jax.Array], tuple[Memory, StepOutput]]


def _norm(x: jax.Array, gain: jax.Array, eps: float) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps) * gain


def _unit(x: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + 1e-6)


def _rotate(x: jax.Array, tables: tuple[jax.Array, jax.Array]) -> jax.Array:
    cos, sin = (table[:, None, :] for table in tables)
    half = cos.shape[-1]
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1)


def _mlp(weights: MlpWeights, x: jax.Array) -> jax.Array:
    return (jax.nn.silu(x @ weights.gate_proj.T) * (x @ weights.up_proj.T)) @ weights.down_proj.T


@attrs.frozen
class _Place:
    """Where the rows stand: slots, pages [R, P], positions, pages read, rotary tables."""

    slots: jax.Array
    pages: jax.Array
    positions: jax.Array
    width: int
    tables: tuple[jax.Array, jax.Array]


def _attend(
    config: TextConfig, weights: AttentionWeights, x: jax.Array, keys: jax.Array, values: jax.Array, at: _Place
) -> tuple[jax.Array, jax.Array, jax.Array]:
    rows, heads, groups, width = x.shape[0], config.num_attention_heads, config.num_key_value_heads, config.head_dim
    eps = config.rms_norm_eps
    with_gate = (x @ weights.q_proj.T).reshape(rows, heads, 2, width)
    query = _rotate(_norm(with_gate[:, :, 0], 1 + weights.q_norm, eps), at.tables) * width**-0.5
    key = _rotate(_norm((x @ weights.k_proj.T).reshape(rows, groups, width), 1 + weights.k_norm, eps), at.tables)
    value = (x @ weights.v_proj.T).reshape(rows, groups, width)
    page = jnp.take_along_axis(at.pages, at.positions[:, None] // PAGE_TOKENS, axis=1)[:, 0]
    keys = keys.at[page, at.positions % PAGE_TOKENS].set(key)
    values = values.at[page, at.positions % PAGE_TOKENS].set(value)
    own = at.pages[:, : at.width]
    seen = keys[own].reshape(rows, -1, groups, width), values[own].reshape(rows, -1, groups, width)
    scores = jnp.einsum("rkgd,rskd->rkgs", query.reshape(rows, groups, -1, width), seen[0])
    visible = jnp.arange(seen[0].shape[1])[None, :] <= at.positions[:, None]
    shares = jax.nn.softmax(jnp.where(visible[:, None, None, :], scores, -jnp.inf), axis=-1)
    mixed = jnp.einsum("rkgs,rskd->rkgd", shares, seen[1]).reshape(rows, heads * width)
    return (mixed * jax.nn.sigmoid(with_gate[:, :, 1].reshape(rows, -1))) @ weights.o_proj.T, keys, values


def _delta(
    config: TextConfig, weights: DeltaNetWeights, x: jax.Array, pool: jax.Array, tails: jax.Array, at: _Place
) -> tuple[jax.Array, jax.Array, jax.Array]:
    rows, keys = x.shape[0], config.key_width
    narrow = (rows, config.linear_num_key_heads, config.linear_key_head_dim)
    wide = (rows, config.linear_num_value_heads, config.linear_value_head_dim)
    share = config.linear_num_value_heads // config.linear_num_key_heads
    state, tail = pool[at.slots], tails[at.slots]
    joined = jnp.concatenate([tail, (x @ weights.in_proj_qkv.T)[..., None]], axis=-1)  # [R, C, 4]
    mixed = jax.nn.silu(jnp.sum(joined * weights.conv1d, axis=-1))
    query = jnp.repeat(_unit(mixed[:, :keys].reshape(narrow)), share, axis=1) * config.linear_key_head_dim**-0.5
    key = jnp.repeat(_unit(mixed[:, keys : 2 * keys].reshape(narrow)), share, axis=1)
    value = mixed[:, 2 * keys :].reshape(wide)
    decay = jnp.exp(-jnp.exp(weights.a_log) * jax.nn.softplus(x @ weights.in_proj_a.T + weights.dt_bias))
    beta = jax.nn.sigmoid(x @ weights.in_proj_b.T)
    state = state * decay[..., None, None]
    change = beta[..., None] * (value - jnp.einsum("rhkv,rhk->rhv", state, key))
    state = state + key[..., None] * change[..., None, :]
    out = _norm(jnp.einsum("rhkv,rhk->rhv", state, query), weights.norm, config.rms_norm_eps)
    gated = out * jax.nn.silu((x @ weights.in_proj_z.T).reshape(wide))
    pool, tails = pool.at[at.slots].set(state), tails.at[at.slots].set(joined[..., 1:])
    return gated.reshape(rows, -1) @ weights.out_proj.T, pool, tails


def naive_step(
    config: TextConfig, width: int, stored: StoredWeights, memory: Memory, plan: jax.Array
) -> tuple[Memory, StepOutput]:
    """One decode round over `width` pages of every row. Same arguments and results as the engine's `decode_step`."""
    unit, weights = unpack_decode(plan), stored.opened()
    slots, positions = unit.rows.slots, unit.rows.positions
    fed = jnp.where(unit.forced < 0, memory.last_token[slots], unit.forced)
    counts = memory.counts.at[slots, fed].add(1)
    at = _Place(slots, unit.rows.pages, positions, width, rotary_tables(config, text_positions(positions)))
    keys, values = list(memory.text.keys), list(memory.text.values)
    pools, tails = list(memory.text.recurrent), list(memory.text.conv)
    full = linear = 0
    x = weights.embed[fed]
    for layer in weights.layers:
        inner = _norm(x, 1 + layer.input_norm, config.rms_norm_eps)
        if isinstance(layer.mixer, AttentionWeights):
            out, keys[full], values[full] = _attend(config, layer.mixer, inner, keys[full], values[full], at)
            full += 1
        else:
            out, pools[linear], tails[linear] = _delta(config, layer.mixer, inner, pools[linear], tails[linear], at)
            linear += 1
        x = _feed_forward(config, layer, x + out)
    scores = (
        _norm(x, 1 + weights.norm, config.rms_norm_eps) @ (weights.embed if weights.head is None else weights.head).T
    )
    chosen = choose(scores, counts[slots], unit.sampler)
    text = TextState(keys=tuple(keys), values=tuple(values), recurrent=tuple(pools), conv=tuple(tails))
    last_token = memory.last_token.at[slots].set(chosen.token)
    output = StepOutput(jnp.stack([chosen.token, chosen.faulty.astype(jnp.int32)]), scores)
    return Memory(text=text, last_token=last_token, counts=counts), output


def _feed_forward(config: TextConfig, layer: LayerWeights, x: jax.Array) -> jax.Array:
    return x + _mlp(layer.mlp, _norm(x, 1 + layer.post_attention_norm, config.rms_norm_eps))


def decode_rows(rows: int, table_pages: int, position: int) -> tuple[DecodeRow, ...]:
    """A greedy round: every row at `position`, with a page table of its own that covers the whole context."""
    sample = SampleRow(sampling=Sampling(temperature=0), position=position + 1)
    tables = [tuple(range(row * table_pages, (row + 1) * table_pages)) for row in range(rows)]
    return tuple(
        DecodeRow(slot=row, pages=pages, position=position, token=None, sample=sample)
        for row, pages in enumerate(tables)
    )


class Arm:
    """One form of the decode round, compiled, with memory of its own."""

    def __init__(self, model: BenchModel, weights: StoredWeights, step: Step, rows: int, start: int) -> None:
        self._weights, self._rows, self._start = weights, rows, start
        self._table_pages = -(-model.context_tokens // PAGE_TOKENS)
        self._memory = zero_memory(model.config, pages=rows * self._table_pages, slots=rows)
        plan = jax.ShapeDtypeStruct(decode_plan_shape(pages=self._table_pages, rows=rows), np.dtype(np.int32))
        self._program = jax.jit(step, donate_argnums=1).lower(weights, self._memory, plan).compile()

    def _plan(self, position: int) -> np.ndarray:
        return pack_decode(decode_rows(self._rows, self._table_pages, position), pages=self._table_pages)

    def run_s(self, steps: int) -> float:
        """Seconds of a round: the median of `steps` rounds, each waited for."""
        times = []
        for step in range(steps):
            plan = self._plan(self._start + step)
            begin_s = time.perf_counter()
            self._memory, output = self._program(self._weights, self._memory, plan)
            np.asarray(output.chosen)
            times.append(time.perf_counter() - begin_s)
        return statistics.median(times)

    def first_logits(self) -> np.ndarray:
        """Logits [R, V] of the first round on empty memory: what shows that two arms compute the same."""
        self._memory, output = self._program(self._weights, self._memory, self._plan(0))
        return np.asarray(output.logits)


@attrs.frozen(kw_only=True)
class RuleCost:
    """Seconds of a round for each run: the engine's form, the same again, and the naive form."""

    rows: int
    ours_s: tuple[float, ...]
    again_s: tuple[float, ...]
    naive_s: tuple[float, ...]
    difference: float
    """Largest between the logits of the two forms, over the largest logit."""


def rule_cost(model: BenchModel, rows: int, *, runs: int, steps: int) -> RuleCost:
    """Measure at the middle of the context; arms take turns within each run."""
    start = model.context_tokens // 2
    width = -(-(start + steps) // PAGE_TOKENS)
    ours = partial(decode_step, model.config, model.config.vocab_size)
    forms = {"ours": ours, "again": ours, "naive": partial(naive_step, model.config, width)}
    stored = store(model.weights)
    weights = {"ours": stored, "again": stored, "naive": as_they_are(model.weights)}
    arms = {name: Arm(model, weights[name], step, rows, start) for name, step in forms.items()}
    logits = {name: arm.first_logits() for name, arm in arms.items()}
    times: dict[str, list[float]] = {name: [] for name in arms}
    for run in range(runs + 1):
        for name, arm in arms.items():
            seconds = arm.run_s(steps)
            if run:  # the first one warms up
                times[name].append(seconds)
    difference = float(np.max(np.abs(logits["ours"] - logits["naive"])) / np.max(np.abs(logits["ours"])))
    return RuleCost(
        rows=rows,
        ours_s=tuple(times["ours"]),
        again_s=tuple(times["again"]),
        naive_s=tuple(times["naive"]),
        difference=difference,
    )
