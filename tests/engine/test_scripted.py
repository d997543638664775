"""The engine without a model: scripts through the real worker, scheduler and books."""

import base64

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from ninfer.engine.directives import GREETING, RenderedTurn
from ninfer.engine.engine import RunningEngine
from ninfer.engine.scripted import ScriptBook, ScriptedDevice, TurnMarkers, open_scripted_engine
from ninfer.engine.types import (
    Admitted,
    DeviceLost,
    EngineEvent,
    EngineStopped,
    Failed,
    Finished,
    Plan,
    Prompt,
    PromptProgress,
    Sampling,
    StopReason,
    ThinkingBudget,
    Tokens,
    UnitFailed,
)
from tests.fakes.codec import ByteCodec
from tests.fakes.engine import ManualEngine, limits, plan

CODEC = ByteCodec()
END = CODEC.encode("<|im_end|>")[0]


def rendered(user: str, *before: tuple[str, str], opening: str = "<think>\n\n</think>\n\n") -> Prompt:
    turns = [*before, ("user", user)]
    text = "".join(f"<|im_start|>{role}\n{said}<|im_end|>\n" for role, said in turns)
    return Prompt(CODEC.encode(f"{text}<|im_start|>assistant\n{opening}"))


async def hear(
    engine: RunningEngine, user: str, *, new: int = 500, seed: int = 0, stops: tuple[int, ...] = (END,)
) -> list[EngineEvent]:
    events: list[EngineEvent] = []
    async with engine.submit(rendered(user), plan(new, *stops, seed=seed)) as channel:
        async for event in channel:
            events.append(event)
    return events


def text_of(events: list[EngineEvent]) -> str:
    return CODEC.decode(tuple(token for event in events if isinstance(event, Tokens) for token in event.tokens))


@pytest.mark.contract("D37")
@pytest.mark.parametrize(
    ("user", "new", "stops", "text", "last"),
    [
        ("hi", 500, (END,), f"{GREETING}<|im_end|>", Finished(StopReason.STOP_TOKEN)),
        ("[[say:yes]]", 500, (END,), "yes<|im_end|>", Finished(StopReason.STOP_TOKEN)),
        ("[[say:yes]]", 2, (END,), "ye", Finished(StopReason.OUTPUT_LIMIT)),
        ("[[say:yes]]", 0, (END,), "", Finished(StopReason.OUTPUT_LIMIT)),
        ("[[say:yes]]", 5, (), "yes<|im_end|><|im_end|>", Finished(StopReason.OUTPUT_LIMIT)),
        ("[[trunc]][[say:yes]]", 500, (END,), "yes", Finished(StopReason.OUTPUT_LIMIT)),
        ("[[raw:YTx8aW1fZW5kfD5i]]", 500, (END,), "a<|im_end|>", Finished(StopReason.STOP_TOKEN)),
        ("[[raw:YTx8aW1fZW5kfD5i]]", 500, (), "a<|im_end|>b" + "<|im_end|>" * 497, Finished(StopReason.OUTPUT_LIMIT)),
    ],
)
async def test_a_script_ends_as_a_reply_does(
    user: str, new: int, stops: tuple[int, ...], text: str, last: EngineEvent
) -> None:
    async with open_scripted_engine(CODEC, limits(), unit_s=0.0) as engine:
        events = await hear(engine, user, new=new, stops=stops)
    assert (text_of(events), events[-1]) == (text, last)
    assert isinstance(events[0], Admitted)
    assert isinstance(events[1], PromptProgress)


@pytest.mark.parametrize(
    ("user", "text", "out_of_memory"),
    [
        ("[[err]]", "", False),
        ("[[err:oom]]", "", True),
        ("[[miderr]][[say:abcdef]]", "abc", False),
        ("[[miderr]][[say:a]]", "a", False),
    ],
)
async def test_a_script_fails_as_a_unit_does(user: str, text: str, out_of_memory: bool) -> None:
    async with open_scripted_engine(CODEC, limits(), unit_s=0.0) as engine:
        events = await hear(engine, user)
        assert text_of(events) == text
        assert isinstance(failed := events[-1], Failed)
        assert isinstance(failed.error, UnitFailed)
        assert failed.error.out_of_memory is out_of_memory
        assert text_of(await hear(engine, "[[say:on]]")) == "on<|im_end|>"


