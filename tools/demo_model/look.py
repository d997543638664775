"""A quick look at a checkpoint: every task of the evaluation side, greedily, with the drafts' acceptance.

`python -m tools.demo_model.look --start DIR --count 256` prints one line per task and the first failures.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from tools.demo_model import checks, eval_second, second_check, third_check
from tools.demo_model.drafts import DEPTHS, accepted
from tools.demo_model.generate import calls, talk
from tools.demo_model.render import Example, prompt_text
from tools.demo_model.tasks import ONE_TURN
from tools.demo_model.words import Words, load_lists

if TYPE_CHECKING:
    from ninfer.engine.model.config import TextConfig

Judge = Callable[[Any, Any], Any]
HERE = Path(__file__).parent
TASKS = {**ONE_TURN, "loop": calls.loop}
FREE = {"talk": talk.small_talk, "fact": talk.fact, "story": talk.tell_story, "definition": talk.definition}


def cut_loop(example: Example) -> Example:
    """A loop example is judged by its last answer; its call is judged by the call task."""
    if example.check["kind"] != "loop":
        return example
    return Example(
        **{
            **{
                field: getattr(example, field)
                for field in ("task", "messages", "tools", "thinking", "effort", "preserve")
            },
            "check": {"kind": "contains", "answer": example.check["answer"]},
        }
    )


def main() -> None:
    """Look."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", type=Path, default=HERE / "work/words.json")
    parser.add_argument("--tokenizer", type=Path, default=HERE / "work/hf/tokenizer.json")
    parser.add_argument("--start", type=Path, required=True)
    parser.add_argument("--name", default="model")
    parser.add_argument("--count", type=int, default=256)
    parser.add_argument("--seed", type=int, default=77)
    parser.add_argument("--most", type=int, default=256)
    parser.add_argument("--show", type=int, default=2)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--length", type=int, default=1024, help="longest prompt, a multiple of 64")
    parser.add_argument("--tasks", help="comma separated; all when left out")
    parser.add_argument("--second", type=int, default=0, help="cases a task of the second generator, seed 2026")
    parser.add_argument("--third", action="store_true", help="the third set, too")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    look(args)


def draft_judge(config: TextConfig) -> Judge:
    """The compiled (params, tokens [rows, tokens]) -> hits bool [DEPTHS, rows, tokens], as `accepted` reads them."""
    import jax
    import jax.numpy as jnp

    from tools.demo_model import model

    @jax.jit
    def hits(params: Any, tokens: Any) -> Any:
        starts = jnp.zeros(tokens.shape, bool).at[:, 0].set(True)
        hidden, segment = model.trunk(params, tokens, starts, config)
        outs = model.mtp_depths(params, hidden, tokens, segment, DEPTHS, config)
        return jnp.stack([jnp.argmax(model.logits(params, out), -1) == jnp.roll(tokens, -2, 1) for out in outs])

    return hits


def draft_hits(hits: Judge, params: Any, texts: list[list[int]], stop: int) -> Any:
    """Hits of prompt-and-reply texts, in blocks of 64 rows (a rest is left out); None where there is no full block."""
    import jax.numpy as jnp
    import numpy as np

    if len(texts) < 64:
        return None
    whole = np.full((len(texts), 1536), stop, np.int32)
    for row, ids in enumerate(texts):
        whole[row, : len(ids[:1536])] = ids[:1536]
    full = len(whole) - len(whole) % 64
    return np.concatenate([np.asarray(hits(params, jnp.asarray(whole[at : at + 64]))) for at in range(0, full, 64)], 1)


@attrs.define
class Tally:
    """What one task has come to: counts of replies (right, shaped, loops) and of draft tokens; failures to show."""

    right: int = 0
    shaped: int = 0
    loops: int = 0
    good: int = 0
    drafted: int = 0
    shown: list[str] = attrs.field(factory=list)

    def add(self, task: str, example: Example, reply: list[int], text: str, most_shown: int) -> bool:
        """Judge one reply (tokens, and the text they make); whether it loops."""
        _, answer = checks.split_thought(text, example.thinking)
        loop = checks.is_loop(reply)
        self.loops += loop
        ok = task in TASKS and checks.verdict(example.check, answer, example.tools)
        self.right += ok
        if example.check.get("kind") == "json":
            self.shaped += checks.valid_shape(example.check, answer)
        if not ok and len(self.shown) < most_shown:
            expected = {key: value for key, value in example.check.items() if key != "kind"}
            self.shown.append(
                f"   USER {example.messages[-2]['content'][-300:]!r}"
                f"\n   WANT {str(expected)[:300]}\n   GOT  {text[:400]!r}"
            )
        return loop

    def add_drafts(self, hits: list[Any], first: int, last: int) -> None:
        """Count the drafts over tokens first..last-1."""
        good, drafted = accepted(hits, first, last)
        self.good, self.drafted = self.good + good, self.drafted + drafted

    def line(self, task: str, count: int) -> str:
        """The task's line, without its time."""
        shape = f" shape {self.shaped}/{count}" if self.shaped else ""
        share = self.good / max(1, self.drafted)
        return (
            f"{task:11s} right {self.right}/{count}{shape} loops {self.loops}"
            f" accept {self.good}/{self.drafted} = {share:.3f}"
        )


