"""A compile-only H200: what can be known of a GPU program on a machine without a GPU.

`lower_for_cuda` needs plain jax: does the program lower, and to how many kernels? `Target` needs the wheels of the CUDA
plugin (no driver, no toolkit): does it assemble for sm_90a, fit shared memory, alias its donated arrays, need
temporaries? `compile_apart` also tells what the runtime would launch. For tests and benches; knows arrays, not models.

What it cannot tell: speed, and the tiles of matrix products that XLA chooses by trying them on the device.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import jax
from jax.experimental import topologies
from jax.sharding import AbstractDevice, AbstractMesh, NamedSharding, PartitionSpec
from jax.typing import DTypeLike

# GpuTargetConfigProto in text form: the hardware facts of one H200 SXM.
H200 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32
  shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472 threads_per_core_limit: 2048
  core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  memory_bandwidth: 4800000000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 151397597184
  cuda_compute_capability { major: 9 feature_extension: ACCELERATED_FEATURES }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  device_vendor: "NVIDIA Corporation" platform_version: "Compute Capability 9.0a"
  device_address_bits: 64 ecc_enabled: true name: "NVIDIA H200"
  driver_version: "13.0.0" runtime_version: "13.0.0"
  compile_time_toolkit_version: "13.0.0" dnn_version: "9.10.0"
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 patch: 0 }
device_description_str: "NVIDIA H200"
"""

_Tree = TypeVar("_Tree")

STREAMING_MULTIPROCESSORS = 132

_FUNCTION = re.compile(r"^  func\.func \w+ @([\w.$-]+)\((.*?)^  }$", re.MULTILINE | re.DOTALL)
_NOT_KERNELS = ("kCommandBuffer", "kSequential", "kWhile", "kConditional", "kCopyDone", "kWaitForStreams")
_THUNK = re.compile(r"^(?P<indent>\s*)\d+: (?P<kind>k\w+)\b[^\]]*\]?\s*(?P<name>[\w.$-]*)")
_COMPILE_IN_CHILD = """
import importlib, sys
from kernels_pallas.target import Target, alias_bytes, temp_bytes
module, _, name = sys.argv[1].partition(":")
compiled = getattr(importlib.import_module(module), name)(Target())
print(alias_bytes(compiled), temp_bytes(compiled))
"""


class Target:
    """One H200 that compiles and runs nothing. `missing_plugin` tells beforehand whether it can be made.

    Raises RuntimeError (of jax) where the wheels of the CUDA plugin are not installed.
    """

    def __init__(self) -> None:
        topology = topologies.get_topology_desc(platform="cuda", target_config=H200, topology="1x1x1")
        self.mesh = topologies.make_mesh(topology, (1,), ("x",))

    def spec(self, shape: Sequence[int], dtype: DTypeLike, memory_kind: str | None = None) -> jax.ShapeDtypeStruct:
        """An argument that lies on this device: what `compile` takes in the place of an array."""
        sharding = NamedSharding(self.mesh, PartitionSpec(), memory_kind=memory_kind)
        return jax.ShapeDtypeStruct(tuple(shape), dtype, sharding=sharding)

    def like(self, tree: _Tree) -> _Tree:
        """The same tree with every array or ShapeDtypeStruct in it turned into a `spec` of this device."""
        placed: _Tree = jax.tree.map(lambda leaf: self.spec(leaf.shape, leaf.dtype), tree)
        return placed

    def compile(self, fn: Callable[..., object], *specs: object, **static: object) -> jax.stages.Compiled:
        """`fn` (jitted with what it donates, or plain) for arguments of these `specs`; assembled, never run."""
        # The abstract mesh tells Pallas which GPU it is lowering for.
        with jax.sharding.use_abstract_mesh(self.mesh.abstract_mesh):
            return _jitted(fn).lower(*specs, **static).compile()


def missing_plugin() -> str | None:
    """Why there can be no `Target` here, in one line; None where there can."""
    try:
        Target()
    except Exception as error:  # jax raises whatever its plugin loader met
        return f"no compile-only H200: {(str(error).splitlines() or [type(error).__name__])[0]}"
    return None


def lower_for_cuda(fn: Callable[..., object], *shapes: object, **static: object) -> jax.stages.Lowered:
    """Lower `fn` for an H200 without any plugin. `shapes` are arrays or ShapeDtypeStructs, or trees of them."""
    device = AbstractDevice("NVIDIA H200", STREAMING_MULTIPROCESSORS, "gpu")
    with jax.sharding.use_abstract_mesh(AbstractMesh((1,), ("x",), abstract_device=device)):
        lowered: jax.stages.Lowered = _jitted(fn).trace(*shapes, **static).lower(lowering_platforms=("cuda",))
        return lowered


