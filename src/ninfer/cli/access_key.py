"""The API key of `serve`: one, from one place.

Every user who can list the processes of this machine can read `--api-key`, so a file or the environment can hold the
key instead. An option overrides the environment; both options together are refused. It knows no HTTP beyond what a
header can carry.
"""

import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from ninfer.cli.failure import Failure
from ninfer.cli.options import NetworkOptions, is_header_key
from ninfer.server.hosts import is_loopback

log = logging.getLogger(__name__)

VARIABLE = "NINFER_API_KEY"
_MOST_BYTES = 1 << 13


def api_key(network: NetworkOptions, environment: Mapping[str, str]) -> str | None:
    """The key that requests have to carry; None asks for none.

    Raises:
        Failure: both options are given, the file cannot be read, or no header could carry what is there.
    """
    if network.api_key is not None and network.api_key_file is not None:
        raise Failure("--api-key and --api-key-file: give only one of them")
    if network.api_key is not None:
        return network.api_key
    if network.api_key_file is not None:
        return _checked(_first_line(network.api_key_file), f"--api-key-file {network.api_key_file}")
    key = environment.get(VARIABLE)
    return None if key is None else _checked(key, VARIABLE)


def _first_line(path: Path) -> str:
    """What a file of one line holds."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_MOST_BYTES + 1)
        text = content.decode()
    except OSError as error:
        raise Failure(f"--api-key-file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Failure(f"--api-key-file {path}: not UTF-8") from error
    if len(content) > _MOST_BYTES:
        raise Failure(f"--api-key-file {path}: larger than {_MOST_BYTES} bytes; it holds the key on one line")
    if stat.S_ISREG(mode) and mode & stat.S_IROTH:
        log.warning("--api-key-file %s: every user of this machine can read it", path)
    return text.removesuffix("\n").removesuffix("\r")


def _checked(key: str, source: str) -> str:
    if not is_header_key(key):
        raise Failure(f"{source}: expected a key without white space around it")
    return key


def record_access(network: NetworkOptions, address: str, key: str | None) -> None:
    """Warn where a server bound to `address` has no key and is reachable from other machines or from web pages."""
    if key is not None:
        return
    if not is_loopback(address):
        log.warning("no key: every program that reaches %s can use this server; --api-key-file asks for a key", address)
    if network.cors:
        log.warning("--cors without a key: every web page opened on this machine can use this server")
