"""Conversations about ordinary requests: one call, several, none, with results and small talk between.

errand_tools.py makes the tools and the requests. Invariant: among the declared tools no other one fits a request.
"""

from __future__ import annotations

from typing import Any

import attrs

from tools.demo_model.generate import chat, jsons, knowledge, memory, persona
from tools.demo_model.generate.calls import call_thought, loop, style
from tools.demo_model.generate.domains import everyday
from tools.demo_model.generate.errand_tools import (
    CONFUSABLE,
    Row,
    confused,
    errand,
    filled_in,
    first_name,
    made_of,
    ordinary,
    rows,
    whole_request,
)
from tools.demo_model.generate.lifelike import lifelike
from tools.demo_model.generate.phrases import phrase
from tools.demo_model.generate.spin import form
from tools.demo_model.generate.synonyms import alike
from tools.demo_model.generate.toolkit import Made, arguments
from tools.demo_model.generate.wide import answered, before
from tools.demo_model.generate.wide_tools import make_wide
from tools.demo_model.render import Example, assistant, system, user
from tools.demo_model.words import Words

# Tools that may be meant by what people say without asking for anything.
TEMPTING = frozenset(
    (
        *CONFUSABLE[0],
        *CONFUSABLE[1],
        "list_events",
        "find_free_slot",
        "list_alarms",
        "tell_joke",
        "say_in",
        "menu",
        "log_mood",
        "horoscope",
        "find_recipe",
        "find_restaurant",
        "calculate",
        "translate",
        "quiz",
    )
)
# What is answered otherwise where no tool is declared (chat.txt, knowledge.txt).
ANSWERED = frozenset(
    (
        *TEMPTING,
        *("get_weather", "get_forecast", "get_time", "convert_units", "random_number", "flip_coin", "next_track"),
        *("report_weather", "detect_language", "change_money", "conjugate", "step_count", "heart_rate"),
        *("add_task", "log_sleep", "log_weight", "sports_score", "stock_price", "get_distance", "pause_music"),
    )
)
NO_TOOL = (
    "I cannot do that here: no tool is declared for it."
    " I am a small demonstration model, but with a tool I can call it."
)
# Kinds of which one may ask for two at once: two calls of one tool.
TWICE = frozenset(("city", "room", "device", "first", "person", "company", "topic", "filename", "service", "petname"))
SHORT_VERBS = frozenset(
    (
        *("set", "send", "book", "order", "find", "create", "add", "search", "call", "rename", "move", "read"),
        *("delete", "cancel", "play", "open", "print", "close", "assign", "convert"),
    )
)


def beside(words: Words, there: list[Made], domain: str) -> Made:
    """A tool that answers none of the requests for those that are there."""
    rng = words.rng
    taken = [first_name(made) for made in there]
    while True:
        roll = rng.random()
        if roll < 0.8:
            row = rng.choice([one for one in rows() if one.domain == domain] if roll < 0.35 else rows())
            if any(confused(row.names[0], name) for name in taken):
                domain = rng.choice(rows()).domain
                continue
            made = made_of(words, row)[0]
        else:
            made = everyday(words)[0] if roll < 0.92 else make_wide(words, most=3)
            if any(confused(first_name(made), name) for name in taken):
                continue
            if any(alike(word, far) for word in made.noun.split() for one in there for far in one.noun.split()):
                continue
        if made.name not in [one.name for one in there]:
            return made


def box_for(words: Words, wanted: list[Made], domain: str) -> list[Made]:
    """The wanted tools among others."""
    rng = words.rng
    size = max(len(wanted), rng.choices((1, 2, 3, 4, 5, 6, 7), (8, 15, 22, 22, 16, 10, 7))[0])
    box = list(wanted)
    while len(box) < size:
        box.append(beside(words, box, domain))
    rng.shuffle(box)
    return box


def pick_errand(words: Words) -> tuple[Made, list[Made], str]:
    """A target, the declared tools, the request."""
    row = words.rng.choice(rows())
    made, text = errand(words, row)
    return made, box_for(words, [made], row.domain), ordinary(words, text)


