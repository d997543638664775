"""The engine without a model (D37): the same worker, scheduler and books over a device that follows a script.

Only the device differs from the engine with a model: it gathers the prompt that is prefilled into a slot, reads the
directives in it (`directives`), and "chooses" the tokens of the script they ask for; after the script it chooses the
stop token. Forced tokens that end a thought make it go on behind the script's own thought. A test aid for everything
above the engine: capacity, order, limits and cancels are those of the real one.

Invariant: a token depends on the prompt, the seed and the tokens before it, so pauses and neighbours do not show.
"""

import random
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

import attrs

from ninfer.engine.device import DecodeRow, PrefillUnit, SampleRow, UnitResult
from ninfer.engine.directives import RenderedTurn, Script, find_directives, write_script
from ninfer.engine.engine import RunningEngine, open_engine
from ninfer.engine.scheduler import Pacing
from ninfer.engine.types import PAGE_TOKENS, DeviceLost, EngineLimits, Plan, Prompt, TokenCodec

UNIT_S = 0.0002
"""What a unit takes: long enough that the device thread leaves the interpreter to others most of the time."""
SCRIPTS_KEPT = 64

_MARKUP = re.compile(r"<\|[a-z_]+\|>|</?(?:think|tool_call|tool_response)>")
"""What the family's vocabularies have single tokens for: a chance border inside it would make it plain letters."""


@attrs.frozen(kw_only=True)
class TurnMarkers:
    """How the family's templates mark turns; the role follows the start marker up to a line break."""

    start: str = "<|im_start|>"
    end: str = "<|im_end|>"
    close: str = "</think>"


class ScriptBook:
    """Scripts by prompt: reads prompts back into turns, writes scripts, and turns them into tokens."""

    def __init__(self, codec: TokenCodec, markers: TurnMarkers) -> None:
        self._codec = codec
        self._start = codec.encode(markers.start)
        self._end = codec.encode(markers.end)
        self._close = codec.encode(markers.close)
        self._scripts: OrderedDict[tuple[int, ...], Script] = OrderedDict()

    @property
    def stop_token(self) -> int:
        """The token that ends a turn."""
        return self._end[-1]

    def script(self, prompt: tuple[int, ...]) -> Script:
        """What the engine says after `prompt`."""
        script = self._scripts.get(prompt)
        if script is None:
            script = self._scripts[prompt] = write_script(self._turns(prompt))
            if len(self._scripts) > SCRIPTS_KEPT:
                self._scripts.popitem(last=False)
        return script

    def closes(self, token: int) -> bool:
        """Whether the family ends its thinking by `token`."""
        return self._close == (token,)

    def is_break(self, token: int) -> bool:
        """Whether `token` is nothing but line breaks."""
        return not self._codec.decode((token,)).strip("\r\n")

    def tokens(self, script: Script, seed: int) -> tuple[int, ...]:
        """The script as tokens, without the stop token."""
        if not script.exact:
            return self._codec.encode(script.text)
        chance = random.Random(seed)
        return tuple(token for piece in _cut(script.text, chance) for token in self._codec.encode(piece))

    def _turns(self, prompt: tuple[int, ...]) -> list[RenderedTurn]:
        """The latest turns of the prompt, back to a user turn with directives or to the beginning."""
        turns: list[RenderedTurn] = []
        end = len(prompt)
        for start in reversed(_occurrences(prompt, self._start)):
            tokens = prompt[start + len(self._start) : end]
            closed = _occurrences(tokens, self._end)
            role, _, text = self._codec.decode(tokens[: closed[0]] if closed else tokens).partition("\n")
            turns.append(RenderedTurn(role.strip(), text))
            if turns[-1].role == "user" and find_directives(text):
                break
            end = start
        if not turns:  # no marked turns at all: the whole prompt is what the user says
            turns = [RenderedTurn("assistant", ""), RenderedTurn("user", self._codec.decode(prompt))]
        return turns[::-1]


def _occurrences(tokens: Sequence[int], part: tuple[int, ...]) -> list[int]:
    size = len(part)
    return [at for at, token in enumerate(tokens) if token == part[0] and tuple(tokens[at : at + size]) == part]


def _cut(text: str, chance: random.Random) -> list[str]:
    """`text` in pieces of 1 to 6 characters that never cut a piece of markup."""
    pieces: list[str] = []
    at = 0
    for markup in [*_MARKUP.finditer(text), None]:
        end = len(text) if markup is None else markup.start()
        while at < end:
            size = min(chance.randint(1, 6), end - at)
            pieces.append(text[at : at + size])
            at += size
        if markup is not None:
            pieces.append(markup.group())
            at = markup.end()
    return pieces


@attrs.define
class _Slot:
    tokens: list[int] = attrs.field(factory=list)  # the prompt as far as it has been prefilled
    script: Script | None = None
    output: tuple[int, ...] = ()
    prompt_tokens: int = 0
    at: int = 0  # how much of the output has been fed
    closed: bool = False  # a forced marker has been fed, and nothing but line breaks since
    chosen: int = 0

    def feed(self, token: int, book: ScriptBook) -> None:
        """Follow the script; a forced close marker leads behind the script's own one and the line breaks after it."""
        if self.closed and book.is_break(token):
            return
        self.closed = False
        if self.at < len(self.output) and token == self.output[self.at]:
            self.at += 1
        elif book.closes(token):
            rest = range(self.at, len(self.output))
            self.at = next((at + 1 for at in rest if book.closes(self.output[at])), len(self.output))
            while self.at < len(self.output) and book.is_break(self.output[self.at]):
                self.at += 1
            self.closed = True


