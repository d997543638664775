"""The model card's numbers: every task of the evaluation side, from greedy runs of the engine over an artifact.

`python -m tools.demo_model.evaluate demo.ninfer --words FILE --count 500 --seed 2026` prints one line a task and, with
--out, writes all of it as JSON. Names come from the words kept for evaluation. Repeating replies are counted, and left
out of the drafts' acceptance alone.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import trio

from tools.demo_model import checks
from tools.demo_model.engine_run import Loaded, acceptance, complete, load, running
from tools.demo_model.generate import calls, talk
from tools.demo_model.render import Example, assistant, prompt_text, tool_result
from tools.demo_model.tasks import ONE_TURN
from tools.demo_model.words import Words, load_lists

HERE = Path(__file__).parent
TASKS: dict[str, Callable[[Words], Example]] = {**ONE_TURN, "story": talk.tell_story, "definition": talk.definition}
Runs = list[tuple[list[int], list[int]]]


@attrs.frozen(kw_only=True)
class Score:
    """One task's result."""

    task: str
    cases: int
    right: int
    right_shape: int | None = None
    loops: int = 0
    accepted: int = 0
    drafted: int = 0
    seconds: float = 0.0
    wrong: tuple[str, ...] = ()

    def line(self) -> str:
        """One printed line."""
        shape = "" if self.right_shape is None else f"  shape {self.right_shape / self.cases:.1%}"
        drafts = f"  drafts {self.accepted / max(1, self.drafted):.1%} of {self.drafted}"
        head = f"{self.task:10s} {self.cases:4d} cases  right {self.right / self.cases:6.1%}"
        return f"{head}{shape}{drafts}  loops {self.loops}  {self.seconds:.0f} s"


def text_of(loaded: Loaded, example: Example, reply: list[int]) -> str:
    """The visible answer."""
    return checks.split_thought(loaded.tokenizer.decode(reply, skip_special_tokens=False), example.thinking)[1]


def judge(loaded: Loaded, task: str, examples: list[Example], runs: Runs, began: float) -> Score:
    """Verdicts and drafts of one task."""
    answers = [text_of(loaded, example, reply) for example, (_, reply) in zip(examples, runs, strict=True)]
    looping = [checks.is_loop(reply) for _, reply in runs]
    good, drafted = acceptance(loaded, [run for run, loop in zip(runs, looping, strict=True) if not loop])
    right = [
        not example.check or checks.verdict(example.check, answer, example.tools)
        for example, answer in zip(examples, answers, strict=True)
    ]
    shapes = (
        [checks.valid_shape(example.check, answer) for example, answer in zip(examples, answers, strict=True)]
        if task.startswith("json")
        else None
    )
    wrong = tuple(
        f"USER {example.messages[-2]['content'][-400:]}\nWANT {json.dumps(example.check)}\nGOT {answer}"
        for example, answer, ok in zip(examples, answers, right, strict=True)
        if not ok
    )
    return Score(
        task=task,
        cases=len(examples),
        right=sum(right),
        right_shape=None if shapes is None else sum(shapes),
        loops=sum(looping),
        accepted=good,
        drafted=drafted,
        seconds=time.monotonic() - began,
        wrong=wrong,
    )


async def two_steps(engine: Any, loaded: Loaded, examples: list[Example], most: int) -> Score:
    """Render, decode, parse the call, give the result, decode the answer: right when both are."""
    began = time.monotonic()
    asked = [attrs.evolve(example, messages=example.messages[: _first_reply(example) + 1]) for example in examples]
    first = await complete(engine, loaded, [prompt_text(example) for example in asked], most)
    second: list[Example] = []
    right_calls = []
    for example, (_, reply) in zip(examples, first, strict=True):
        thought, answer = checks.split_thought(
            loaded.tokenizer.decode(reply, skip_special_tokens=False), example.thinking
        )
        parsed = checks.parse_calls(answer)
        right_calls.append(
            checks.call_is_right(answer, example.tools or [], example.check["name"], example.check["arguments"])
        )
        made = [(name, checks.typed(raw, example.tools or [], name)) for name, raw in parsed]
        at = _first_reply(example)
        result = example.messages[at + 1]["content"]
        second.append(
            attrs.evolve(
                example,
                messages=[*example.messages[:at], assistant("", thought, made), tool_result(result), assistant("")],
            )
        )
    runs = await complete(engine, loaded, [prompt_text(example) for example in second], most)
    ok = [
        call and example.check["answer"] in text_of(loaded, example, reply)
        for call, example, (_, reply) in zip(right_calls, examples, runs, strict=True)
    ]
    both = [*first, *runs]
    good, drafted = acceptance(loaded, [run for run in both if not checks.is_loop(run[1])])
    return Score(
        task="two steps",
        cases=len(examples),
        right=sum(ok),
        loops=sum(checks.is_loop(reply) for _, reply in both),
        accepted=good,
        drafted=drafted,
        seconds=time.monotonic() - began,
    )


def _first_reply(example: Example) -> int:
    return next(at for at, message in enumerate(example.messages) if message["role"] == "assistant")


async def evaluate(args: argparse.Namespace) -> list[Score]:
    """All wanted tasks."""
    loaded = load(args.artifact)
    lists = load_lists(args.words)
    scores: list[Score] = []
    wanted = args.tasks.split(",") if args.tasks else [*TASKS, "loop"]
    async with running(loaded, args.cache) as engine:
        for task in wanted:
            words = Words(lists, random.Random(f"{args.seed}-{task}"), "eval")
            if task == "loop":
                scores.append(
                    await two_steps(
                        engine,
                        loaded,
                        [calls.loop(words) for _ in range(min(args.count, args.loops))],
                        args.most,
                    )
                )
            else:
                began = time.monotonic()
                examples = [TASKS[task](words) for _ in range(args.count)]
                runs = await complete(engine, loaded, [prompt_text(example) for example in examples], args.most)
                scores.append(judge(loaded, task, examples, runs, began))
            print(scores[-1].line(), flush=True)
            if args.out:
                # After every task: a run may be cut short.
                found = [attrs.asdict(score) for score in scores]
                args.out.write_text(json.dumps(found, indent=1, ensure_ascii=False), encoding="utf-8")
            for text in scores[-1].wrong[: args.show]:
                print("   " + text.replace("\n", "\n   "), flush=True)
    return scores


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--words", type=Path, default=HERE / "work/words.json")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--loops", type=int, default=200, help="cases of the two-step loop")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--most", type=int, default=320, help="longest reply in tokens")
    parser.add_argument("--tasks", help="comma separated; all when left out")
    parser.add_argument("--show", type=int, default=0, help="wrong answers to print per task")
    parser.add_argument("--cache", type=Path, help="folder for compiled programs")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    trio.run(evaluate, args)


if __name__ == "__main__":
    main()