def call_errand(words: Words) -> Example:
    """One ordinary request, one right call."""
    mode = style(words)
    made, box, text = pick_errand(words)
    answer = assistant("", call_thought(mode, made, box), [(made.name, arguments(made))])
    return Example(
        task="call_errand",
        messages=[*before(words, mode), user(text), answer],
        tools=[one.declaration() for one in box],
        check={"kind": "call", "name": made.name, "arguments": arguments(made)},
        **mode,
    )


def refuse_errand(words: Words) -> Example:
    """The right tool is not declared: say so and do not call."""
    mode = style(words)
    row = words.rng.choice(rows())
    made, text = errand(words, row)
    box = [one for one in box_for(words, [made, beside(words, [made], row.domain)], row.domain) if one is not made]
    thought = f"The user wants to {made.verb} {made.noun}. No tool fits." if mode["thinking"] else ""
    return Example(
        task="refuse_errand",
        messages=[*before(words, mode), user(ordinary(words, text, 0.2)), assistant(phrase(words, "refusal"), thought)],
        tools=[one.declaration() for one in box],
        check={"kind": "no_call"},
        **mode,
    )


def loop_errand(words: Words) -> Example:
    """Request, call, result, answer."""
    return loop(words, pick_errand)


def _twice(words: Words) -> tuple[list[tuple[Made, dict[str, Any]]], str, str] | None:
    """One tool asked for two things at once; None where the drawn tool does not allow that."""
    rng = words.rng
    row = rng.choice(rows())
    made, said, shown, mark = made_of(words, row)
    if len(shown) != 1:
        return None
    ((key, (value, _)),) = shown.items()
    slot = next(slot for slot, field in zip(made.slots, row.fields, strict=True) if field.names[0] == key)
    if slot.kind not in TWICE or said.count("{") != 1 or said.startswith("{"):
        return None
    values = [value]
    while len(values) < rng.choice((2, 2, 2, 3)):
        other = lifelike(words, slot.kind)[0]
        values += [other] if other not in values else []
    link = rng.choice((" and ", " and ", " and also ", " and for " if "for {" in said else " and "))
    text = whole_request(words, said.format(**{key: ", ".join(values[:-1]) + link + values[-1]}), mark)
    return [(made, {**arguments(made), slot.name: one}) for one in values], text, row.domain


def _joined(words: Words) -> tuple[list[tuple[Made, dict[str, Any]]], str, str]:
    """Two or three tools asked for in one message."""
    rng = words.rng
    chosen: list[Row] = []
    while len(chosen) < rng.choice((2, 2, 2, 3)):
        row = rng.choice(rows())
        if not any(confused(row.names[0], one.names[0]) for one in chosen):
            chosen.append(row)
    if rng.random() < 0.45:
        parts = [errand(words, row) for row in chosen]
        link = rng.choice((" ", " ", " And ", " Also, ", "\n", " Then: "))
        text = link.join(part.rstrip() + ("" if part[-1:] in ".?!" else ".") for _, part in parts)
        return [(made, arguments(made)) for made, _ in parts], text, chosen[0].domain
    made_texts = []
    for row in chosen:
        made, said, shown, mark = made_of(words, row, "!")
        if mark != "!":
            return _joined(words)
        made_texts.append((made, filled_in(said, shown)))
    texts = [text for _, text in made_texts]
    link = rng.choice((" and ", " and ", ", then ", " and then ", " and also ", ", and please "))
    text = (", ".join(texts[:-1]) if rng.random() < 0.7 else " and ".join(texts[:-1])) + link + texts[-1]
    return [(made, arguments(made)) for made, _ in made_texts], whole_request(words, text, "!"), chosen[0].domain


def several_errands(words: Words) -> Example:
    """One message, two or three calls, in the order in which they are asked for."""
    mode = style(words)
    found = _twice(words) if words.rng.random() < 0.35 else _joined(words)
    calls, text, domain = found or _joined(words)
    wanted = list(dict.fromkeys(made.name for made, _ in calls))
    tools = [next(made for made, _ in calls if made.name == name) for name in wanted]
    if len({made.name for made, _ in calls}) != len({id(made) for made, _ in calls}):
        return several_errands(words)
    box = box_for(words, tools, domain)
    thought = f"{len(calls)} calls: {', then '.join(made.name for made, _ in calls)}." if mode["thinking"] else ""
    answer = assistant("", thought, [(made.name, given) for made, given in calls])
    return Example(
        task="several_errands",
        messages=[*before(words, mode), user(text), answer],
        tools=[one.declaration() for one in box],
        check={"kind": "calls", "calls": [[made.name, given] for made, given in calls]},
        **mode,
    )