def second(args: argparse.Namespace, complete: Callable[[list[list[int]]], list[list[int]]], tokenizer: Any) -> None:
    """The second generator's cases, thinking and not. complete: greedy replies to prompts."""
    for thinking in (True, False) if args.second else ():
        for task in eval_second.GENERATORS:
            cases = eval_second.cases(task, args.second, 2026)
            texts = [prompt_text(second_check.example_of(case, thinking=thinking)) for case in cases]
            replies = complete([tokenizer.encode(text, add_special_tokens=False).ids for text in texts])
            answers = [
                second_check.take_apart(
                    tokenizer.decode(reply, skip_special_tokens=False), case.tools, thinking=thinking
                )
                for case, reply in zip(cases, replies, strict=True)
            ]
            wrong = [one for one in zip(cases, answers, strict=True) if not second_check.is_right(*one)]
            print(f"second {task:8s} thinking {thinking}: right {1 - len(wrong) / len(cases):.1%} of {len(cases)}")
            print("\n".join(second_check.show(*one) for one in wrong[: args.show]), flush=True)


def third(complete: Callable[[list[list[int]]], list[list[int]]], tokenizer: Any) -> None:
    """The third set, thinking and not: counts alone."""
    for thinking in (True, False):
        texts = [prompt_text(example) for example in third_check.examples(thinking=thinking)]
        replies = complete([tokenizer.encode(text, add_special_tokens=False).ids for text in texts])
        said = [tokenizer.decode(reply, skip_special_tokens=False) for reply in replies]
        print(third_check.report(said, thinking=thinking), flush=True)


def look(args: argparse.Namespace) -> None:
    """Run all tasks of one checkpoint."""
    import jax
    from tokenizers import Tokenizer

    from tools.demo_model import checkpoint, decode, geometry, model

    config = geometry.tiny() if args.tiny else geometry.full()
    params = jax.device_put(checkpoint.load_small(model.fresh(config, 0), args.start, args.name))
    tokenizer = Tokenizer.from_file(str(args.tokenizer))
    stop = tokenizer.token_to_id("<|im_end|>")
    lists = load_lists(args.words)

    def complete(prompts: list[list[int]]) -> list[list[int]]:
        return decode.complete(params, prompts, args.most, stop, config, args.batch, args.length)

    if args.third:
        third(complete, tokenizer)
    second(args, complete, tokenizer)
    judge = draft_judge(config)
    wanted = args.tasks.split(",") if args.tasks else [*TASKS, *FREE]
    for task, maker in {**TASKS, **FREE}.items():
        if task not in wanted:
            continue
        began = time.perf_counter()
        words = Words(lists, random.Random(f"{args.seed}-{task}"), "eval")
        examples = [cut_loop(maker(words)) if task in TASKS else maker(words) for _ in range(args.count)]
        prompts = [tokenizer.encode(prompt_text(example), add_special_tokens=False).ids for example in examples]
        fits = [at for at, ids in enumerate(prompts) if len(ids) <= args.length]
        examples, prompts = [examples[at] for at in fits], [prompts[at] for at in fits]
        replies = complete(prompts)
        texts = [ids + reply for ids, reply in zip(prompts, replies, strict=True)]
        seen = draft_hits(judge, params, texts, stop)
        tally = Tally()
        for row, (example, ids, reply) in enumerate(zip(examples, prompts, replies, strict=True)):
            text = tokenizer.decode(reply, skip_special_tokens=False)
            loop = tally.add(task, example, reply, text, args.show)
            if not loop and seen is not None and row < seen.shape[1]:
                tally.add_drafts([seen[depth, row] for depth in range(DEPTHS)], len(ids), len(texts[row]) + 1)
        print(f"{tally.line(task, len(examples))}  {time.perf_counter() - began:.1f} s")
        print("\n".join(tally.shown), flush=True)


if __name__ == "__main__":
    main()
