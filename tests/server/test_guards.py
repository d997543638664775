"""Who is refused before a body is read: foreign and malformed hosts, and web pages of other sites."""

import json
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from ninfer.protocols.anthropic_messages import AnthropicMessages
from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.protocols.openai_responses import OpenAIResponses
from ninfer.server.app import create_app
from ninfer.server.hosts import LOOPBACK_NAMES, Host, host_name, is_loopback, read_host, read_origin
from ninfer.server.settings import ServerSettings
from ninfer.testing import CARD, ASGIAnswer, FakeHost, asgi_call

CHAT = "/v1/chat/completions"
BODY = json.dumps({"model": CARD.id, "messages": [{"role": "user", "content": "Hi"}]}).encode()
HOST = "127.0.0.1:8080"
JSON = ("content-type", "application/json")


def application(**settings: Any) -> Any:
    host = FakeHost()
    protocols = (OpenAIChat(host), OpenAIResponses(host), AnthropicMessages(host))
    return create_app(host, protocols, settings=ServerSettings(**{"allowed_hosts": LOOPBACK_NAMES, **settings}))


# Hosts


@pytest.mark.contract("D43")
@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LocalHost:8080", 200),
        ("127.0.0.1:1", 200),
        ("127.0.0.1:", 200),
        ("[::1]:8080", 200),
        ("[0:0::1]", 200),
        ("evil.example", 403),
        ("evil.example:8080", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.", 403),
        ("127.1", 403),
        ("2130706433", 403),
        ("[::2]", 403),
        ("localhost:8080:1", 400),
        ("[::1].evil.com", 400),
        ("[::1]evil.com", 400),
        ("[::1", 400),
        ("[localhost]", 400),
        ("::1", 400),
        ("", 400),
        (":8080", 400),
        ("127.0.0.1:\u00b2", 400),
        ("localhost:99999", 400),
        ("localhost:+80", 400),
        ("localhost@evil.example", 400),
        ("http://localhost", 400),
        ("local host", 400),
        ("a..b", 400),
        (".", 400),
        ("localhost..", 400),
        ("a" * 63, 403),
        ("a" * 64, 400),
        ("xn--" + "a" * 60, 400),
        (".".join(["a" * 60] * 5), 400),
        ("\u00fc.example", 400),
    ],
)
@pytest.mark.parametrize("key", [None, "k"])
async def test_hosts(host: str, status: int, key: str | None) -> None:
    app = application(api_key=key, allowed_hosts=LOOPBACK_NAMES if key is None else None)
    headers = [("host", host.encode().decode("latin-1")), ("x-api-key", "k")]
    if key is not None and status == 403:
        status = 200  # a key keeps foreign pages out already
    for method, path in (("GET", "/v1/models"), ("POST", CHAT), ("POST", "/v1/messages"), ("GET", "/none")):
        answer = await asgi_call(app, method, path, BODY, headers=headers)
        if status == 200:
            assert answer.status == (404 if path == "/none" else 200)
        else:
            assert answer.status == status, path
            error = answer.json()["error"]
            code = error["details"]["error_code"] if "messages" in path else error["code"]
            assert code == ("invalid_host" if status == 400 else "forbidden_host")
            assert answer.headers["request-id" if "messages" in path else "x-request-id"]


async def test_a_request_names_one_host() -> None:
    headers = [("host", "localhost"), ("host", "localhost")]
    assert (await asgi_call(application(), "GET", "/health", headers=headers)).status == 400


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a:80", "a"), ("[fe80::1]", "fe80::1"), ("::1", "::1"), (" A ", "a"), ("a:b", None), ("", None), ("a/b", None)
    ],
)  # fmt: skip
def test_host_names(text: str, name: str | None) -> None:
    assert host_name(text) == name


