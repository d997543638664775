"""Greedy decoding of a batch with the training parameters: for quick looks on the training machine.

The numbers that count come from the engine; this only says early whether a run goes well. Float32 throughout.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ninfer.engine.model.config import CONV_TAPS, TextConfig
from ninfer.engine.model.reduce import linear
from ninfer.engine.model.rotary import rotary_tables, rotate, text_positions
from tools.demo_model.model import (
    Tree,
    attention_block,
    delta_gates,
    delta_heads,
    delta_out,
    delta_rule,
    ffn,
    logits,
    qkv_gate,
    rms,
)

Layers = list[tuple[str, Tree]]


def layers_of(params: Tree) -> Layers:
    """Kind and parameters of each layer, in order."""
    out: Layers = []
    for group in range(params["attention"]["q"].shape[0]):
        out += [("delta", {name: leaf[group, at] for name, leaf in params["delta"].items()}) for at in range(3)]
        out.append(("attention", {name: leaf[group] for name, leaf in params["attention"].items()}))
    return out


def prefill(
    params: Tree, tokens: jax.Array, lengths: jax.Array, room: int, s: TextConfig
) -> tuple[jax.Array, list[Any]]:
    """tokens [B, T], T a multiple of 64 -> last hidden [B, H] and each layer's cache with `room` positions more."""
    rows, length = tokens.shape
    real = jnp.arange(length)[None] < lengths[:, None]
    one_segment = jnp.zeros((rows, length), jnp.int32)
    x = params["embed"][tokens]
    caches: list[Any] = []
    for kind, p in layers_of(params):
        y = rms(x, p["input_norm"], s.rms_norm_eps)
        if kind == "attention":
            _, k, v, _ = qkv_gate(y, p, s)
            caches.append(tuple(jnp.pad(leaf, ((0, 0), (0, room), (0, 0), (0, 0))) for leaf in (k, v)))
            x = attention_block(x, p, one_segment, s)
            continue
        raw = jnp.pad(linear(y, p["qkv"]), ((0, 0), (CONV_TAPS - 1, 0), (0, 0)))
        mixed = sum(raw[:, at : at + length] * p["conv"][:, at] for at in range(CONV_TAPS))
        q, k, v = delta_heads(jax.nn.silu(mixed), s)
        g, beta = delta_gates(y, p)
        g, beta = jnp.where(real[..., None], g, 0.0), jnp.where(real[..., None], beta, 0.0)
        out, state = delta_rule(q, k, v, g, beta)
        tail = jax.vmap(lambda row, n: jax.lax.dynamic_slice_in_dim(row, n, CONV_TAPS - 1))(raw, lengths)
        caches.append((state, tail))
        x = ffn(x + delta_out(out, linear(y, p["z"]), p, s), p, s)
    hidden = rms(x, params["norm"], s.rms_norm_eps)
    return jnp.take_along_axis(hidden, (lengths - 1)[:, None, None], 1)[:, 0], caches


def step(
    params: Tree, token: jax.Array, position: jax.Array, caches: list[Any], s: TextConfig
) -> tuple[jax.Array, list[Any]]:
    """One token per row -> hidden [B, H], caches."""
    rows = jnp.arange(token.shape[0])
    x = params["embed"][token]
    fresh: list[Any] = []
    for (kind, p), cache in zip(layers_of(params), caches, strict=True):
        y = rms(x, p["input_norm"], s.rms_norm_eps)
        if kind == "attention":
            mixed, cache = _attend(y, p, position, cache, rows, s)
            x = ffn(x + mixed, p, s)
        else:
            state, tail = cache
            window = jnp.concatenate([tail, linear(y, p["qkv"])[:, None]], 1)
            q, k, v = delta_heads(jax.nn.silu(jnp.einsum("btc,ct->bc", window, p["conv"])), s)
            g, beta = delta_gates(y, p)
            state = state * jnp.exp(g)[..., None, None]
            change = beta[..., None] * (v - jnp.einsum("bhde,bhd->bhe", state, k))
            state = state + k[..., None] * change[..., None, :]
            out = jnp.einsum("bhde,bhd->bhe", state, q) * s.linear_key_head_dim**-0.5
            cache = (state, window[:, 1:])
            x = ffn(x + delta_out(out, linear(y, p["z"]), p, s), p, s)
        fresh.append(cache)
    return rms(x, params["norm"], s.rms_norm_eps), fresh


