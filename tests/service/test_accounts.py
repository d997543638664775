"""What a request's record says of tokens: what the service counted, also of a request that was left."""

import pytest
import trio

from ninfer.service.accounts import Account, current_account, open_account
from tests.fakes.device import FakeDevice
from tests.service.test_service import choose_letter, open_service, request, run


@pytest.mark.parametrize(
    ("account", "text"),
    [
        (Account(), ""),
        (Account(protocol="openai_chat"), "openai_chat"),
        (Account(protocol="a", model="m", prompt_tokens=3), "a m, 3 prompt tokens"),
        (
            Account(protocol="a", model="m", prompt_tokens=3, completion_tokens=0),
            "a m, 3 prompt and 0 completion tokens",
        ),
    ],
)
def test_as_text(account: Account, text: str) -> None:
    assert account.text() == text


async def test_where_there_is_none_nobody_reads_it() -> None:
    assert current_account() is not current_account()


async def test_tokens_are_counted_in_the_tasks_that_a_request_starts() -> None:
    device = FakeDevice(choose=choose_letter)
    async with open_service(device) as house:
        account = open_account()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, house, request())
        assert account.model == house.service.model.id
        assert account.completion_tokens == 20
        assert account.prompt_tokens


async def test_a_request_that_is_left_has_the_tokens_that_came() -> None:
    async with open_service(FakeDevice(choose=choose_letter)) as house:
        account = open_account()
        async with house.service.generate(request()) as events:
            async for event in events:
                if type(event).__name__ == "TextDelta":
                    break
        assert account.completion_tokens is not None
        assert 1 <= account.completion_tokens < 20
