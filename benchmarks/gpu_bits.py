"""Does a row's output depend on its neighbours? Greedy decoding of the stacked form, one row alone and the same row
among eight, bit for bit.

    python -m benchmarks.gpu_bits --recipe q4 --steps 512

Random weights of the 27B configuration, made on the device. Prints one line a format: how many tokens and how many
logits rows are equal. Status 1 if any differs.
"""

import argparse
import sys

import jax
import numpy as np

from ninfer.engine.device import DecodeRow, Pending, PrefillUnit, SampleRow
from ninfer.engine.model.published import PUBLISHED
from ninfer.engine.programs import JaxDevice
from ninfer.engine.programs.stacked import Stacked, matrix_shapes
from ninfer.engine.programs.stacked.random import random_stacked
from ninfer.engine.types import PAGE_TOKENS, Sampling

LANES = 8
GREEDY = Sampling(temperature=0)


def run(device: JaxDevice, lanes: range, prompts: list[tuple[int, ...]], steps: int, pages: int) -> np.ndarray:
    """Tokens [steps] and logits bits (as a checksum a row) of the first lane: int64 [steps, 2]."""
    out = []
    for lane in lanes:
        own = tuple(range(lane * pages, (lane + 1) * pages))
        sample = SampleRow(sampling=GREEDY, position=len(prompts[lane]))
        device.prefill(PrefillUnit(slot=lane, pages=own, start=0, tokens=prompts[lane], sample=sample)).read()
    for step in range(steps):
        rows = []
        for lane in lanes:
            position = len(prompts[lane]) + step
            own = tuple(range(lane * pages, (lane + 1) * pages))
            sample = SampleRow(sampling=GREEDY, position=position + 1)
            rows.append(DecodeRow(slot=lane, pages=own, position=position, token=None, sample=sample))
        pending: Pending = device.decode(tuple(rows))
        token = pending.read().tokens[0]
        bits = np.asarray(jax.numpy.sum(pending.output.logits[0].view(np.uint32), dtype=np.uint32))  # type: ignore[attr-defined]
        out.append((token, int(bits)))
    return np.array(out, np.int64)


def main() -> int:
    """Run every recipe that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default="q4_g64")
    parser.add_argument("--kv-format", default="int8")
    parser.add_argument("--steps", type=int, default=512)
    arguments = parser.parse_args()
    config = PUBLISHED["27b"]
    random = np.random.default_rng(7)
    prompts = [tuple(random.integers(0, 240_000, size).tolist()) for size in (40, 7, 64, 19, 33, 5, 60, 21)]
    pages = -(-(64 + arguments.steps) // PAGE_TOKENS)
    failed = 0
    for recipe in arguments.recipe.split(","):
        weights = random_stacked(config, dict.fromkeys(matrix_shapes(config), recipe).__getitem__)
        form = Stacked(config, weights, kv_format=arguments.kv_format)
        device = JaxDevice(
            form,
            lanes=LANES,
            total_pages=LANES * pages,
            prefill_chunk_tokens=64,
            max_context_tokens=pages * PAGE_TOKENS,
        )
        device.prepare()
        alone = run(device, range(1), prompts, arguments.steps, pages)
        together = run(device, range(LANES), prompts, arguments.steps, pages)
        equal = (alone == together).sum(axis=0)
        print(
            f"{recipe}, KV {arguments.kv_format}: {equal[0]} of {arguments.steps} tokens and {equal[1]} logits rows "
            f"equal alone and among {LANES}; {len(set(alone[:, 0].tolist()))} different tokens",
            flush=True,
        )
        failed += int(equal.min() < arguments.steps)
        del device, form, weights
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
