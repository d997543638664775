"""A running server as `ninfer chat` sees it: which models it has, and answers as they come.

It speaks Chat Completions over httpx and knows neither the terminal nor the conversation. Invariant: an answer that is
not read to its end is closed, and the server stops working on it.
"""

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Literal, TypeAlias

import attrs
import httpx

CONNECT_S = 5.0
SILENCE_S = 60.0
"""A server that works sends something every five seconds."""

Message: TypeAlias = Mapping[str, str]


class ServerSaid(Exception):
    """The server cannot be used, or has refused or failed; the text is one line for the user."""


@attrs.frozen(kw_only=True)
class Piece:
    """A part of an answer."""

    text: str = ""
    channel: Literal["answer", "reasoning"] = "answer"
    finish_reason: str | None = None
    """On the last piece of a whole answer."""


class ChatServer:
    """One server under a base URL, with or without /v1. Use it as a block."""

    def __init__(self, url: str, *, api_key: str | None = None, transport: httpx.BaseTransport | None = None) -> None:
        """`transport` stands in for the network in tests."""
        self.url = url.rstrip("/").removesuffix("/v1")
        try:
            self._client = httpx.Client(
                base_url=f"{self.url}/v1/",
                headers={} if api_key is None else {"authorization": f"Bearer {api_key}"},
                timeout=httpx.Timeout(SILENCE_S, connect=CONNECT_S),
                trust_env=False,  # a proxy from the environment knows nothing of this machine's loopback
                transport=transport,
            )
        except httpx.InvalidURL as error:
            raise ServerSaid(f"{url}: {error}") from error
        except UnicodeEncodeError as error:
            raise ServerSaid("--api-key: a header carries ASCII only") from error

    def __enter__(self) -> "ChatServer":
        """Open the connections."""
        self._client.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connections."""
        self._client.__exit__(kind, error, traceback)

    def models(self) -> Sequence[str]:
        """The ids of all models.

        Raises:
            ServerSaid: there is no such server, or it refuses.
        """
        try:
            answer = self._client.get("models")
            if answer.is_error:
                raise ServerSaid(f"{self.url}: {_refusal(answer)}")
            return [str(model["id"]) for model in answer.json()["data"]]
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            hint = "start one with `python -m ninfer serve`, or say with --url where it is"
            raise ServerSaid(f"{self.url}: no server answers ({error}); {hint}") from error
        except httpx.HTTPError as error:
            raise ServerSaid(f"{self.url}: {error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise ServerSaid(f"{self.url}: what answers there is no such server") from error

    def answer(
        self, model: str, messages: Sequence[Message], fields: Mapping[str, object] | None = None
    ) -> Generator[Piece, None, None]:
        """The answer to a conversation, piece by piece. `fields` are further members of the request.

        Raises:
            ServerSaid: the request was refused, or the answer broke off.
        """
        body = {"model": model, "messages": list(messages), "stream": True, **(fields or {})}
        try:
            with self._client.stream("POST", "chat/completions", json=body) as answer:
                if answer.is_error:
                    answer.read()
                    raise ServerSaid(_refusal(answer))
                yield from _pieces(answer.iter_lines())
        except httpx.HTTPError as error:
            raise ServerSaid(f"the connection is lost: {error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise ServerSaid("what answers there is no such server") from error


def _pieces(lines: Iterator[str]) -> Iterator[Piece]:
    """What the events of a stream hold, up to its end."""
    for line in lines:
        if not line.startswith("data: "):
            continue
        data = line.removeprefix("data: ")
        if data == "[DONE]":
            return
        chunk = json.loads(data)
        if "error" in chunk:
            raise ServerSaid(str(chunk["error"]["message"]))
        for choice in chunk["choices"]:
            delta = choice["delta"]
            if reasoning := delta.get("reasoning_content"):
                yield Piece(text=reasoning, channel="reasoning")
            if text := delta.get("content"):
                yield Piece(text=text)
            if reason := choice.get("finish_reason"):
                yield Piece(finish_reason=reason)
    raise ServerSaid("the answer broke off")


def _refusal(answer: httpx.Response) -> str:
    """The message of an error answer, or its status where there is none."""
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"{answer.status_code} {answer.reason_phrase}".strip()
