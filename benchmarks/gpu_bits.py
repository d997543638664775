"""Does a row's output depend on its neighbours? Greedy decoding of the stacked form, bit for bit: one row alone, the
same row among eight, and the same row while others come and go.

    python -m benchmarks.gpu_bits --recipe q4_g64,nvfp4 --steps 512

Random weights, made on the device. Prints a line for each format and history: how many tokens and logits rows are those
of the row alone. Only the programs that the histories need are compiled. Status 1 if anything differs.
"""

import argparse
import sys
import time
from collections.abc import Sequence

import attrs
import jax
import jax.numpy as jnp
import numpy as np

from ninfer.cli.bench_run import model_shape
from ninfer.engine.device import DecodeRow, PrefillUnit, SampleRow
from ninfer.engine.programs import JaxDevice
from ninfer.engine.programs.stacked import Stacked, matrix_shapes
from ninfer.engine.programs.stacked.random import random_stacked
from ninfer.engine.types import PAGE_TOKENS, Sampling

LANES = 8
PREFILL_TOKENS = 64
PROMPT_TOKENS = (40, 7, 64, 19, 33, 5, 60, 21)
GREEDY = Sampling(temperature=0)

_checksum = jax.jit(lambda row: jnp.sum(jax.lax.bitcast_convert_type(row, jnp.uint32), dtype=jnp.uint32))


@attrs.frozen(kw_only=True)
class History:
    """How many rows there are, in equal parts of the run. Lane 0 is always one of them."""

    name: str
    rows: tuple[int, ...]
    turn: int = 0
    """Lane n lives in slot n + turn, and so do its pages."""
    last: bool = False
    """Lane 0 is the last row of a round instead of the first."""


ALONE = History(name="alone", rows=(1,))
TOGETHER = History(name=f"among {LANES}", rows=(LANES,))


@attrs.define
class Lane:
    """A request that is decoded by hand."""

    prompt: tuple[int, ...]
    slot: int
    pages: tuple[int, ...]
    steps: int = 0

    def prefill(self, device: JaxDevice) -> None:
        """The whole prompt in one unit, and the first token."""
        self.steps = 0
        sample = SampleRow(sampling=GREEDY, position=len(self.prompt))
        device.prefill(PrefillUnit(slot=self.slot, pages=self.pages, start=0, tokens=self.prompt, sample=sample)).read()

    def next_row(self) -> DecodeRow:
        """The row that feeds the token chosen last."""
        position = len(self.prompt) + self.steps
        self.steps += 1
        sample = SampleRow(sampling=GREEDY, position=position + 1)
        return DecodeRow(slot=self.slot, pages=self.pages, position=position, token=None, sample=sample)


def run(device: JaxDevice, history: History, prompts: Sequence[tuple[int, ...]], steps: int, pages: int) -> np.ndarray:
    """Tokens of lane 0 and checksums of its logits' bits: int64 [steps, 2]."""
    slots = [(lane + history.turn) % LANES for lane in range(LANES)]
    lanes = [
        Lane(prompt=prompt, slot=slot, pages=tuple(range(slot * pages, (slot + 1) * pages)))
        for prompt, slot in zip(prompts, slots, strict=True)
    ]
    found, here = [], 0
    for step in range(steps):
        rows = history.rows[step * len(history.rows) // steps]
        for lane in lanes[here:rows]:
            lane.prefill(device)
        here = rows
        order = lanes[:rows][:: -1 if history.last else 1]
        pending = device.decode(tuple(lane.next_row() for lane in order))
        place = order.index(lanes[0])
        found.append((pending.read().tokens[place], int(_checksum(pending.output.logits[place]))))
    return np.array(found, np.int64)


def compare(device: JaxDevice, histories: Sequence[History], vocabulary: int, steps: int, pages: int, name: str) -> int:
    """Print a line for each history; how many of them differ from the row alone."""
    random = np.random.default_rng(7)
    prompts = [tuple(random.integers(0, vocabulary, size).tolist()) for size in PROMPT_TOKENS]
    alone = run(device, ALONE, prompts, steps, pages)
    wrong = 0
    for history in histories:
        begin_s = time.perf_counter()
        equal = (run(device, history, prompts, steps, pages) == alone).sum(axis=0)
        wrong += int(equal.min() < steps)
        counts = f"{equal[0]} of {steps} tokens and {equal[1]} of {steps} logits rows equal alone and {history.name}"
        print(f"{name}: {counts}, {time.perf_counter() - begin_s:.1f} s", flush=True)
    print(f"{name}: {len(set(alone[:, 0].tolist()))} different tokens", flush=True)
    return wrong


def main(arguments: Sequence[str]) -> int:
    """Run every recipe that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_bits")
    parser.add_argument("--config", default="27b")
    parser.add_argument("--recipe", default="q4_g64", help="formats of all matrices, one run each: q4_g64,nvfp4")
    parser.add_argument("--kv-dtype", default="int8")
    parser.add_argument("--steps", type=int, default=512)
    parser.add_argument("--rows", default="1,3,8,5,1", help="rows of the history in which others come and go")
    options = parser.parse_args(arguments)
    config = model_shape(options.config)
    rows = tuple(int(count) for count in options.rows.split(","))
    changing = History(name=f"among {', '.join(map(str, rows))} in turn", rows=rows, turn=3, last=True)
    histories = (TOGETHER, changing)
    pages = -(-(max(PROMPT_TOKENS) + options.steps + 1) // PAGE_TOKENS)
    wrong = 0
    for recipe in options.recipe.split(","):
        begin_s = time.perf_counter()
        weights = random_stacked(config, dict.fromkeys(matrix_shapes(config), recipe).__getitem__)
        device = JaxDevice(
            Stacked(config, weights, kv_format=options.kv_dtype),
            lanes=LANES,
            total_pages=LANES * pages,
            prefill_chunk_tokens=PREFILL_TOKENS,
            max_context_tokens=pages * PAGE_TOKENS,
            decode_batches=sorted({count for history in (ALONE, *histories) for count in history.rows}),
            prefill_sizes=(PREFILL_TOKENS,),
        )
        device.prepare()
        name = f"{recipe}, KV {options.kv_dtype}"
        print(f"{name}: ready after {time.perf_counter() - begin_s:.1f} s", flush=True)
        wrong += compare(device, histories, config.vocab_size, options.steps, pages, name)
        del device, weights  # two models at once would not fit
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
