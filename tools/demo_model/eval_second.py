"""A second, independent generator of evaluation cases for the demonstration model.

Written without sight of the training generators: its words, sentence forms and tool themes are its own, so that a
score here says what the model learned rather than what it memorised. Cases are plain data: messages and tools in
OpenAI's shapes, and what a right answer is. Pure and seeded; it knows nothing of the model or the engine.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

Message = dict[str, object]
Tool = dict[str, object]


@attrs.frozen(kw_only=True)
class Case:
    """One question and what counts as a right reply to it.

    Exactly one of the two expectations is given: `call` is the only right tool call (name and arguments), `accepts`
    judges the visible text of a reply without calls.
    """

    task: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    call: tuple[str, Mapping[str, object]] | None = None
    accepts: Callable[[str], bool] | None = None


@attrs.frozen(kw_only=True)
class _Theme:
    """A tool with a request sentence whose braces are its parameters."""

    name: str
    about: str
    parameters: Mapping[str, Callable[[random.Random], tuple[dict[str, object], object]]]
    asks: Sequence[str]


_SYLLABLES = [
    "ka",
    "lo",
    "mir",
    "ten",
    "vas",
    "bru",
    "del",
    "fen",
    "gor",
    "hul",
    "jin",
    "pel",
    "qua",
    "ros",
    "sul",
    "tav",
    "wex",
    "yor",
    "zim",
    "cor",
]
_STREETS = ["Larch", "Quarry", "Harbour", "Mill", "Chapel", "Orchard", "Foundry", "Beacon", "Willow", "Station"]
_GOODS = ["lantern", "kettle", "compass", "blanket", "ladder", "teapot", "hammer", "mirror", "candle", "basket"]
_MOODS = ("calm", "urgent", "playful", "formal")
_METALS = ("copper", "silver", "bronze", "tin")
_ROOMS = ("attic", "cellar", "pantry", "porch")


def _invented(rng: random.Random) -> str:
    return "".join(rng.sample(_SYLLABLES, rng.randint(2, 3))).capitalize()


def _text(words: Callable[[random.Random], str], about: str) -> Callable[..., tuple[dict[str, object], object]]:
    return lambda rng: ({"type": "string", "description": about}, words(rng))


def _whole(low: int, high: int, about: str) -> Callable[..., tuple[dict[str, object], object]]:
    return lambda rng: ({"type": "integer", "description": about}, rng.randint(low, high))


def _one_of(values: Sequence[str], about: str) -> Callable[..., tuple[dict[str, object], object]]:
    return lambda rng: ({"type": "string", "enum": list(values), "description": about}, rng.choice(values))


def _truth(about: str) -> Callable[..., tuple[dict[str, object], object]]:
    return lambda rng: ({"type": "boolean", "description": about}, rng.random() < 0.5)


def _several(words: Callable[[random.Random], str], about: str) -> Callable[..., tuple[dict[str, object], object]]:
    def draw(rng: random.Random) -> tuple[dict[str, object], object]:
        values: list[str] = []
        while len(values) < 2 + (rng.random() < 0.5):
            if (word := words(rng)) not in values:
                values.append(word)
        return {"type": "array", "items": {"type": "string"}, "description": about}, values

    return draw


def _good(rng: random.Random) -> str:
    return rng.choice(_GOODS)


def _address(rng: random.Random) -> str:
    return f"{rng.randint(2, 98)} {rng.choice(_STREETS)} Lane"


_THEMES = (
    _Theme(
        name="dispatch_courier",
        about="Send a courier to an address.",
        parameters={"address": _text(_address, "Where to go"), "parcels": _whole(1, 40, "How many parcels")},
        asks=(
            "Please send a courier to {address} for {parcels} parcels.",
            "{parcels} parcels wait at {address}; get a courier.",
        ),
    ),
    _Theme(
        name="forge_order",
        about="Order a piece of metalwork.",
        parameters={"piece": _text(_good, "What to make"), "metal": _one_of(_METALS, "Which metal")},
        asks=("Order a {piece} made of {metal}.", "I would like one {piece} in {metal}, please."),
    ),
    _Theme(
        name="register_guest",
        about="Write a guest into the house book.",
        parameters={
            "guest": _text(_invented, "Name of the guest"),
            "nights": _whole(1, 30, "Length of the stay"),
            "breakfast": _truth("Whether breakfast is wanted"),
        },
        asks=("Register guest {guest} for {nights} nights, breakfast: {breakfast}.",),
    ),
    _Theme(
        name="set_lamp_level",
        about="Dim or brighten the lamp of a room.",
        parameters={"room": _one_of(_ROOMS, "Which room"), "level": _whole(0, 100, "Brightness in percent")},
        asks=("Put the lamp in the {room} at {level} percent.", "Lamp level {level} in the {room}."),
    ),
    _Theme(
        name="invite_players",
        about="Invite people to a game.",
        parameters={"players": _several(_invented, "Who is invited"), "tone": _one_of(_MOODS, "Tone of the letter")},
        asks=("Invite {players} to the game, tone {tone}.",),
    ),
    _Theme(
        name="find_ferry",
        about="Look up a ferry.",
        parameters={"harbour": _text(_invented, "Harbour of departure")},
        asks=("Which ferry leaves from {harbour}?", "Look up the ferry from {harbour}."),
    ),
)
_SMALL_TALK = (
    "Good morning! How are you?",
    "Tell me a short story about a fox.",
    "What is your opinion of rainy days?",
    "Thank you, that was kind.",
)


def _spoken(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(value)
    return str(value)


def _draw(theme: _Theme, rng: random.Random) -> tuple[Tool, dict[str, object]]:
    schemas: dict[str, object] = {}
    values: dict[str, object] = {}
    for name, draw in theme.parameters.items():
        schemas[name], values[name] = draw(rng)
    parameters = {"type": "object", "properties": schemas, "required": list(schemas)}
    return {
        "type": "function",
        "function": {"name": theme.name, "description": theme.about, "parameters": parameters},
    }, values


def tool_cases(rng: random.Random) -> Iterator[Case]:
    """One declared tool fits the request; name and arguments must be exactly right."""
    while True:
        chosen = rng.sample(_THEMES, rng.randint(2, 5))
        wanted = rng.choice(chosen)
        drawn = {theme.name: _draw(theme, rng) for theme in chosen}
        values = drawn[wanted.name][1]
        ask = rng.choice(wanted.asks).format(**{name: _spoken(value) for name, value in values.items()})
        tools = tuple(drawn[theme.name][0] for theme in chosen)
        yield Case(task="tool", messages=({"role": "user", "content": ask},), tools=tools, call=(wanted.name, values))


def no_call_cases(rng: random.Random) -> Iterator[Case]:
    """Tools are declared and none fits: any text is right, a call is wrong."""
    while True:
        chosen = rng.sample(_THEMES, rng.randint(2, 4))
        tools = tuple(_draw(theme, rng)[0] for theme in chosen)
        ask = {"role": "user", "content": rng.choice(_SMALL_TALK)}
        yield Case(task="no_call", messages=(ask,), tools=tools, accepts=lambda text: bool(text.strip()))


def json_cases(rng: random.Random) -> Iterator[Case]:
    """A JSON object of the asked members, and nothing else, is right."""
    while True:
        wanted = {"owner": _invented(rng), "item": _good(rng), "count": rng.randint(1, 99)}
        order = rng.sample(list(wanted), 3)
        story = f"{wanted['owner']} keeps {wanted['count']} pieces of the article {wanted['item']} in the shed."
        shape = ", ".join(f'"{key}" ({"integer" if key == "count" else "string"})' for key in order)
        ask = f"{story} Answer with a JSON object that has the keys {shape}."
        expected = {key: wanted[key] for key in order}

        def accepts(text: str, expected: dict[str, object] = expected) -> bool:
            try:
                found = json.loads(text)
            except ValueError:
                return False
            return isinstance(found, dict) and {k: type(v) for k, v in found.items()} == {
                k: type(v) for k, v in expected.items()
            }

        yield Case(task="json", messages=({"role": "user", "content": ask},), accepts=accepts)


def copy_cases(rng: random.Random) -> Iterator[Case]:
    """The answer stands in the prompt and must be given back letter by letter."""
    while True:
        people = list(dict.fromkeys(_invented(rng) for _ in range(3)))
        places = {name: _address(rng) for name in people}
        asked = rng.choice(people)
        facts = " ".join(f"{name} lives at {place}." for name, place in places.items())
        ask = f"{facts} Where does {asked} live?"
        wanted = places[asked]
        yield Case(
            task="copy",
            messages=({"role": "user", "content": ask},),
            accepts=lambda text, wanted=wanted: wanted in text and text.count("Lane") == 1,
        )


GENERATORS: Mapping[str, Callable[[random.Random], Iterator[Case]]] = {
    "tool": tool_cases,
    "no_call": no_call_cases,
    "json": json_cases,
    "copy": copy_cases,
}


def cases(task: str, count: int, seed: int) -> list[Case]:
    """`count` cases of one task; the same seed gives the same cases."""
    source = GENERATORS[task](random.Random(f"{task}/{seed}"))
    return [next(source) for _ in range(count)]
