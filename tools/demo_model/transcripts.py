"""The model card's transcripts: fixed conversations, answered greedily by the engine, printed as they came.

`python -m tools.demo_model.transcripts demo.ninfer` prints Markdown. The questions are ours, no answer is edited.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import attrs
import trio

from tools.demo_model import checks
from tools.demo_model.engine_run import complete, load, running
from tools.demo_model.render import Example, assistant, prompt_text, system, tool_result, user


def tool(name: str, description: str, **properties: dict[str, Any]) -> dict[str, Any]:
    """A declaration whose parameters are all required."""
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TEXT = {"type": "string"}
WORKSHOP = [
    tool("find_bike", "Find a bike by the name of its owner.", owner=TEXT),
    tool("order_part", "Order a part.", part=TEXT, count={"type": "integer"}),
    tool(
        "set_status",
        "Set the status of a repair.",
        repair_id=TEXT,
        status={"type": "string", "enum": ["open", "waiting", "done"]},
    ),
]
HOUSE = [
    tool("light", "Switch the light in a room.", room=TEXT, on={"type": "boolean"}),
    tool("countdown", "Ring after some minutes.", minutes={"type": "integer"}),
    tool("groceries", "Write something on the shopping list.", item=TEXT),
]
TALKS: tuple[tuple[str, Example, tuple[str, ...]], ...] = (
    ("Who are you?", Example(task="", messages=[user("Hello! Who are you and what can you do?")]), ()),
    ("A sum with its steps", Example(task="", messages=[user("What is 768 + 457?")]), ()),
    (
        "A tool, its result, an answer",
        Example(
            task="",
            messages=[user("Please find the bike of Lena Foss. What is the shelf?")],
            tools=WORKSHOP,
        ),
        ('{"bike": "B-118", "shelf": "C4", "status": "waiting"}',),
    ),
    (
        "Ordinary words, two calls",
        Example(
            task="",
            messages=[user("Nobody is in the bathroom any more, turn the light off. And we are out of butter.")],
            tools=HOUSE,
        ),
        (),
    ),
    (
        "No tool fits",
        Example(task="", messages=[user("Translate this invoice to Danish.")], tools=WORKSHOP, thinking=False),
        (),
    ),
    (
        "JSON of an asked shape",
        Example(
            task="",
            messages=[
                user(
                    "Invoice F-77 over 310 euros was sent to Mira Holt on 2026-03-04. "
                    "Turn this into JSON with the keys invoice, amount (integer), customer and date."
                )
            ],
            thinking=False,
        ),
        (),
    ),
    (
        "A question about a text",
        Example(
            task="",
            messages=[
                user(
                    "Anna works in Leeds. Her brother Tom works in Oslo and has a boat called Gull. "
                    "Where does Tom work?"
                )
            ],
        ),
        (),
    ),
    (
        "What was told before",
        Example(
            task="",
            messages=[
                user("Hi, I am Ida and I have two dogs, Bruno and Fips."),
                assistant("Nice to meet you, Ida!"),
                user("It is raining again."),
                assistant("Then it is a good day to stay inside with a warm drink."),
                user("What are my dogs called?"),
            ],
        ),
        (),
    ),
    (
        "Somebody else, and another language",
        Example(
            task="",
            messages=[system("You are Rosa, a friendly gardener."), user("Good morning! Who are you?")],
            thinking=False,
        ),
        (),
    ),
    (
        "In German",
        Example(task="", messages=[system("Answer in German."), user("Hello! How are you today?")], thinking=False),
        (),
    ),
    (
        "What it cannot do",
        Example(task="", messages=[user("Could you book a flight to Madrid for me?")], thinking=False),
        (),
    ),
    ("Small talk", Example(task="", messages=[user("I just finished my first marathon!")], thinking=False), ()),
    ("A story", Example(task="", messages=[user("Write a short story about a mouse named Pim.")], thinking=False), ()),
)


async def tell(artifact: Path, cache: Path | None) -> None:
    """Print all conversations."""
    loaded = load(artifact)
    async with running(loaded, cache) as engine:
        for title, start, results in TALKS:
            print(f"### {title}\n")
            if start.tools:
                print(f"Tools: {', '.join(one['function']['name'] for one in start.tools)}\n")
            for message in start.messages:
                print(f"> **{message['role']}** {message['content']}\n")
            talk = attrs.evolve(start, messages=[*start.messages, assistant("")])
            for at in range(len(results) + 1):
                ((_, reply),) = await complete(engine, loaded, [prompt_text(talk)], 320)
                text = loaded.tokenizer.decode(reply, skip_special_tokens=False)
                print("```\n" + text + "\n```\n")
                if at == len(results):
                    break
                thought, answer = checks.split_thought(text, start.thinking)
                calls = [(name, checks.typed(raw, start.tools or [], name)) for name, raw in checks.parse_calls(answer)]
                print(f"> **tool** `{json.dumps(json.loads(results[at]))}`\n")
                done = [*talk.messages[:-1], assistant("", thought, calls), tool_result(results[at]), assistant("")]
                talk = attrs.evolve(talk, messages=done)


def main() -> None:
    """Parse and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--cache", type=Path, help="folder for compiled programs")
    args = parser.parse_args()
    trio.run(tell, args.artifact, args.cache)


if __name__ == "__main__":
    main()
