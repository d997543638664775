"""Scores on the second generator's cases (`eval_second.py`), from greedy runs of the engine over an artifact.

`python -m tools.demo_model.second_run demo.ninfer --count 40 --seed 1` prints one line a task, as
second_check.py judges. Thinking is on, as it is where a request does not say.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import trio

from tools.demo_model import eval_second
from tools.demo_model.engine_run import Loaded, complete, load, running
from tools.demo_model.render import prompt_text
from tools.demo_model.second_check import example_of, is_right, show, take_apart


async def score(loaded: Loaded, args: argparse.Namespace) -> None:
    """Run and print every task."""
    async with running(loaded, args.cache) as engine:
        for task in eval_second.GENERATORS:
            cases = eval_second.cases(task, args.count, args.seed)
            prompts = [prompt_text(example_of(case, thinking=args.thinking)) for case in cases]
            runs = await complete(engine, loaded, prompts, args.most)
            replies = [loaded.tokenizer.decode(reply, skip_special_tokens=False) for _, reply in runs]
            answers = [
                take_apart(reply, case.tools, thinking=args.thinking)
                for case, reply in zip(cases, replies, strict=True)
            ]
            wrong = [one for one in zip(cases, answers, strict=True) if not is_right(*one)]
            print(f"{task:8s} {len(cases)} cases  right {1 - len(wrong) / len(cases):.1%}", flush=True)
            for case, answer in wrong[: args.show]:
                print(show(case, answer), flush=True)


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--count", type=int, default=40, help="cases a task")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--most", type=int, default=320, help="longest reply in tokens")
    parser.add_argument("--no-thinking", dest="thinking", action="store_false")
    parser.add_argument("--show", type=int, default=0, help="wrong answers to print per task")
    parser.add_argument("--cache", type=Path, help="folder for compiled programs")
    args = parser.parse_args()
    trio.run(score, load(args.artifact), args)


if __name__ == "__main__":
    main()
