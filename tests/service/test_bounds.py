"""What is bounded: waiting, output that nobody reads, and the queue; and which clock a pause does not start again."""

import json
import threading

import pytest
import trio
import trio.testing

from ninfer.conversation import Event, Finished, FinishReason, Started, TextDelta
from ninfer.engine.engine import open_engine
from ninfer.engine.types import Finished as EngineFinished
from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.service import ServiceSettings
from ninfer.testing import CARD, running_server, until
from tests.fakes.device import FakeDevice
from tests.fakes.engine import limits, plan, prompt
from tests.fakes.service import choose_letter, open_service
from tests.service.test_service import request

HANG_S = 30


@pytest.mark.contract("EXEC-011")
async def test_a_pause_does_not_start_the_deadline_of_admission_again(mock_clock: trio.testing.MockClock) -> None:
    """The younger request is put out long after its deadline, and waits longer than that for its lane."""
    device = FakeDevice(total_pages=3, total_slots=2, choose=choose_letter, gate=threading.Semaphore(0))
    assert device.gate is not None
    heard: list[Event] = []
    async with open_service(device, lanes=2, settings=ServiceSettings(pending_timeout_s=5.0)) as house:

        async def hear(text: str, into: list[Event]) -> None:
            async with house.service.generate(request(text, limit=60)) as events:
                async for event in events:
                    into.append(event)

        async def one_unit() -> None:
            """Let the device finish one unit, so that nothing happens unseen."""
            read = reads()
            device.gate.release()  # type: ignore[union-attr]
            while reads() == read:  # Trio's clock stands still: nothing may sleep
                await trio.lowlevel.checkpoint()

        def reads() -> int:
            return sum(call.action == "read" for call in device.calls)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hear, "x" * 100, [])  # takes the third page at its 29th token
            while not house.engine.figures().resident_requests:
                await trio.lowlevel.checkpoint()
            nursery.start_soon(hear, "y", heard)
            while not any(isinstance(event, Started) for event in heard):
                await one_unit()
            mock_clock.jump(60.0)
            while not house.engine.figures().paused_requests:
                await one_unit()
            mock_clock.jump(60.0)
            device.gate.release(10_000)
    assert house.engine.figures().pauses == 1
    end = heard[-1]
    assert isinstance(end, Finished)
    assert end.reason is FinishReason.OUTPUT_LIMIT
    assert sum(len(event.text) for event in heard if isinstance(event, TextDelta)) == 60


@pytest.mark.contract("EXEC-013")
async def test_a_full_house_refuses_at_once_and_promises_no_time() -> None:
    device = FakeDevice(gate=threading.Semaphore(0), choose=choose_letter)
    assert device.gate is not None
    body = json.dumps({"model": CARD.id, "messages": [{"role": "user", "content": "x"}], "max_tokens": 5}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"

    async def ask(answers: list[bytes]) -> None:
        async with await trio.open_tcp_stream(*server.address) as wire:
            await wire.send_all(head.encode() + body)
            answers.append(b"".join([part async for part in wire]))

    async with (
        open_service(device, settings=ServiceSettings(max_pending_requests=2)) as house,
        running_server(house.service, [OpenAIChat(house.service)]) as server,
    ):
        served: list[bytes] = []
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask, served)
            await until(lambda: house.service.capacity.taken == 3)
            for _ in range(20):  # however many come: none of them waits
                refused: list[bytes] = []
                with trio.fail_after(HANG_S):
                    await ask(refused)
                assert refused[0].startswith(b"HTTP/1.1 429 ")
                assert b"retry-after" not in refused[0].lower()
                assert b'"server_overloaded"' in refused[0]
            assert (house.service.capacity.taken, served) == (3, [])
            device.gate.release(10_000)
        assert [answer.startswith(b"HTTP/1.1 200 ") for answer in served] == [True] * 3


@pytest.mark.contract("EXEC-015", "EXEC-016")
async def test_output_that_nobody_reads_is_bounded_by_the_output_limit() -> None:
    async with (
        open_engine(FakeDevice(total_slots=2), limits(lanes=2)) as engine,
        engine.submit(prompt(300), plan(700)) as unread,
    ):
        await until(lambda: not unread.statistics().open_send_channels)  # closed behind the last event
        held = unread.statistics().current_buffer_used
        assert held == 1 + 3 + 700 + 1  # the admission, the chunks, the tokens, the end
        last = [event async for event in unread][-1]
        assert isinstance(last, EngineFinished)
