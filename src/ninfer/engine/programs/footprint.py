"""What the device has free, and what a model needs of it: the figures that a memory budget is made of.

Shapes are traced, nothing is allocated. On the GPU what is free is what both the allocator may still take and the
driver can still give, so neighbours count (D42). On the CPU, where JAX knows no limit, it is what the system calls
available, within the limit of a container. Decides nothing.
"""

import ctypes
import math
import os
from functools import partial
from pathlib import Path

import jax

from ninfer.engine.memory import MemoryNeeds, program_allowance_bytes
from ninfer.engine.model.config import TextConfig
from ninfer.engine.model.shapes import tensor_shapes
from ninfer.engine.programs.steps import zero_memory
from ninfer.engine.programs.stored_weights import padding_parameters
from ninfer.engine.types import PAGE_TOKENS

_WEIGHT_BYTES = 4
_MEMINFO = Path("/proc/meminfo")
_CONTAINER_LIMITS = (
    # cgroup v2, then v1: limit, and what is used of it
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)


def prepare_allocator() -> None:
    """Let XLA take device memory as it is needed, nearly up to all of it. Only before the first use of a device.

    By default XLA takes three quarters at once, which leaves a quarter unused and gives neighbours nothing.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.95")


def device_kind() -> tuple[str, str | None]:
    """What the default device calls itself, and its compute capability where it has one."""
    device = jax.devices()[0]
    return device.device_kind, getattr(device, "compute_capability", None)


def free_device_bytes() -> int | None:
    """Bytes that the default device can still give; None where nobody knows."""
    device = jax.devices()[0]
    if device.platform == "cpu":
        return host_available_bytes()
    stats: dict[str, int] | None = device.memory_stats()
    if stats is None or "bytes_limit" not in stats:
        return None
    in_use = stats.get("bytes_in_use", 0)
    allowed = stats["bytes_limit"] - in_use
    driver = _driver_free_bytes(device.local_hardware_id or 0)
    return allowed if driver is None else min(allowed, driver + stats.get("pool_bytes", in_use) - in_use)


def host_available_bytes(
    *, meminfo: Path = _MEMINFO, limits: tuple[tuple[Path, Path], ...] = _CONTAINER_LIMITS
) -> int | None:
    """Host memory that can be had without swapping, within the limit of a container; None where nobody says."""
    found: list[int] = [left for limit, used in limits if (left := _container_left(limit, used)) is not None]
    if meminfo.is_file():
        lines = (line.split() for line in meminfo.read_text().splitlines())
        found += [int(words[1]) * 1024 for words in lines if words[0] == "MemAvailable:"]
    return min(found, default=None)


def memory_needs(config: TextConfig, *, lanes: int) -> MemoryNeeds:
    """What `config` needs with `lanes` lanes, before anything is loaded or compiled."""
    sizes = jax.eval_shape(partial(zero_memory, config, pages=1, slots=lanes))
    pool, slots = (sizes.text.keys, sizes.text.values), (sizes.text.recurrent, sizes.text.conv)
    on_cpu = jax.devices()[0].platform == "cpu"
    parameters = sum(math.prod(shape) for shape in tensor_shapes(config).values())
    if on_cpu:
        parameters += padding_parameters(config)
    if on_cpu and config.tie_word_embeddings:  # the head is a matrix of its own there
        parameters += config.vocab_size * config.hidden_size
    return MemoryNeeds(
        weights_bytes=parameters * _WEIGHT_BYTES,
        slots_bytes=_bytes(slots),
        counts_bytes=_bytes(sizes.counts) + _bytes(sizes.last_token),
        workspace_bytes=estimated_workspace_bytes(config, lanes=lanes),
        graphs_bytes=0 if on_cpu else program_allowance_bytes(decode=lanes, prefill=1, layers=config.num_layers),
        page_bytes=max(1, _bytes(pool)),
    )


def estimated_workspace_bytes(config: TextConfig, *, lanes: int) -> int:
    """What the most demanding program allocates while it runs, before it is compiled: rows and states in float32.

    Measured programs take between a third of this and all of it; `MemoryBudget.settle` corrects it.
    """
    heads, matrix = config.linear_num_value_heads, config.linear_key_head_dim * config.linear_value_head_dim
    attention = config.num_attention_heads * config.head_dim
    row = 4 * config.hidden_size + 3 * config.intermediate_size + 3 * config.conv_channels + 6 * attention
    tile = PAGE_TOKENS * row + heads * (8 * PAGE_TOKENS * PAGE_TOKENS + 4 * matrix)
    rows = max(2, lanes)
    round_ = rows * (row + 3 * heads * matrix + 4 * PAGE_TOKENS * attention)
    return 4 * (max(tile, round_) + 4 * rows * config.vocab_size)


def _bytes(tree: object) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _container_left(limit: Path, used: Path) -> int | None:
    try:
        most, taken = limit.read_text().strip(), used.read_text().strip()
    except OSError:
        return None
    if not (most.isdigit() and taken.isdigit()) or int(most) > 1 << 60:  # "max", or v1's way to say it
        return None
    return max(0, int(most) - int(taken))


def _driver_free_bytes(ordinal: int) -> int | None:
    """What the CUDA driver has left on a device; None without one."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, context = ctypes.c_int(), ctypes.c_void_p()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), ordinal):
        return None
    if cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device):
        return None
    try:
        if cuda.cuCtxPushCurrent_v2(context):
            return None
        failed = cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        cuda.cuCtxPopCurrent_v2(ctypes.byref(context))
        return None if failed else free.value
    finally:
        cuda.cuDevicePrimaryCtxRelease_v2(device)
