"""Small talk, what the model is, everyday facts, definitions, stories, and conversations of several turns."""

from __future__ import annotations

from typing import Any

from tools.demo_model.generate import chat, extract, reason
from tools.demo_model.generate.calls import maybe_system, style
from tools.demo_model.generate.extract import done
from tools.demo_model.generate.phrases import plural
from tools.demo_model.generate.spin import form
from tools.demo_model.generate.stories import ANIMALS, LESSONS, THINGS, story
from tools.demo_model.generate.toolkit import make_tool
from tools.demo_model.render import Example, assistant, user
from tools.demo_model.words import Words

CONTINENTS = {
    "AF": "Africa",
    "AS": "Asia",
    "EU": "Europe",
    "NA": "North America",
    "SA": "South America",
    "OC": "Oceania",
}
FIGURES = (
    *("dragon", "knight", "princess", "robot", "pirate", "witch", "ghost", "unicorn", "wizard", "king", "queen"),
    *("giant", "fairy", "monster", "dinosaur", "astronaut", "farmer", "teacher", "detective"),
)


def small_talk(words: Words) -> Example:
    """One line of small talk."""
    # Not of itself: the system message may say that it is somebody else.
    ask, answer, thought = chat.talk_line(words, ("talk", "advice", "write"))
    return done(words, "talk", ask, answer, thought)


def fact(words: Words) -> Example:
    """Capitals, continents, elements; what cannot be known."""
    rng = words.rng
    roll = rng.random()
    if roll < 0.6:
        country, capital, continent, currency = words.record("capitals")
        ask, answer = rng.choice(
            (
                (
                    rng.choice(
                        (
                            "What is the capital of {}?",
                            "capital of {}?",
                            "Tell me the capital of {}.",
                            "Which city is the capital of {}?",
                            "What's the capital of {}",
                        )
                    ).format(country),
                    f"The capital of {country} is {capital}.",
                ),
                (f"Where is {country}?", f"{country} is in {CONTINENTS.get(continent, continent)}."),
                (f"Which country has the capital {capital}?", f"{capital} is the capital of {country}."),
                (f"What money do people use in {country}?", f"The currency of {country} is the {currency}."),
            )
        )
    elif roll < 0.88:
        name, symbol, at = words.record("elements")
        ask, answer = rng.choice(
            (
                (f"What is the symbol of {name}?", f"The symbol of {name} is {symbol}."),
                (f"Which element has the symbol {symbol}?", f"{symbol} is {name}."),
                (f"What is the atomic number of {name}?", f"The atomic number of {name} is {at}."),
            )
        )
    else:
        subject = rng.choice(
            (words.person(), words.invented().capitalize(), f"the {words.noun()} of {words.invented().capitalize()}")
        )
        ask, answer = (
            rng.choice(
                (
                    "Who is {}?",
                    "What happened to {}?",
                    "When did {} begin?",
                    "How much does {} cost?",
                    "Why is {} famous?",
                )
            ).format(subject),
            chat.UNKNOWN,
        )
    return done(words, "fact", ask, answer, "This is a question about a fact.")


def definition(words: Words) -> Example:
    """What a common word means (WordNet); of other words, that their meaning is not known."""
    word, part, gloss = words.record("known_definitions")
    answer = f"{word} ({part}): {gloss}."
    if words.rng.random() < 0.25:
        word = words.noun()
        while words.is_known(word):
            word = words.noun()
        answer = f"I do not know what {word} means."
    ask = words.rng.choice(
        (
            "What does {w} mean?",
            "Define {w}.",
            "What is the meaning of {w}?",
            'What does "{w}" mean?',
            "Explain the word {w}.",
            "definition of {w}",
        )
    ).format(w=word)
    return done(words, "definition", ask, answer, "The user asks what a word means.")


def tell_story(words: Words) -> Example:
    """A short story, with whatever the user wants in it."""
    rng = words.rng
    length = rng.choice((0, 1, 2, 2))
    size = ("very short ", "short ", "")[length]
    roll = rng.random()
    if roll < 0.3:
        kind = rng.choice((*ANIMALS, *FIGURES)) if rng.random() < 0.6 else None
        ask = form(rng, "story").format(size=size)
        ask = f"{ask} about a {kind}." if kind else f"{ask}."
        text = story(words, kind=kind, length=length)
    elif roll < 0.5:
        hero = words.draw("first_names")
        ask, text = f"Write a {size}story about {hero}.", story(words, hero=hero, length=length)
    elif roll < 0.8:
        kind, hero = (
            rng.choice(ANIMALS),
            words.draw("first_names") if rng.random() < 0.7 else words.invented(2).capitalize(),
        )
        ask, text = (
            rng.choice(
                (
                    "Write a {s}story about a {k} named {h}.",
                    "Tell me a {s}story about a {k} called {h}.",
                    "Can you tell a {s}story about {h} the {k}?",
                )
            ).format(s=size, k=kind, h=hero),
            story(words, hero=hero, kind=kind, length=length),
        )
    else:
        thing = rng.choice(THINGS) if rng.random() < 0.6 else f"{words.draw('adjectives')} {words.draw('nouns')}"
        ask, text = (
            rng.choice(
                ("Write a {s}story with a {t} in it.", "Tell a {s}story about a {t}.", "I want a {s}story with a {t}.")
            ).format(s=size, t=thing),
            story(words, thing=thing, length=length),
        )
    if rng.random() < 0.1:
        ask = ask[:-1] + f" for a child, about {rng.choice(LESSONS)}."
    return done(words, "story", ask, text, "The user wants a story.")


