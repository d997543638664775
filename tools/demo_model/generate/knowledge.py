"""Common knowledge: facts, kinds of things, opposites, plurals, rhymes, letters, praise or complaint, small problems.

knowledge.txt holds the tables. Each question has one answer, so that it can be known.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tools.demo_model.generate import chat
from tools.demo_model.generate.extract import done
from tools.demo_model.generate.lifelike import WEEKDAYS, plain_value
from tools.demo_model.generate.phrases import plural, upper_first
from tools.demo_model.generate.spin import form, sections, spin
from tools.demo_model.generate.values import MONTHS, NUMBER_WORDS
from tools.demo_model.render import Example
from tools.demo_model.words import Words

TABLES = sections(Path(__file__).parent / "knowledge.txt")
FACTS = tuple((tuple(asks.split(";")), answer) for asks, answer in (row.split(" | ") for row in TABLES["facts"]))
KINDS = {kind: things.split(", ") for kind, things in (row.split(" | ") for row in TABLES["kinds"])}
COUNTS = {2: "two", 3: "three", 4: "four", 5: "five"}
THOUGHT = "This is a question about a fact."


def _pairs(section: str) -> list[list[str]]:
    return [pair.split() for row in TABLES[section] for pair in row.split(";") if pair.strip()]


OPPOSITES, PLURALS, PASTS, RHYMES, SYNONYMS = (
    _pairs(name) for name in ("opposites", "plurals", "pasts", "rhymes", "synonyms")
)
SPELLED = tuple(dict.fromkeys(thing.lower() for things in KINDS.values() for thing in things if " " not in thing))


def _asked(words: Words, text: str) -> str:
    """A question with what people put around it."""
    rng = words.rng
    roll = rng.random()
    if roll < 0.12:
        return f"{form(rng, 'before_question')} {text}"
    if roll < 0.2:
        return text.lower() if rng.random() < 0.5 else text.rstrip("?.")
    return text


def simple_fact(words: Words) -> Example:
    """A fact of the table."""
    asks, answer = words.rng.choice(FACTS)
    return done(words, "fact", _asked(words, spin(words.rng, words.rng.choice(asks).strip())), answer, THOUGHT)


def _an(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def kind_of(words: Words) -> Example:
    """Some things of a kind, or whether a thing is of a kind."""
    rng = words.rng
    kind = rng.choice(list(KINDS))
    things = KINDS[kind]
    if rng.random() < 0.55:
        count = rng.randint(2, min(5, len(things)))
        shown = rng.choice((COUNTS[count], COUNTS[count], str(count)))
        ask = form(rng, "some_things").format(n=shown, k=plural(kind))
        said = things[:count]
        return done(words, "kind", ask, upper_first(", ".join(said[:-1]) + " and " + said[-1]) + ".", THOUGHT)
    if rng.random() < 0.35:
        ask = spin(rng, f"[Name|Give me|Tell me|Say] {_an(kind)}[.|| please.]")
        return done(words, "kind", ask, upper_first(things[0]) + ".", THOUGHT)
    thing = rng.choice(things)
    other = rng.choice(list(KINDS)) if rng.random() < 0.5 else kind
    verdict = "Yes" if thing in KINDS[other] else "No"
    noun = (
        thing
        if thing[0].isupper() or kind in ("sport", "metal", "drink", "emotion", "spice", "subject", "season")
        else _an(thing)
    )
    ask = f"Is {noun} {_an(other)}?"
    only = rng.choice(("", "", "", " Answer yes or no.", " Yes or no?"))
    return done(
        words,
        "kind",
        ask + only,
        f"{verdict}." if only else f"{verdict}, {noun} is {'' if verdict == 'Yes' else 'not '}{_an(other)}.",
        THOUGHT,
    )


def word_fact(words: Words) -> Example:
    """Opposites, plurals, past tenses, rhymes."""
    rng = words.rng
    roll = rng.random()
    quote = rng.choice(('"{}"', "{}", "{}", "'{}'"))
    if roll < 0.35:
        one, other = rng.choice(OPPOSITES)
        if rng.random() < 0.3:
            one, other = other, one
            one, other = next(((a, b) for a, b in OPPOSITES if a == one), (one, other))
        ask = spin(rng, "[What is|What's|Tell me|Give me|Name] the opposite of {w}[?|.]").format(w=quote.format(one))
        answer = f"The opposite of {one} is {other}."
    elif roll < 0.55:
        one, other = rng.choice(PLURALS)
        ask = spin(rng, "[What is|What's|Tell me|Give me] the plural of {w}[?|.]").format(w=quote.format(one))
        answer = f"The plural of {one} is {other}."
    elif roll < 0.65:
        one, other = rng.choice(SYNONYMS)
        ask = spin(rng, "[What is|Give me|Tell me|Name] [a synonym for|another word for|a synonym of] {w}[?|.]").format(
            w=quote.format(one)
        )
        other = next(far for near, far in SYNONYMS if near == one)
        answer = f"Another word for {one} is {other}."
    elif roll < 0.8:
        one, other = rng.choice(PASTS)
        ask = spin(rng, "[What is|What's|Tell me|Give me] the [past tense|past|simple past] of {w}[?|.]").format(
            w=quote.format(one)
        )
        answer = f"The past tense of {one} is {other}."
    else:
        one, *others = rng.choice(RHYMES)
        ask = form(rng, "rhyme").format(w=quote.format(one))
        answer = f"{upper_first(others[0])} rhymes with {one}."
    return done(words, "word_fact", ask, answer, THOUGHT)


def letters(words: Words) -> Example:
    """Spelling, counting letters, capitals: of common words alone, whose letters can be known."""
    rng = words.rng
    word = rng.choice(SPELLED)
    quote = rng.choice(('"{}"', "{}", "the word {}", "'{}'")).format(word)
    roll = rng.random()
    if roll < 0.45:
        ask, answer = (
            spin(rng, "[Spell|Please spell|Can you spell|How do you spell] {w}[.|?||, please.]"),
            "-".join(word),
        )
    elif roll < 0.6:
        ask, answer = spin(rng, "How many letters [does {w} have|are in {w}|has {w}]?"), str(len(word))
    elif roll < 0.75:
        ask, answer = spin(rng, "[What is|Which is|What's] the first letter of {w}?"), word[0]
    elif roll < 0.85:
        ask, answer = spin(rng, "[What is|Which is|What's] the last letter of {w}?"), word[-1]
    else:
        ask, answer = (
            spin(rng, "[Write|Put|Say|Turn] {w} in[|to] [capital letters|upper case|uppercase|capitals][.|]"),
            word.upper(),
        )
    return done(
        words, "letters", ask.format(w=quote), answer, "-".join(word) + ".", {"kind": "exact", "answer": answer}
    )


def order(words: Words) -> Example:
    """What comes after or before: days, months, letters, numbers."""
    rng = words.rng
    series = rng.choice((WEEKDAYS, WEEKDAYS, MONTHS, "ABCDEFGHIJKLMNOPQRSTUVWXYZ", NUMBER_WORDS))
    at = rng.randrange(len(series))
    around = series in (WEEKDAYS, MONTHS)
    after = rng.random() < 0.65
    other = at + 1 if after else at - 1
    if not around and not 0 <= other < len(series):
        return order(words)
    what = "day" if series is WEEKDAYS else "month" if series is MONTHS else "letter" if series[0] == "A" else "number"
    ask = spin(rng, f"[What|Which {what}|What {what}] comes [right |]{'after' if after else 'before'} {series[at]}?")
    if series is WEEKDAYS and rng.random() < 0.4:
        wanted = "tomorrow" if after else "yesterday"
        ask = spin(rng, f"[If today is {series[at]}, what|Today is {series[at]}. What] day is {wanted}?")
    return done(words, "order", ask, upper_first(series[other % len(series)]) + ".", "I know the order.")


def problem(words: Words) -> Example:
    """A small sum told as a story."""
    rng = words.rng
    who, thing = (
        words.draw("first_names"),
        plural(words.noun())
        if rng.random() < 0.5
        else rng.choice(("apples", "books", "coins", "cards", "eggs", "candies", "pens", "cookies", "balls")),
    )
    a, b = rng.randint(2, rng.choice((10, 20, 50))), rng.randint(1, 10)
    c = rng.randint(1, 9)
    big, small = max(a, b + 1), min(a - 1, b) or 1
    forms: tuple[tuple[str, int, str], ...] = (
        (f"I have {a} {thing} and [get|buy|find] {b} more. How many {thing} do I have[ now|]?", a + b, f"{a} + {b}"),
        (
            f"{who} has {a} {thing} and [gets|buys|finds] {b} more. How many [{thing} |]does {who} have[ now|]?",
            a + b,
            f"{a} + {b}",
        ),
        (
            f"{who} had {big} {thing} and [lost|ate|sold|gave away] {small}. How many are left?",
            big - small,
            f"{big} - {small}",
        ),
        (
            f"[There are|I have] {big} {thing}. I [take away|lose|eat|give away] {small}. How many [are left|remain]?",
            big - small,
            f"{big} - {small}",
        ),
        (f"[A box holds|There are] {a} {thing}[| in a box]. How many {thing} are in {c} boxes?", a * c, f"{a} * {c}"),
        (f"One ticket costs {a} dollars. [What do|How much do] {c} tickets cost?", a * c, f"{a} * {c}"),
        (f"{who} works {c} hours a day. How many hours in {b} days?", c * b, f"{c} * {b}"),
        (f"We [share|divide] {b * c} {thing} among {b} people. How many does each get?", c, f"{b * c} / {b}"),
        (
            f"[If I have|I have] {big} dollars and spend {small}[,|.] how [many dollars|much] do I have left?",
            big - small,
            f"{big} - {small}",
        ),
        (f"{who} is {big} years old. How old [will {who} be|is {who}] in {b} years?", big + b, f"{big} + {b}"),
    )
    ask, result, steps = rng.choice(forms)
    text = upper_first(spin(rng, ask))
    number = str(result)
    answer = rng.choice((number, f"{steps} = {number}")) if "number only" in text else f"{steps} = {number}"
    return done(words, "problem", text, answer, f"{steps} = {number}.", {"kind": "number", "answer": number})


def sequence(words: Words) -> Example:
    """The next number, even or odd, larger or smaller, percent, double and half."""
    rng = words.rng
    roll = rng.random()
    n = rng.randint(1, rng.choice((20, 100, 999)))
    if roll < 0.3:
        start, step = rng.randint(1, 20), rng.choice((1, 2, 2, 3, 4, 5, 5, 10, 10, 100))
        shown = [start + step * at for at in range(rng.randint(3, 5))]
        ask = form(rng, "next_number").format(s=", ".join(map(str, shown)))
        result = str(shown[-1] + step)
        return done(
            words, "sequence", ask, result, f"{shown[-1]} + {step} = {result}.", {"kind": "exact", "answer": result}
        )
    if roll < 0.5:
        word = "even" if n % 2 == 0 else "odd"
        if rng.random() < 0.4:
            other = rng.choice(("even", "odd"))
            ask = rng.choice((f"Is {n} {other}?", f"Is {n} an {other} number?", f"Is the number {n} {other}?"))
            said = f"Yes, {n} is {word}." if other == word else f"No, {n} is {word}."
            return done(words, "sequence", ask, said, f"The last digit is {n % 10}.", {"kind": "exact", "answer": said})
        ask = rng.choice(
            (f"Is {n} even or odd?", f"Is {n} odd or even?", f"Even or odd: {n}?", f"Is the number {n} even or odd?")
        )
        return done(
            words,
            "sequence",
            ask,
            f"{n} is {word}.",
            f"The last digit is {n % 10}.",
            {"kind": "exact", "answer": f"{n} is {word}."},
        )
    if roll < 0.65:
        n = rng.choice((2, 4, 6, 8, 10, 12, 20, 24, 30, 40, 50, 60, 80, 100, 200, 500, 1000))
        ask = rng.choice((f"What is half of {n}?", f"Half of {n}?", f"What is the half of {n}?"))
        return done(
            words, "sequence", ask, str(n // 2), f"{n} / 2 = {n // 2}.", {"kind": "exact", "answer": str(n // 2)}
        )
    if roll < 0.8:
        n = rng.randint(1, 60)
        ask = rng.choice((f"What is double {n}?", f"Double {n}.", f"What is twice {n}?", f"What is two times {n}?"))
        return done(words, "sequence", ask, str(2 * n), f"2 * {n} = {2 * n}.", {"kind": "exact", "answer": str(2 * n)})
    part, whole = (
        rng.choice((10, 20, 25, 50, 50, 5, 1, 100)),
        rng.choice((100, 200, 20, 40, 60, 80, 300, 400, 500, 1000)),
    )
    if part * whole % 100:
        return sequence(words)
    value = part * whole // 100
    ask = rng.choice(
        (f"What is {part}% of {whole}?", f"{part} percent of {whole}?", f"How much is {part} percent of {whole}?")
    )
    return done(
        words,
        "sequence",
        ask,
        str(value),
        f"{whole} * {part} / 100 = {value}.",
        {"kind": "exact", "answer": str(value)},
    )


def sentiment(words: Words) -> Example:
    """Whether a review is positive or negative, as a word or as JSON."""
    rng = words.rng
    good = rng.random() < 0.5
    lines = [
        chat.filled(words, spin(rng, rng.choice(TABLES["good" if good else "bad"])))[0]
        for _ in range(rng.choice((1, 1, 2)))
    ]
    text = " ".join(lines)
    labels = rng.choice((("positive", "negative"), ("positive", "negative"), ("good", "bad"), ("happy", "unhappy")))
    label = labels[0] if good else labels[1]
    ask = form(rng, "sentiment").format(a=labels[0], b=labels[1])
    layout = rng.choice(("{a} {t}", '{a} "{t}"', "{t} {a}", "{a}\n{t}", '"{t}"\n{a}'))
    if rng.random() < 0.25:
        key = rng.choice(("sentiment", "label", "mood", "class"))
        ask += f' Answer with JSON: {{"{key}": "..."}}'
        label = f'{{"{key}": "{label}"}}'
    else:
        label = upper_first(label) + "."
    return done(
        words,
        "sentiment",
        layout.format(a=ask, t=text),
        label,
        "I look for praise or complaint.",
        {"kind": "exact", "answer": label},
    )


def first_sentence(words: Words) -> Example:
    """The shortest summary: the sentence that says what the text is about."""
    rng = words.rng
    lines = chat.filled(words, *(form(rng, f"{which}_sentence") for which in ("first", "second", "third")))[
        : rng.choice((2, 3))
    ]
    ask = form(rng, "summarize")
    text = " ".join(lines)
    layout = rng.choice(("{a} {t}", "{a}\n{t}", "{t}\n{a}", "{a}\n\n{t}"))
    return done(
        words,
        "first_sentence",
        layout.format(a=ask, t=text),
        lines[0],
        "The first sentence says it.",
        {"kind": "exact", "answer": lines[0]},
    )


def element_of_list(words: Words) -> Example:
    """One of the things that the question names: the first, the last, how many, the longest list's member by kind."""
    rng = words.rng
    kind = rng.choice(("food", "product", "petname", "color", "hobby", "bigcity", "job"))
    things = list(dict.fromkeys(plain_value(words, kind) for _ in range(rng.randint(3, 6))))
    listed = ", ".join(things)
    which = rng.choice(("first", "second", "third", "last"))
    at = {"first": 0, "second": 1, "third": 2, "last": len(things) - 1}[which]
    if rng.random() < 0.3:
        ask, answer = f"How many things are in this list: {listed}?", str(len(things))
    elif rng.random() < 0.4:
        ask = spin(rng, f"[Pick|Choose|Take] [one|one of these|one for me]: {listed}[.||?]")
        answer = things[0]
    elif at < len(things):
        ask = spin(rng, f"[Which is|What is] the {which} [of|in] [these|this list]: {listed}?")
        answer = things[at]
    else:
        return element_of_list(words)
    return done(words, "list_item", ask, answer, "I count.", {"kind": "exact", "answer": answer})


MAKERS: tuple[tuple[Callable[[Words], Example], int], ...] = (
    (simple_fact, 34),
    (kind_of, 18),
    (word_fact, 12),
    (order, 8),
    (letters, 9),
    (problem, 12),
    (sequence, 9),
    (sentiment, 6),
    (element_of_list, 4),
    (first_sentence, 5),
)


def knowledge(words: Words) -> Example:
    """One of the above."""
    return words.rng.choices([maker for maker, _ in MAKERS], [weight for _, weight in MAKERS])[0](words)
