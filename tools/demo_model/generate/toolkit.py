"""Declared tools made of drawn words, and the ways people ask for them.

A `Made` tool is a declaration plus the verb phrase that stands for it. Invariant: among the tools of one
conversation no two share both verb and noun, so exactly one fits a request.
"""

from __future__ import annotations

from typing import Any

import attrs

from tools.demo_model.generate.synonyms import BY_WORD, alike, another
from tools.demo_model.generate.values import Slot, make_slot, written
from tools.demo_model.words import Words

USUAL_VERBS = [
    "get",
    "find",
    "search",
    "list",
    "show",
    "create",
    "add",
    "make",
    "send",
    "book",
    "order",
    "cancel",
    "delete",
    "remove",
    "update",
    "set",
    "start",
    "stop",
    "open",
    "close",
    "save",
    "load",
    "move",
    "copy",
    "convert",
    "translate",
    "check",
    "count",
    "compare",
    "share",
    "print",
    "schedule",
    "play",
    "read",
    "write",
    "upload",
    "download",
    "calculate",
    "measure",
    "track",
    "rename",
    "merge",
    "split",
]
EVERYDAY_NOUNS = tuple(sorted(set(BY_WORD) - set(USUAL_VERBS)))
DESCRIPTIONS = (
    "{Vp}.",
    "{Vp}",
    "Use this to {vp}.",
    "{Verb}s the {noun}.",
    "A tool to {vp}.",
    "{Vp} and return the result.",
    "Lets you {vp}.",
    "Performs one step: {vp}.",
    "Tool for people who want to {vp}.",
    "Function that will {vp}.",
    "Used to {vp}; returns the new state.",
    "{Vp} with the given parameters.",
    "{Verb} one {noun}.",
    "Call this to {vp}",
    "{Verb} {noun} by the given values.",
    "Can {vp}.",
)
OPENINGS = (
    "Please {vp}",
    "{Vp}",
    "Can you {vp}",
    "I want you to {vp}",
    "I need to {vp}",
    "Could you {vp}",
    "Help me {vp}",
    "I'd like to {vp}",
    "{Vp} for me",
    "We have to {vp}",
    "Hi! {Vp}",
    "Hello, please {vp}",
    "It is time to {vp}",
    "{Vp} now",
    "Go ahead and {vp}",
    "Let's {vp}",
    "I would like you to {vp}",
    "My boss wants me to {vp}",
    "Would you {vp}",
    "You should {vp}",
    "Time to {vp}",
    "Hey, {vp}",
    "Kindly {vp}",
    "I'd appreciate it if you could {vp}",
    "Use the right tool to {vp}",
    "Use the appropriate tool to {vp}",
    "With your tools, {vp}",
    "I'm trying to {vp}",
    "Would you be able to {vp}",
    "Next, {vp}",
    "Now {vp}",
    "Quickly {vp}",
    "The task: {vp}",
    "Task: {vp}",
    "Your job is to {vp}",
    "We need to {vp}",
    "Someone has to {vp}",
    "Do me a favor and {vp}",
    "I was asked to {vp}",
    "Make sure to {vp}",
    "Is it possible to {vp}",
    "Can we {vp}",
    "Could somebody {vp}",
    "I have to {vp}",
    "{Vp} if you can",
)
TAILS = (
    " Thanks!",
    " Thank you.",
    " Thanks in advance.",
    " It is urgent.",
    " Do it right away.",
    " As soon as possible, please.",
    " That is all.",
    " Please.",
    " Much appreciated.",
    " Let me know when it is done.",
)
LEADS = (
    "Good morning. ",
    "Hello there. ",
    "I have a request. ",
    "One more thing. ",
    "A customer is waiting. ",
    "I am back. ",
    "Okay. ",
    "So, ",
    "Listen. ",
    "We are in a hurry. ",
    "Quick question. ",
)


