"""Ollama's protocol, installed as a distribution of its own: its own tests, and its place beside ours."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

from ninfer.protocols.plugin import ENTRY_POINT_GROUP
from ninfer.protocols.registry import load_protocols
from ninfer.testing import CARD, FakeHost, asgi_call, create_app, json_lines, post_json
from tests.examples.installing import EXAMPLES, install, on_the_path, run_own_tests

NAME = "ninfer_ollama"
LINES = 246
"""Of the whole module, blank lines and all. It may become less."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example in it."""
    target = tmp_path_factory.mktemp("site")
    install(NAME, target)
    return target


@pytest.fixture
def installed(site: Path) -> Iterator[list[EntryPoint]]:
    """The example's entry point and ours."""
    with on_the_path(NAME, site) as found:
        yield [*entry_points(group=ENTRY_POINT_GROUP), *found]


def test_its_lines_are_counted() -> None:
    assert len((EXAMPLES / NAME / f"{NAME}.py").read_text().splitlines()) <= LINES


def test_its_own_tests_pass(site: Path, tmp_path: Path) -> None:
    """Without the real client, which is asked in tests/examples/test_fresh.py."""
    run_own_tests(NAME, site, tmp_path, "test_ollama.py")


async def test_it_is_served_beside_the_others(installed: list[EntryPoint]) -> None:
    host = FakeHost()
    app = create_app(host, load_protocols(host, found=installed))
    body = {"model": CARD.id, "messages": [{"role": "user", "content": "Hi"}]}
    lines = json_lines((await post_json(app, "/api/chat", body)).body)
    assert [line["message"]["content"] for line in lines] == ["Hello", ""]
    assert (await post_json(app, "/v1/chat/completions", body)).status == 200
    unknown = await asgi_call(app, "GET", "/api/pull")
    assert (unknown.status, unknown.json()) == (404, {"error": "GET /api/pull: not found"})
    document = (await asgi_call(app, "GET", "/openapi.json")).json()
    answers = document["paths"]["/api/chat"]["post"]["responses"]
    assert set(answers["200"]["content"]) == {"application/json", "application/x-ndjson"}
    assert answers["default"]["content"]["application/json"]["schema"]["required"] == ["error"]
    assert "ninfer_ollama.ChatBody" in document["components"]["schemas"]
