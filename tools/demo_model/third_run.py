"""Scores on the third set (`third_set.py`), from greedy runs of the engine over an artifact.

`python -m tools.demo_model.third_run demo.ninfer` prints one line with thinking and one without: counts, as
third_check.py judges, and no case.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import trio

from tools.demo_model.engine_run import Loaded, complete, load, running
from tools.demo_model.render import prompt_text
from tools.demo_model.third_check import examples, report


async def score(loaded: Loaded, args: argparse.Namespace) -> None:
    """Run and print both lines."""
    async with running(loaded, args.cache) as engine:
        for thinking in (True, False):
            prompts = [prompt_text(example) for example in examples(thinking=thinking)]
            runs = await complete(engine, loaded, prompts, args.most)
            replies = [loaded.tokenizer.decode(reply, skip_special_tokens=False) for _, reply in runs]
            print(report(replies, thinking=thinking), flush=True)


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--most", type=int, default=320, help="longest reply in tokens")
    parser.add_argument("--cache", type=Path, help="folder for compiled programs")
    args = parser.parse_args()
    trio.run(score, load(args.artifact), args)


if __name__ == "__main__":
    main()
