"""The hybrid model in training form: whole packed rows at once, on bfloat16 matrices with a float32 recurrence.

Shapes: B rows, T tokens a row, H hidden, C = 64 tokens a chunk. Weights are (out, in) as in a checkpoint. Layers are
stacked in groups of three gated-delta-net blocks and one attention block. A conversation inside a row is
kept apart from its neighbours: attention by segment, the recurrence by a decay of e^-60, the convolution by a mask;
so each sees what it would see alone. A test holds this form equal to the engine's own.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ninfer.engine.model.config import CONV_TAPS, TextConfig
from ninfer.engine.model.reduce import linear
from ninfer.engine.model.rotary import rotary_tables, rotate, text_positions
from ninfer.engine.model.weights import (
    AttentionWeights,
    DeltaNetWeights,
    LayerWeights,
    MlpWeights,
    MtpWeights,
    TextWeights,
)

CHUNK = 64
RESET = -60.0  # log decay at a conversation's first token: wipes the state, and a chunk's sum of logs stays exact
Tree = dict[str, Any]


def _matrix(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) * (0.7 / np.sqrt(shape[-1]))).astype(np.float32)


def _ffn(rng: np.random.Generator, s: TextConfig, lead: tuple[int, ...]) -> Tree:
    h, i = s.hidden_size, s.intermediate_size
    return {
        "input_norm": np.zeros((*lead, h), np.float32),
        "post_norm": np.zeros((*lead, h), np.float32),
        "gate": _matrix(rng, *lead, i, h),
        "up": _matrix(rng, *lead, i, h),
        "down": _matrix(rng, *lead, h, i) * 0.3,
    }


def _attention(rng: np.random.Generator, s: TextConfig, lead: tuple[int, ...]) -> Tree:
    h, d = s.hidden_size, s.head_dim
    return {
        "q": _matrix(rng, *lead, s.num_attention_heads * 2 * d, h),
        "k": _matrix(rng, *lead, s.num_key_value_heads * d, h),
        "v": _matrix(rng, *lead, s.num_key_value_heads * d, h),
        "o": _matrix(rng, *lead, h, s.num_attention_heads * d) * 0.3,
        "q_norm": np.zeros((*lead, d), np.float32),
        "k_norm": np.zeros((*lead, d), np.float32),
        **_ffn(rng, s, lead),
    }


def _delta(rng: np.random.Generator, s: TextConfig, lead: tuple[int, ...]) -> Tree:
    h, heads = s.hidden_size, s.linear_num_value_heads
    step = np.exp(rng.uniform(np.log(1e-3), np.log(1e-1), (*lead, heads)))
    return {
        "qkv": _matrix(rng, *lead, s.conv_channels, h),
        "z": _matrix(rng, *lead, s.value_width, h),
        "a": _matrix(rng, *lead, heads, h),
        "b": _matrix(rng, *lead, heads, h),
        "conv": (rng.uniform(-0.5, 0.5, (*lead, s.conv_channels, CONV_TAPS))).astype(np.float32),
        "A_log": np.log(rng.uniform(0.5, 8.0, (*lead, heads))).astype(np.float32),
        "dt_bias": (step + np.log(-np.expm1(-step))).astype(np.float32),
        "norm": np.ones((*lead, s.linear_key_head_dim), np.float32),
        "out": _matrix(rng, *lead, h, s.value_width) * 0.3,
        **_ffn(rng, s, lead),
    }


def fresh(s: TextConfig, seed: int) -> Tree:
    """New parameters, float32."""
    rng = np.random.default_rng(seed)
    h = s.hidden_size
    return {
        "embed": (rng.standard_normal((s.vocab_size, h)) * 0.03).astype(np.float32),
        "norm": np.zeros(h, np.float32),
        "delta": _delta(rng, s, (s.full_layers, 3)),
        "attention": _attention(rng, s, (s.full_layers,)),
        "mtp": {
            "fc": _matrix(rng, h, 2 * h),
            "norm_embedding": np.zeros(h, np.float32),
            "norm_hidden": np.zeros(h, np.float32),
            "norm": np.zeros(h, np.float32),
            "layer": _attention(rng, s, ()),
        },
    }


def rms(x: jax.Array, w: jax.Array, eps: float) -> jax.Array:
    """RMSNorm with gain 1 + w, reduced in float32."""
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + eps)
    return (y * (1.0 + w.astype(jnp.float32))).astype(x.dtype)


def ffn(x: jax.Array, p: Tree, s: TextConfig) -> jax.Array:
    """SwiGLU after the second norm, added to the residual."""
    y = rms(x, p["post_norm"], s.rms_norm_eps)
    return x + linear(jax.nn.silu(linear(y, p["gate"])) * linear(y, p["up"]), p["down"])


def qkv_gate(y: jax.Array, p: Tree, s: TextConfig) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Normed and rotated q [B,T,KV,G,d], k, raw v [B,T,KV,d], gate [B,T,heads,d]."""
    rows, length = y.shape[:2]
    both = linear(y, p["q"]).reshape(rows, length, s.num_attention_heads, 2, s.head_dim)
    k = linear(y, p["k"]).reshape(rows, length, s.num_key_value_heads, s.head_dim)
    v = linear(y, p["v"]).reshape(rows, length, s.num_key_value_heads, s.head_dim)
    tables = rotary_tables(s, text_positions(jnp.broadcast_to(jnp.arange(length), (rows, length))))
    q = rotate(rms(both[..., 0, :], p["q_norm"], s.rms_norm_eps), tables)
    k = rotate(rms(k, p["k_norm"], s.rms_norm_eps), tables)
    return q.reshape(rows, length, s.num_key_value_heads, -1, s.head_dim), k, v, both[..., 1, :]