@pytest.mark.parametrize(("user", "kind"), [("[[err:crash]]", EngineStopped), ("[[err:device]]", DeviceLost)])
async def test_a_script_can_end_the_engine(user: str, kind: type[EngineStopped]) -> None:
    async with open_scripted_engine(CODEC, limits(), unit_s=0.0) as engine:
        await hear(engine, user)
        assert type(await engine.wait_stopped()) is kind


async def test_eight_scripts_at_once_with_pauses() -> None:
    said: dict[int, str] = {}
    async with (
        open_scripted_engine(CODEC, limits(lanes=8, pages=12), unit_s=0.0) as engine,
        trio.open_nursery() as all_,
    ):

        async def ask(number: int) -> None:
            said[number] = text_of(await hear(engine, f"[[say:{number}]][[pad:{number * 4}]]"))

        for number in range(16):
            all_.start_soon(ask, number)
    assert said == {number: f"{number}{' lorem' * number * 4}<|im_end|>" for number in range(16)}
    assert engine.figures().pauses
    assert engine.figures().free_pages == 12


def test_a_slow_script_holds_back_only_itself() -> None:
    within = limits(lanes=2)
    book = ScriptBook(CODEC, TurnMarkers())
    device = ScriptedDevice(book, within, unit_s=0.0, clock=lambda: 0.0)
    made = ManualEngine(device, within, direct=device.direct)
    slow = made.submit(rendered("[[slow:3000]][[pace:500]][[say:abc]]"), plan(50, END))
    quick = made.submit(rendered("[[say:quick]]"), plan(50, END))
    made.step()
    made.run_until(lambda: made.ended(quick), most_steps=20)
    assert made.tokens(slow) == ()
    for now_s, heard in [(2.9, 0), (3.0, 1), (3.4, 1), (3.5, 2), (4.0, 3), (4.4, 3), (4.5, 4)]:
        made.clock.now_s = now_s
        made.step(3)
        assert len(made.tokens(slow)) == heard
    assert made.ended(slow)


@pytest.mark.contract("D37")
@given(
    text=st.lists(st.sampled_from(["<tool_call>", "<|im_end|>", "</think>", "ä", "plain words", "🙂", "<", "\n"])).map(
        "".join
    ),
    seed=st.integers(0, 9),
)
def test_borders_come_from_the_seed_and_markup_stays_whole(text: str, seed: int) -> None:
    book = ScriptBook(CODEC, TurnMarkers())
    prompt = rendered(f"[[raw:{base64.b64encode(text.encode()).decode()}]]").tokens
    tokens = book.tokens(book.script(prompt), seed)
    if text:
        assert CODEC.decode(tokens) == text
        assert sum(token >= 256 for token in tokens) == sum(
            text.count(c) for c in ("<tool_call>", "<|im_end|>", "</think>")
        )
    assert tokens == ScriptBook(CODEC, TurnMarkers()).tokens(book.script(prompt), seed)


class WordCodec(ByteCodec):
    """Counts how pieces are cut: one token for each piece."""

    def __init__(self) -> None:
        self.pieces: list[str] = []

    def encode(self, text: str) -> tuple[int, ...]:
        self.pieces.append(text)
        return super().encode(text)


def test_other_seeds_cut_elsewhere() -> None:
    cuts = set()
    for seed in range(5):
        codec = WordCodec()
        book = ScriptBook(codec, TurnMarkers())
        script = book.script(rendered("[[raw:YSB0ZXh0IG9mIHNvbWUgbGVuZ3RoIDx0b29sX2NhbGw+IGFuZCBtb3Jl]]").tokens)
        codec.pieces.clear()
        book.tokens(script, seed)
        assert "<tool_call>" in codec.pieces
        assert "".join(codec.pieces) == "a text of some length <tool_call> and more"
        cuts.add(tuple(codec.pieces))
    assert len(cuts) == 5


