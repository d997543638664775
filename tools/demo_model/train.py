"""The training loop: packed rows in, parameters out, paced by the clock.

`python -m tools.demo_model.train --seconds 500 --out DIR` trains new or given parameters. The rate warms up, stays, and
falls to nothing at the end of --plan seconds of all runs together, so a plan may be cut into several calls:
--done says how much of it earlier calls have used. Knows nothing of how the result is judged.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tools.demo_model.data import Block, Source, blocks

HERE = Path(__file__).parent


def rate(progress: float, step: int, peak: float, hold: float) -> float:
    """Warm-up over 200 steps, then flat until `hold` of the plan, then linear to 1 %."""
    warm = min(1.0, (step + 1) / 200)
    fall = max(0.01, (1.0 - progress) / (1.0 - hold)) if progress > hold else 1.0
    return peak * warm * min(1.0, fall)


def make_step(config: Any, draft_rows: int, dtype: Any) -> tuple[Callable[..., Any], Any]:
    """The compiled step (params, state, tokens, flags, rate) -> (params, state, metrics), and the optimizer."""
    import functools

    import jax
    import optax

    from tools.demo_model.objective import objective
    from tools.demo_model.optimizer import build

    optimizer = build()

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params: Any, state: Any, tokens: Any, flags: Any, scale: Any) -> tuple[Any, Any, Any]:
        grads, metrics = jax.grad(objective, has_aux=True)(params, tokens, flags, config, draft_rows, dtype)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, jax.tree.map(lambda u: u * scale, updates)), state, metrics

    return step, optimizer


def unpack_tokenizer(artifact: Path, folder: Path) -> Path:
    """The artifact's tokenizer.json as a file in `folder`: other ids would be another language."""
    from ninfer.engine.artifact import Artifact

    folder.mkdir(parents=True, exist_ok=True)
    with Artifact.open(artifact) as opened:
        resource = opened.resource("tokenizer.json")
    if resource is None:
        raise ValueError(f"{artifact} holds no tokenizer.json")
    path = folder / "tokenizer.json"
    path.write_bytes(bytes(resource))
    return path


def read_artifact(path: Path) -> Any:
    """Parameters of an artifact, float32."""
    import numpy as np

    from ninfer.engine.artifact import Artifact
    from ninfer.engine.model.config import parse_text_config
    from ninfer.engine.model.weights import load_weights
    from tools.demo_model.model import from_weights

    with Artifact.open(path) as artifact:
        config = parse_text_config(artifact.config("text"))
        return from_weights(load_weights(config, lambda name: np.array(artifact.read(name)), mtp=True))


def starting_point(args: argparse.Namespace, params: Any, optimizer: Any) -> tuple[Any, Any, int]:
    """(params, optimizer state, steps done): an earlier run's, those of given parameters, or those of `params`."""
    from tools.demo_model import checkpoint

    if args.resume and args.resume.is_file():
        params, state, at = checkpoint.load_state(args.resume)
        return params, state, int(at)  # an array would not print
    if args.from_artifact:
        params = read_artifact(args.from_artifact)
    elif args.start:
        params = checkpoint.load_small(params, args.start, args.name)
    return params, optimizer.init(params), 0


def open_log(args: argparse.Namespace) -> Path | None:
    """Where the log goes, its folder made."""
    if not args.out:
        return None
    args.out.mkdir(parents=True, exist_ok=True)
    path: Path = args.out / f"{args.name}.log.jsonl"
    return path


def report(line: dict[str, Any], log: Path | None) -> None:
    """One line of progress, shown and kept."""
    print(json.dumps(line), flush=True)
    if log:
        with log.open("a") as file:
            file.write(json.dumps(line) + "\n")


def share_done(args: argparse.Namespace, spent_s: float, steps: int) -> float:
    """How much of the plan is over, 0 to 1: in steps where their number is given, else in seconds."""
    return steps / args.steps if args.steps < 10**9 else min(1.0, (args.done + spent_s) / args.plan)


