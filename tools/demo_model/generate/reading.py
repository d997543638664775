"""Questions about a few sentences: who, what, where, when and how many, told with many verbs and asked back.

relations.txt holds ways to tell and to ask; beside them any verb is used with any preposition, so that what is learned
is where the answer stands and not which verbs there are. Answers repeat what was told, letter by letter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from tools.demo_model.generate.asking import PREPOSITIONS
from tools.demo_model.generate.calls import style
from tools.demo_model.generate.extract import snippet
from tools.demo_model.generate.phrases import plural, system_line, third
from tools.demo_model.generate.values import text_value, whole
from tools.demo_model.render import Example, assistant, system, user
from tools.demo_model.words import Words

ONLY = (
    "Answer with the value only.",
    "Just the answer, no sentence.",
    "Only the answer.",
    "One word or number is enough.",
    "No full sentence.",
    "Give me only that.",
    "Reply with nothing else.",
    "Short answer please.",
    "Be as short as possible.",
)
ASKS = (
    "{q}",
    "{q}",
    "{q}",
    "{q}",
    "Question: {q}",
    "Tell me: {q}",
    "Now: {q}",
    "So, {q}",
    "Do you know the answer? {q}",
    "Please answer: {q}",
    "I forgot: {q}",
    "Q: {q}",
    "Based on this, {q}",
    "From the text above: {q}",
    "Read it well. {q}",
    "{q} It is in the text.",
    "{q} Please tell me.",
)
LAYOUTS = (
    "{p} {q}",
    "{p} {q}",
    "{p} {q}",
    "{p}\n{q}",
    "{p}\n\n{q}",
    "{q}\n\n{p}",
    "{q} {p}",
    "Text: {p}\n{q}",
    'Here is a text: "{p}" {q}',
    "I know this: {p} {q}",
    "Facts:\n{p}\n\n{q}",
    "{p}\n---\n{q}",
    "Given: {p}\nAsked: {q}",
)


@attrs.frozen
class Relation:
    """Ways to tell a value about somebody, to ask for it, and the answer. kind: as in values.text_value, or number."""

    kind: str
    told: tuple[str, ...]
    asked: tuple[str, ...]
    answer: str


def _load() -> tuple[Relation, ...]:
    rows = (Path(__file__).parent / "relations.txt").read_text(encoding="utf-8").strip().splitlines()
    split = [[part.strip() for part in row.split(" | ")] for row in rows if not row.startswith("#")]
    return tuple(
        Relation(kind, tuple(told.split(" ; ")), tuple(asked.split(" ; ")), ans) for kind, told, asked, ans in split
    )


RELATIONS = _load()


def any_relation(words: Words) -> Relation:
    """A relation of a drawn verb: {o} verbs prep {v}."""
    rng = words.rng
    verb = words.draw("verbs") if rng.random() < 0.8 else words.noun()
    does, prep, thing = third(verb), rng.choice(PREPOSITIONS), words.noun()
    kind = rng.choice(("city", "address", "address", "word", "person", "number", "date", "time", "invented", "code"))
    if kind == "number":
        unit = plural(thing)
        return Relation(
            kind,
            (f"{{o}} {does} {{v}} {unit}", f"{{v}} {unit} {verb} {{o}}"),
            (f"How many {unit} does {{o}} {verb}?", f"What number of {unit} does {{o}} {verb}?"),
            f"{{o}} {does} {{v}} {unit}.",
        )
    if kind in ("date", "time"):
        prep = "on" if kind == "date" else "at"
        return Relation(
            kind,
            (
                f"{{o}} {does} {prep} {{v}}",
                f"{prep.capitalize()} {{v}} {{o}} {does}",
                f"{{o}} {does} the {thing} {prep} {{v}}",
            ),
            (f"When does {{o}} {verb}?", f"{'On which day' if kind == 'date' else 'At what time'} does {{o}} {verb}?"),
            f"{{o}} {does} {prep} {{v}}.",
        )
    if kind in ("city", "address"):
        prep = rng.choice(("in", "near") if kind == "city" else ("at", "at", "near", "behind"))
        return Relation(
            kind,
            (f"{{o}} {does} {prep} {{v}}", f"{{o}} {does} {prep} {{v}}", f"{prep.capitalize()} {{v}} {{o}} {does}"),
            (
                f"Where does {{o}} {verb}?",
                f"Where does {{o}} {verb}?",
                f"{prep.capitalize()} which place does {{o}} {verb}?",
            ),
            f"{{o}} {does} {prep} {{v}}.",
        )
    ask = "Who" if kind == "person" else "What"
    if rng.random() < 0.5:
        return Relation(kind, (f"{{o}} {does} {{v}}",), (f"{ask} does {{o}} {verb}?",), f"{{o}} {does} {{v}}.")
    return Relation(
        kind,
        (f"{{o}} {does} {prep} {{v}}", f"{{o}} {does} the {thing} {prep} {{v}}"),
        (
            f"{ask} does {{o}} {verb} {prep}?",
            f"{prep.capitalize()} {'whom' if kind == 'person' else 'what'} does {{o}} {verb}?",
        ),
        f"{{o}} {does} {prep} {{v}}.",
    )


def owner_name(words: Words) -> str:
    """Whom the facts are about."""
    rng = words.rng
    roll = rng.random()
    if roll < 0.35:
        return words.person()
    if roll < 0.65:
        return words.invented(rng.choice((2, 2, 3))).capitalize()
    if roll < 0.75:
        return words.city()
    return rng.choice(("the {}", "our {}", "the {}", "Mr. {}", "Mrs. {}", "team {}")).format(words.noun())


def fact_value(words: Words, relation: Relation) -> str:
    """A value of the relation's kind."""
    if relation.kind == "number":
        return str(abs(whole(words))) if words.rng.random() < 0.5 else str(words.rng.randint(1, 99))
    return text_value(words, relation.kind)


