"""Overlapping a Triton kernel with the one after it: bytes asked into L2 ahead of time, and an early launch.

Pallas has neither, so these are small primitives of our own whose only lowering is Pallas-Triton's. They read no value
and change none. `prefetch` is one instruction of one thread and nobody waits for it. `release_next` lets the GPU launch
the next kernel of the stream before this one ends (programmatic dependent launch): XLA begins every kernel with
`griddepcontrol.wait`, so the next one still waits for all results of this one, but its launch costs nothing any more.
Its programs are placed early, too, wherever there is room: a small grid crowds on few multiprocessors.

Invariant: `supported` is False where jax keeps its Triton lowering elsewhere; then both do nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

try:
    from jax._src import core as _core
    from jax._src import state as _state
    from jax._src.core import Primitive as _Primitive
    from jax._src.lib.mlir import ir as _ir  # type: ignore[attr-defined]
    from jax._src.lib.triton import dialect as _tt  # type: ignore[attr-defined]
    from jax._src.pallas.triton import lowering as _lowering
    from jax._src.state import primitives as _state_primitives
    from jax._src.tree_util import tree_flatten as _flatten
except ImportError:  # another jax: kernels do without
    supported = False
else:
    supported = True

_PREFETCH = (
    "{{ .reg .pred p; .reg .b32 t; mov.u32 t, %tid.x; setp.eq.u32 p, t, 0; mov.u32 $0, 0; "
    "@p cp.async.bulk.prefetch.L2.global [$1], {size_bytes}; }}"
)
"""The first thread of the program asks for all of the bytes."""
_RELEASE = "{ mov.u32 $0, 0; griddepcontrol.launch_dependents; }"


def prefetch(ref: jax.Array, at: Sequence[jax.Array | int], size_bytes: int) -> None:
    """Ask for `size_bytes` from element `at` of `ref` on (both multiples of 16 bytes; all of it inside the array)."""
    if size_bytes % 16 or size_bytes <= 0:
        raise ValueError(f"{size_bytes} bytes cannot be asked for: a positive multiple of 16 can")
    if supported:
        assembly(_PREFETCH.format(size_bytes=size_bytes), "=r,l", addresses=[(ref, at)])


def release_next(ref: jax.Array) -> None:
    """From here on the next kernel may be launched. `ref` is any operand: an operation without one would be removed."""
    if supported:
        assembly(_RELEASE, "=r,l", addresses=[(ref, (0,) * ref.ndim)])


_WORD = jax.ShapeDtypeStruct((), jnp.int32)


def assembly(
    text: str,
    constraints: str,
    *,
    addresses: Sequence[tuple[jax.Array, Sequence[jax.Array | int]]] = (),
    values: Sequence[jax.Array] = (),
    result: jax.ShapeDtypeStruct | None = None,
    pack: int = 1,
) -> jax.Array:
    """Inline PTX that stays where it is and in its order (unlike `plt.elementwise_inline_asm`, which has no effects).

    addresses: (ref, index of one element), passed as 64-bit addresses before `values`; scalars run once per thread.
    `result` ($0 and on): int32 [] where none is given.
    """
    located = [_state_primitives.get_ref_and_transforms(ref, tuple(at), "assembly") for ref, at in addresses]
    leaves, tree = _flatten((located, list(values)))
    value: jax.Array
    (value,) = _asm_p.bind(*leaves, tree=tree, text=text, constraints=constraints, result=result or _WORD, pack=pack)
    return value


if supported:
    _asm_p = _Primitive("ninfer_asm")
    _asm_p.multiple_results = True

    @_asm_p.def_effectful_abstract_eval
    def _abstract(*avals, tree, result, **_):  # type: ignore[no-untyped-def]
        located, _values = tree.unflatten(range(len(avals)))
        effects = {_state.WriteEffect(ref) for ref, _ in located}  # a mere read without a result would be removed
        return [_core.ShapedArray(result.shape, result.dtype)], effects

    @_lowering.register_lowering(_asm_p)
    def _lower(ctx, *leaves, tree, text, constraints, result, pack):  # type: ignore[no-untyped-def]
        located, values = tree.unflatten(leaves)
        places, value_places = tree.unflatten(range(len(leaves)))
        word = _ir.IntegerType.get_signless(64)
        args = []
        for (ref, transforms), (place, _) in zip(located, places, strict=True):
            pointer = _lowering._compute_pointers_from_indices(ref, ctx.block_infos[place], transforms[-1])
            args.append(_tt.ptr_to_int(word, pointer))
        for value, place in zip(values, value_places, strict=True):
            args.append(_lowering._ensure_ir_value(value, ctx.avals_in[place]))  # type: ignore[arg-type]
        kind = _lowering._dtype_to_ir_type(result.dtype)
        shaped = _ir.RankedTensorType.get(result.shape, kind) if result.shape else kind
        options = {"constraints": constraints, "pure": False, "packed_element": pack}
        return [_tt.elementwise_inline_asm([shaped], text, args=args, **options)]