@attrs.frozen(kw_only=True)
class Made:
    """A tool. phrase: (verb, noun words) that its name or description carries."""

    name: str
    verb: str
    noun: str
    description: str
    slots: tuple[Slot, ...]
    shape: str = "plain"

    def declaration(self) -> dict[str, Any]:
        """The OpenAI-style declaration."""
        properties = {slot.name: slot.schema for slot in self.slots}
        parameters: dict[str, Any] = {"type": "object", "properties": properties}
        required = [slot.name for slot in self.slots if slot.required]
        if required:
            parameters["required"] = required
        if self.shape == "closed":
            parameters["additionalProperties"] = False
        function: dict[str, Any] = {"name": self.name, "description": self.description, "parameters": parameters}
        if self.shape == "nodesc":
            del function["description"]
        if self.shape == "strict":
            function["strict"] = True
        return {"type": "function", "function": function}


def styled(words: Words, parts: list[str]) -> str:
    """A function name in one of the usual styles."""
    roll = words.rng.random()
    if roll < 0.62:
        return "_".join(parts)
    if roll < 0.8:
        return parts[0] + "".join(part.capitalize() for part in parts[1:])
    if roll < 0.88:
        return "".join(part.capitalize() for part in parts)
    return ("-" if roll < 0.94 else ".").join(parts)


def make_tool(words: Words, verb: str | None = None, noun: str | None = None, most: int = 4) -> Made:
    """A new tool; verb or noun may be given to make it close to another one."""
    rng = words.rng
    usual = words.side == "train"
    verb = verb or _verb(words)
    if noun is None and usual and rng.random() < 0.12:
        noun = rng.choice(EVERYDAY_NOUNS)
    if noun is None:
        noun = (
            words.noun()
            if rng.random() < 0.65
            else f"{words.draw('adjectives') if rng.random() < 0.5 else words.noun()} {words.noun()}"
        )
    parts = [verb, *noun.split()]
    opaque = rng.random() < 0.1
    name = words.invented() if opaque else styled(words, parts if rng.random() < 0.9 else parts[1:] + parts[:1])
    texts = {"vp": vp(words, verb, noun), "Verb": verb.capitalize(), "noun": noun}
    texts["Vp"] = texts["vp"][0].upper() + texts["vp"][1:]
    taken: set[str] = set()
    count = rng.choices((0, 1, 2, 3, 4), (3, 30, 32, 22, 13))[0]
    slots = tuple(make_slot(words, taken, usual) for _ in range(min(count, most)))
    if usual and slots and rng.random() < 0.15:
        # track_order(order), find_bike(bike): the tool's noun is a parameter's name.
        own = noun.split()[-1]
        if own not in taken:
            slots = (attrs.evolve(slots[0], name=own, phrase=own), *slots[1:])
    shape = rng.choices(("plain", "closed", "strict", "nodesc"), (80, 8, 5, 0 if opaque else 7))[0]
    return Made(
        name=name, verb=verb, noun=noun, description=rng.choice(DESCRIPTIONS).format(**texts), slots=slots, shape=shape
    )


def _verb(words: Words) -> str:
    """What a tool does. In training any word may be the verb: the words of the evaluation are new as verbs, too."""
    roll = words.rng.random()
    if words.side == "eval":
        return words.draw("verbs")
    if roll < 0.3:
        return words.rng.choice(USUAL_VERBS)
    return words.draw("verbs") if roll < 0.65 else words.noun()


def vp(words: Words, verb: str, noun: str) -> str:
    """Verb phrase with an article."""
    article = words.rng.choice(("the", "the", "a", "my", "this", "our", "")) if words.rng.random() < 0.9 else "some"
    if article == "a" and noun[0] in "aeiou":
        article = "an"
    return f"{verb} {article} {noun}".replace("  ", " ")


def make_box(words: Words, target: Made, size: int) -> list[Made]:
    """The target among others, some of them near misses, in random order."""
    rng = words.rng
    box = [target]
    while len(box) < size:
        roll = rng.random()
        if roll < 0.2:
            other = make_tool(words, verb=target.verb, most=3)
        elif roll < 0.4:
            other = make_tool(words, noun=target.noun, most=3)
        else:
            other = make_tool(words, most=3)
        if all(
            not (alike(other.verb, made.verb) and alike(other.noun, made.noun)) and other.name != made.name
            for made in box
        ):
            box.append(other)
    rng.shuffle(box)
    return box