def tell(words: Words, relation: Relation, owner: str, value: str) -> str:
    """One fact as a sentence."""
    form = words.rng.choice(relation.told)
    text = form.format(o=owner, v=value, a="an" if value[0] in "aeiou" else "a")
    text = text if text.startswith(value) else text[0].upper() + text[1:]
    return text + "."


def answer_text(relation: Relation, owner: str, value: str) -> str:
    """The answer as a sentence."""
    text = relation.answer.format(o=owner, v=value, a="an" if value[0] in "aeiou" else "a")
    return text if text.startswith(value) else text[0].upper() + text[1:]


def _relation(words: Words) -> Relation:
    return words.rng.choice(RELATIONS) if words.rng.random() < 0.5 else any_relation(words)


def _told(words: Words) -> tuple[list[str], Relation, str, str, list[str]]:
    """(sentences, the asked relation, its owner, its value, all values of that relation)."""
    rng = words.rng
    owners = list(dict.fromkeys(owner_name(words) for _ in range(rng.choice((1, 2, 2, 3, 3, 3, 4, 5)))))
    relations = [_relation(words) for _ in range(rng.choice((1, 1, 1, 2, 2, 3)))]
    facts = []
    for relation in relations:
        same = attrs.evolve(relation, told=(rng.choice(relation.told),)) if rng.random() < 0.6 else relation
        facts += [(same, owner, fact_value(words, relation)) for owner in owners]
    if len(relations) == 1 or rng.random() < 0.5:
        rng.shuffle(facts)
    facts = facts[: rng.randint(max(1, len(facts) - 2), len(facts))]
    sentences = [tell(words, *fact) for fact in facts]
    while rng.random() < 0.15:
        sentences.insert(rng.randint(0, len(sentences)), words.record("sentences"))
    relation, owner, value = rng.choice(facts)
    return sentences, relation, owner, value, [v for r, _, v in facts if r.kind == relation.kind]


def read(words: Words) -> Example:
    """A few facts, one of them asked for."""
    rng = words.rng
    mode = style(words)
    sentences, relation, owner, value, values = _told(words)
    passage = rng.choice((" ", " ", " ", "\n", "\n- ")).join(sentences)
    if values.count(value) == 1 and rng.random() < 0.12 and relation.kind in ("word", "invented", "address", "person"):
        ask, answer, expected = _back(words, owner, value)
    else:
        ask = rng.choice(relation.asked).format(o=owner)
        answer, expected = answer_text(relation, owner, value), value
        if rng.random() < 0.25:
            ask, answer = f"{ask} {rng.choice(ONLY)}", value
    told = next((one for one in sentences if value in one and owner.lower() in one.lower()), "")
    asked = rng.choice(ASKS).format(q=ask)
    asked = asked if rng.random() < 0.95 else asked.lower() if owner == owner.lower() else asked
    question = rng.choice(LAYOUTS).format(p=passage, q=asked)
    thought = f"The text says: {told}" if mode["thinking"] else ""
    messages = [system(system_line(words))] if rng.random() < 0.15 else []
    return Example(
        task="read",
        messages=[*messages, *_split(words, passage, asked, question, mode), assistant(answer, thought)],
        check={"kind": "contains", "answer": expected},
        **mode,
    )


