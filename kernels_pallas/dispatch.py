"""Choosing an implementation by name: `impl="auto"` or one of those that the operation has.

Knows no operation. Invariant: a name that does not exist is an error that lists the names that do; nothing falls back
silently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeVar

import jax

Impl = Literal["auto", "reference", "kernel", "triton", "mosaic"]
"""auto: the kernel on a GPU, the reference elsewhere. kernel: the kernel on any machine, to compile for another."""

Function = TypeVar("Function", bound=Callable[..., object])


def choose(impl: Impl, implementations: Mapping[str, Function]) -> Function:
    """The implementation that `impl` names. `implementations` holds "reference" first, then kernels, best one last.

    Raises:
        ValueError: there is none of that name.
    """
    if impl == "auto":
        impl = "kernel" if jax.default_backend() == "gpu" else "reference"
    if impl == "kernel":
        return implementations[list(implementations)[-1]]
    if impl not in implementations:
        raise ValueError(f"impl={impl!r} does not exist here; there are: auto, {', '.join(implementations)}")
    return implementations[impl]
