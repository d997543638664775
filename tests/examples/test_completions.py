"""The example plugin, installed as a distribution of its own and driven through a server."""

import importlib
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import httpx
import openai
import pytest
import trio

from ninfer.protocols.plugin import ENTRY_POINT_GROUP
from ninfer.protocols.registry import RouteConflict, load_protocols
from ninfer.testing import CARD, FakeHost, running_server, script
from tests.examples.installing import EXAMPLES, install, on_the_path, run_own_tests


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example in it."""
    target = tmp_path_factory.mktemp("site")
    install("ninfer_completions", target)
    return target


@pytest.fixture(scope="module")
def installed(site: Path) -> Iterator[list[EntryPoint]]:
    """The example's entry point and Chat's."""
    with on_the_path("ninfer_completions", site) as found:
        yield [*entry_points(group=ENTRY_POINT_GROUP, name="openai_chat"), *found]


def test_it_is_small() -> None:
    assert len((EXAMPLES / "ninfer_completions/ninfer_completions.py").read_text().splitlines()) < 100


def test_its_own_tests_pass(site: Path, tmp_path: Path) -> None:
    run_own_tests("ninfer_completions", site, tmp_path, "test_completions.py")


async def test_it_answers_on_its_own_path_beside_chat(installed: list[EntryPoint]) -> None:
    host = FakeHost(steps=script("Once", " upon", reasoning=["hm"]))
    protocols = load_protocols(host, found=installed)
    assert [protocol.name for protocol in protocols] == ["legacy_completions", "openai_chat"]
    async with (
        running_server(host, protocols) as server,
        httpx.AsyncClient(base_url=server.base_url, trust_env=False) as http,
    ):
        body = {"model": CARD.id, "prompt": "Tell", "max_tokens": 9, "seed": 4}
        answer = await http.post("/v1/completions", json=body)
        assert answer.status_code == 200
        assert answer.json()["choices"][0] == {
            "index": 0, "text": "Once upon", "logprobs": None, "finish_reason": "stop",
        }  # fmt: skip
        assert (host.requests[0].turns[0].text, host.requests[0].max_output_tokens) == ("Tell", 9)
        assert (await http.post("/v1/v1/completions", json=body)).status_code == 200
        wrong = await http.post("/v1/completions", json={**body, "temperature": "hot"})
        assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "temperature")
        assert wrong.headers["x-request-id"]
        chat = {"model": CARD.id, "messages": [{"role": "user", "content": "x"}]}
        assert (await http.post("/v1/chat/completions", json=chat)).status_code == 200


async def test_the_official_client_streams_from_it(installed: list[EntryPoint]) -> None:
    host = FakeHost(steps=script("Once", " upon"))
    async with running_server(host, load_protocols(host, found=installed)) as server:

        def complete() -> str:
            with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=0) as client:
                stream = client.completions.create(model=CARD.id, prompt="Tell", stream=True)
                return "".join(chunk.choices[0].text for chunk in stream)

        assert await trio.to_thread.run_sync(complete) == "Once upon"


def test_two_plugins_on_one_path_fail_the_start(installed: list[EntryPoint]) -> None:
    example = next(entry for entry in installed if entry.name == "legacy_completions")
    twin = EntryPoint("their_completions", "tests.examples.test_completions:Twin", ENTRY_POINT_GROUP)
    with pytest.raises(RouteConflict) as caught:
        load_protocols(FakeHost(), found=[example, twin])
    for name in ("POST /v1/completions", "legacy_completions", "their_completions"):
        assert name in str(caught.value)


def Twin(host: object) -> object:
    """Another plugin that claims the example's path."""
    protocol = importlib.import_module("ninfer_completions").LegacyCompletions(host)

    class Renamed:
        name = "their_completions"
        request_id_header = protocol.request_id_header
        routes = staticmethod(protocol.routes)
        error = staticmethod(protocol.error)
        stream_error = staticmethod(protocol.stream_error)

    return Renamed()
