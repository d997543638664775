"""Everything at once over real sockets: random sizes, departures and faults, eight lanes, and too little memory.

Each request ends as it may end, says what it should as far as it came, and leaves nothing behind: pages, slots, places,
tasks, connections and descriptors are those of before.
"""

import json
import os
import random
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress

import attrs
import pytest
import trio

from ninfer.engine.engine import RunningEngine
from ninfer.engine.scripted import open_scripted_engine
from ninfer.engine.types import EngineFigures, EngineLimits
from ninfer.prompt import PromptBuilder
from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.service import SamplerRules, Service, ServiceSettings, ThinkingRules
from ninfer.testing import CARD, RunningServer, running_server, until
from tests.fuzz.house import reply_tokens
from tests.prompt.tiny import template, tokenizer

LANES, PENDING, PAGES = 8, 8, 16
"""One request may take all pages; eight average ones need twice as many as there are."""
UNIT_S = 0.0005
"""Long enough that the clients, not the units, are what the server waits for: all lanes are taken."""
CLIENTS = LANES + PENDING + 2
"""Two more than there are places."""
LIMITS = EngineLimits(max_context_tokens=1024, lanes=LANES, kv_capacity_tokens=PAGES * 64, prefill_chunk_tokens=128)


@attrs.frozen(kw_only=True)
class Asked:
    """One request, and how it may end."""

    text: str
    max_tokens: int
    stream: bool
    thinks: bool
    leaves_after_bytes: int | None
    """The client goes when it has read so much; None if it reads to the end."""
    says: str | None
    """The answer if nothing ends it before; None for one that fails."""


FAULTS = ("err", "err:oom", "err:lost", "miderr")