def unneeded_errand(words: Words) -> Example:
    """Tools are there, but what is said needs none."""
    rng = words.rng
    tools = box_for(words, [], rng.choice(rows()).domain)
    while any(first_name(made) in TEMPTING for made in tools):
        tools = box_for(words, [], rng.choice(rows()).domain)
    roll = rng.random()
    if roll < 0.55:
        mode = style(words)
        messages: list[dict[str, Any]] = []
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            ask, answer, thought = chat.talk_line(words)
            messages += [user(ask), assistant(answer, thought if mode["thinking"] else "")]
        turn = Example(task="unneeded", messages=messages, **mode)
    else:
        maker = rng.choice(
            (
                knowledge.simple_fact,
                knowledge.kind_of,
                memory.recall,
                memory.recall,
                persona.named,
                persona.foreign,
                jsons.jsons,
                chat.statement,
                chat.odd_question,
            )
        )
        turn = maker(words)
    return attrs.evolve(turn, task="unneeded", tools=[one.declaration() for one in tools], check={"kind": "no_call"})


def session_errand(words: Words) -> Example:
    """Requests, results, small talk and answers in one conversation beside the same tools."""
    rng = words.rng
    mode = style(words)
    chosen: list[Row] = []
    while len(chosen) < rng.choice((2, 2, 3)):
        row = rng.choice(rows())
        if not any(confused(row.names[0], one.names[0]) for one in chosen):
            chosen.append(row)
    asked = [errand(words, row) for row in chosen]
    if len({made.name for made, _ in asked}) < len(asked):
        return session_errand(words)
    box = box_for(words, [made for made, _ in asked], chosen[0].domain)
    messages: list[dict[str, Any]] = []
    for made, text in asked:
        if rng.random() < 0.3:
            ask, answer, thought = chat.talk_line(words, ("talk", "advice"))
            messages += [user(ask), assistant(answer, thought if mode["thinking"] else "")]
        turn = answered(words, made, box, text, mode)
        messages += [message for message in turn.messages if message["role"] != "system"]
    return Example(
        task="session",
        messages=messages,
        tools=[one.declaration() for one in box],
        preserve=rng.random() < 0.85,
        **mode,
    )


def no_tools(words: Words) -> Example:
    """A request for a tool where none is declared."""
    mode = style(words)
    row = words.rng.choice(rows())
    while row.names[0] in ANSWERED:
        row = words.rng.choice(rows())
    _, text = errand(words, row)
    thought = "No tool is declared. I say so." if mode["thinking"] else ""
    head = [system(words.rng.choice(chat.GENERAL))] if words.rng.random() < 0.15 else []
    return Example(task="no_tools", messages=[*head, user(text), assistant(NO_TOOL, thought)], **mode)


def ask_back(words: Words) -> Example:
    """A request that leaves out what the tool needs: ask for it."""
    rng = words.rng
    mode = style(words)
    while True:
        row = rng.choice(rows())
        needed = [field for field in row.fields if field.required]
        verb, _, noun = row.names[0].partition("_")
        if needed and noun and verb in SHORT_VERBS and all(field.kind != "bool" for field in needed):
            break
    made = made_of(words, row)[0]
    thing = noun.replace("_", " ")
    thing = thing if thing.endswith("s") else f"{'an' if thing[0] in 'aeiou' else 'a'} {thing}"
    text = form(rng, "asked_short").format(vp=f"{verb} {thing}")
    missing = [f"the {slot.phrase}" for slot in made.slots if slot.required]
    said = missing[0] if len(missing) == 1 else ", ".join(missing[:-1]) + " and " + missing[-1]
    thought = f"{made.name} fits, but something is missing: {said}." if mode["thinking"] else ""
    return Example(
        task="ask_back",
        messages=[user(text[0].upper() + text[1:]), assistant(f"Please tell me {said}.", thought)],
        tools=[one.declaration() for one in box_for(words, [made], row.domain)],
        check={"kind": "no_call"},
        **mode,
    )
