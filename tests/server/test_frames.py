"""The frame queue and the body that drains it."""

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from ninfer.server.frames import FrameBody, FrameQueue
from ninfer.server.unread import READ_BYTES, Unread, UnreadRoom

KEEP_ALIVE = b": keep-alive\n\n"


def no_bound() -> Unread:
    return Unread(UnreadRoom(all_bytes=1 << 40, stream_bytes=1 << 40), lambda unread_bytes: None)


async def drained(queue: FrameQueue) -> list[bytes]:
    return [piece async for piece in FrameBody(queue, keep_alive=KEEP_ALIVE, keep_alive_s=5, silent=False)]


@given(st.lists(st.binary(min_size=1, max_size=READ_BYTES // 2), max_size=8))
def test_what_comes_out_is_what_went_in(frames: list[bytes]) -> None:
    async def put_and_take() -> list[bytes]:
        queue = FrameQueue(no_bound())
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
    queue = FrameQueue(no_bound())
    for _ in range(3):
        await queue.put(b"x")
    queue.close()
    assert await drained(queue) == [b"xxx"]


async def test_a_handler_never_waits_for_its_client() -> None:
    unread = no_bound()
    queue = FrameQueue(unread)
    for _ in range(5):
        await queue.put(bytes(READ_BYTES - 1))
    assert unread.held_bytes == 5 * (READ_BYTES - 1)
    queue.close()
    assert [len(piece) for piece in await drained(queue)] == [READ_BYTES - 1] * 5  # no write is longer
    assert unread.held_bytes == 0


async def test_a_frame_is_not_cut_however_long_it_is() -> None:
    queue = FrameQueue(no_bound())
    await queue.put(b"a")
    await queue.put(bytes(3 * READ_BYTES))
    queue.close()
    assert [len(piece) for piece in await drained(queue)] == [1, 3 * READ_BYTES]


async def test_comments_fill_each_silence_and_delay_nothing(autojump_clock: trio.testing.MockClock) -> None:
    queue = FrameQueue(no_bound())
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
