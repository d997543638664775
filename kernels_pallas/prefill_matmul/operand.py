"""Packed tiles in shared memory to the registers of a wgmma's left operand: the inlined part of packed.py.

Knows Mosaic's registers and where a thread's words lie; what they mean is the text's business (operand_ptx.py).
Invariant: the registers have WGMMA's layout of [64, 64], 16-bit.
"""

from __future__ import annotations

import functools
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import utils as mgpu_utils
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import arith, llvm

from .operand_ptx import DEPTH, OUTPUTS, operand_text

_Ref: TypeAlias = Any  # a place in some memory as Pallas hands it to a body; its type has no public name


def operand(form: str, unit: int, chunks: int, planes: dict[str, _Ref]) -> jax.Array:
    """64 rows by 64 of K in the registers of a warpgroup, from the planes [4, ...] of its four packed tiles.

    `unit`: which 64 of the codes and of the scales; `chunks`: of a block, which the scales lie in.
    """
    dtype = jnp.bfloat16 if form == "bf16" else jnp.float16
    names = tuple(planes)
    held = planes["codes"].shape[-2]
    # Bytes of a tile's plane, and from one of a tile's eight rows of lanes to the next.
    strides = {
        "codes": (512 * held, 64),
        "high": (128 * held * (2 if form == "q6_g64" else 1), 32 if form == "q6_g64" else 16),
        "scales": (64 * chunks, 8 * chunks) if form == "nvfp4" else (32 * chunks, 4 * chunks),
    }

    def unpack(_: object, *refs: Any) -> mgpu.FragmentedArray:
        i32 = ir.IntegerType.get_signless(32)
        number = functools.partial(mgpu_utils.c, ty=i32)
        thread = mgpu_utils.thread_idx()
        lane, warp = arith.andi(thread, number(31)), arith.andi(arith.shrui(thread, number(5)), number(3))
        lane_row, lane_column = arith.shrui(lane, number(2)), arith.andi(lane, number(3))
        addresses = {}
        for name, ref in zip(names, refs, strict=True):
            of_tile, of_row = strides[name]
            inside = arith.addi(arith.muli(warp, number(of_tile)), arith.muli(lane_row, number(of_row)))
            addresses[name] = arith.addi(llvm.ptrtoint(i32, mgpu_utils.memref_ptr(ref)), inside)
        inputs = [addresses["codes"], lane_column]
        inputs += [addresses.get(name, number(0)) for name in ("high", "scales")]
        words = llvm.inline_asm(
            llvm.StructType.get_literal([i32] * OUTPUTS),
            inputs,
            operand_text(form, unit, chunks),
            ",".join(["=r"] * OUTPUTS + ["r"] * len(inputs)),
            asm_dialect=0,
            has_side_effects=True,
        )
        pair = ir.VectorType.get((2,), mgpu_utils.dtype_to_ir_type(dtype))
        assert isinstance(words, ir.Value)
        registers = [mgpu_utils.bitcast(llvm.extractvalue(i32, words, [at]), pair) for at in range(OUTPUTS)]
        layout = mgpu.WGMMA_LAYOUT
        shaped = np.array(registers, dtype=object).reshape(layout.registers_shape((64, DEPTH)))
        return mgpu.FragmentedArray(_registers=shaped, _layout=layout, _is_signed=None)

    inlined = plgpu.inline_mgpu(
        arg_types=tuple(plgpu.RefType() for _ in names),
        return_type=plgpu.ShapeDtypeStruct((64, DEPTH), dtype, layout=plgpu.Layout.WGMMA),
    )
    weights: jax.Array = inlined(unpack)(*planes.values())
    return weights
