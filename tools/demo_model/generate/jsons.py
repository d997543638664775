"""JSON beyond one flat object: nested objects, arrays, a shape in the system message, answers to questions in JSON.

Invariant: values stand in the text (or are common knowledge of knowledge.txt), keys and order are those asked for.
"""

from __future__ import annotations

import json
from typing import Any

from tools.demo_model.generate import shapes
from tools.demo_model.generate.calls import style
from tools.demo_model.generate.knowledge import COUNTS, KINDS
from tools.demo_model.generate.lifelike import number, plain_value
from tools.demo_model.generate.phrases import plural
from tools.demo_model.generate.spin import form, spin
from tools.demo_model.generate.values import fresh_name, listed
from tools.demo_model.render import Example, assistant, system, user
from tools.demo_model.words import Words

ORDERS = (
    "[Answer|Reply|Respond] [only |always |][with|in] {shape}[.|, nothing else.|, no other text.]",
    "You [turn|convert] text into {shape}.",
    "You extract data. Output: {shape}",
    "[Read the message and return|Return|Output|Produce] {shape}.",
    "Every answer must be {shape}.",
)
TYPE_HINTS = {
    "str": ("string", "text", "..."),
    "int": ("number", "integer", "0"),
    "list": ("array of strings", "[...]", "list"),
}
PEOPLE = (
    "{p}[, who is|, aged| is|,] {n}[ years old|][,| and] lives in {c}",
    "{p} ({n}) from {c}",
    "{p} from {c} is {n}",
    "{p}, {n}, {c}",
    "In {c} lives {p}, who is {n}",
)


def _example(words: Words, asked: str, value: Any, head: str = "", indent: bool = False) -> Example:
    mode = style(words)
    thought = "I write JSON." if mode["thinking"] else ""
    text = json.dumps(value, ensure_ascii=False, indent=2 if indent else None)
    messages = [system(head)] if head else []
    return Example(
        task="jsons",
        messages=[*messages, user(asked), assistant(text, thought)],
        check={"kind": "json", "value": value},
        **mode,
    )


def ordered(words: Words) -> Example:
    """The system message shows the shape; the user only tells."""
    rng = words.rng
    told, fields = shapes._report(words)
    while len({field.key for field in fields}) < len(fields):
        told, fields = shapes._report(words)
    rng.shuffle(fields)
    roll = rng.random()
    if roll < 0.4:
        inside = ", ".join(f'"{field.key}": {json.dumps(rng.choice(TYPE_HINTS[field.type]))}' for field in fields)
        shape = f"JSON like {{{inside}}}"
    elif roll < 0.7:
        shape = "a JSON object with the keys " + listed(words, [field.key for field in fields]).strip("[]")
    else:
        shape = shapes._sketch(words, fields)
    head = spin(rng, rng.choice(ORDERS).replace("{shape}", "{{shape}}")).replace("{{shape}}", shape)
    return _example(words, told, {field.key: field.value for field in fields}, head)


def _people(words: Words, count: int) -> tuple[str, list[dict[str, Any]]]:
    """A text about some people, and the records."""
    rng = words.rng
    form = rng.choice(PEOPLE)
    told, records = [], []
    for _ in range(count):
        record = {"p": plain_value(words, "first"), "n": rng.randint(3, 95), "c": plain_value(words, "city")}
        told.append(spin(rng, form).format(**record))
        records.append(record)
    return rng.choice((". ", "; ", "\n")).join(told) + ".", records


def records(words: Words) -> Example:
    """An array of objects, or an object that holds one."""
    rng = words.rng
    text, found = _people(words, rng.randint(2, 4))
    keys = {
        "p": rng.choice(("name", "person", "who", "first_name")),
        "n": rng.choice(("age", "years", "age_years")),
        "c": rng.choice(("city", "town", "home", "place")),
    }
    chosen = rng.sample(list(keys), rng.choice((2, 3, 3)))
    rows = [{keys[role]: record[role] for role in chosen} for record in found]
    named = listed(words, [keys[role] for role in chosen]).strip("[]")
    if rng.random() < 0.35:
        outer = rng.choice(("people", "persons", "users", "members", "guests"))
        ask = f"{form(rng, 'json_verb')} a JSON object with the key {outer}, an array of objects with {named}."
        return _example(words, _placed(words, text, ask), {outer: rows})
    ask = f"{form(rng, 'json_verb')} a JSON array of objects with {rng.choice(('the keys ', ''))}{named}."
    return _example(words, _placed(words, text, ask), rows)


def _placed(words: Words, text: str, ask: str) -> str:
    return words.rng.choice(("{t} {a}", "{t}\n{a}", "{a}\n{t}", "{a} {t}", "{t}\n\n{a}")).format(t=text, a=ask)


