"""What an exception out of a unit of work means for the engine (LIFE-022 to LIFE-027).

Foreign errors are told apart by what they say, not by importing who raises them: the worker runs without JAX too.
"""

import enum

from ninfer.engine.types import DeviceLost, EngineError, EngineStopped, UnitFailed


class Fault(enum.Enum):
    """The kinds of failure."""

    OUT_OF_MEMORY = "out of memory"
    FAILED_CHECK = "failed check"
    DEVICE = "device error"
    CRASH = "crash"


_DEVICE_ERRORS = frozenset({"JaxRuntimeError", "XlaRuntimeError"})


def classify(error: Exception) -> tuple[Fault, EngineError]:
    """The kind of `error` and how requests learn of it; an `EngineStopped` where the engine cannot go on."""
    text = str(error) or type(error).__name__
    if isinstance(error, DeviceLost):
        return Fault.DEVICE, error
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text:
        return Fault.OUT_OF_MEMORY, UnitFailed(text, out_of_memory=True)
    if isinstance(error, AssertionError):
        return Fault.FAILED_CHECK, UnitFailed(text)
    if any(base.__name__ in _DEVICE_ERRORS for base in type(error).__mro__):
        return Fault.DEVICE, DeviceLost(f"the device failed: {text}")
    return Fault.CRASH, EngineStopped(f"the worker crashed: {text}")
