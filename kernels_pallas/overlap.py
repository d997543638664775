"""Overlapping a Triton kernel with the one after it: bytes asked into L2 ahead of time, and an early launch.

Pallas has neither, so these are two small primitives of our own whose only lowering is Pallas-Triton's. They read no
value and change none. `prefetch` is one instruction of one thread and nobody waits for it. `release_next` lets the GPU
launch the next kernel of the stream before this one ends (programmatic dependent launch): XLA begins every kernel with
`griddepcontrol.wait`, so the next one still waits for all results of this one, but its launch costs nothing any more.

Invariant: `supported` is False where jax keeps its Triton lowering elsewhere; then both do nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax

try:
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
        inner, transforms = _state_primitives.get_ref_and_transforms(ref, tuple(at), "prefetch")
        leaves, tree = _flatten((inner, transforms))
        _asm_p.bind(*leaves, tree=tree, text=_PREFETCH.format(size_bytes=size_bytes))


def release_next(ref: jax.Array) -> None:
    """From here on the next kernel may be launched. `ref` is any operand: an operation without one would be removed."""
    if supported:
        leaves, tree = _flatten((ref, ()))
        _asm_p.bind(*leaves, tree=tree, text=_RELEASE)


if supported:
    _asm_p = _Primitive("ninfer_asm")
    _asm_p.multiple_results = True

    @_asm_p.def_effectful_abstract_eval
    def _abstract(*avals, tree, text):  # type: ignore[no-untyped-def]
        return (), {_state.WriteEffect(0)}  # a mere read without a result would be removed

    @_lowering.register_lowering(_asm_p)
    def _lower(ctx, *leaves, tree, text):  # type: ignore[no-untyped-def]
        pointer, transforms = tree.unflatten(leaves)
        if transforms:
            pointer = _lowering._compute_pointers_from_indices(pointer, ctx.block_infos[0], transforms[-1])
        address = _tt.ptr_to_int(_ir.IntegerType.get_signless(64), pointer)
        _tt.elementwise_inline_asm(
            [_ir.IntegerType.get_signless(32)],
            text,
            constraints="=r,l",
            pure=False,
            packed_element=1,
            args=[address],
        )
        return []
