"""Second questions that lean on the first: another one, what about, and why, are you sure, yes please.

Knows no tools. Invariant: the later answer is right only with what stands before it.
"""

from __future__ import annotations

from typing import Any

from tools.demo_model.generate import chat
from tools.demo_model.generate.calls import style
from tools.demo_model.generate.knowledge import COUNTS, KINDS, simple_fact
from tools.demo_model.generate.phrases import plural, upper_first
from tools.demo_model.generate.spin import form, spin
from tools.demo_model.generate.stories import story
from tools.demo_model.render import Example, assistant, user
from tools.demo_model.words import Words

Turns = list[tuple[str, str]]
JOKES = next(block for block in chat.BLOCKS if any("too many bytes" in answer for answer in block.answers))
SURE = "I think so, but I am a very small model and may be wrong."


def _capitals(words: Words) -> Turns:
    """The capital of one country, then of others."""
    rng = words.rng
    turns = []
    for at in range(rng.choice((2, 2, 3))):
        country, capital, *_ = words.record("capitals")
        first = "[What is|What's|Tell me] the capital of {c}[?|]"
        later = "[And|And of|What about|How about|And what about|Now] {c}?|And the capital of {c}?"
        ask = spin(rng, f"[{later}]" if at else first).format(c=country)
        turns.append((ask, f"The capital of {country} is {capital}."))
    return turns


def _sums(words: Words) -> Turns:
    """A sum, then more to it."""
    rng = words.rng
    a, b = rng.randint(2, 60), rng.randint(2, 40)
    total = a + b
    turns = [(spin(rng, f"[What is|How much is|Calculate] {a} [+|plus] {b}?"), f"{a} + {b} = {total}")]
    for _ in range(rng.choice((1, 1, 2))):
        c = rng.randint(2, 9)
        sign = rng.choice("+-*")
        said = {
            "+": "[Now add|Add|And plus|Plus] {c}[.|?]",
            "-": "[Now subtract|Subtract|And minus|Minus|Take away] {c}[.|?]",
            "*": "[And times|Times|Now multiply it by|Multiply that by] {c}[.|?]",
        }
        result = {"+": total + c, "-": total - c, "*": total * c}[sign]
        turns.append((spin(rng, said[sign]).format(c=c), f"{total} {sign} {c} = {result}"))
        total = result
    return turns


def _jokes(words: Words) -> Turns:
    """A joke and another one."""
    rng = words.rng
    told = rng.sample(JOKES.answers, 2)
    return [
        (spin(rng, rng.choice(JOKES.asks)), told[0]),
        (
            form(rng, "another"),
            told[1],
        ),
    ]


def _kinds(words: Words) -> Turns:
    """Some things of a kind, and more of them."""
    rng = words.rng
    kind = rng.choice([kind for kind, things in KINDS.items() if len(things) >= 6])
    things, count, more = KINDS[kind], rng.choice((2, 3)), rng.choice((2, 3))
    more = min(more, len(things) - count)

    def said(some: list[str]) -> str:
        return upper_first(", ".join(some[:-1]) + " and " + some[-1]) + "."

    return [
        (spin(rng, f"[Name|Give me|Tell me|List] {COUNTS[count]} {plural(kind)}[.|]"), said(things[:count])),
        (
            spin(
                rng,
                f"[{upper_first(COUNTS[more])} more|And {COUNTS[more]} more|Give me {COUNTS[more]} more][.|, please.|]",
            ),
            said(things[count : count + more]),
        ),
    ]


def _sure(words: Words) -> Turns:
    """A fact, and a doubt."""
    turn = simple_fact(words)
    while "?" not in turn.messages[-2]["content"]:
        turn = simple_fact(words)
    doubt, answer = words.rng.choice(
        (
            ("[Are you sure|Really|Is that true|Is that right|Are you certain][?| about that?]", SURE),
            ("[Why|How come|Why is that|How do you know|Why so]?", "I do not know why. I only know that it is so."),
            ("[Thanks|Thank you|OK, thanks|Great, thank you][.|!]", "You are welcome!"),
            (
                "[Interesting|Nice|Cool|Good to know|I did not know that|Wow][.|!]",
                "Is there anything else that you would like to know?",
            ),
        )
    )
    return [(turn.messages[-2]["content"], turn.messages[-1]["content"]), (spin(words.rng, doubt), answer)]


def _story(words: Words) -> Turns:
    """An offer taken up, or not."""
    rng = words.rng
    at = next(
        at for at, block in enumerate(chat.BLOCKS) if block.answers[0].startswith("Shall I tell you a short story")
    )
    ask, answer, _ = chat.line(words, at)
    if rng.random() < 0.75:
        return [
            (ask, answer),
            (
                spin(rng, "[Yes|Yes, please|Sure|OK|Please do|A story, please|Tell me a story|Yes, a story][.|!|]"),
                story(words, length=rng.choice((0, 1))),
            ),
        ]
    return [
        (ask, answer),
        (
            spin(rng, "[No|No, thanks|No, thank you|Not now|Maybe later][.|!|]"),
            "All right. What would you like to do instead?",
        ),
    ]


def follow_up(words: Words) -> Example:
    """One of the above, as a conversation."""
    rng = words.rng
    mode = style(words)
    turns = rng.choices((_capitals, _sums, _jokes, _kinds, _sure, _story), (4, 3, 2, 2, 4, 3))[0](words)
    messages: list[dict[str, Any]] = []
    for at, (ask, answer) in enumerate(turns):
        messages += [user(ask), assistant(answer, "It goes on from before." if at and mode["thinking"] else "")]
    return Example(
        task="follow_up",
        messages=messages,
        preserve=rng.random() < 0.8,
        check={"kind": "exact", "answer": turns[-1][1]},
        **mode,
    )