def scores(q: jax.Array, k: jax.Array, s: TextConfig) -> jax.Array:
    """[B, KV, G, T, S] in float32."""
    return jnp.einsum("btkgd,bskd->bkgts", q, k, preferred_element_type=jnp.float32) * s.head_dim**-0.5


def own_mask(segment: jax.Array) -> jax.Array:
    """[B, T, T], true where row t may see s: not later, and of the same conversation."""
    length = segment.shape[1]
    return (segment[:, :, None] == segment[:, None, :]) & jnp.tril(jnp.ones((length, length), bool))


def fused_attention(q: jax.Array, k: jax.Array, v: jax.Array, segment: jax.Array, s: TextConfig) -> jax.Array:
    """Causal attention within segments through the GPU library's fused kernel, which knows no segments.

    Eight more dimensions per head do it: (-M a, M) against (1, b) adds -M (a - b) to the score of a key in segment b
    for a query in segment a: nothing within a segment, e^-32 and less between two. Exact: M is a power of 2.
    """
    rows, length = segment.shape
    a = segment.astype(q.dtype)[..., None, None]
    wide = 256.0
    q = q.reshape(rows, length, s.num_attention_heads, s.head_dim)
    ask = jnp.concatenate([-wide * a, jnp.full_like(a, wide)], -1)
    offer = jnp.concatenate([jnp.ones_like(a), a], -1)

    def widened(x: jax.Array, more: jax.Array | None) -> jax.Array:
        extra = jnp.zeros((*x.shape[:-1], 8), x.dtype)
        if more is not None:
            extra = extra.at[..., :2].set(jnp.broadcast_to(more, (*x.shape[:-1], 2)))
        return jnp.concatenate([x, extra], -1)

    out = jax.nn.dot_product_attention(
        widened(q, ask),
        widened(k, offer),
        widened(v, None),
        scale=s.head_dim**-0.5,
        is_causal=True,
        implementation="cudnn",
    )
    return out[..., : s.head_dim]


