"""Finds the protocols that are installed and refuses what cannot be served together.

Built-in protocols and third parties come the same way: the entry-point group `ninfer.protocols`. It knows the
plugin interface, no protocol in particular. Invariant: what `load_protocols` returns can be mounted as it is.
"""

import itertools
import re
from collections.abc import Collection, Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from ninfer.protocols.mounting import BrokenProtocol, check_protocol, described, routes_of
from ninfer.protocols.plugin import ENTRY_POINT_GROUP, Protocol, ProtocolFactory
from ninfer.service.host import ProtocolHost


class ProtocolLoadError(Exception):
    """A protocol cannot be loaded, or there is none of the name that was asked for."""


class RouteConflict(Exception):
    """Two owners claim one method and path."""


def load_protocols(
    host: ProtocolHost, *, names: Collection[str] | None = None, found: Iterable[EntryPoint] | None = None
) -> tuple[Protocol, ...]:
    """Construct the protocols called `names` (None: all that are installed), in the order of their names.

    Raises:
        ProtocolLoadError: a name is unknown or given by two distributions, or a protocol does not load or is broken.
        RouteConflict: two of them claim one method and path.
    """
    points = sorted(entry_points(group=ENTRY_POINT_GROUP) if found is None else found, key=lambda point: point.name)
    for one, other in itertools.pairwise(points):
        if one.name == other.name and one.value != other.value:
            raise ProtocolLoadError(
                f"two distributions register the protocol {one.name}: {_owner(one)} and {_owner(other)}"
            )
    by_name = {point.name: point for point in points}
    unknown = sorted(set(names or ()) - set(by_name))
    if unknown:
        raise ProtocolLoadError(f"no protocol {unknown[0]} is installed; there are: {', '.join(by_name) or 'none'}")
    chosen = [point for name, point in by_name.items() if names is None or name in names]
    protocols = tuple(_construct(point, host) for point in chosen)
    check_routes(protocols)
    return protocols


def check_routes(protocols: Sequence[Protocol], *, reserved: Iterable[tuple[str, str]] = ()) -> None:
    """Refuse two claims of one method and path, whatever their placeholders are called.

    Raises:
        BrokenProtocol: a route cannot be mounted.
        RouteConflict: the message names both claimants.
    """
    owners = {(method, _shape(path)): "the server itself" for method, path in reserved}
    for protocol in protocols:
        for route in routes_of(protocol):
            claim = (route.method.upper(), _shape(route.path))
            if claim in owners:
                raise RouteConflict(
                    f"{claim[0]} {route.path} is claimed twice: by {owners[claim]} and by the protocol {protocol.name}"
                )
            owners[claim] = f"the protocol {protocol.name}"


def _shape(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", path)


def _construct(point: EntryPoint, host: ProtocolHost) -> Protocol:
    try:
        protocol = cast(ProtocolFactory, point.load())(host)
    except (Exception, SystemExit) as error:
        raise ProtocolLoadError(
            f"the protocol {point.name} of {_owner(point)} does not load: {described(error)}"
        ) from error
    try:
        check_protocol(protocol)
        if protocol.name != point.name:
            raise BrokenProtocol(protocol, f"its entry point calls it {point.name}")
    except BrokenProtocol as error:
        raise ProtocolLoadError(f"{error}; it comes from {_owner(point)}, entry point {point.name}") from error
    return protocol


def _owner(point: EntryPoint) -> str:
    return f"the distribution {point.dist.name}" if point.dist else f"{point.value}"
