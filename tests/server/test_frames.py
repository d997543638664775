"""The frame queue and the body that drains it."""

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from ninfer.server.frames import ROOM_BYTES, FrameBody, FrameQueue

KEEP_ALIVE = b": keep-alive\n\n"


async def drained(queue: FrameQueue) -> list[bytes]:
    return [piece async for piece in FrameBody(queue, keep_alive=KEEP_ALIVE, keep_alive_s=5, silent=False)]


@given(st.lists(st.binary(min_size=1, max_size=ROOM_BYTES // 2), max_size=8))
def test_what_comes_out_is_what_went_in(frames: list[bytes]) -> None:
    async def put_and_take() -> list[bytes]:
        queue = FrameQueue()
        pieces: list[bytes] = []

        async def take() -> None:
            pieces.extend(await drained(queue))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            for frame in frames:
                await queue.put(frame)
            queue.close()
        return pieces

    assert b"".join(trio.run(put_and_take)) == b"".join(frames)


async def test_ready_frames_leave_as_one_piece() -> None:
    queue = FrameQueue()
    for _ in range(3):
        await queue.put(b"x")
    queue.close()
    assert await drained(queue) == [b"xxx"]


async def test_a_full_queue_holds_the_handler_back() -> None:
    queue = FrameQueue()
    await queue.put(bytes(ROOM_BYTES))
    with trio.move_on_after(0) as full:
        await queue.put(b"x")
    assert full.cancelled_caught
    assert len(await queue.take()) == ROOM_BYTES
    await queue.put(b"y")
    queue.put_now(bytes(ROOM_BYTES))
    assert await queue.take() == b"y" + bytes(ROOM_BYTES)


async def test_comments_fill_each_silence_and_delay_nothing(autojump_clock: trio.testing.MockClock) -> None:
    queue = FrameQueue()
    came: list[tuple[float, bytes]] = []
    begin_s = trio.current_time()

    async def take() -> None:
        async for piece in FrameBody(queue, keep_alive=KEEP_ALIVE, keep_alive_s=5, silent=True):
            came.append((trio.current_time() - begin_s, piece))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        await trio.sleep(4)
        await queue.put(b"a")
        await trio.sleep(11)
        await queue.put(b"b")
        queue.close()
    assert [(round(at), piece) for at, piece in came] == [
        (0, KEEP_ALIVE), (4, b"a"), (9, KEEP_ALIVE), (14, KEEP_ALIVE), (15, b"b"),
    ]  # fmt: skip
