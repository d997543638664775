"""Finding protocols, and refusing what cannot be served together."""

from collections.abc import Sequence
from importlib.metadata import EntryPoint

import attrs
import pytest

from ninfer.conversation import RequestError
from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.protocols.openai_errors import openai_error, openai_stream_error
from ninfer.protocols.plugin import Call, Route, WireError
from ninfer.protocols.registry import ProtocolLoadError, RouteConflict, check_routes, load_protocols
from ninfer.service.host import ProtocolHost
from ninfer.testing import FakeHost

GROUP = "ninfer.protocols"
CHAT = EntryPoint("openai_chat", "ninfer.protocols.openai_chat:OpenAIChat", GROUP)


@attrs.frozen
class Rival:
    """A protocol that claims Chat's path."""

    host: ProtocolHost
    name: str = "rival"
    request_id_header: str = "x-request-id"
    path: str = "/v1/chat/completions"

    def routes(self) -> Sequence[Route]:
        return (Route("POST", self.path, self.handle),)

    async def handle(self, call: Call) -> None:
        await call.reply({})

    def error(self, error: RequestError, request_id: str) -> WireError:
        return openai_error(error)

    def stream_error(self, error: RequestError, request_id: str) -> bytes:
        return openai_stream_error(error)


class Broken:
    """A protocol that does not come up."""

    def __init__(self, host: ProtocolHost) -> None:
        raise RuntimeError("no luck")


RIVAL = EntryPoint("rival", f"{__name__}:Rival", GROUP)


def test_the_installed_protocols_are_found() -> None:
    assert "openai_chat" in [protocol.name for protocol in load_protocols(FakeHost())]


def test_protocols_can_be_left_out() -> None:
    assert [protocol.name for protocol in load_protocols(FakeHost(), names=["rival"], found=[CHAT, RIVAL])] == ["rival"]
    assert load_protocols(FakeHost(), names=[], found=[CHAT, RIVAL]) == ()
    with pytest.raises(ProtocolLoadError, match="no protocol openai_chat2 is installed; there are: openai_chat, rival"):
        load_protocols(FakeHost(), names=["openai_chat2"], found=[RIVAL, CHAT])


def test_two_claims_of_one_path_name_both() -> None:
    with pytest.raises(RouteConflict, match=r"POST /v1/chat/completions .*protocol openai_chat .*protocol rival"):
        load_protocols(FakeHost(), found=[RIVAL, CHAT])


@pytest.mark.parametrize(("path", "reserved"), [("/health", "/health"), ("/v1/models/{name}", "/v1/models/{id}")])
def test_the_servers_own_paths_cannot_be_claimed(path: str, reserved: str) -> None:
    with pytest.raises(RouteConflict, match="the server itself and by the protocol rival"):
        check_routes([Rival(FakeHost(), path=path)], reserved=[("POST", reserved)])


def test_one_path_with_two_methods_is_no_conflict() -> None:
    check_routes([OpenAIChat(FakeHost())], reserved=[("GET", "/v1/chat/completions")])


@pytest.mark.parametrize("value", [f"{__name__}:Broken", f"{__name__}:Missing", "no_such_module:X"])
def test_a_protocol_that_fails_to_load_is_named(value: str) -> None:
    with pytest.raises(ProtocolLoadError, match=f"the protocol broken of {value.replace('.', '[.]')} does not load"):
        load_protocols(FakeHost(), found=[CHAT, EntryPoint("broken", value, GROUP)])


def test_one_name_from_two_distributions_is_refused() -> None:
    with pytest.raises(ProtocolLoadError, match="two distributions register the protocol rival"):
        load_protocols(FakeHost(), found=[RIVAL, EntryPoint("rival", f"{__name__}:Broken", GROUP)])
