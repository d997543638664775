"""Names under which other servers take grammars and schemas: refused by all protocols, with the name that is ours."""

import pytest

from ninfer.protocols.registry import load_protocols
from ninfer.server.app import create_app
from ninfer.testing import CARD, FakeHost, post_json

SAID = [{"role": "user", "content": "Hi"}]
ROUTES: dict[str, dict[str, object]] = {
    "/v1/chat/completions": {"messages": SAID},
    "/v1/responses": {"input": "Hi"},
    "/v1/responses/input_tokens": {"input": "Hi"},
    "/v1/messages": {"messages": SAID, "max_tokens": 10},
    "/v1/messages/count_tokens": {"messages": SAID},
}
NAMES: dict[str, object] = {
    "grammar": "root ::= x",
    "guided_json": {"type": "object"},
    "guided_regex": "a+",
    "guided_choice": ["a", "b"],
    "guided_grammar": "root ::= x",
    "guided_decoding_backend": "auto",
}


@pytest.mark.contract("D11")
@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("name", NAMES)
async def test_other_names_of_constraints_point_at_ours(path: str, name: str) -> None:
    host = FakeHost()
    app = create_app(host, load_protocols(host))
    body = {"model": CARD.id, **ROUTES[path]}
    assert (await post_json(app, path, body)).status == 200
    asked = len(host.requests)
    answer = await post_json(app, path, {**body, name: NAMES[name]})
    error = answer.json()["error"]
    assert answer.status == 400
    assert error["message"].startswith(f"{name}: ")
    assert "is not supported: output is constrained through structured_outputs" in error["message"]
    assert error.get("param", name) == name
    assert error.get("code", "unsupported_parameter") == "unsupported_parameter"
    assert len(host.requests) == asked, "nothing is generated"