@given(st.text(st.sampled_from("aZ0.-_:[]@/%²ü \t"), max_size=12))
def test_a_host_is_read_the_same_when_it_is_written_again(text: str) -> None:
    host = read_host(text)
    if host is not None:
        port = "" if host.port is None else f":{host.port}"
        assert read_host(f"[{host.name}]{port}" if ":" in host.name else f"{host.name}{port}") == host


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("Localhost", True),
     ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("127.evil.example", False)],
)  # fmt: skip
def test_loopback(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback


# Odd heads


ODD = [
    "",
    "\x80\xff",
    "a" * 5000,
    '()<>@,;:\\"/[]?={}',
    "\t",
    "=?utf-8?q?=00?=",
    "-1",
    "1e9",
    "gzip, br",
    "100-continue,",
]
NAMED = ["accept", "authorization", "x-api-key", "content-type", "content-encoding", "cookie", "origin", "expect",
         "te", "user-agent", "x-forwarded-host", "forwarded", "range", "if-match", "date", "referer",
         "sec-fetch-site"]  # fmt: skip


@pytest.mark.contract("ERR-001", "HTTP-009")
@pytest.mark.parametrize("name", NAMED)
async def test_no_header_makes_a_fault_of_ours(name: str) -> None:
    app = application()
    for value in ODD:
        headers = [("host", "localhost"), (name, value.encode("latin-1").decode("latin-1"))]
        for method, path in (("GET", "/v1/models"), ("POST", CHAT), ("GET", "/none")):
            answer = await asgi_call(app, method, path, BODY if method == "POST" else b"", headers=headers)
            assert answer.status < 500, value
            assert answer.headers["content-type"] == "application/json"
            assert answer.headers["x-request-id"]


# Pages of other sites

OWN = [
    # what a browser, or none, says of where a request is from
    (),
    (("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate")),
    (("sec-fetch-site", "same-origin"),),
    (("origin", "http://127.0.0.1:8080"),),
    (("origin", "http://localhost:8080"), ("sec-fetch-site", "cross-site")),
    (("origin", "http://[::1]:8080"),),
    (("origin", "https://proxy.example"), ("sec-fetch-site", "same-origin")),  # a proxy of ours names another host
    # applications: no page of a site has such a scheme
    (("origin", "vscode-file://vscode-app"), ("sec-fetch-site", "cross-site")),
    (("origin", "vscode-webview://1a2b"), ("sec-fetch-site", "cross-site")),
    (("origin", "app://obsidian.md"),),
    (("origin", "tauri://localhost"), ("sec-fetch-site", "cross-site")),
    (("origin", "chrome-extension://abcdef"), ("sec-fetch-site", "cross-site")),
    (("origin", "moz-extension://abcdef"),),
    (("origin", "file://"),),
]
FOREIGN = [
    (("origin", "https://evil.example"),),
    (("origin", "http://evil.example:8080"), ("sec-fetch-site", "cross-site")),
    (("origin", "http://localhost:3000"), ("sec-fetch-site", "same-site")),  # another program of this machine
    (("origin", "http://127.0.0.1"),),
    (("origin", "https://127.0.0.1"),),
    (("origin", "http://127.0.0.1:8080.evil.example"),),
    (("origin", "http://127.0.0.1:8080@evil.example"),),
    (("origin", "http://[::1].evil.example:8080"),),
    (("origin", "null"),),
    (("origin", ""),),
    (("origin", "evil.example"),),
    (("origin", "http://127.0.0.1:8080"), ("origin", "https://evil.example")),
    (("sec-fetch-site", "cross-site"),),
    (("sec-fetch-site", "same-site"),),
    (("sec-fetch-site", "something-new"),),
    (("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")),
    (("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")),
]
ASKED = [("GET", "/v1/models"), ("GET", "/health"), ("GET", "/v1/responses/resp_1"), ("POST", CHAT),
         ("POST", "/v1/responses"), ("POST", "/v1/messages"), ("DELETE", "/v1/responses/resp_1"),
         ("OPTIONS", CHAT)]  # fmt: skip


async def ask(app: Any, method: str, path: str, *headers: tuple[str, str]) -> ASGIAnswer:
    body = BODY if method == "POST" else b""
    typed = (JSON, ("content-length", str(len(body)))) if body else ()
    return await asgi_call(app, method, path, body, headers=[("host", HOST), *typed, *headers])


def code_of(answer: ASGIAnswer) -> str | None:
    error = answer.json().get("error", {}) if answer.body else {}
    return error.get("code") or error.get("details", {}).get("error_code")


@pytest.mark.contract("D43")
@pytest.mark.parametrize("headers", FOREIGN, ids=str)
@pytest.mark.parametrize(("method", "path"), ASKED)
async def test_pages_of_other_sites_are_refused(method: str, path: str, headers: tuple[tuple[str, str], ...]) -> None:
    answer = await ask(application(), method, path, *headers)
    assert (answer.status, code_of(answer)) == (403, "forbidden_origin")
    # Who asks for a key, or lets every page in by --cors, does not ask where a request is from.
    for settings in ({"api_key": "k"}, {"cors": True}, {"cors": True, "api_key": "k"}):
        answer = await ask(application(**settings), method, path, ("x-api-key", "k"), *headers)
        assert answer.status != 403


@pytest.mark.parametrize("headers", OWN, ids=str)
@pytest.mark.parametrize(("method", "path"), ASKED)
async def test_what_is_no_foreign_page_is_answered(
    method: str, path: str, headers: tuple[tuple[str, str], ...]
) -> None:
    assert (await ask(application(), method, path, *headers)).status not in (403, 415)


async def test_a_link_can_be_followed_here() -> None:
    link = (("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document"))
    assert (await ask(application(), "GET", "/v1/models", *link)).status == 200
    assert (await ask(application(), "POST", CHAT, *link)).status == 403  # a form


async def test_names_that_are_added_are_this_server() -> None:
    app = application(allowed_hosts=LOOPBACK_NAMES | {"box.local"})
    for host, origin, status in (
        ("box.local", "https://box.local", 200),  # TLS ends at a proxy
        ("box.local:8080", "http://localhost:8080", 200),
        ("box.local", "https://other.local", 403),
    ):
        assert (await asgi_call(app, "GET", "/health", headers=[("host", host), ("origin", origin)])).status == status
    # Where every host may be named, a page is ours if it is at the host that it names.
    app = application(allowed_hosts=None)
    for origin, status in (
        ("http://10.0.0.9:8080", 200),
        ("http://localhost:8080", 403),
        ("http://10.0.0.8:8080", 403),
    ):
        headers = [("host", "10.0.0.9:8080"), ("origin", origin)]
        assert (await asgi_call(app, "GET", "/health", headers=headers)).status == status


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("application/problem+json", 200),
        ("text/plain", 415),
        ("text/plain; application/json", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("application/jsonp", 415),
        (None, 415),
    ],
)
async def test_a_browser_says_that_it_sends_json(kind: str | None, status: int) -> None:
    typed = [] if kind is None else [("content-type", kind)]
    plain = [("host", HOST), ("content-length", str(len(BODY))), *typed]
    assert (await asgi_call(application(), "POST", CHAT, BODY, headers=plain)).status == 200  # curl -d sends a form
    for said in (("origin", "http://127.0.0.1:8080"), ("sec-fetch-site", "same-origin"), ("origin", "app://x.example")):
        answer = await asgi_call(application(), "POST", CHAT, BODY, headers=[*plain, said])
        assert answer.status == status
        if status == 415:
            assert code_of(answer) == "unsupported_media_type"


async def test_a_foreign_body_is_refused_before_it_is_read(autojump_clock: trio.testing.MockClock) -> None:
    headers = [("host", HOST), ("content-type", "text/plain"), ("origin", "https://a.example")]
    answer = await asgi_call(application(), "POST", CHAT, b"{", headers=headers, unfinished=True)
    assert (answer.status, code_of(answer)) == (403, "forbidden_origin")


@pytest.mark.parametrize(
    ("text", "app", "host"),
    [
        ("https://A.example", False, Host("a.example")),
        ("http://[::1]:80", False, Host("::1", 80)),
        ("app://x", True, Host("x")),
        ("file://", True, None),
        ("null", False, None),
        ("https:evil", False, None),
        ("://x", False, None),
    ],
)
def test_origins(text: str, app: bool, host: Host | None) -> None:
    origin = read_origin(text)
    assert (origin.is_app, origin.host) == (app, host)