def attention_block(x: jax.Array, p: Tree, segment: jax.Array, s: TextConfig) -> jax.Array:
    """Gated attention within segments [B, T], and feed-forward."""
    q, k, v, gate = qkv_gate(rms(x, p["input_norm"], s.rms_norm_eps), p, s)
    if x.dtype == jnp.bfloat16 and jax.default_backend() == "gpu":
        mixed = fused_attention(q, k, v, segment, s)
    else:
        weights = jax.nn.softmax(jnp.where(own_mask(segment)[:, None, None], scores(q, k, s), -1e30), -1).astype(
            x.dtype
        )
        mixed = jnp.einsum("bkgts,bskd->btkgd", weights, v).reshape(gate.shape)
    mixed = mixed * jax.nn.sigmoid(gate)
    return ffn(x + linear(mixed.reshape(*x.shape[:2], -1), p["o"]), p, s)


@jax.custom_vjp
def embed(table: jax.Array, tokens: jax.Array) -> jax.Array:
    """Rows of the table. Its derivative is a product: the scatter that JAX would make took two thirds of a step."""
    return table[tokens]


def _embed_fwd(table: jax.Array, tokens: jax.Array) -> tuple[jax.Array, tuple[jax.Array, int]]:
    return table[tokens], (tokens, table.shape[0])


def _embed_bwd(kept: tuple[jax.Array, int], g: jax.Array) -> tuple[jax.Array, None]:
    tokens, size = kept
    hot = (tokens.reshape(-1, 1) == jnp.arange(size)).astype(g.dtype)
    return jnp.einsum("nv,nh->vh", hot, g.reshape(-1, g.shape[-1]), preferred_element_type=jnp.float32).astype(
        g.dtype
    ), None


embed.defvjp(_embed_fwd, _embed_bwd)