def loop(
    args: argparse.Namespace,
    step: Callable[..., Any],
    stream: Iterator[Block],
    point: tuple[Any, Any, int],
    began: float,
) -> tuple[Any, Any, int]:
    """Steps from `point` (params, state, steps done) until time or steps are up; the point reached.

    began: perf_counter at the start of the run. The plan's clock starts later, once the first step is compiled and run.
    """
    import numpy as np

    params, state, at = point
    log = open_log(args)
    already_warm = 100 if args.start or args.from_artifact else 0
    first, shown = at, time.perf_counter()
    print(f"set up in {shown - began:.1f} s", flush=True)
    waited, started = 0.0, None
    while True:
        now = time.perf_counter()
        spent = now - (started or now)
        if now - began > args.seconds or at - first >= args.steps:
            break
        progress = share_done(args, spent, at - first)
        block = next(stream)
        waited += time.perf_counter() - now
        scale = rate(progress, at + already_warm, args.peak, args.hold)
        params, state, metrics = step(params, state, block.tokens, block.flags, np.float32(scale))
        at += 1
        if started is None:
            metrics.block_until_ready()
            started = time.perf_counter()
            print(f"first step after {started - began:.1f} s", flush=True)
        if at % args.every == 0:
            values = [round(float(value), 4) for value in metrics]  # waits for the step, so before the clock is read
            now = time.perf_counter()
            line = {
                "step": at,
                "rate": scale,
                "ms": round((now - shown) / args.every * 1000, 1),
                "waited_s": round(waited, 1),
                "seconds": round(args.done + now - started, 1),
                "values": values,
            }
            shown = now
            report(line, log)
    print(f"done: {at} steps, {args.done + time.perf_counter() - (started or began):.1f} s of the plan", flush=True)
    return params, state, at


def run(args: argparse.Namespace) -> None:
    """Train for args.seconds."""
    began = time.perf_counter()
    if args.from_artifact:
        args.tokenizer = unpack_tokenizer(args.from_artifact, args.out)
    source = Source(words=args.words, tokenizer=args.tokenizer, seed=args.seed, rows=args.rows, length=args.length)
    stream = blocks(source, args.processes, first=args.first_block)
    next(stream)  # the processes start while JAX does
    import jax
    import jax.numpy as jnp

    from tools.demo_model import checkpoint, geometry, model

    config = geometry.tiny() if args.tiny else geometry.full()
    params = model.fresh(config, args.seed)
    print("parameters:", sum(leaf.size for leaf in jax.tree.leaves(params)), jax.devices(), flush=True)
    step, optimizer = make_step(config, args.rows // 8 or 1, jnp.float32 if args.tiny else jnp.bfloat16)
    params, state, at = starting_point(args, params, optimizer)
    params, state = jax.device_put((params, state))
    params, state, at = loop(args, step, stream, (params, state, at), began)
    if args.out:
        checkpoint.save_small(params, args.out, args.name)
    if args.keep:
        checkpoint.save_state(args.keep, (params, state, at))
    stream.close()


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", type=Path, default=HERE / "work/words.json")
    parser.add_argument("--tokenizer", type=Path, default=HERE / "work/hf/tokenizer.json")
    parser.add_argument("--out", type=Path, help="folder for small checkpoints and the log")
    parser.add_argument("--name", default="model")
    parser.add_argument("--start", type=Path, help="folder with a small checkpoint to start from")
    parser.add_argument("--from-artifact", type=Path, help="artifact to go on from, with its own tokenizer")
    parser.add_argument("--resume", type=Path, help="full state of an earlier run on this machine")
    parser.add_argument("--keep", type=Path, help="where to leave the full state")
    parser.add_argument(
        "--seconds", type=float, default=1e9, help="stop after so many seconds of this run, start included"
    )
    parser.add_argument("--steps", type=int, default=10**9, help="stop after so many steps; then the plan is in steps")
    parser.add_argument("--plan", type=float, default=1e9, help="training seconds of all runs together")
    parser.add_argument("--done", type=float, default=0.0, help="training seconds that earlier runs used")
    parser.add_argument("--hold", type=float, default=0.55, help="share of the plan before the rate falls")
    parser.add_argument("--peak", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first-block", type=int, default=0)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--processes", type=int, default=15)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--tiny", action="store_true")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