def _attend(
    y: jax.Array, p: Tree, position: jax.Array, cache: Any, rows: jax.Array, s: TextConfig
) -> tuple[jax.Array, Any]:
    """Gated attention of one new token per row."""
    tables = rotary_tables(s, text_positions(position))
    both = linear(y, p["q"]).reshape(-1, s.num_attention_heads, 2, s.head_dim)
    k = linear(y, p["k"]).reshape(-1, s.num_key_value_heads, s.head_dim)
    v = linear(y, p["v"]).reshape(k.shape)
    q = rotate(rms(both[:, :, 0], p["q_norm"], s.rms_norm_eps), tables).reshape(
        -1, s.num_key_value_heads, s.group_size, s.head_dim
    )
    keys = cache[0].at[rows, position].set(rotate(rms(k, p["k_norm"], s.rms_norm_eps), tables))
    values = cache[1].at[rows, position].set(v)
    seen = jnp.arange(keys.shape[1])[None] <= position[:, None]
    scores = jnp.einsum("bkgd,bskd->bkgs", q, keys) * s.head_dim**-0.5
    weights = jax.nn.softmax(jnp.where(seen[:, None, None], scores, -1e30), -1)
    mixed = jnp.einsum("bkgs,bskd->bkgd", weights, values).reshape(both.shape[0], -1) * jax.nn.sigmoid(
        both[:, :, 1].reshape(both.shape[0], -1)
    )
    return linear(mixed, p["o"]), (keys, values)


@partial(jax.jit, static_argnames=("most", "stop", "s"))
def greedy(params: Tree, tokens: jax.Array, lengths: jax.Array, most: int, stop: int, s: TextConfig) -> jax.Array:
    """Up to `most` tokens per row, int32 [B, most]; after `stop` a row is filled with `stop`."""
    hidden, caches = prefill(params, tokens, lengths, most, s)
    first = jnp.argmax(logits(params, hidden), -1)

    def more(carry: Any) -> jax.Array:
        return (carry[0] < most) & ~jnp.all(carry[2] == stop)

    def one(carry: Any) -> Any:
        at, out, token, caches = carry
        out = out.at[:, at].set(token)
        hidden, caches = step(params, token, lengths + at, caches, s)
        following = jnp.argmax(logits(params, hidden), -1)
        return at + 1, out, jnp.where(token == stop, stop, following), caches

    start = (jnp.zeros((), jnp.int32), jnp.full((tokens.shape[0], most), stop), first, caches)
    return jax.lax.while_loop(more, one, start)[1]


def complete(
    params: Tree, prompts: list[list[int]], most: int, stop: int, s: TextConfig, batch: int = 256, length: int = 1024
) -> list[list[int]]:
    """Greedy completions, without the stop token."""
    out: list[list[int]] = []
    for at in range(0, len(prompts), batch):
        part = prompts[at : at + batch]
        tokens = np.full((batch, length), stop, np.int32)
        lengths = np.ones(batch, np.int32)
        for row, ids in enumerate(part):
            tokens[row, : len(ids)], lengths[row] = ids, len(ids)
        done = np.asarray(greedy(params, jnp.asarray(tokens), jnp.asarray(lengths), most, stop, s))
        for row in range(len(part)):
            ids = done[row].tolist()
            out.append(ids[: ids.index(stop)] if stop in ids else ids)
    return out