def count_kernels(lowered: jax.stages.Lowered) -> Counter[str]:
    """How often one run calls each Pallas kernel, by its name; a loop's body counts once, XLA's own kernels never.

    A Mosaic kernel has no name in the program and is counted as "mosaic".
    """
    text = lowered.as_text()
    bodies = {match[1]: match[2] for match in _FUNCTION.finditer(text)}
    return _calls_of("main", bodies)


def _calls_of(function: str, bodies: Mapping[str, str]) -> Counter[str]:
    """Kernels of one function of the lowered program and of those that it calls: jitted parts are shared functions."""
    found: Counter[str] = Counter()
    for line in bodies[function].splitlines():
        if called := re.search(r"\bcall @([\w.$-]+)\(", line):
            found += _calls_of(called[1], bodies)
        elif "custom_call @mosaic_gpu" in line:
            found["mosaic"] += 1
        elif "custom_call @__gpu$xla.gpu.triton" in line:
            name = re.search(r'[ {]name = "([^"]*)"', line)
            found[name[1] if name else "triton"] += 1
    return found


def alias_bytes(compiled: jax.stages.Compiled) -> int:
    """Bytes of results that are written into donated arguments."""
    return _memory(compiled, "alias_size_in_bytes")


def temp_bytes(compiled: jax.stages.Compiled) -> int:
    """Bytes of device memory that one run needs beside its arguments and results: a hidden copy shows here."""
    return _memory(compiled, "temp_size_in_bytes")


def _memory(compiled: jax.stages.Compiled, kind: str) -> int:
    analysis = compiled.memory_analysis()
    if analysis is None:
        raise NotImplementedError("this backend tells nothing about the memory of its programs")
    return int(getattr(analysis, kind))


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """What a compilation in a process of its own left behind."""

    thunks: list[str]
    """What the runtime would launch, one line a thunk; what a command buffer holds is indented below it"""
    alias_bytes: int
    temp_bytes: int


def compile_apart(entry: str, program: str, *, timeout_s: float = 600.0) -> Compiled:
    """Compile in a process of its own: XLA is told where to dump only once in a process's life.

    `entry` is "module:function" of a function that compiles with the `Target` it is given and returns the compilation;
    `program` is the name of the jitted function in it.

    Raises:
        RuntimeError: it did not compile; with the end of what the process said.
    """
    with tempfile.TemporaryDirectory() as folder:
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={folder}".strip()
        done = subprocess.run(
            [sys.executable, "-c", _COMPILE_IN_CHILD, entry],
            env=_child_environment(XLA_FLAGS=flags),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{entry} did not compile: {done.stderr[-2000:]}")
        alias, temp = done.stdout.split()[-2:]
        return Compiled(thunks=read_thunks(Path(folder), program), alias_bytes=int(alias), temp_bytes=int(temp))


def _child_environment(**changed: str) -> Mapping[str, str]:
    """This process's environment for a child that finds the same modules and touches no device."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path, **changed}


def read_thunks(dump: Path, program: str) -> list[str]:
    """The thunk lines of `program` in a folder that `--xla_dump_to` has filled.

    Falls back to the sequence before XLA's passes over it, which is all there is when nothing was captured.
    """
    for tail in ("thunk_sequence_after_thunk_passes.txt", "thunk_sequence.txt"):
        found = sorted(dump.glob(f"*.jit_{program}.{tail}"))
        if found:
            lines = found[-1].read_text(encoding="utf-8").splitlines()
            return [re.sub(r"\s+grid:.*", "", line.rstrip()) for line in lines if line.strip()]
    raise FileNotFoundError(f"{dump} has no thunks of jit_{program}")


def launches(lines: Sequence[str]) -> Counter[str]:
    """How often each kernel (or copy, or memset) is launched by the thunk lines, by its name in XLA."""
    found: Counter[str] = Counter()
    for line in lines:
        match = _THUNK.match(line)
        if match and match["kind"] not in _NOT_KERNELS:
            found[match["name"] or match["kind"]] += 1
    return found


def command_buffers(lines: Sequence[str]) -> int:
    """How many CUDA graphs the thunk lines hold."""
    return sum(1 for line in lines if (match := _THUNK.match(line)) and match["kind"] == "kCommandBuffer")


def outside_command_buffers(lines: Sequence[str]) -> list[str]:
    """Names of what is launched by itself, not from a CUDA graph: empty in a good decode step."""
    return [
        match["name"] or match["kind"]
        for line in lines
        if (match := _THUNK.match(line)) and not match["indent"] and match["kind"] not in _NOT_KERNELS
    ]


def _jitted(fn: Callable[..., object]) -> jax.stages.Wrapped:
    return fn if isinstance(fn, jax.stages.Wrapped) else jax.jit(fn)
