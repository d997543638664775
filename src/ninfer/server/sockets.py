"""Listening sockets of our own, because what is set on them is inherited by every accepted connection.

The web server has no hook on accepted sockets. TCP keepalive finds dead peers of silent connections, and
TCP_USER_TIMEOUT bounds every write: a peer that stops reading is cut once all buffers have been full for 15 s.
"""

import resource
import socket

KEEPALIVE_IDLE_S = 5
KEEPALIVE_INTERVAL_S = 5
KEEPALIVE_PROBES = 3
USER_TIMEOUT_MS = 15_000
BACKLOG = 1024
"""Connections that may wait to be accepted; what comes beyond tries again after a second."""
DESCRIPTORS = 1 << 16
OWN_DESCRIPTORS = 256
"""Most descriptors that the process has open besides its connections."""
MOST_CONNECTIONS = 2048
"""Each connection takes tens of kilobytes, and a local server needs no more of them."""


def open_listener(host: str, port: int) -> socket.socket:
    """A non-blocking TCP socket that listens; port 0 lets the system choose.

    It listens from here on, because several sockets can be bound to an address until one of them listens.
    Connections that come before `serve` wait in the backlog.

    Raises:
        OSError: the address is not available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for name, value in (
            ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
            ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
            ("TCP_KEEPCNT", KEEPALIVE_PROBES),
            ("TCP_USER_TIMEOUT", USER_TIMEOUT_MS),  # Linux; elsewhere keepalive alone has to do
        ):
            if hasattr(socket, name):
                listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def listener_url(listener: socket.socket) -> str:
    """The base URL under which a listener of `open_listener` answers."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def raise_descriptor_limit() -> None:
    """Let the process have as many descriptors as it may: the usual soft limit of 1,024 is for programs of old."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def most_connections() -> int:
    """How many connections the descriptors of this process are enough for."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(1, min(MOST_CONNECTIONS, soft - OWN_DESCRIPTORS))
