"""What encoding costs: CPU microseconds from a text event to the bytes of its chunk, for each protocol.

    python -m benchmarks.encoding_cost [--runs 7] [--chunks 20000] [--write FILE]

No server and no engine: the protocols' own encoders alone, in one thread. The variants take turns in every run. Printed
is the median over the runs with the smallest and the largest. `--write docs/performance.md` puts the table between that
document's marks.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from benchmarks.http_overhead import machine, spread, write
from ninfer.conversation import Committed, Event, Started, TextDelta, Timings
from ninfer.protocols.anthropic_messages.encode import Head as MessageHead
from ninfer.protocols.anthropic_messages.encode import MessageEncoder
from ninfer.protocols.openai_chat.encode import ChunkEncoder, Shape
from ninfer.protocols.openai_chat.encode import Head as ChatHead
from ninfer.protocols.openai_responses.encode import Answer, frame
from ninfer.protocols.openai_responses.encode import Head as ResponsesHead

MARKS = "encoding_cost"
TOKEN = " lorem"
ROUND_TOKENS = 4
"""Tokens of a round that has committed several."""

Encode: TypeAlias = Callable[[Event], Sequence[bytes]]


def chat(shape: Shape) -> Encode:
    """Chat's chunks."""
    return ChunkEncoder(ChatHead(id="chatcmpl-" + "0" * 32, created=1_700_000_000, model="a-model"), shape).frames


def messages() -> Encode:
    """Messages' events."""
    return MessageEncoder(MessageHead(id="msg_" + "0" * 32, model="a-model"), show_thinking=True).frames


def responses() -> Encode:
    """Responses' events."""
    head = ResponsesHead(id="resp_" + "0" * 32, created_at=1_700_000_000, model="a-model", echoed={})
    answer = Answer(head, summary=False, mirror=False, origin=lambda name: (None, name))
    return lambda event: [frame(one) for one in answer.feed(event)]


VARIANTS: dict[str, Callable[[], Encode]] = {
    "Chat": lambda: chat(Shape()),
    "Chat, timings_per_token": lambda: chat(Shape(timings_per_token=True)),
    "Responses": responses,
    "Messages": messages,
}


def cost_us(made: Callable[[], Encode], text: str, chunks: int) -> float:
    """Microseconds of CPU time for one chunk: what neighbours on the machine take does not count."""
    encode = made()
    encode(Started(prompt_tokens=100, cached_tokens=0))
    committed = Committed(completion_tokens=9, timings=Timings(prompt_s=0.1, generation_s=0.2))
    delta = TextDelta(text, "answer", committed)
    encode(delta)  # opens what has to be opened
    began_s = time.process_time()
    for _ in range(chunks):
        encode(delta)
    return (time.process_time() - began_s) / chunks * 1e6


def table(costs: dict[str, tuple[list[float], list[float]]]) -> list[str]:
    """The results as Markdown."""
    lines = [
        f"| protocol | µs a chunk of one token | µs a chunk of {ROUND_TOKENS} tokens | µs a token of these |",
        "|---|---|---|---|",
    ]
    for name, (single, several) in costs.items():
        each = spread(several, ".2f", 1 / ROUND_TOKENS)
        lines.append(f"| {name} | {spread(single, '.1f')} | {spread(several, '.1f')} | {each} |")
    return lines


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.encoding_cost")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--chunks", type=int, default=20_000)
    parser.add_argument("--write", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    where = f"{time.strftime('%Y-%m-%d')}, {machine()}: {options.runs} runs of {options.chunks:,} chunks."
    print(where)
    costs: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in VARIANTS}
    for _ in range(options.runs):
        for name, made in VARIANTS.items():
            single, several = costs[name]
            single.append(cost_us(made, TOKEN, options.chunks))
            several.append(cost_us(made, TOKEN * ROUND_TOKENS, options.chunks))
    lines = table(costs)
    print("\n".join(lines))
    if options.write is not None:
        write(options.write, [where, "", *lines], MARKS)


if __name__ == "__main__":
    main(sys.argv[1:])
