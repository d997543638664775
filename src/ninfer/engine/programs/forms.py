"""Which form a stored model runs in, what that needs, and how it is loaded: the one place that chooses.

The stacked form where there is a GPU and every matrix is stored in the order in which its kernels read it; else the
per-layer form, which takes any artifact as numbers. Knows no files: an artifact comes as a `StoredModel`.
"""

from collections.abc import Callable, Mapping
from typing import Literal, Protocol

import attrs
import jax
import numpy as np
from numpy.typing import NDArray

from kernels_pallas.chunk_attention import DEFAULT_SPLIT_WORKSPACE_BYTES
from ninfer.engine.cache import pages_for
from ninfer.engine.memory import MemoryNeeds
from ninfer.engine.model.config import TextConfig
from ninfer.engine.model.weights import load_weights
from ninfer.engine.programs.footprint import memory_needs
from ninfer.engine.programs.form import Form, Tree
from ninfer.engine.programs.per_layer import PerLayer
from ninfer.engine.programs.stacked import Stacked, load_stacked, matrix_shapes, stacked_shapes
from ninfer.engine.programs.stacked.footprint import stacked_needs
from ninfer.engine.programs.stacked.weights import Packed
from ninfer.engine.types import EngineLimits, KvDtype

_NEVER_SPLIT = "prompt keys are never split"

KERNEL_LAYOUT = "fragment"
"""The layout that kernels read as it is."""


class FormError(ValueError):
    """A model that cannot run as it was asked to. One line for the user."""


class Named(Protocol):
    """Something with a name."""

    @property
    def name(self) -> str:
        """The name."""
        ...


class StoredTensor(Protocol):
    """How a tensor is stored."""

    @property
    def format(self) -> Named:
        """Its numeric format."""
        ...

    @property
    def layout(self) -> Named:
        """Its layout."""
        ...


class StoredModel(Protocol):
    """An open artifact."""

    @property
    def tensors(self) -> Mapping[str, StoredTensor]:
        """Records by logical name."""
        ...

    def packed(self, name: str) -> Packed:
        """A matrix as it is stored."""
        ...

    def read(self, name: str) -> NDArray[np.float32]:
        """A tensor as numbers."""
        ...


@attrs.frozen(kw_only=True)
class FormPlan:
    """A form that is chosen and not loaded yet."""

    name: Literal["stacked", "per layer"]
    needs: MemoryNeeds
    splitting: str
    """What prompt attention does with the keys of a short chunk, for people"""
    open: Callable[[], Form]
    """Blocks for as long as the weights take, unless there is a `load`"""
    load: Callable[[], Tree] | None = None
    """The weights, where the form is made of their shapes alone: what they take, programs can be compiled in"""


def plan_form(
    config: TextConfig,
    stored: StoredModel,
    limits: EngineLimits,
    *,
    kv_dtype: KvDtype,
    split_workspace_bytes: int = DEFAULT_SPLIT_WORKSPACE_BYTES,
    on_gpu: bool | None = None,
) -> FormPlan:
    """Choose, and say what it needs. `on_gpu` is the default device's kind unless given.

    split_workspace_bytes: what a launch of prompt attention may take to split keys; the per-layer form never splits.

    Raises:
        FormError: `kv_dtype` is for the stacked form only.
    """
    if on_gpu is None:
        on_gpu = jax.default_backend() == "gpu"
    if not on_gpu or not is_packed(config, stored):
        if kv_dtype != "bf16":
            where = "an artifact converted with a recipe for kernels" if on_gpu else "a GPU"
            raise FormError(f"--kv-dtype {kv_dtype}: needs {where}; keys and values are float32 here")
        return FormPlan(
            name="per layer",
            needs=memory_needs(config, lanes=limits.lanes),
            splitting=_NEVER_SPLIT,
            open=lambda: PerLayer(config, load_weights(config, stored.read)),
        )

    def formats(name: str) -> str:
        return stored.tensors[name].format.name

    needs = stacked_needs(
        config,
        formats,
        kv_format=kv_dtype,
        lanes=limits.lanes,
        table_pages=pages_for(limits.max_context_tokens),
        chunk_tokens=limits.prefill_chunk_tokens,
    )
    bound = split_bound_bytes(kv_dtype, split_workspace_bytes)
    return FormPlan(
        name="stacked",
        needs=needs,
        splitting=f"prompt keys are split within {bound >> 20} MiB" if bound else _NEVER_SPLIT,
        open=lambda: Stacked(config, stacked_shapes(config, formats), kv_format=kv_dtype, split_workspace_bytes=bound),
        load=lambda: load_stacked(config, stored),
    )


def is_packed(config: TextConfig, stored: StoredModel) -> bool:
    """Whether every matrix of the trunk and the head is stored in the order that kernels read."""
    names = matrix_shapes(config)
    return all(name in stored.tensors and stored.tensors[name].layout.name == KERNEL_LAYOUT for name in names)


def split_bound_bytes(kv_dtype: KvDtype, asked_bytes: int) -> int:
    """What a launch may take to split keys stored as `kv_dtype`: bf16 has its own bound, whatever is asked for."""
    return DEFAULT_SPLIT_WORKSPACE_BYTES if kv_dtype == "bf16" else asked_bytes