def leave_out(words: Words, made: Made) -> Made:
    """The tool with some optional parameters not asked for (value None)."""
    slots = tuple(
        slot if slot.required or words.rng.random() < 0.5 else attrs.evolve(slot, value=None) for slot in made.slots
    )
    return attrs.evolve(made, slots=slots)


def arguments(made: Made) -> dict[str, Any]:
    """What the call must hold, in declared order."""
    return {slot.name: slot.value for slot in made.slots if slot.value is not None}


def request(words: Words, made: Made) -> str:
    """A user's message that asks for the tool with its values, now and then with talk around it."""
    rng = words.rng
    text = _request(words, made)
    if rng.random() < 0.1:
        text += ("" if text[-1] in ".?!" else "\n" if "\n" in text else ".") + rng.choice(TAILS)
    if rng.random() < 0.08:
        text = rng.choice(LEADS) + text
    elif rng.random() < 0.04:
        text = words.record("sentences") + " " + text
    return text


def _request(words: Words, made: Made) -> str:
    """The bare request."""
    rng = words.rng
    slots = [slot for slot in made.slots if slot.value is not None]
    if rng.random() < 0.35:
        rng.shuffle(slots)
    named = rng.random() < 0.15
    if named:
        head = rng.choice(
            ("Call {}", "Use {}", "Run {}", "Use the {} tool", "Please call {}", "Invoke {}", "Use the tool {}")
        ).format(made.name)
    else:
        verb, noun = made.verb, made.noun
        if words.side == "train" and rng.random() < 0.4:
            verb, noun = another(rng, verb), another(rng, noun)
        phrase = vp(words, verb, noun)
        head = rng.choice(OPENINGS).format(vp=phrase, Vp=phrase[0].upper() + phrase[1:])
    question = head.startswith(("Can", "Could", "Would", "Is it"))
    if not slots:
        return head + ("?" if question else rng.choice((".", "", " please.")))
    if rng.random() < 0.15 and not named and slots[0].type != "boolean":
        return _owned(words, verb, noun, slots)
    style = rng.choices(
        ("with", "colon", "sentences", "lines", "equals", "bare", "using", "front"), (30, 12, 16, 7, 6, 12, 10, 7)
    )[0]
    if style == "bare" and not _tellable(slots):
        style = "with"
    text = _ARGUMENT_STYLES[style](words, head, slots)
    return text + ("?" if question and text[-1] not in ".\n" and style in ("with", "bare", "using") else "")


def _tellable(slots: list[Slot]) -> bool:
    """Whether the types alone say which value is whose."""
    types = [slot.type for slot in slots]
    return (
        len(set(types)) == len(types)
        and "boolean" not in types
        and not {"integer", "number"} <= set(types)
        and not {"string", "enum"} <= set(types)
    )


def _pair(words: Words, slot: Slot) -> str:
    """ "days 3", "3 as days", "days set to 3"; booleans may be "without logging"."""
    rng = words.rng
    value = written(words, slot)
    if isinstance(slot.value, bool) and rng.random() < 0.3:
        return (
            rng.choice(("{} enabled", "{} turned on", "{} switched on")).format(slot.phrase)
            if slot.value
            else rng.choice(("{} disabled", "{} turned off", "no {}")).format(slot.phrase)
        )
    name = slot.phrase if rng.random() < 0.85 else slot.name
    form = rng.choice(
        (
            "{n} {v}",
            "{n} {v}",
            "{n} {v}",
            "{n} set to {v}",
            "{v} as the {n}",
            "the {n} {v}",
            "{n} = {v}",
            "a {n} of {v}",
            "{n} equal to {v}",
        )
    )
    return form.format(n=name, v=value)


def _joined(words: Words, parts: list[str]) -> str:
    if len(parts) == 1:
        return parts[0]
    return ", ".join(parts[:-1]) + words.rng.choice((" and ", " and ", ", ")) + parts[-1]