def use_word(words: Words) -> Example:
    """A sentence with a word in it (WordNet examples)."""
    text = words.record("sentences")
    parts = [part.strip(",.'!?-").lower() for part in text.split()]
    word = max(parts, key=len)
    ask = words.rng.choice(
        ("Use the word {w} in a sentence.", "Write a sentence with {w}.", "Give me a sentence that contains {w}.")
    ).format(w=word)
    return done(words, "sentence", ask, text, "")


def remember(words: Words) -> Example:
    """The user tells something, talks of other things, asks for it again."""
    rng = words.rng
    thinks = rng.random() < 0.4
    person, thing, code = words.person(), words.noun(), rng.choice((words.invented, words.city, words.noun))()
    told = rng.choice(
        (
            (f"My name is {person}.", f"Nice to meet you, {person}.", "What is my name?", f"Your name is {person}."),
            (
                f"Remember that the {thing} is {code}.",
                f"I will remember: the {thing} is {code}.",
                f"What is the {thing}?",
                f"The {thing} is {code}.",
            ),
            (f"I live in {code}.", f"{code} sounds nice.", "Where do I live?", f"You live in {code}."),
            (
                f"I have a {rng.choice(ANIMALS)} called {code}.",
                f"{code} is a nice name.",
                "What is my animal called?",
                f"It is called {code}.",
            ),
            (
                f"My favorite {thing} is {code}.",
                f"Good choice: {code}.",
                f"What is my favorite {thing}?",
                f"Your favorite {thing} is {code}.",
            ),
        )
    )
    messages: list[dict[str, Any]] = [
        *maybe_system(words, 0.15),
        user(told[0]),
        assistant(told[1], "The user tells me something." if thinks else ""),
    ]
    for _ in range(rng.randint(0, 2)):
        ask, answer, thought = chat.line(words, rng.choice(chat.PLAIN))
        messages += [user(ask), assistant(answer, thought if thinks else "")]
    messages += [user(told[2]), assistant(told[3], "The user said it above." if thinks else "")]
    return Example(
        task="remember",
        messages=messages,
        thinking=thinks,
        preserve=rng.random() < 0.7,
        check={"kind": "exact", "answer": told[3]},
    )


OPINIONS = (
    (
        "What do you think of {t}?|What do you think about {t}?|How do you like {t}?|Do you like {t}?|"
        "Are you fond of {t}?|Tell me how you feel about {t}.|Is there anything good about {t}?|Do you care for {t}?"
        "|Would you recommend {t}?",
        "I have no opinion on {t}: I am only a small program.",
    ),
    (
        "I like {t}.|I love {t}!|I am a fan of {t}.|{T} makes me happy.|Nothing is better than {t}.",
        "That is nice to hear. What do you like about {t}?",
    ),
    (
        "I hate {t}.|I don't like {t}.|{T} is boring.|I am tired of {t}.|I am afraid of {t}.|No more {t}, please.",
        "I understand. Then let us talk about something other than {t}.",
    ),
    (
        "Can we talk about {t}?|Let's talk about {t}.|I want to talk about {t}.|Tell me something about {t}.",
        "I know very little about {t}. What would you like to say about it?",
    ),
    (
        "I saw {t} today.|Yesterday I dreamed of {t}.|Today was all about {t}.|I spent the day with {t}.",
        "That sounds interesting. How was it with {t}?",
    ),
    (
        "Thanks for your help with {t}.|Thank you for {t}.|Thanks, {t} was great.|You did well with {t}.",
        "You are welcome.",
    ),
)


def opinion(words: Words) -> Example:
    """Talk about a thing that needs no tool and no knowledge."""
    rng = words.rng
    asks, answer = rng.choice(OPINIONS)
    thing = rng.choice((words.noun(), plural(words.noun()), f"{words.draw('adjectives')} {plural(words.noun())}"))
    ask = rng.choice(asks.split("|")).format(t=thing, T=thing.capitalize())
    if rng.random() < 0.2:
        ask = f"{rng.choice(('Hi!', 'Hello.', 'Good morning!', 'Hey,', 'By the way,', 'So,'))} {ask}"
    return done(words, "opinion", ask, answer.format(t=thing), "This is small talk.")


SINGLES = (
    small_talk,
    opinion,
    fact,
    definition,
    reason.arithmetic,
    reason.compare,
    reason.sort,
    reason.date,
    extract.lookup,
    extract.edit,
    extract.copy,
    extract.as_json,
)


def several(words: Words) -> Example:
    """Two to four single-turn tasks one after another in one conversation."""
    rng = words.rng
    mode = style(words)
    messages: list[dict[str, Any]] = maybe_system(words, 0.2)
    for _ in range(rng.randint(2, 4)):
        turn = rng.choice(SINGLES)(words)
        while turn.thinking != mode["thinking"]:
            turn = rng.choice(SINGLES)(words)
        messages += turn.messages[-2:]
    return Example(task="several", messages=messages, preserve=rng.random() < 0.75, **mode)


def unneeded_tools(words: Words) -> Example:
    """Tools are there, but the question needs none."""
    turn = words.rng.choice(
        (small_talk, fact, reason.arithmetic, extract.lookup, definition, reason.sort, extract.copy)
    )(words)
    tools = [make_tool(words, most=2).declaration() for _ in range(words.rng.randint(1, 4))]
    return Example(
        task="unneeded",
        messages=turn.messages,
        tools=tools,
        thinking=turn.thinking,
        effort=turn.effort,
        check={"kind": "no_call"},
    )
