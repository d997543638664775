"""`python -m ninfer serve`: options, the order of the start, signals, and the order of the end.

Start: options are refused before anything is read, the address is taken before the model is loaded, and the ready
line comes when /health would answer 200. End: requests first, then connections, then the engine.
"""

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import trio
from cyclopts import Parameter
from rich.console import Console

from ninfer.cli.access_key import api_key, record_access
from ninfer.cli.converting import progress_bar, terminated_cleanly
from ninfer.cli.failure import Failure
from ninfer.cli.logs import log_to_stderr
from ninfer.cli.options import FLAT, KernelOptions, ServeOptions
from ninfer.cli.unbuilt import UnbuiltOptions
from ninfer.demo import artifact_file

log = logging.getLogger(__name__)

_DEFAULTS = ServeOptions()
_NOTHING_UNBUILT = UnbuiltOptions()


def serve(
    artifact: Annotated[
        Path | None,
        Parameter(
            help="A .ninfer file, a Hugging Face folder or the id of a downloaded model; without it the embedded model."
        ),
    ] = None,
    /,
    *,
    options: Annotated[ServeOptions, FLAT] = _DEFAULTS,
    unbuilt: Annotated[UnbuiltOptions, FLAT] = _NOTHING_UNBUILT,
) -> None:
    """Serve a model over HTTP until SIGTERM or Ctrl+C."""
    if conflict := options.kernels.conflict(options.capacity.kv_dtype):
        raise Failure(conflict)
    unbuilt.refuse(options.capacity.kv_dtype)
    log_to_stderr(options.logs.log_level)
    record_kernels(options.kernels)
    network = options.network
    key = api_key(network, os.environ)
    path = artifact or embedded_artifact()

    # Imported here, so that `--help` and bad usage answer at once.
    from ninfer.cli.assembly import open_house
    from ninfer.cli.running import run_house
    from ninfer.server.sockets import open_listener, raise_descriptor_limit

    raise_descriptor_limit()
    try:
        listener = open_listener(network.host, network.port)
    except OSError as error:
        raise Failure(f"--host {network.host} --port {network.port}: {error.strerror}") from error
    except (TypeError, UnicodeError) as error:
        raise Failure(f"--host {network.host}: not the name of a host") from error
    with listener:
        record_access(network, listener.getsockname()[0], key)
        with terminated_cleanly(), progress_bar(Console(stderr=True)) as report:
            house = open_house(path, options, report)
        with house.artifact:
            end = trio.run(run_house, house, listener, options, key)
    log.info("server stopped")
    if end.in_start:
        # A thread that the interpreter kills inside the compiler takes the process down with it.
        sys.stderr.flush()
        os._exit(end.status)
    if end.status:
        sys.exit(end.status)


def record_kernels(kernels: KernelOptions) -> None:
    """Say of each choice between kernels that was made that there is none (D16)."""
    for option in kernels.without_effect:
        log.info("%s changes nothing: prompt attention has one kernel for each KV format in this build", option)


def embedded_artifact() -> Path:
    """The demonstration model that the package carries (D19).

    Raises:
        Failure: this installation carries none.
    """
    path = artifact_file()
    if not path.is_file():
        raise Failure("name an artifact to serve: this installation has no embedded model")
    return path
