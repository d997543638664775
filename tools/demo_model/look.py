"""A quick look at a checkpoint: every task of the evaluation side, greedily, with the drafts' acceptance.

`python -m tools.demo_model.look --start DIR --count 256` prints one line per task and the first failures.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from typing import Any

from tools.demo_model import checks
from tools.demo_model.generate import calls, extract, reason, talk
from tools.demo_model.render import Example, prompt_text
from tools.demo_model.words import Words, load_lists

HERE = Path(__file__).parent
TASKS = {
    "call": calls.call,
    "refuse": calls.refuse,
    "unneeded": talk.unneeded_tools,
    "loop": calls.loop,
    "copy": extract.copy,
    "lookup": extract.lookup,
    "json": extract.as_json,
    "json_list": extract.json_list,
    "edit": extract.edit,
    "summary": extract.summary,
    "arithmetic": reason.arithmetic,
    "compare": reason.compare,
    "sort": reason.sort,
    "date": reason.date,
    "remember": talk.remember,
}
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


def accepted(hits: list[Any], first: int, last: int) -> tuple[int, int]:
    """(accepted, drafted) at depth 3 over tokens first..last-1. hits[d][p]: depth d is right about p + 2."""
    good = drafted = 0
    at = first - 1  # newest token known before the first produced one is first - 1; its draft speaks of at + 2
    while at + 2 < last:
        count = 0
        for depth in range(3):
            if at + depth + 2 >= last:
                break
            drafted += 1
            if count == depth and hits[depth][at + depth]:
                count += 1
        good += count
        at += count + 1
    return good, drafted


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
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    look(args)


def look(args: argparse.Namespace) -> None:
    """Run all tasks of one checkpoint."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from tokenizers import Tokenizer

    from tools.demo_model import checkpoint, decode, geometry, model

    config = geometry.tiny() if args.tiny else geometry.full()
    params = jax.device_put(checkpoint.load_small(model.fresh(config, 0), args.start, args.name))
    tokenizer = Tokenizer.from_file(str(args.tokenizer))
    stop = tokenizer.token_to_id("<|im_end|>")
    lists = load_lists(args.words)

    @jax.jit
    def hits(params: Any, tokens: Any) -> Any:
        starts = jnp.zeros(tokens.shape, bool).at[:, 0].set(True)
        hidden, segment = model.trunk(params, tokens, starts, config)
        outs = model.mtp_depths(params, hidden, tokens, segment, 3, config)
        return jnp.stack([jnp.argmax(model.logits(params, out), -1) == jnp.roll(tokens, -2, 1) for out in outs])

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
        replies = decode.complete(params, prompts, args.most, stop, config, args.batch, args.length)
        right = shaped = loops = good = drafted = 0
        shown: list[str] = []
        whole = np.full((len(prompts), 1536), stop, np.int32)
        for row, (ids, reply) in enumerate(zip(prompts, replies, strict=True)):
            both = (ids + reply)[:1536]
            whole[row, : len(both)] = both
        seen = (
            np.concatenate(
                [
                    np.asarray(hits(params, jnp.asarray(whole[at : at + 64])))
                    for at in range(0, len(whole) - len(whole) % 64 or 64, 64)
                ],
                1,
            )
            if len(whole) >= 64
            else None
        )
        for row, (example, ids, reply) in enumerate(zip(examples, prompts, replies, strict=True)):
            text = tokenizer.decode(reply, skip_special_tokens=False)
            _, answer = checks.split_thought(text, example.thinking)
            loop = checks.is_loop(reply)
            loops += loop
            ok = task in TASKS and checks.verdict(example.check, answer, example.tools)
            right += ok
            if example.check.get("kind") == "json":
                shaped += checks.valid_shape(example.check, answer)
            if not loop and seen is not None and row < seen.shape[1]:
                a, b = accepted([seen[d, row] for d in range(3)], len(ids), len(ids) + len(reply) + 1)
                good, drafted = good + a, drafted + b
            if not ok and len(shown) < args.show:
                expected = {key: value for key, value in example.check.items() if key != "kind"}
                shown.append(
                    f"   USER {example.messages[-2]['content'][-300:]!r}"
                    f"\n   WANT {str(expected)[:300]}\n   GOT  {text[:400]!r}"
                )
        line = f"{task:11s} right {right}/{len(examples)}"
        if shaped:
            line += f" shape {shaped}/{len(examples)}"
        print(
            f"{line} loops {loops} accept {good}/{drafted} = {good / max(1, drafted):.3f}"
            f"  {time.perf_counter() - began:.1f} s"
        )
        print("\n".join(shown), flush=True)


if __name__ == "__main__":
    main()