def _back(words: Words, owner: str, value: str) -> tuple[str, str, str]:
    """(question, answer, expected): whom a value is told of."""
    ask = words.rng.choice(
        ("Whom does the text name together with {v}?", "Who is it that has to do with {v}?", "{v} is said of whom?")
    ).format(v=value)
    text = f"It is {owner}."
    return ask, text, owner


def _split(words: Words, passage: str, asked: str, question: str, mode: dict[str, Any]) -> list[dict[str, Any]]:
    """The question in one message, or the facts first and the question later."""
    if words.rng.random() > 0.08:
        return [user(question)]
    noted = words.rng.choice(("I have read it.", "Thank you, I will remember that.", "Noted.", "All right."))
    return [user(passage), assistant(noted, "The user tells me something." if mode["thinking"] else ""), user(asked)]


COPY_FORMS = (
    "Say back to me: {t}",
    "Say this again: {t}",
    "Please say: {t}",
    "Please write: {t}",
    "Quote this: {t}",
    "Quote me: {t}",
    "Just echo {t}",
    "echo {t}",
    "Answer with {t}",
    "Your answer is: {t}",
    "Tell me exactly this: {t}",
    "I say: {t}\nYou say the same.",
    "{t}\nSay the same.",
    "{t}\n\nNow repeat that.",
    "{t}\nPlease write that once more.",
    "{t} - repeat it please.",
    "Can you repeat this? {t}",
    "Could you write down {t} for me?",
    "Write this down: {t}",
    "Send me this text back: {t}",
    "Mirror the following: {t}",
    "Text to repeat:\n{t}",
    "Parrot mode. {t}",
    "Do not change anything and give me: {t}",
    "Copy what is between the lines.\n---\n{t}\n---",
    "Copy what is in the brackets: [{t}]",
    "What do I say? {t} Repeat only that.",
    "Without any comment, return: {t}",
    "Once more, please: {t}",
    "Duplicate: {t}",
    "Type: {t}",
    "Output: {t}",
    "Print: {t}",
    "Spell it as I do: {t}",
    "One to one, please: {t}",
)


def _pick_from(words: Words) -> tuple[str, str]:
    """(question, answer): a piece of a short text, found by its place or its kind."""
    rng = words.rng
    items = [rng.choice((words.noun, words.invented, words.city))() for _ in range(rng.randint(3, 7))]
    text, item = " ".join(items), rng.choice(items)
    number, quoted = rng.randint(0, 9999), words.noun()
    sentence = words.record("sentences")
    found = text_value(words, rng.choice(("email", "date", "time", "url", "code", "path")))
    return rng.choice(
        (
            (f"What is the last word of: {text}", items[-1]),
            (f"What is the first word here? {text}", items[0]),
            (f"Give me the second word of this: {text}", items[1]),
            (f"Which word is number {items.index(item) + 1} in: {text}", item),
            (f"Which word comes right before {items[-1]} in: {text}", items[-2]),
            (f'Which word is in quotes? {items[0]} {items[1]} "{quoted}" {items[2]}', quoted),
            (f"What stands in the brackets? {items[0]} {items[1]} ({quoted}) {items[2]}", quoted),
            (f"{sentence} {number}. Which number is in this text?", str(number)),
            (f"Extract the number: {items[0]} {number} {items[1]}", str(number)),
            (f"What comes after the colon? {items[0]}: {quoted}", quoted),
            (f"Take only what is in capitals: {items[0]} {quoted.upper()} {items[1]}", quoted.upper()),
            (f"Extract the part that is not a plain word: {items[0]} {found} {items[1]}", found),
            ("Repeat the second line.\n" + "\n".join(items), items[1]),
            ("Repeat the last line only:\n" + "\n".join(items), items[-1]),
            (f"Repeat {item} three times.", f"{item} {item} {item}"),
            (f"Say {quoted} twice.", f"{quoted} {quoted}"),
        )
    )


def copy_wide(words: Words) -> Example:
    """Give a text back, or a piece of it."""
    rng = words.rng
    mode = style(words)
    text = snippet(words)
    if rng.random() < 0.35:
        asked, text = _pick_from(words)
    else:
        shown = f'"{text}"' if '"' not in text and rng.random() < 0.15 else text
        asked = rng.choice(COPY_FORMS).format(t=shown)
    messages = [system(system_line(words))] if rng.random() < 0.15 else []
    thought = "I repeat the text." if mode["thinking"] else ""
    return Example(
        task="copy_wide",
        messages=[*messages, user(asked), assistant(text, thought)],
        check={"kind": "exact", "answer": text.strip()},
        **mode,
    )