@attrs.define(eq=False)
class _ScriptedUnit:
    device: "ScriptedDevice"
    result: UnitResult
    due_s: float

    def read(self) -> UnitResult:
        """The unit's result, when the unit would be done."""
        self.device.wait_until(self.due_s)
        return self.result


class ScriptedDevice:
    """A device whose tokens come from scripts. Its units take `unit_s` each, one after the other."""

    def __init__(
        self,
        book: ScriptBook,
        limits: EngineLimits,
        *,
        unit_s: float = UNIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._book = book
        self._limits = limits
        self._unit_s = unit_s
        self._clock = clock
        self._busy_until_s = clock()
        self._slots = [_Slot() for _ in range(limits.lanes)]
        self._lost = False
        self._bell = threading.Event()  # never rung: waiting for it lets other threads have the interpreter

    @property
    def total_pages(self) -> int:
        """Pages of the pool that the limits describe."""
        return self._limits.kv_capacity_tokens // PAGE_TOKENS

    @property
    def total_slots(self) -> int:
        """One per lane."""
        return self._limits.lanes

    @property
    def compilations(self) -> int:
        """There is nothing to compile."""
        return 0

    def prepare(self) -> None:
        """There is nothing to prepare."""

    def direct(self, prompt: Prompt, plan: Plan) -> tuple[Plan, Pacing]:
        """Bound and pace a request as its script asks."""
        script = self._book.script(prompt.tokens)
        if script.truncated:
            length = len(self._book.tokens(script, plan.sampling.seed))
            plan = attrs.evolve(plan, max_new_tokens=min(plan.max_new_tokens, length))
        return plan, Pacing(first_s=script.first_s, each_s=script.each_s)

    def prefill(self, unit: PrefillUnit) -> _ScriptedUnit:
        """Gather the prompt; the last chunk opens the script."""
        if unit.start == 0:
            self._slots[unit.slot] = _Slot()
        slot = self._slots[unit.slot]
        slot.tokens.extend(unit.tokens)
        return self._unit([] if unit.sample is None else [(slot, unit.sample)])

    def decode(self, rows: tuple[DecodeRow, ...]) -> _ScriptedUnit:
        """The next token of each row's script."""
        for row in rows:
            slot = self._slots[row.slot]
            self._open(slot, row.sample)
            slot.feed(slot.chosen if row.token is None else row.token, self._book)
        return self._unit([(self._slots[row.slot], row.sample) for row in rows])

    def recover(self) -> bool:
        """Empty slots, after a fault that takes the memory."""
        lost, self._lost = self._lost, False
        if lost:
            self._slots = [_Slot() for _ in self._slots]
        return lost

    def wait_until(self, due_s: float) -> None:
        """Block this thread until the clock says `due_s`."""
        left_s = due_s - self._clock()
        if left_s > 0:
            self._bell.wait(left_s)

    def _unit(self, rows: Sequence[tuple[_Slot, SampleRow]]) -> _ScriptedUnit:
        tokens: list[int] = []
        faulty: set[int] = set()
        for at, (slot, sample) in enumerate(rows):
            script = self._open(slot, sample)
            index = sample.position - slot.prompt_tokens
            if index == 0:
                self._lost = script.fault == "lost"
                _raise_fault(script)
            if script.faulty_token is not None and index == min(script.faulty_token, len(slot.output)):
                faulty.add(at)
            slot.chosen = slot.output[slot.at] if slot.at < len(slot.output) else self._book.stop_token
            tokens.append(slot.chosen)
        self._busy_until_s = max(self._busy_until_s, self._clock()) + self._unit_s
        return _ScriptedUnit(self, UnitResult(tuple(tokens), frozenset(faulty)), self._busy_until_s)

    def _open(self, slot: _Slot, sample: SampleRow) -> Script:
        if slot.script is None:  # the whole prompt is here: this unit is the first one that chooses
            slot.script = self._book.script(tuple(slot.tokens))
            slot.output = self._book.tokens(slot.script, sample.sampling.seed)
            slot.prompt_tokens = len(slot.tokens)
        return slot.script


def _raise_fault(script: Script) -> None:
    match script.fault:
        case "check":
            raise AssertionError("the script asks for a failed check")
        case "oom" | "lost":
            raise MemoryError("RESOURCE_EXHAUSTED: the script asks for it")
        case "device":
            raise DeviceLost("the script asks for a device error")
        case "crash":
            raise RuntimeError("the script asks for a crash")


def open_scripted_engine(
    codec: TokenCodec,
    limits: EngineLimits,
    *,
    markers: TurnMarkers = TurnMarkers(),
    unit_s: float = UNIT_S,
    clock: Callable[[], float] = time.monotonic,
) -> AbstractAsyncContextManager[RunningEngine]:
    """The engine without a model behind the face of the real one; see `open_engine`."""
    device = ScriptedDevice(ScriptBook(codec, markers), limits, unit_s=unit_s, clock=clock)
    return open_engine(device, limits, clock=clock, direct=device.direct)