def nested(words: Words) -> Example:
    """An object in an object."""
    rng = words.rng
    who, city, address = plain_value(words, "person"), plain_value(words, "city"), plain_value(words, "address")
    item, count = plain_value(words, "product"), rng.randint(1, 40)
    name, outer, inner = (
        rng.choice(("name", "customer", "person")),
        rng.choice(("address", "location", "home")),
        rng.choice(("street", "line")),
    )
    town = rng.choice(("city", "town"))
    if rng.random() < 0.5:
        told = "[{w} lives at {a} in {c}|{w}, {a}, {c}|The address of {w} is {a} in {c}]."
        text = spin(rng, told).format(w=who, a=address, c=city)
        value: dict[str, Any] = {name: who, outer: {inner: address, town: city}}
        shape = {name: "...", outer: {inner: "...", town: "..."}}
        said = f"{name} and {outer}, where {outer} has {inner} and {town}"
    else:
        outer, inner, town = (
            rng.choice(("order", "item", "purchase")),
            rng.choice(("product", "article", "what")),
            rng.choice(("count", "quantity", "amount")),
        )
        told = "[{w} ordered {n} {i}|{w} wants {n} {i}|{n} {i} for {w}|{w} buys {n} times {i}]."
        text = spin(rng, told).format(w=who, n=count, i=item)
        value = {name: who, outer: {inner: item, town: count}}
        shape = {name: "...", outer: {inner: "...", town: 0}}
        said = f"{name} and {outer}, where {outer} has {inner} and {town} (integer)"
    ask = (
        spin(
            rng,
            "[Answer with|Turn this into|I need|Give me|Convert this to] "
            + rng.choice(
                (f"JSON like {_kept(shape)}", f"a JSON object with {said}", f"JSON of this shape: {_kept(shape)}")
            ),
        )
        .replace("<<", "[")
        .replace(">>", "]")
    )
    return _example(words, _placed(words, text, ask + "."), value)


def _kept(shape: Any) -> str:
    """A shape's text inside a pattern."""
    return json.dumps(shape).replace("[", "<<").replace("]", ">>")


def array(words: Words) -> Example:
    """A plain array: of what is listed, or of things of a kind."""
    rng = words.rng
    if rng.random() < 0.35:
        kind = rng.choice(list(KINDS))
        count = rng.randint(2, min(5, len(KINDS[kind])))
        shown = rng.choice((str(count), COUNTS[count]))
        ask = form(rng, "array_of_kind").format(n=shown, k=plural(kind))
        return _example(words, ask, KINDS[kind][:count])
    kind = rng.choice(("food", "color", "first", "city", "product", "hobby", "petname", "noun"))
    things = list(dict.fromkeys(plain_value(words, kind) for _ in range(rng.randint(2, 6))))
    said = listed(words, things).strip("[]")
    key = rng.choice(("items", "list", "things", fresh_name(words)))
    if rng.random() < 0.3:
        ask = spin(rng, "[Write|Put|Give me] {s} [as|into] a JSON object with the key {k}[.||, an array.]").format(
            s=said, k=key
        )
        return _example(words, ask, {key: things})
    return _example(words, form(rng, "array_of").format(s=said), things)


def object_of(words: Words) -> Example:
    """Values told in words become members: Anna is 5 and likes red."""
    rng = words.rng
    who, age = plain_value(words, "first"), number(words, 2, 90)[0]
    extra_key, extra = rng.choice(
        (
            ("city", plain_value(words, "city")),
            ("color", plain_value(words, "color")),
            ("hobby", plain_value(words, "hobby")),
            ("job", plain_value(words, "job")),
            ("pet", plain_value(words, "pet")),
        )
    )
    value: dict[str, Any] = {"name": who, "age": age}
    said = f"name {who} and age {age}"
    if rng.random() < 0.6:
        value[extra_key] = extra
        said = f"name {who}, age {age} and {extra_key} {extra}"
    ask = form(rng, "object_of").format(said=said)
    return _example(words, ask, value, indent=rng.random() < 0.15)


def answered(words: Words) -> Example:
    """A question whose answer is to be given in JSON."""
    rng = words.rng
    a, b = rng.randint(1, 50), rng.randint(1, 50)
    country, capital, *_ = words.record("capitals")
    ask, answer = rng.choice(
        (
            (f"What is {a} + {b}?", a + b),
            (f"What is the capital of {country}?", capital),
            (f"How much is {a} plus {b}?", a + b),
        )
    )
    key = rng.choice(("answer", "result", "value", "reply"))
    order = spin(
        rng, f'[Answer|Reply] [with|in|as] JSON[: {{"{key}": ...}}| with the key {key}| like {{"{key}": ...}}].'
    )
    if rng.random() < 0.5:
        return _example(words, f"{ask} {order}", {key: answer})
    return _example(words, ask, {key: answer}, order)


def jsons(words: Words) -> Example:
    """One of the above."""
    return words.rng.choices((ordered, records, nested, array, object_of, answered), (26, 20, 18, 16, 10, 10))[0](words)
