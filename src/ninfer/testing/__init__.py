"""A kit for authors of protocols: a host that plays scripts, requests without sockets, a server on loopback, judges.

    host = FakeHost(steps=script("Hel", "lo"))
    answer = await post_json(create_app(host, [EchoLines(host)]), "/v1/echo", {"text": "Hello"})

The server's own tests use it. Provisional: names may still change in any version. It needs nothing beyond what the
server needs, and nothing of it runs in a server; time may be Trio's autojump clock.
"""

from ninfer.server.app import create_app
from ninfer.server.settings import ServerSettings
from ninfer.testing.host import CARD, FakeHost, Step, call_made, finished, script
from ninfer.testing.order import OutOfOrder, check_order
from ninfer.testing.requests import ASGIAnswer, asgi_call, json_lines, post_json, sse_data
from ninfer.testing.samples import error_samples, generations
from ninfer.testing.server import RunningServer, running_server, until

__all__ = [
    "CARD",
    "ASGIAnswer",
    "FakeHost",
    "OutOfOrder",
    "RunningServer",
    "ServerSettings",
    "Step",
    "asgi_call",
    "call_made",
    "check_order",
    "create_app",
    "error_samples",
    "finished",
    "generations",
    "json_lines",
    "post_json",
    "running_server",
    "script",
    "sse_data",
    "until",
]
