"""The connections that are open, and how many may be: a newcomer beyond that takes the place of one that only waits.

Connections are cheap to open, and idle ones live long, so one program could take all of them. An address has no limit
of its own, because local users share one address with each other and with every proxy. Room is made by the address with
the most connections: the one that has waited longest for a request, or for the rest of one, is closed. It knows no
HTTP.

Invariant: a connection with a complete request never makes room for others.
"""

import logging
from collections import Counter

import trio

from ninfer.server.client_connection import ClientConnection
from ninfer.server.sockets import most_connections

log = logging.getLogger(__name__)

QUIET_S = 60
"""Time between two records that say that there is no room."""


class OpenConnections:
    """The open connections of one server."""

    def __init__(self, most: int | None = None) -> None:
        """`most` may be open at once; None: as many as the process has descriptors for."""
        self._most = most_connections() if most is None else most
        self._open: dict[trio.SocketStream, ClientConnection] = {}
        self._waiting = trio.lowlevel.ParkingLot()
        self._quiet_until = 0.0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def streams(self) -> frozenset[trio.SocketStream]:
        """What is open now."""
        return frozenset(self._open)

    def add(self, connection: ClientConnection, stream: trio.SocketStream) -> bool:
        """Take an accepted connection in; false if there is no room, and none could be made."""
        if len(self._open) >= self._most and not self.make_room():
            return False
        self._open[stream] = connection
        return True

    def discard(self, stream: trio.SocketStream) -> None:
        """A connection that is closed. Idempotent."""
        self._open.pop(stream, None)
        self._waiting.unpark_all()

    def make_room(self) -> bool:
        """Close one connection that only waits; false if there is none."""
        self._tell()
        crowd = Counter(connection.address for connection in self._open.values())
        idle = [(stream, connection) for stream, connection in self._open.items() if connection.takes_in]
        if not idle:
            return False
        victim, _ = max(idle, key=lambda one: (crowd[one[1].address], -one[1].since_s))
        victim.socket.close()  # a task that waits in it wakes with an error
        self.discard(victim)
        return True

    async def wait_until_none(self) -> None:
        """Return when no connection is open."""
        await trio.lowlevel.checkpoint()
        while self._open:
            await self._waiting.park()

    def close_all(self) -> None:
        """Close every socket: a task that waits in one, shielded or not, wakes with an error."""
        for stream in tuple(self._open):
            stream.socket.close()

    def _tell(self) -> None:
        now_s = trio.current_time()
        if now_s >= self._quiet_until:
            log.warning(
                "all %d connections are in use: those that have waited longest for a request are closed", len(self)
            )
            self._quiet_until = now_s + QUIET_S