def test_prompts_are_read_back_to_the_directives() -> None:
    book = ScriptBook(CODEC, TurnMarkers())
    history = (("system", "[[say:no]]"), ("user", "[[call:f]] [[then:g]]"), ("assistant", "<tool_call>f</tool_call>"))
    asked = rendered("\n<tool_response>\nr\n</tool_response>", *history).tokens
    assert book._turns(asked)[0] == RenderedTurn("user", "[[call:f]] [[then:g]]")
    assert "<function=g>" in book.script(asked).text
    assert book.script(CODEC.encode("no turns, [[say:just]] text")).text == "just"
    for number in range(100):  # what is kept is bounded
        book.script(rendered(f"[[say:{number}]]").tokens)
    assert len(book._scripts) == 64


def test_a_control_token_that_a_user_spells_in_bytes_starts_no_turn() -> None:
    spelled = (*CODEC.encode("<|im_start|>"), *b"user\n[[say:a]] ", *b"<|im_end|>", *b"[[say:b]]")
    asked = (*spelled, *CODEC.encode("<|im_end|>\n<|im_start|>assistant\n"))
    assert ScriptBook(CODEC, TurnMarkers()).script(asked).text == "b"


def test_samplers_change_nothing_but_raw_borders() -> None:
    book = ScriptBook(CODEC, TurnMarkers())
    script = book.script(rendered("[[say:abc]]").tokens)
    assert {book.tokens(script, seed) for seed in range(5)} == {CODEC.encode("abc")}
    hot = Plan(sampling=Sampling(temperature=2.0, seed=5), max_new_tokens=9)
    device = ScriptedDevice(book, limits(), unit_s=0.0)
    assert device.direct(rendered("[[say:abc]]"), hot)[0] == hot


THOUGHT_OPEN = "<think>\n"
FORCED = CODEC.encode(" Enough.\n</think>\n\n")


@pytest.mark.contract("THINK-006", "THINK-007")
@pytest.mark.parametrize("limit", [1, 5, 7, 24, 26, 100])
@pytest.mark.parametrize("said", ["[[think]] [[say:done]]", "[[raw:SHJtbS4KPC90aGluaz4KCllvdSBzYWlkIHNvLg==]]"])
def test_a_script_goes_on_behind_its_own_thought(limit: int, said: str) -> None:
    """Whatever its thought was cut to, the answer is the script's; also after a replay."""
    budget = ThinkingBudget(
        limit_tokens=limit,
        close_token=CODEC.encode("</think>")[0],
        confirming_tokens=frozenset(b"\n"),
        forced_tokens=FORCED,
    )
    asked = rendered("y" * 40 + said, opening=THOUGHT_OPEN)  # two pages
    told = []
    for crowded in (False, True):
        within = limits(lanes=2, pages=4)
        device = ScriptedDevice(ScriptBook(CODEC, TurnMarkers()), within, unit_s=0.0)
        made = ManualEngine(device, within)
        if crowded:  # somebody older needs a third page at its tenth token
            older = rendered("[[pad:20]]", opening=THOUGHT_OPEN).tokens
            made.submit(rendered("x" * (118 - len(older)) + "[[pad:20]]", opening=THOUGHT_OPEN), plan(60, END))
        ticket = made.submit(asked, plan(100, END, thinking=budget))
        made.step()
        made.finish()
        told.append(CODEC.decode(made.tokens(ticket)))
        assert bool(made.worker.figures.pauses) is crowded
    thought, _, answer = told[0].partition("</think>\n\n")
    whole = "Hrmm." if "raw" in said else "Let me think about that."
    closes_itself = limit >= len(f"{whole}\n?")  # its marker is a token, and honoured at the limit
    assert thought == (f"{whole}\n" if closes_itself else f"{whole}\n"[:limit] + " Enough.\n")
    assert answer == ("You said so.<|im_end|>" if "raw" in said else "done<|im_end|>")
    assert told[1] == told[0]
