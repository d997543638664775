"""The meaning of a delta-net step in plain jnp, float32: `gdn_step` is judged by it, and CPU programs run it.

Formulas: model facts, section 5. Per value head with state S [dk, dv], log decay g and write strength beta:

    S <- exp(g) S;   u = beta (v - S^T k);   S <- S + k u^T;   o = S^T q
"""

import jax
import jax.numpy as jnp

from kernels_pallas.arrays import F16_MAX, Activation
from kernels_pallas.gdn_step.state import CONV_TAPS, L2_EPSILON, GdnSizes, GdnState, GdnWeights, sizes_of


def gdn_step_reference(
    projected: jax.Array,
    x: Activation,
    state: GdnState,
    weights: GdnWeights,
    layer: jax.Array,
    slots: jax.Array,
    positions: jax.Array,
    *,
    eps: float,
    out_dtype: jnp.dtype,
) -> tuple[Activation, GdnState]:
    """See `kernels_pallas.gdn_step.gdn_step`."""
    sizes = sizes_of(state)
    at = layer[0]
    real, slot = slots >= 0, jnp.maximum(slots, 0)
    mixed, z = projected[:, : sizes.channels], projected[:, sizes.channels :]
    ring = state.conv[at, slot]  # [M, 4, C]
    convolved = silu(convolve_rows(mixed, ring, positions, weights.conv[at]))
    query, key, value = split_heads(convolved, sizes)
    a, b = jnp.split(project_ab(x, weights.ab[at]), 2, axis=-1)
    log_decay, beta = gates(a, b, weights.a_log[at], weights.dt_bias[at])

    before = jnp.where((positions > 0)[:, None, None, None], state.recurrent[at, slot], 0.0)
    decayed = before * jnp.exp(log_decay)[..., None, None]
    change = beta[..., None] * (value - jnp.sum(decayed * key[..., None], axis=-2))
    after = decayed + key[..., None] * change[..., None, :]
    out = jnp.sum(after * query[..., None], axis=-2)

    gated = gated_norm(out, z.reshape(out.shape), weights.norm[at], eps).reshape(z.shape)
    gated = jnp.where(real[:, None], gated, 0.0)
    into = jnp.where(real, slots, state.recurrent.shape[1])  # beyond the end: dropped
    changed = GdnState(
        recurrent=state.recurrent.at[at, into].set(after, mode="drop"),
        conv=state.conv.at[at, into, positions % CONV_TAPS].set(mixed, mode="drop"),
    )
    return Activation(values=to_dtype(gated, out_dtype), squares=None, shift=0, eps=0.0), changed


def convolve_rows(mixed: jax.Array, ring: jax.Array, positions: jax.Array, taps: jax.Array) -> jax.Array:
    """One token a row: mixed [M, C] after ring [M, 4, C], taps [4, C] -> [M, C], before the SiLU."""
    total = mixed * taps[CONV_TAPS - 1]
    for back in range(1, CONV_TAPS):
        row = (positions - back) % CONV_TAPS
        earlier = jnp.take_along_axis(ring, row[:, None, None], axis=1)[:, 0]
        total = total + jnp.where((positions >= back)[:, None], earlier, 0.0) * taps[CONV_TAPS - 1 - back]
    return total


def project_ab(x: Activation, ab: jax.Array) -> jax.Array:
    """The two small products, ab [2 Hv, H] with the norm that x carries -> float32 [M, 2 Hv]."""
    product = jnp.matmul(x.values.astype(jnp.float32), ab.astype(jnp.float32).T, precision=jax.lax.Precision.HIGHEST)
    if x.squares is None:
        return product * 2.0**x.shift
    mean_square = jnp.sum(x.squares, axis=-1) * (1.0 / x.values.shape[-1])
    return product * (jax.lax.rsqrt(mean_square + x.eps) * 2.0**x.shift)[:, None]


def gates(a: jax.Array, b: jax.Array, a_log: jax.Array, dt_bias: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Log decay (at most 0) and write strength of a, b [..., Hv]."""
    return -jnp.exp(a_log) * softplus(a + dt_bias), 1.0 / (1.0 + jnp.exp(-b))


def split_heads(convolved: jax.Array, sizes: GdnSizes) -> tuple[jax.Array, jax.Array, jax.Array]:
    """[..., C] -> query (of length dk ** -0.5), key (of length 1) [..., Hv, dk] and value [..., Hv, dv]."""
    lead = convolved.shape[:-1]
    narrow = (*lead, sizes.key_heads, sizes.key_dim)
    query = l2_normalise(convolved[..., : sizes.keys].reshape(narrow)) * sizes.key_dim**-0.5
    key = l2_normalise(convolved[..., sizes.keys : 2 * sizes.keys].reshape(narrow))
    value = convolved[..., 2 * sizes.keys :].reshape(*lead, sizes.value_heads, sizes.value_dim)
    return jnp.repeat(query, sizes.share, axis=-2), jnp.repeat(key, sizes.share, axis=-2), value


def gated_norm(x: jax.Array, gate: jax.Array, gain: jax.Array, eps: float) -> jax.Array:
    """RMS norm of x [..., dv] with plain gain [dv], times silu(gate [..., dv])."""
    mean_square = jnp.mean(x * x, axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(mean_square + eps) * gain * silu(gate)


def l2_normalise(x: jax.Array) -> jax.Array:
    """x [..., n] divided by its length."""
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + L2_EPSILON)


def silu(x: jax.Array) -> jax.Array:
    """x * sigmoid(x)."""
    return x / (1.0 + jnp.exp(-x))


def softplus(x: jax.Array) -> jax.Array:
    """log(1 + e ** x)."""
    return jnp.maximum(x, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(x)))


def to_dtype(x: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """x in `dtype`; float16 ends at its largest finite number."""
    if dtype == jnp.float16:
        x = jnp.clip(x, -F16_MAX, F16_MAX)
    return x.astype(dtype)
