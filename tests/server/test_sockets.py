"""Listening sockets: whose an address is, and from when on."""

import errno
import socket

import pytest

from ninfer.server.sockets import listener_url, open_listener


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_an_address_is_taken_before_anybody_serves_on_it(address: str) -> None:
    """Another server learns of it here, and not when it has loaded its model."""
    with open_listener(address, 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(OSError, match="in use") as refused:
            open_listener("127.0.0.1", port)
        assert refused.value.errno == errno.EADDRINUSE


def test_a_client_that_comes_before_the_server_waits() -> None:
    with open_listener("127.0.0.1", 0) as listener:
        with socket.create_connection(listener.getsockname(), timeout=5) as client:
            accepted, address = listener.accept()
            accepted.close()
            assert address == client.getsockname()
        assert listener_url(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_the_address_of_a_server_that_has_ended_is_free_at_once() -> None:
    """A connection that the server closed first lingers in the system for a minute."""
    with open_listener("127.0.0.1", 0) as listener:
        address = listener.getsockname()
        with socket.create_connection(address, timeout=5) as client:
            listener.accept()[0].close()
            assert client.recv(1) == b""
    open_listener(*address).close()
