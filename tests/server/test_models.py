"""/health and the model routes."""

import attrs
import pytest

from ninfer.server.app import create_app
from ninfer.testing import CARD, FakeHost, asgi_call

ENTRY = {
    "id": "lab/tiny model",
    "object": "model",
    "created": 1_700_000_000,
    "owned_by": "ninfer",
    "max_model_len": 4096,
    "meta": {
        "n_vocab": 256,
        "n_ctx": 4096,
        "n_ctx_train": 262144,
        "n_embd": 64,
        "n_params": 123_456,
        "size": 246_912,
        "ftype": "bf16",
    },
}


@pytest.mark.contract("HTTP-007")
async def test_health_says_whether_work_is_accepted() -> None:
    host = FakeHost()
    app = create_app(host, [])
    answer = await asgi_call(app, "GET", "/health")
    assert (answer.status, answer.json()) == (200, {"status": "ok"})
    host.accepts_work = False
    answer = await asgi_call(app, "GET", "/health")
    assert (answer.status, answer.json()) == (503, {"status": "unavailable"})


@pytest.mark.contract("HTTP-005")
async def test_health_has_no_second_path() -> None:
    app = create_app(FakeHost(), [])
    assert (await asgi_call(app, "GET", "/v1/health")).status == 404
    assert (await asgi_call(app, "GET", "/v1/v1/health")).status == 404


@pytest.mark.contract("MODELS-011", "MODELS-002", "HTTP-004")
@pytest.mark.parametrize("path", ["/v1/models", "/v1/v1/models"])
async def test_the_list(path: str) -> None:
    answer = await asgi_call(create_app(FakeHost(), []), "GET", path)
    assert (answer.status, answer.json()) == (200, {"object": "list", "data": [ENTRY]})


@pytest.mark.contract("MODELS-004", "MODELS-005")
async def test_the_context_is_the_instances_own() -> None:
    host = FakeHost(model=attrs.evolve(CARD, max_context_tokens=1000))
    (entry,) = (await asgi_call(create_app(host, []), "GET", "/v1/models")).json()["data"]
    assert (entry["max_model_len"], entry["meta"]["n_ctx"], entry["meta"]["n_ctx_train"]) == (1000, 1000, 262144)


@pytest.mark.contract("MODELS-010")
@pytest.mark.parametrize("path", ["/v1/models/lab/tiny model", "/v1/v1/models/lab/tiny model"])
async def test_the_one_model(path: str) -> None:
    answer = await asgi_call(create_app(FakeHost(), []), "GET", path)
    assert (answer.status, answer.json()) == (200, ENTRY)


@pytest.mark.contract("MODELS-010", "ERR-034")
@pytest.mark.parametrize("name", ["tiny model", "lab/", "lab//tiny model", "LAB/tiny model", "é", "x" * 3000])
async def test_any_other_model_is_unknown(name: str) -> None:
    answer = await asgi_call(create_app(FakeHost(), []), "GET", f"/v1/models/{name}")
    assert answer.status == 404
    error = answer.json()["error"]
    assert (error["code"], error["param"], error["type"]) == ("model_not_found", "model", "invalid_request_error")