def make_request(number: int, chance: random.Random) -> Asked:
    """Long and short prompts, long and short answers, one in eight with a fault, one in five abandoned."""
    word = f"w{chance.randrange(10**6)}"
    pad = chance.choice([0, 5, 30, 100])
    fault = FAULTS[number // 8 % len(FAULTS)] if number % 8 == 3 else None
    filler = "x" * chance.choice([0, 50, 300, 700, chance.randint(0, 900)])
    directives = [f"[[say:{word}]]", f"[[pad:{pad}]]", *([f"[[{fault}]]"] if fault else [])]
    thinks = chance.random() < 0.3
    return Asked(
        text=f"{filler} {' '.join(['[[think]]', *directives] if thinks else directives)}",
        max_tokens=chance.choice([1, 10, 60, 250, 600]),
        stream=chance.random() < 0.7,
        thinks=thinks,
        leaves_after_bytes=chance.choice([0, 1, 300, 2000]) if chance.random() < 0.2 else None,
        says=None if fault else word + " lorem" * pad,
    )


@attrs.frozen(kw_only=True)
class House:
    """The house in which it happens."""

    server: RunningServer
    service: Service
    engine: RunningEngine


@asynccontextmanager
async def open_house() -> AsyncIterator[House]:
    words = tokenizer()
    async with open_scripted_engine(words, LIMITS, unit_s=UNIT_S) as engine:
        service = Service(
            engine=engine,
            preparer=PromptBuilder(words, template()),
            reply_tokens=reply_tokens(words),
            stop_tokens=words.stop_tokens,
            model=CARD,
            sampler=SamplerRules(architecture="none"),
            settings=ServiceSettings(max_pending_requests=PENDING, pending_timeout_s=60.0),
            thinking=ThinkingRules.of(words, default_tokens=8, message=" Enough."),
        )
        async with running_server(service, [OpenAIChat(service)]) as server:
            yield House(server=server, service=service, engine=engine)


async def ask(house: House, asked: Asked) -> bytes | None:
    """All that the server answers, or None if the client has left before."""
    body = {
        "model": CARD.id,
        "messages": [{"role": "user", "content": asked.text}],
        "max_tokens": asked.max_tokens,
        "stream": asked.stream,
        "chat_template_kwargs": {"enable_thinking": asked.thinks},
    }
    content = json.dumps(body).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
    whole = f"{head}content-length: {len(content)}\r\n\r\n".encode() + content
    async with aclosing(await trio.open_tcp_stream(*house.server.address)) as wire:
        await wire.send_all(whole)
        received = b""
        while asked.leaves_after_bytes is None or len(received) < asked.leaves_after_bytes:
            part = await wire.receive_some()
            if not part:
                return received
            received += part
    return None


def outcome_of(asked: Asked, received: bytes | None) -> str:
    """How the request has ended, after all checks."""
    if received is None:
        return "left"
    status = int(received.split(b" ", 2)[1])
    codes = [found.decode() for found in re.findall(rb'"code": ?"([a-z_]+)"', received)]
    if status != 200 or codes:
        assert len(codes) == 1, received
        if status == 429:
            assert codes == ["server_overloaded"]
        elif status == 400:
            assert codes[0] in ("context_length_exceeded", "thinking_budget_capacity_insufficient")
        else:
            # The memory that a fault takes away is nobody else's failure.
            assert asked.says is None, received
            assert status in (200, 500, 503)
            assert codes[0] in ("internal_error", "engine_out_of_memory")
        return codes[0]
    if asked.stream:
        assert received.count(b"data: [DONE]") == 1, received
    data = re.findall(rb"^data: (\{.*\})\r?$", received, re.MULTILINE)
    bodies = data if asked.stream else [received[received.index(b"{") :]]
    choices = [json.loads(body)["choices"][0] for body in bodies]
    said = "".join(choice.get("delta", choice.get("message")).get("content") or "" for choice in choices)
    (reason,) = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    if asked.says is not None:
        assert said == asked.says if reason == "stop" else asked.says.startswith(said)
    assert reason in ("stop", "length")
    return reason


def owned(house: House) -> dict[str, int]:
    """What requests may own, at this moment."""
    figures: EngineFigures = house.engine.figures()
    return {
        "free pages": figures.free_pages,
        "free slots": figures.free_slots,
        "unfinished": figures.waiting_requests + figures.resident_requests + figures.paused_requests,
        "places": house.service.capacity.taken,
        "calls": len(house.server.running),
        "connections": len(house.server.connections),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "tasks": trio.lowlevel.current_statistics().tasks_living,
    }


async def chaos(seed: int, requests: int) -> tuple[Counter[str], EngineFigures]:
    """Run so many requests; what came of them, and the engine's figures afterwards."""
    chance = random.Random(seed)
    waiting = iter([make_request(number, chance) for number in range(requests)])
    seen: Counter[str] = Counter()
    async with open_house() as house:
        await trio.testing.wait_all_tasks_blocked()
        before = owned(house)

        async def client() -> None:
            for asked in waiting:
                while (outcome := outcome_of(asked, await ask(house, asked))) == "server_overloaded":
                    seen["refused"] += 1
                    await until(lambda: house.service.capacity.taken < house.service.capacity.places)
                seen[outcome] += 1

        with trio.fail_after(60 + requests / 5):
            async with trio.open_nursery() as nursery:
                for _ in range(CLIENTS):
                    nursery.start_soon(client)
        with suppress(trio.TooSlowError):
            await until(lambda: owned(house) == before)
        assert owned(house) == before
        assert house.engine.failure is None
        return seen, house.engine.figures()


def check(seen: Counter[str], figures: EngineFigures, requests: int) -> None:
    assert seen.total() - seen["refused"] == requests
    assert figures.pauses > requests / 100
    assert figures.recoveries > requests / 30
    assert figures.losses > requests / 100
    assert figures.forced_tokens > 0
    for outcome in ("stop", "length", "left", "refused", "internal_error", "engine_out_of_memory"):
        assert seen[outcome] > 0, seen


@pytest.mark.contract("LIFE-022", "EXEC-006", "EXEC-007", "SCHED-010")
async def test_chaos() -> None:
    seen, figures = await chaos(1, 300)
    check(seen, figures, 300)


@pytest.mark.slow
async def test_long_chaos() -> None:
    seen, figures = await chaos(2, 2000)
    check(seen, figures, 2000)
