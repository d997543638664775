"""A model on a device: sized, loaded, compiled and running. Importing it imports JAX.

`serve` and `selftest` get the same device from here. Order: what is needed is compared with what is free, then the
weights are loaded while programs are compiled, then the pool gets its final size, once; beside all that small weights
are compared with their checksums. What the user can mend leaves as a `Failure` of one line.
"""

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import attrs
import trio

from ninfer.cli.checksums import MOST_BYTES_AT_START, compared
from ninfer.cli.failure import Failure
from ninfer.engine.artifact import Artifact
from ninfer.engine.cost_presets import ContextCosts, Presets, hardware_class, prefill_signature, resolve_costs
from ninfer.engine.engine import RunningEngine, open_engine
from ninfer.engine.memory import MIB, MemoryBudget, MemoryPlan, PoolRequest, TooLittleMemory
from ninfer.engine.model.config import TextConfig
from ninfer.engine.programs.footprint import device_kind, free_device_bytes, prepare_allocator
from ninfer.engine.programs.form import Tree
from ninfer.engine.programs.forms import FormError, plan_form
from ninfer.engine.programs.jax_device import JaxDevice
from ninfer.engine.types import PAGE_TOKENS, EngineLimits, KvDtype

log = logging.getLogger(__name__)


class ModelSource(Protocol):
    """What a device is made of."""

    @property
    def artifact(self) -> Artifact:
        """Where the weights are."""
        ...

    @property
    def config(self) -> TextConfig:
        """The model's shape, the process's YaRN factor included."""
        ...

    @property
    def limits(self) -> EngineLimits:
        """Lanes, chunk and context."""
        ...

    @property
    def pool(self) -> PoolRequest:
        """How much KV memory is wanted."""
        ...

    @property
    def presets(self) -> Presets | None:
        """Measured context costs of the user."""
        ...

    @property
    def kv_dtype(self) -> KvDtype:
        """How keys and values are stored."""
        ...

    @property
    def split_workspace_bytes(self) -> int:
        """What one launch of prompt attention may take to split keys."""
        ...

    @property
    def decode_ahead_of_time(self) -> bool:
        """False lets JAX dispatch decode rounds call by call."""
        ...

    @property
    def used_tokens(self) -> int:
        """Vocabulary rows that stand for a token."""
        ...

    @property
    def program_cache(self) -> Path:
        """Private folder for compiled programs."""
        ...


@attrs.frozen(kw_only=True)
class LoadedModel:
    """A device that is ready to be prepared, which compiles its programs and may load its weights."""

    device: JaxDevice
    limits: EngineLimits
    """With the KV memory that was planned; the device has the last word."""
    budget: MemoryBudget
    costs: ContextCosts


def load_model(
    source: ModelSource,
    free_bytes: Callable[[], int | None] = free_device_bytes,
    progress: Callable[[str, int, int], None] | None = None,
) -> LoadedModel:
    """Compare need and have, then load the weights, unless the device does that. Blocks for as long as it takes.

    progress: told what the device prepares, how much is done and of how much; without it the log is.

    Raises:
        Failure: too little memory; nothing has been loaded then.
    """
    prepare_allocator()
    config, limits = source.config, source.limits
    try:
        form = plan_form(
            config,
            source.artifact,
            limits,
            kv_dtype=source.kv_dtype,
            split_workspace_bytes=source.split_workspace_bytes,
        )
        log.info("form: %s; %s", form.name, form.splitting)
        budget = MemoryBudget(form.needs, source.pool, free_bytes)
    except FormError as error:
        raise Failure(str(error)) from error
    except TooLittleMemory as error:
        raise Failure(f"{error}; less is needed with {_remedies(source.pool)}") from error
    device = JaxDevice(
        form.open(),
        lanes=limits.lanes,
        total_pages=budget.plan.pages,
        prefill_chunk_tokens=limits.prefill_chunk_tokens,
        max_context_tokens=limits.max_context_tokens,
        used_tokens=source.used_tokens,
        compile_cache=source.program_cache,
        progress=progress or _log_progress,
        fit=budget.settle,
        decode_ahead_of_time=source.decode_ahead_of_time,
        load=None if form.load is None else partial(_load, form.load),
    )
    return LoadedModel(
        device=device,
        limits=attrs.evolve(limits, kv_capacity_tokens=budget.plan.pages * PAGE_TOKENS),
        budget=budget,
        costs=context_costs(source),
    )


@asynccontextmanager
async def open_model_engine(source: ModelSource) -> AsyncIterator[RunningEngine]:
    """The engine over a loaded model; entering waits until it is ready, and tells what everything takes.

    Raises:
        Failure: too little memory, or weights that are not what was written.
    """
    async with AsyncExitStack() as stack:
        with compared(source.artifact, most_bytes=MOST_BYTES_AT_START) as comparison:
            # In a thread, so that a signal ends the start at once; abandoned, it ends with the process.
            loaded = await trio.to_thread.run_sync(partial(load_model, source), abandon_on_cancel=True)
            comparison.look()  # what is damaged is often known before programs are compiled
            log.info("%s", loaded.costs.record())
            engine = await _opened(stack, loaded, source)
            await trio.to_thread.run_sync(comparison.wait, abandon_on_cancel=True)
        log_memory(loaded.budget.plan)
        yield engine


async def _opened(stack: AsyncExitStack, loaded: LoadedModel, source: ModelSource) -> RunningEngine:
    try:
        return await stack.enter_async_context(open_engine(loaded.device, loaded.limits))
    except TooLittleMemory as error:
        raise Failure(f"{error}; less is needed with {_remedies(source.pool)}") from error


def context_costs(source: ModelSource) -> ContextCosts:
    """The context costs of this device and model."""
    formats = {name: record.format.name for name, record in source.artifact.tensors.items()}
    return resolve_costs(
        hardware_class(*device_kind()),
        prefill_signature(source.config, formats=formats),
        source.presets,
    )


def log_memory(plan: MemoryPlan) -> None:
    """The startup table, and a warning where compiled programs took more than was set aside for them (KV-011)."""
    log.info("memory:")
    for line in plan.table():
        log.info("  %s", line)
    if plan.graphs_used_bytes > plan.needs.graphs_bytes:
        log.warning(
            "compiled programs took %d MiB of device memory, %d MiB were set aside for them",
            plan.graphs_used_bytes // MIB,
            plan.needs.graphs_bytes // MIB,
        )


def _remedies(pool: PoolRequest) -> str:
    if pool.least_pages < pool.most_pages or pool.headroom_bytes:
        return "a smaller --max-context, --max-concurrency or --vram-headroom-mib"
    return "a smaller --kv-capacity or --max-concurrency"


def _load(load: Callable[[], Tree]) -> Tree:
    begin_s = time.monotonic()
    weights = load()
    log.info("weights are loaded, in %.1f s", time.monotonic() - begin_s)
    return weights


def _log_progress(name: str, done: int, total: int) -> None:
    log.info("preparing the device: %s (%d of %d)", name, done, total)