@jax.custom_vjp
def unit_inverse(a: jax.Array) -> jax.Array:
    """(I + a)^-1 for strictly lower triangular a [..., 64, 64]: 16 x 16 by the finite Neumann product, then merged."""
    high = jax.lax.Precision.HIGHEST
    lead, n = a.shape[:-2], a.shape[-1]
    diagonal = jnp.stack([a[..., at : at + 16, at : at + 16] for at in range(0, n, 16)], -3)
    eye = jnp.eye(16, dtype=a.dtype)
    inverse, power = eye - diagonal, diagonal
    for _ in range(3):
        power = jnp.matmul(power, power, precision=high)
        inverse = jnp.matmul(inverse, eye + power, precision=high)
    size = 16
    while size < n:
        pairs = inverse.reshape(*lead, n // (2 * size), 2, size, size)
        low = jnp.stack([a[..., at + size : at + 2 * size, at : at + size] for at in range(0, n, 2 * size)], -3)
        first, second = pairs[..., 0, :, :], pairs[..., 1, :, :]
        cross = -jnp.matmul(jnp.matmul(second, low, precision=high), first, precision=high)
        top = jnp.concatenate([first, jnp.zeros_like(first)], -1)
        inverse = jnp.concatenate([top, jnp.concatenate([cross, second], -1)], -2)
        size *= 2
    return inverse.reshape(*lead, n, n)


def _inverse_fwd(a: jax.Array) -> tuple[jax.Array, jax.Array]:
    inverse = unit_inverse(a)
    return inverse, inverse


def _inverse_bwd(inverse: jax.Array, g: jax.Array) -> tuple[jax.Array]:
    turned = jnp.swapaxes(inverse, -1, -2)
    return (-jnp.tril(turned @ g @ turned, -1),)


unit_inverse.defvjp(_inverse_fwd, _inverse_bwd)


def delta_rule(q: jax.Array, k: jax.Array, v: jax.Array, g: jax.Array, beta: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Gated delta rule over whole rows. q, k, v: [B, T, heads, d], q and k normalised; g, beta: float32 [B, T, heads].

    Returns the output [B, T, heads, d] and the last state [B, heads, dk, dv] (float32). Chunked: within a chunk all is
    matrix products; between chunks the state follows S' = d S - (K^T W) S + K^T U, one product a step.
    """
    rows, length, heads, d = v.shape
    dtype = v.dtype

    def cut(x: jax.Array) -> jax.Array:
        return x.reshape(rows, length // CHUNK, CHUNK, heads, -1).transpose(1, 0, 3, 2, 4)  # [n, B, heads, C, d]

    q, k, v = cut(q * jnp.asarray(d**-0.5, dtype)), cut(k), cut(v)
    total = jnp.cumsum(cut(g)[..., 0], -1)
    beta = cut(beta)
    below = jnp.tril(jnp.ones((CHUNK, CHUNK), bool))
    # Masked inside the exponent: above the diagonal the difference is positive and would overflow.
    decay = jnp.exp(jnp.where(below, total[..., :, None] - total[..., None, :], -1e9))
    f32 = jnp.float32
    kk = jnp.einsum("nbhid,nbhjd->nbhij", k, k, preferred_element_type=f32)
    inverse = unit_inverse(jnp.tril(kk * decay * beta, -1)).astype(dtype)
    u = jnp.einsum("nbhij,nbhjd->nbhid", inverse, (v * beta.astype(dtype)))
    from_start = jnp.exp(total)[..., None]
    w = jnp.einsum("nbhij,nbhjd->nbhid", inverse, (k * (beta * from_start).astype(dtype)))
    kt = k * jnp.exp(total[..., -1:] - total)[..., None].astype(dtype)
    gain = jnp.einsum("nbhid,nbhie->nbhde", kt, u)
    loss = jnp.einsum("nbhid,nbhie->nbhde", kt, w)

    def step(state: jax.Array, parts: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        end, lost, gained = parts
        before = state.astype(dtype)
        change = jnp.einsum("bhde,bhef->bhdf", lost, before, preferred_element_type=f32)
        return end * state - change + gained.astype(f32), before

    end = jnp.exp(total[..., -1])[..., None, None]
    last, before = jax.lax.scan(step, jnp.zeros((rows, heads, d, d), f32), (end, loss, gain))
    fresh_v = u - jnp.einsum("nbhid,nbhde->nbhie", w, before)
    near = (jnp.einsum("nbhid,nbhjd->nbhij", q, k, preferred_element_type=f32) * decay).astype(dtype)
    out = jnp.einsum("nbhid,nbhde->nbhie", q * from_start.astype(dtype), before) + jnp.einsum(
        "nbhij,nbhje->nbhie", near, fresh_v
    )
    return out.transpose(1, 0, 3, 2, 4).reshape(rows, length, heads, d), last


def unit(x: jax.Array) -> jax.Array:
    """x / sqrt(sum x^2 + 1e-6) in float32."""
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.sum(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def delta_gates(y: jax.Array, p: Tree) -> tuple[jax.Array, jax.Array]:
    """Log decay and write strength, float32 [..., heads]."""
    a, b = linear(y, p["a"]).astype(jnp.float32), linear(y, p["b"]).astype(jnp.float32)
    return -jnp.exp(p["A_log"]) * jax.nn.softplus(a + p["dt_bias"]), jax.nn.sigmoid(b)


def delta_heads(mixed: jax.Array, s: TextConfig) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Convolved channels to q, k (normalised, repeated for the value heads) and v, each [..., value heads, d]."""
    lead, d, keys = mixed.shape[:-1], s.linear_key_head_dim, s.linear_num_key_heads
    q, k, v = jnp.split(mixed, (keys * d, 2 * keys * d), -1)
    each = s.linear_num_value_heads // keys
    q, k = (jnp.repeat(unit(x.reshape(*lead, keys, d)), each, -2) for x in (q, k))
    return q, k, v.reshape(*lead, s.linear_num_value_heads, d)


def delta_block(x: jax.Array, p: Tree, starts: jax.Array, segment: jax.Array, s: TextConfig) -> jax.Array:
    """Gated delta net and feed-forward. starts: bool [B, T]; segment: int32 [B, T]."""
    y = rms(x, p["input_norm"], s.rms_norm_eps)
    raw = linear(y, p["qkv"])
    taps = CONV_TAPS - 1
    wide = jnp.pad(raw, ((0, 0), (taps, 0), (0, 0)))
    who = jnp.pad(segment, ((0, 0), (taps, 0)), constant_values=-1)
    length = x.shape[1]
    mixed = sum(
        jnp.where((who[:, at : at + length] == segment)[..., None], wide[:, at : at + length], 0)
        * p["conv"][:, at].astype(x.dtype)
        for at in range(taps + 1)
    )
    q, k, v = delta_heads(jax.nn.silu(mixed), s)
    g, beta = delta_gates(y, p)
    out, _ = delta_rule(q, k, v, jnp.where(starts[..., None], RESET, g), beta)
    return ffn(x + delta_out(out, linear(y, p["z"]), p, s), p, s)


def delta_out(out: jax.Array, z: jax.Array, p: Tree, s: TextConfig) -> jax.Array:
    """Per-head RMSNorm with plain gain, times SiLU(z), projected."""
    normed = rms(out, p["norm"] - 1.0, s.rms_norm_eps).reshape(z.shape)
    return linear(normed * jax.nn.silu(z), p["out"])


def trunk(
    params: Tree, tokens: jax.Array, starts: jax.Array, s: TextConfig, dtype: Any = jnp.bfloat16
) -> tuple[jax.Array, jax.Array]:
    """Final-normed hidden states [B, T, H] and the segment of each token."""
    segment = jnp.cumsum(starts, 1)
    x = embed(params["embed"].astype(dtype), tokens)
    # Unrolled, not scanned: a scan would copy every activation that the backward pass needs once more.
    for group in range(params["attention"]["q"].shape[0]):
        for at in range(3):
            x = delta_block(x, {name: leaf[group, at] for name, leaf in params["delta"].items()}, starts, segment, s)
        x = attention_block(x, {name: leaf[group] for name, leaf in params["attention"].items()}, segment, s)
    return rms(x, params["norm"], s.rms_norm_eps), segment


def logits(params: Tree, hidden: jax.Array) -> jax.Array:
    """Scores over the vocabulary; embedding and head share one matrix."""
    return linear(hidden, params["embed"])


def mtp_depths(
    params: Tree, hidden: jax.Array, tokens: jax.Array, segment: jax.Array, depths: int, s: TextConfig
) -> list[jax.Array]:
    """Hidden states of each draft depth; entry d at position p speaks of token p + 2.

    Depth 1 reads the trunk's state of p and token p + 1. Depth d reads depth d-1's output of p - 1. As when drafting,
    it sees depth-1 keys up to the frontier p - d + 1, then one key of each depth on the way.
    """
    p = params["mtp"]
    layer = p["layer"]
    following = jnp.concatenate([tokens[:, 1:], tokens[:, :1]], 1)
    embedded = rms(embed(params["embed"].astype(hidden.dtype), following), p["norm_embedding"], s.rms_norm_eps)
    length = tokens.shape[1]
    mask = own_mask(segment)
    keys: list[tuple[jax.Array, jax.Array]] = []
    out: list[jax.Array] = []
    for depth in range(depths):
        x = linear(jnp.concatenate([embedded, rms(hidden, p["norm_hidden"], s.rms_norm_eps)], -1), p["fc"])
        q, k, v, gate = qkv_gate(rms(x, layer["input_norm"], s.rms_norm_eps), layer, s)
        keys.append((k, v))
        first_k, first_v = keys[0]
        old = mask & jnp.tril(jnp.ones((length, length), bool), -depth)
        logit = [jnp.where(old[:, None, None], scores(q, first_k, s), -1e30)]
        values = [first_v]
        for back in range(depth):
            near_k, near_v = (jnp.roll(leaf, back, 1) for leaf in keys[depth - back])
            logit.append(
                jnp.einsum("btkgd,btkd->bkgt", q, near_k, preferred_element_type=jnp.float32)[..., None]
                * s.head_dim**-0.5
            )
            values.append(near_v)
        weights = jax.nn.softmax(jnp.concatenate(logit, -1), -1).astype(x.dtype)
        mixed = jnp.einsum("bkgts,bskd->btkgd", weights[..., :length], first_v)
        for at in range(depth):
            mixed += jnp.einsum("bkgt,btkd->btkgd", weights[..., length + at], values[1 + at])
        mixed = mixed.reshape(gate.shape) * jax.nn.sigmoid(gate)
        x = ffn(x + linear(mixed.reshape(*x.shape[:2], -1), layer["o"]), layer, s)
        x = rms(x, p["norm"], s.rms_norm_eps)
        out.append(x)
        hidden = jnp.roll(x, 1, 1)
    return out


def to_weights(params: Tree) -> TextWeights:
    """The same parameters as the engine's own tree."""

    def layer(p: Tree) -> LayerWeights:
        mixer: AttentionWeights | DeltaNetWeights
        if "qkv" in p:
            mixer = DeltaNetWeights(
                in_proj_qkv=p["qkv"],
                in_proj_z=p["z"],
                in_proj_a=p["a"],
                in_proj_b=p["b"],
                conv1d=p["conv"],
                norm=p["norm"],
                out_proj=p["out"],
                a_log=p["A_log"],
                dt_bias=p["dt_bias"],
            )
        else:
            mixer = AttentionWeights(
                q_proj=p["q"], k_proj=p["k"], v_proj=p["v"], o_proj=p["o"], q_norm=p["q_norm"], k_norm=p["k_norm"]
            )
        mlp = MlpWeights(gate_proj=p["gate"], up_proj=p["up"], down_proj=p["down"])
        return LayerWeights(input_norm=p["input_norm"], mixer=mixer, post_attention_norm=p["post_norm"], mlp=mlp)

    layers: list[LayerWeights] = []
    for group in range(params["attention"]["q"].shape[0]):
        layers += [layer({name: leaf[group, at] for name, leaf in params["delta"].items()}) for at in range(3)]
        layers.append(layer({name: leaf[group] for name, leaf in params["attention"].items()}))
    m = params["mtp"]
    head = MtpWeights(
        fc=m["fc"],
        embedding_norm=m["norm_embedding"],
        hidden_norm=m["norm_hidden"],
        layer=layer(m["layer"]),
        norm=m["norm"],
    )
    return TextWeights(embed=params["embed"], layers=tuple(layers), norm=params["norm"], head=None, mtp=head)


def from_weights(weights: TextWeights) -> Tree:
    """The inverse of `to_weights`, in numpy: training can go on from an artifact."""

    def block(layer: LayerWeights) -> Tree:
        m, f = layer.mixer, layer.mlp
        if isinstance(m, DeltaNetWeights):
            own = {
                "qkv": m.in_proj_qkv,
                "z": m.in_proj_z,
                "a": m.in_proj_a,
                "b": m.in_proj_b,
                "conv": m.conv1d,
                "A_log": m.a_log,
                "dt_bias": m.dt_bias,
                "norm": m.norm,
                "out": m.out_proj,
            }
        else:
            own = {"q": m.q_proj, "k": m.k_proj, "v": m.v_proj, "o": m.o_proj, "q_norm": m.q_norm, "k_norm": m.k_norm}
        own |= {"input_norm": layer.input_norm, "post_norm": layer.post_attention_norm}
        own |= {"gate": f.gate_proj, "up": f.up_proj, "down": f.down_proj}
        return {name: np.asarray(leaf) for name, leaf in own.items()}

    def stacked(blocks: list[Tree], *lead: int) -> Tree:
        return {
            name: np.stack([one[name] for one in blocks]).reshape(*lead, *blocks[0][name].shape) for name in blocks[0]
        }

    if weights.mtp is None:
        raise ValueError("the weights have no draft head")
    blocks = [block(layer) for layer in weights.layers]
    groups = len(blocks) // 4
    delta = [one for at, one in enumerate(blocks) if at % 4 != 3]
    head = weights.mtp
    return {
        "embed": np.asarray(weights.embed),
        "norm": np.asarray(weights.norm),
        "delta": stacked(delta, groups, 3),
        "attention": stacked(blocks[3::4], groups),
        "mtp": {
            "fc": np.asarray(head.fc),
            "norm_embedding": np.asarray(head.embedding_norm),
            "norm_hidden": np.asarray(head.hidden_norm),
            "norm": np.asarray(head.norm),
            "layer": block(head.layer),
        },
    }
