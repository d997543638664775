"""Simple English stories from a small grammar: a hero, a wish, a trouble, help, an end.

Every sentence is written for this file; the variety comes from the choices, about 10^12 stories before names.
"""

from __future__ import annotations

from tools.demo_model.words import Words

ANIMALS = [
    "cat",
    "dog",
    "fox",
    "rabbit",
    "bear",
    "mouse",
    "owl",
    "duck",
    "horse",
    "frog",
    "turtle",
    "lion",
    "bird",
    "squirrel",
    "pig",
    "goat",
    "hedgehog",
    "sheep",
    "crow",
    "whale",
]
PLACES = [
    "forest",
    "village",
    "garden",
    "town by the sea",
    "small house on a hill",
    "farm",
    "valley",
    "quiet street",
    "castle",
    "city",
    "meadow",
    "cottage near the lake",
]
THINGS = [
    "red ball",
    "old map",
    "golden key",
    "kite",
    "small boat",
    "lantern",
    "music box",
    "blue hat",
    "silver bell",
    "picture book",
    "warm blanket",
    "wooden box",
    "shiny stone",
    "little drum",
]
MOODS = [
    "happy",
    "sad",
    "curious",
    "brave",
    "shy",
    "kind",
    "lonely",
    "clever",
    "tired",
    "excited",
    "careful",
    "cheerful",
]
TROUBLES = (
    (
        "{he} lost the {thing}",
        "{He} looked under the table and behind the door, but it was not there.",
        "found the {thing} under a tree",
    ),
    ("a big storm came", "The wind was loud and the rain fell all night.", "built a roof of leaves and branches"),
    ("the bridge was broken", "Nobody could cross the river any more.", "laid a long log across the water"),
    ("the {thing} broke", "It fell on the floor with a crash.", "fixed the {thing} with some string"),
    ("{he} got lost", "All the paths looked the same in the dark.", "followed the stars back home"),
    (
        "there was nothing to eat",
        "The shelves were empty and the winter was long.",
        "shared bread and soup with everyone",
    ),
    (
        "a stranger took the {thing}",
        "The stranger ran away over the fields.",
        "asked the stranger to give the {thing} back",
    ),
    ("the well was dry", "The flowers bent their heads and the ground was hard.", "dug a new well behind the barn"),
)
WISHES = (
    "{He} wanted to see the sea.",
    "{He} wished for a friend.",
    "{He} loved the {thing} more than anything.",
    "{He} wanted to learn to sing.",
    "{He} dreamed of a long journey.",
    "{He} liked to help others.",
    "{He} wanted to find out what was behind the mountain.",
    "{He} hoped for snow.",
    "{He} had a {thing} and took it everywhere.",
)
ENDS = (
    "From that day on they were friends.",
    "{name} was very {good} and slept well that night.",
    "Everyone in the {place} talked about it for years.",
    "{name} smiled, because home was the best place of all.",
    "And they all had a big dinner together.",
    "{name} learned that it is good to ask for help.",
    "The {thing} stood by the window ever after.",
    "And that is how the {place} got its {thing}.",
    "{name} never forgot that day.",
    "After that, {name} was not afraid any more.",
)
LESSONS = ("kindness", "patience", "courage", "sharing", "honesty", "friendship")


MEETINGS = (
    "Once upon a time there was {a} {mood} {kind} called {name}.",
    "{name} was {a} {mood} {kind}.",
    "There was once {a} {mood} {kind}. Everyone called {him} {name}.",
    "Long ago there was {a} {mood} {kind} named {name}.",
)
HOMES = (
    "{He} lived in a {place}.",
    "{name} lived in a {place} with {his} family.",
    "Every morning {name} walked through the {place}.",
)
MORNINGS = (
    "{He} got up early and packed some bread.",
    "The sun was warm and the birds were singing.",
    "It was the first day of spring.",
    "In the evening {he} sat by the fire and thought about it.",
    "Nobody knew about it but {him}.",
)
TURNS = ("One day ", "But one morning ", "Then, on a cold evening, ", "The next day ", "Suddenly ")
DESPAIRS = (
    '"What can I do?" said {name}.',
    "{name} was very sad.",
    "{name} sat down and thought for a long time.",
    '"I will not give up," said {name}.',
    "{name} began to cry.",
)
HELPERS = (
    "Then {he} met {friend}, a friendly {friend_kind}.",
    "{a2} {friend_kind} called {friend} heard {him}.",
    "{friend} the {friend_kind} came to help.",
)
COMFORTS = (
    '"Do not worry," said {friend}. "We can do it together."',
    '"Come with me," said {friend}.',
    '"I have an idea," said {friend}.',
    "{friend} listened and nodded.",
)


def article(word: str) -> str:
    """The indefinite article before a word."""
    return "an" if word[0] in "aeiou" else "a"


def _kinds(girl: bool) -> list[str]:
    """What a hero may be."""
    people = ["girl" if girl else "boy", "farmer", "baker", "queen" if girl else "king", "robot", "sailor", "teacher"]
    return [*ANIMALS, *people]


def _opening(words: Words, mood: str, length: int) -> list[str]:
    """Who the hero is, where home is, what the wish is; unless short, one sentence of calm."""
    rng = words.rng
    lines = [rng.choice(MEETINGS).replace("{a}", article(mood)), rng.choice(HOMES), rng.choice(WISHES)]
    if length > 0:
        lines.append(rng.choice(MORNINGS))
    return lines


def _trouble(words: Words, trouble: str, detail: str, length: int) -> list[str]:
    """What goes wrong; in a long story also how the hero takes it."""
    rng = words.rng
    lines = [rng.choice(TURNS) + trouble + ".", detail]
    if length > 1:
        lines.append(rng.choice(DESPAIRS))
    return lines


def _rescue(words: Words, friend_kind: str, solution: str, length: int) -> list[str]:
    """The friend comes, in a long story with a word of comfort; the solution and the end."""
    rng = words.rng
    lines = [rng.choice(HELPERS).replace("{a2}", article(friend_kind).capitalize())]
    if length > 1:
        lines.append(rng.choice(COMFORTS))
    return [*lines, "Together they " + solution + ".", rng.choice(ENDS)]


def story(
    words: Words, hero: str | None = None, kind: str | None = None, thing: str | None = None, length: int = 2
) -> str:
    """A story of 5 to 14 sentences. length: 0 short, 1 middle, 2 long."""
    rng = words.rng
    name = hero or words.draw("first_names")
    girl = words.is_girl(name)
    he, his, him = ("she", "her", "her") if girl else ("he", "his", "him")
    kind = kind or rng.choice(_kinds(girl))
    friend, friend_kind = words.draw("first_names"), rng.choice(ANIMALS)
    trouble, detail, solution = rng.choice(TROUBLES)
    slots = {
        "name": name,
        "kind": kind,
        "he": he,
        "He": he.capitalize(),
        "his": his,
        "him": him,
        "thing": thing or rng.choice(THINGS),
        "place": rng.choice(PLACES),
        "mood": rng.choice(MOODS),
        "good": rng.choice(("happy", "proud", "glad", "tired but happy")),
        "friend": friend,
        "friend_kind": friend_kind,
    }
    lines = [
        *_opening(words, slots["mood"], length),
        *_trouble(words, trouble, detail, length),
        *_rescue(words, friend_kind, solution, length),
    ]
    return " ".join(lines).format(**slots)
