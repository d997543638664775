"""How an engine's failure looks to the caller. Internal failures stay internal (ERR-006)."""

from ninfer.conversation import ContextExceeded, EngineUnavailable, InternalError, RequestError
from ninfer.engine.types import CapacityExceeded, EngineError, EngineStarting, EngineStopped, UnitFailed


def as_request_error(error: EngineError) -> RequestError:
    """The request error that says what `error` means to its caller."""
    if isinstance(error, CapacityExceeded):
        return ContextExceeded(f"the request does not fit the memory of this server: {error}")
    if isinstance(error, EngineStarting):
        return EngineUnavailable(f"{error}; try again in a few seconds")
    if isinstance(error, EngineStopped):
        return EngineUnavailable("the engine has stopped; the server has to be started again")
    if isinstance(error, UnitFailed) and error.out_of_memory:
        return EngineUnavailable("the device ran out of memory in this request's work", code="engine_out_of_memory")
    return InternalError("a check failed in this request's work; the server goes on")