def _with(words: Words, head: str, slots: list[Slot]) -> str:
    link = words.rng.choice(("with", "with", "with", "using", "for"))
    return f"{head} {link} {_joined(words, [_pair(words, slot) for slot in slots])}"


def _colon(words: Words, head: str, slots: list[Slot]) -> str:
    pairs = [f"{slot.phrase if words.rng.random() < 0.7 else slot.name}: {written(words, slot)}" for slot in slots]
    return f"{head}{words.rng.choice((': ', '. ', ' - ', ' ('))}{words.rng.choice((', ', '; ')).join(pairs)}".replace(
        " (", " with "
    )


def _sentences(words: Words, head: str, slots: list[Slot]) -> str:
    forms = (
        "The {n} is {v}.",
        "The {n} should be {v}.",
        "Set the {n} to {v}.",
        "Use {v} as the {n}.",
        "Its {n} is {v}.",
        "For the {n}, take {v}.",
        "Make the {n} {v}.",
        "{v} is the {n}.",
    )
    body = " ".join(words.rng.choice(forms).format(n=slot.phrase, v=written(words, slot)) for slot in slots)
    return f"{head}. {body}"


def _lines(words: Words, head: str, slots: list[Slot]) -> str:
    dash = words.rng.choice(("- ", "", "* "))
    return f"{head}:\n" + "\n".join(
        f"{dash}{slot.phrase if words.rng.random() < 0.6 else slot.name}: {written(words, slot)}" for slot in slots
    )


def _equals(words: Words, head: str, slots: list[Slot]) -> str:
    sign = words.rng.choice(("=", " = ", ":"))
    return f"{head} with " + ", ".join(f"{slot.name}{sign}{written(words, slot)}" for slot in slots)


def _owned(words: Words, verb: str, noun: str, slots: list[Slot]) -> str:
    """The first value is what is meant: the bike of Lena, Lena's bike, order A-12."""
    rng = words.rng
    first, rest = slots[0], slots[1:]
    value = written(words, first)
    forms = ["{v} the {n} of {x}", "{v} the {n} {x}", "{v} {n} {x}", "{v} the {n} for {x}", "{v} {n} for {p} {x}"]
    if first.type == "string":
        forms += ["{v} {x}'s {n}", "{v} the {n} called {x}"]
    if first.phrase in noun or noun in first.phrase:
        forms += ["{v} {x}", "{v} the {x}", "{v} {p} {x}"] * 3
    phrase = rng.choice(forms).format(v=verb, n=noun, x=value, p=first.phrase)
    text = rng.choice(OPENINGS).format(vp=phrase, Vp=phrase[0].upper() + phrase[1:])
    if rest:
        text += rng.choice((", ", " with ", " and ", "; ")) + _joined(words, [_pair(words, slot) for slot in rest])
    return text + rng.choice((".", "", "."))


def _bare(words: Words, head: str, slots: list[Slot]) -> str:
    values = [written(words, slot) for slot in slots]
    link = words.rng.choice((" for", " with", " to", " in", ":", " at", " from", " on"))
    return f"{head}{link} {_joined(words, values)}"


def _using(words: Words, head: str, slots: list[Slot]) -> str:
    return f"{head} " + _joined(
        words,
        [
            words.rng.choice(
                (
                    "using {v} as the {n}",
                    "with {n} {v}",
                    "and the {n} should be {v}",
                    "where {n} is {v}",
                    "with {v} for the {n}",
                )
            ).format(n=slot.phrase, v=written(words, slot))
            for slot in slots
        ],
    )


def _front(words: Words, head: str, slots: list[Slot]) -> str:
    facts = _joined(
        words, [f"{words.rng.choice(('the', 'my', 'our'))} {slot.phrase} is {written(words, slot)}" for slot in slots]
    )
    return f"{facts[0].upper()}{facts[1:]}. {head}."


_ARGUMENT_STYLES = {
    "with": _with,
    "colon": _colon,
    "sentences": _sentences,
    "lines": _lines,
    "equals": _equals,
    "bare": _bare,
    "using": _using,
    "front": _front,
}
