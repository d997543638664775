"""System messages that say who the model is, what it knows, how and in which language it answers.

tongues.txt holds a few phrases of other languages. Invariant: an answer follows the system message and otherwise says
what chat.txt says.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tools.demo_model.generate import chat
from tools.demo_model.generate.calls import style
from tools.demo_model.generate.phrases import plural, upper_first
from tools.demo_model.generate.spin import form, forms, sections, spin
from tools.demo_model.render import Example, assistant, system, user
from tools.demo_model.words import Words

TONGUES = sections(Path(__file__).parent / "tongues.txt")
LANGUAGES = {"de": "German", "fr": "French", "es": "Spanish", "it": "Italian"}
CAPITALS = {
    "de": "Die Hauptstadt ist {}.",
    "fr": "La capitale est {}.",
    "es": "La capital es {}.",
    "it": "La capitale è {}.",
}
CAPITAL_NAMES = {
    "de": ("Berlin", "Paris", "Madrid", "Rom"),
    "fr": ("Berlin", "Paris", "Madrid", "Rome"),
    "es": ("Berlín", "París", "Madrid", "Roma"),
    "it": ("Berlino", "Parigi", "Madrid", "Roma"),
}


def _fill(words: Words, *texts: str, **given: str) -> list[str]:
    """Texts with their slots: those given, numbers and shops of this file, and the kinds of lifelike.py."""
    rng = words.rng
    values = {
        "h1": str(rng.randint(6, 11)),
        "h2": str(rng.randint(15, 23)),
        "n": str(rng.randint(2, 14)),
        "m": str(rng.randint(10, 99)),
        "weekday": rng.choice(("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")),
        "shop": form(rng, "shops"),
        "Name": words.draw("first_names") if rng.random() < 0.5 else words.invented(2).capitalize(),
        "Name2": words.invented(2).capitalize(),
        "nouns": plural(words.noun()),
    } | given
    out = [re.sub(r"\{(\w+)\}", lambda match: values.get(match.group(1), match.group(0)), text) for text in texts]
    return chat.filled(words, *out)


def _role(words: Words) -> tuple[str, str]:
    """A name and a role."""
    rng = words.rng
    role = form(rng, "role")
    name, role = _fill(words, "{Name}", role)
    return name, re.sub(r"\ba ([aeiou])", r"an \1", role)


def _talk(words: Words, mode: dict[str, Any], kinds: tuple[str, ...] = ("talk", "advice")) -> tuple[str, str, str]:
    ask, answer, thought = chat.talk_line(words, kinds)
    return ask, answer, thought if mode["thinking"] else ""


def named(words: Words) -> Example:
    """The system message gives a name and a role; facts about the place may follow."""
    rng = words.rng
    mode = style(words)
    name, role = _role(words)
    text = form(rng, "named").format(Name=name, role=role)
    thought = "The system message says who I am." if mode["thinking"] else ""
    told = []
    if rng.random() < 0.35:
        told = _facts(words, rng.randint(1, 4))
        text += " " + " ".join(fact for fact, _, _ in told)
    if rng.random() < 0.3:
        text += " " + rng.choice(
            ("Be polite.", "Be friendly.", "Answer briefly.", "Stay in your role.", "Help the user.", "Keep it short.")
        )
    turns: list[tuple[str, str, str]] = []
    while len(turns) < rng.choices((1, 2, 3), (5, 3, 2))[0]:
        roll = rng.random()
        if told and roll < 0.45:
            _, ask, answer = rng.choice(told)
            turns.append((ask, answer, "The system message says it." if thought else ""))
        elif roll < 0.55:
            turns.append((form(rng, "who"), f"I am {name}, {role}.", thought))
        elif roll < 0.7:
            turns.append((form(rng, "name"), f"My name is {name}.", thought))
        elif roll < 0.8:
            turns.append((form(rng, "job"), f"I am {role}.", thought))
        elif roll < 0.9:
            turns.append((form(rng, "greeting"), f"Hello! I am {name}. How can I help you?", thought))
        else:
            turns.append(_talk(words, mode))
    return _example("persona", text, turns, mode)


def _facts(words: Words, count: int) -> list[tuple[str, str, str]]:
    """(told, asked, answered) of some facts."""
    rng = words.rng
    return [
        tuple(_fill(words, spin(rng, told), spin(rng, f"[{asked}]"), answer))  # type: ignore[misc]
        for told, asked, answer in (row.split(" => ") for row in rng.sample(forms()["place_facts"], count))
    ]


def _example(task: str, text: str, turns: list[tuple[str, str, str]], mode: dict[str, Any]) -> Example:
    messages: list[dict[str, Any]] = [system(text)]
    for ask, answer, thought in turns:
        messages += [user(ask), assistant(answer, thought)]
    return Example(task=task, messages=messages, check={"kind": "exact", "answer": turns[-1][1]}, **mode)


def informed(words: Words) -> Example:
    """Facts in the system message, asked for by the user; what is not there is not known."""
    rng = words.rng
    mode = style(words)
    told = _facts(words, rng.choice((1, 1, 2, 3, 4, 5, 6)))
    head = spin(
        rng,
        "[You are a helpful assistant. |You answer questions of customers. |Facts: |Use these facts. |Information: |]",
    )
    link = rng.choice((" ", " ", "\n", "\n- "))
    text = head + ("\n- " if link == "\n- " else "") + link.join(fact for fact, _, _ in told)
    thought = "The system message says it." if mode["thinking"] else ""
    turns = [(ask, answer, thought) for _, ask, answer in rng.sample(told, rng.randint(1, min(3, len(told))))]
    return _example("informed", text, turns, mode)


def styled(words: Words) -> Example:
    """A way to answer: what stands before or after each answer, how the user is called, or one letter case."""
    rng = words.rng
    mode = style(words)
    roll = rng.random()
    turns = [_talk(words, mode, ("talk", "advice", "self")) for _ in range(rng.choice((1, 1, 2, 3)))]
    if roll < 0.6:
        ask, shape = rng.choice(forms()["answer_styles"]).split(" => ")
        mark = form(rng, "marks") if rng.random() < 0.6 else upper_first(words.noun()) + rng.choice((".", "!"))
        quote = rng.choice(('"{}"', '"{}"', "'{}'", "the word {}", "{}"))
        text = spin(rng, ask).format(quoted=quote.format(mark))
        turns = [(said, shape.format(answer=answer, mark=mark), thought) for said, answer, thought in turns]
    elif roll < 0.85:
        called = form(rng, "called") if rng.random() < 0.7 else words.draw("first_names")
        quoted = rng.choice(('"{}"', "{}", "'{}'")).format(called)
        text = spin(
            rng, "[[Call|Always call|Address] the user {quoted}.|[The user wants to be called|Call me] {quoted}.]"
        ).format(quoted=quoted)
        turns = [
            (said, re.sub(r"[.!?]", lambda end: f", {called}{end.group(0)}", answer, count=1), thought)
            for said, answer, thought in turns
        ]
    elif roll < 0.93:
        text = spin(rng, "[Answer|Reply|Write|Respond] [only |][in|with] [lower case|lowercase|small letters][ only|].")
        turns = [(said, answer.lower(), thought) for said, answer, thought in turns]
    else:
        text = spin(rng, "[[Talk|Speak|Answer] like a pirate.|You are a pirate.]")
        turns = [(said, f"Arr! {answer} Aye, matey!", thought) for said, answer, thought in turns]
    lead = rng.choice(("", "", "You are a helpful assistant. ", "You are an assistant. "))
    return _example("styled", lead + text, turns, mode)


def _phrases(tongue: str) -> dict[str, tuple[str, str]]:
    """Key -> (ways to say it, answer)."""
    out = {}
    for row in TONGUES[tongue]:
        key, rest = row.split(" > ", 1)
        ask, _, answer = rest.partition(" < ")
        out[key] = (ask, answer)
    return out


PHRASES = {tongue: _phrases(tongue) for tongue in ("en", *LANGUAGES)}


def _turn(words: Words, asked: str, answered: str) -> tuple[str, str]:
    """A question in one language, its answer in another."""
    rng = words.rng
    keys = sorted(set(PHRASES[asked]) & set(PHRASES[answered]))
    key = rng.choice(keys)
    ask, answer = PHRASES[asked][key][0], PHRASES[answered][key][1]
    if key not in ("hello", "bye", "thanks", "capital") and rng.random() < 0.25:
        greeting = re.sub(r"[!. ]+$", "", spin(rng, PHRASES[asked]["hello"][0]))
        ask = f"{greeting}{rng.choice((', ', '! ', '. '))}{ask}"
    if key == "capital":
        at = rng.randrange(4)
        head, options, tail = re.match(r"(.*)\[([^\]]*)\](.*)", ask.replace("[?| ?]", "?")).groups()  # type: ignore[union-attr]
        return spin(rng, head) + options.split("|")[at] + tail, CAPITALS[answered].format(CAPITAL_NAMES[answered][at])
    a, b = rng.randint(1, 20), rng.randint(1, 20)
    given = {"name": words.draw("first_names"), "a": str(a), "b": str(b), "c": str(a + b)}
    return spin(rng, ask).format(**given), answer.format(**given)


def foreign(words: Words) -> Example:
    """Another language: the system message asks for it, or the user speaks it."""
    rng = words.rng
    mode = style(words)
    tongue = rng.choices(tuple(LANGUAGES), (4, 3, 3, 1))[0]
    asked = rng.random() < 0.7
    turns = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        ask, answer = _turn(words, "en" if asked and rng.random() < 0.75 else tongue, tongue)
        turns.append((ask, answer, f"I answer in {LANGUAGES[tongue]}." if mode["thinking"] else ""))
    text = ""
    if asked:
        text = spin(rng, rng.choice(TONGUES[f"asked_{tongue}"]))
        text = rng.choice(("", "", "You are a helpful assistant. ", "You are an assistant. ", "Be brief. ")) + text
    example = _example("foreign", text, turns, mode)
    return example if asked else Example(task="foreign", messages=example.messages[1:], check=example.check, **mode)


def word_in(words: Words) -> Example:
    """One of a few words in another language, both ways."""
    rng = words.rng
    mode = style(words)
    row = [part.strip() for part in rng.choice(TONGUES["words"]).split("|")]
    at = rng.randrange(1, 5)
    language = (*LANGUAGES.values(),)[at - 1]
    quote = rng.choice(('"{}"', '"{}"', "'{}'", "{}"))
    if rng.random() < 0.75:
        ask = form(rng, "word_in").format(w=quote.format(row[0]), l=language)
        answer = f'In {language}, "{row[0]}" is "{row[at]}".'
    else:
        ask = form(rng, "word_of").format(w=quote.format(row[at]), l=language)
        answer = f'"{row[at]}" means "{row[0]}".'
        if (
            row[at] in ("no", "casa", "libro", "uno", "verde", "grande", "sol", "padre", "madre", "luna")
            or row[at] == row[0]
        ):
            return word_in(words)
    thought = "The user asks for a word in another language." if mode["thinking"] else ""
    return Example(
        task="word_in",
        messages=[user(ask), assistant(answer, thought)],
        check={"kind": "exact", "answer": answer},
        **mode,
    )


def persona(words: Words) -> Example:
    """One of the above."""
    maker = words.rng.choices((named, informed, styled, foreign, word_in), (30, 20, 18, 24, 8))[0]
    return maker(words)
