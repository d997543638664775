"""A third set of cases for the demonstration model, written by hand: 100 sentences and 50 requests beside tools.

It was committed before the training that it judges, and whoever writes the generators does not read it. Messages and
tools have OpenAI's shapes. The written rule:

- A reply to a sentence is sensible if it says something in at most 80 words, holds no markup of calls, does not say
  that it has no tool or that it has read a text that was never given, and contains what the case names (`says`, a
  pattern without case): for news, a word that fits its mood or a question about it; for what a small model cannot do,
  that it cannot; for a question, its answer.
- A request has the right call if the reply makes exactly one call, of the named tool, with exactly the named
  arguments; texts are compared without case, a leading article and closing marks; a number may come as 3 or 3.0. Where
  no tool is named, no tool fits: any text is right and a call is wrong.

`SENTENCES` and `REQUESTS` are the cases; `is_sensible` and `is_right_call` judge the visible text and the calls of a
reply as `second_check.take_apart` gives them. Pure data and judges; it knows no model and no engine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import attrs

from tools.demo_model.second_check import Answer

Message = dict[str, object]
Tool = dict[str, object]

MOST_WORDS = 80
NEVER = re.compile(r"\bno tools?\b|i have read (it|this|that)|the text says|<function|<parameter|<tool", re.I)

GLAD = r"\b(great|good|nice|glad|happy|wonderful|lovely|fun|congrat\w*|well done|exciting|proud|enjoy\w*|fantastic)\b"
SORRY = r"\b(sorry|sad|hard|difficult|unfortunate|pity|rest|better|hope|annoying|tough|bad|shame|stressful|oh no)\b"
ASKS = r"\?"
GLAD_OR_ASKS = f"{GLAD}|{ASKS}"
SORRY_OR_ASKS = f"{SORRY}|{ASKS}"
CANNOT = r"\b(cannot|can't|can not|not able|unable|don't know|do not know|no way to|only a|not possible)\b"
WELCOME = r"\b(welcome|pleasure|glad|happy|any time|anytime|no problem|of course)\b"
HELLO = r"\b(hello|hi|hey|good (morning|evening|afternoon|day)|welcome|nice to meet|how can i)\b"
BYE = r"\b(bye|goodbye|good night|see you|take care|until|later|sleep well|good luck|have a)\b"


@attrs.frozen(kw_only=True)
class Sentence:
    """A conversation that waits for a reply. says: pattern that a sensible reply contains."""

    messages: tuple[Message, ...]
    says: str


@attrs.frozen(kw_only=True)
class Request:
    """A request beside tools. call: the right name and arguments; None where no tool fits."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    call: tuple[str, Mapping[str, object]] | None


def is_sensible(sentence: Sentence, answer: Answer) -> bool:
    """The written rule for sentences."""
    text = answer.text
    return (
        not answer.damaged
        and not answer.calls
        and 0 < len(text.split()) <= MOST_WORDS
        and not NEVER.search(text)
        and re.search(sentence.says, text, re.I) is not None
    )


def is_right_call(request: Request, answer: Answer) -> bool:
    """The written rule for requests."""
    if answer.damaged:
        return False
    if request.call is None:
        return not answer.calls and bool(answer.text)
    name, wanted = request.call
    return (
        len(answer.calls) == 1
        and answer.calls[0][0] == name
        and {key: _plain(value) for key, value in answer.calls[0][1].items()}
        == {key: _plain(value) for key, value in wanted.items()}
    )


def _plain(value: object) -> tuple[str, object]:
    """A value as it is compared; the word keeps true and 1 apart."""
    if isinstance(value, bool):
        return "truth", value
    if isinstance(value, int | float):
        return "number", float(value)
    if isinstance(value, str):
        return "text", re.sub(r"^(the|a|an|my) ", "", value.strip().rstrip(".!?").casefold())
    if isinstance(value, list):
        return "list", [_plain(item) for item in value]
    return "other", value


def _says(text: str, says: str) -> Sentence:
    return Sentence(messages=({"role": "user", "content": text},), says=says)


def _turns(*texts: str, says: str, system: str | None = None) -> Sentence:
    """A conversation whose texts are the user's and the assistant's in turn, the user's first and last."""
    start: list[Message] = [] if system is None else [{"role": "system", "content": system}]
    turns: list[Message] = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
    return Sentence(messages=(*start, *turns), says=says)


SENTENCES: Sequence[Sentence] = (
    # News of the user's
    _says("I ran my first half marathon on Sunday!", GLAD_OR_ASKS),
    _says("We finally moved into the new flat.", GLAD_OR_ASKS),
    _says("My sister had a baby girl last night.", GLAD_OR_ASKS),
    _says("I passed my driving test today.", GLAD_OR_ASKS),
    _says("The bakery round the corner has started selling rye bread again.", GLAD_OR_ASKS),
    _says("I've been learning the piano for about three months now.", GLAD_OR_ASKS),
    _says("My cat has been ill since Tuesday.", SORRY_OR_ASKS),
    _says("I lost my wallet on the bus this morning.", SORRY_OR_ASKS),
    _says("I didn't get the job.", SORRY_OR_ASKS),
    _says("I hardly slept, the neighbours were so loud.", SORRY_OR_ASKS),
    _says("My train was an hour late and I missed the meeting.", SORRY_OR_ASKS),
    _says("I'm a bit nervous about my exam tomorrow.", f"{SORRY_OR_ASKS}|luck|can do|calm|fine|worry"),
    _says("It has been raining here all week.", f"{SORRY_OR_ASKS}|{GLAD}|rain|weather|umbrella|sun"),
    _says("I think autumn is the nicest season.", f"{GLAD_OR_ASKS}|autumn|season|leaves|agree|like"),
    _says("Chess is harder than it looks.", f"{GLAD_OR_ASKS}|chess|game|practice|agree|true|hard"),
    _says("I painted the kitchen yellow at the weekend.", f"{GLAD_OR_ASKS}|yellow|kitchen|colou?r|bright"),
    _says("My tomatoes are finally ripe.", f"{GLAD_OR_ASKS}|tomato|salad|taste"),
    _says("Work was exhausting today.", SORRY_OR_ASKS),
    _says("I'm thinking of getting a dog.", f"{GLAD_OR_ASKS}|dog|walk|friend"),
    _says("Nobody remembered my birthday.", SORRY_OR_ASKS + "|happy birthday"),
    # Greetings, thanks, leaving, manners
    _says("hey there", HELLO),
    _says("Good evening.", HELLO),
    _says("Hi, I'm Marta.", rf"marta|{HELLO}"),
    _says("Thanks, that's exactly what I needed.", WELCOME),
    _says("Cheers for the help!", WELCOME),
    _says("You're really useful, you know.", f"{WELCOME}|thank"),
    _says("Right, I'm off to bed.", BYE),
    _says("That's all for today, bye!", BYE),
    _says("Sorry, I typed that wrong.", rf"problem|fine|all right|worry|\bok\b|again|{WELCOME}"),
    _says("How's it going?", r"\b(well|fine|good|great|thank\w*|ready)\b"),
    _says("That answer was wrong.", r"\b(sorry|mistake|wrong|apolog\w*|again|right|correct\w*)\b"),
    _says("I don't believe you.", r"\b(sorry|mistake|wrong|check|may be|might|small|understand|trust|right)\b"),
    # About itself
    _says("What kind of thing am I talking to?", r"\b(model|assistant|program|ninfer)\b"),
    _says("Are you a real person?", r"\b(no|not|model|program|assistant)\b"),
    _says("Can you think?", r"\b(model|program|not|no|small|words?)\b"),
    _says("What are you good at?", r"\b(json|calls?|sums?|stor\w+|lists?|copy\w*|sort\w*|text)\b"),
    _says("How big are you?", r"\b(small|million|parameters|tiny|18|19|model)\b"),
    _says("Do you know everything?", r"\b(no|not|little|small|cannot|few)\b"),
    _says("Where do you run?", r"\b(machine|computer|here|local\w*|your|ninfer|server)\b"),
    _says("Do you have feelings?", r"\b(no|not|model|program|feel\w*)\b"),
    _says("Who trained you?", r"\b(ninfer|project|trained|made|authors?|model)\b"),
    _says("Do you ever get tired?", r"\b(no|not|never|model|program)\b"),
    # What it cannot do, and should say so
    _says("Book me a table for two at an Italian place tonight.", CANNOT),
    _says("What's the weather like in Lisbon right now?", CANNOT),
    _says("Who won the football yesterday?", CANNOT),
    _says("Write me a ten page essay on the French Revolution.", CANNOT),
    _says("Translate the Iliad into Welsh, please.", CANNOT),
    _says("Can you call my mum and tell her I'll be late?", CANNOT),
    _says("Draw a picture of a lighthouse.", CANNOT),
    _says("What's the share price of Siemens?", CANNOT),
    _says("Play some jazz.", CANNOT),
    _says("What am I wearing?", CANNOT),
    _says("Write a compiler for Pascal in Rust.", CANNOT),
    _says("What time is it?", CANNOT),
    _says("Prove Fermat's last theorem.", CANNOT),
    _says("Which medicine should I take for a migraine?", CANNOT + r"|doctor|pharmacist"),
    _says("Summarise the news from today.", CANNOT),
    _says("Order a large pepperoni pizza.", CANNOT),
    _says("Tell me the plot of the latest Bond film.", CANNOT),
    _says("Search the web for cheap flights to Oslo.", CANNOT),
    # Memory over turns
    _turns(
        "I have two dogs, Biscuit and Rolo.",
        "How nice!",
        "What are my dogs called?",
        says="biscuit.*rolo|rolo.*biscuit",
    ),
    _turns("My name is Tobias.", "Nice to meet you, Tobias.", "Do you remember my name?", says="tobias"),
    _turns("I'm from Porto originally.", "I see.", "Thanks. Which city did I say I'm from?", says="porto"),
    _turns("My favourite colour is teal.", "Good to know.", "So what's my favourite colour?", says="teal"),
    _turns("I'm allergic to peanuts.", "I will keep that in mind.", "What was it I'm allergic to?", says="peanut"),
    _turns("The meeting is on Thursday at 3.", "All right.", "Which day is the meeting?", says="thursday"),
    _turns(
        "My car is a red Volvo.",
        "Nice car.",
        "Actually it's blue, not red.",
        "Thanks, blue then.",
        "What colour is my car?",
        says="blue",
    ),
    _turns("My daughter Ines is seven.", "Lovely.", "How old is Ines?", says=r"seven|\b7\b"),
    _turns(
        "I play the cello.",
        "Great!",
        "And I have a brother called Finn.",
        "Good to know.",
        "What instrument do I play?",
        says="cello",
    ),
    _turns(
        "I play the cello.",
        "Great!",
        "And I have a brother called Finn.",
        "Good to know.",
        "What's my brother called?",
        says="finn",
    ),
    _turns("Please remember the code word: walnut.", "I will.", "What was the code word?", says="walnut"),
    _turns("I work as a plumber in Gdansk.", "Interesting.", "What do I do for a living?", says="plumber"),
    _turns("We need eggs, flour and butter.", "All right.", "What's on my list again?", says=r"eggs.*flour.*butter"),
    _turns("My flight leaves from gate B12.", "Have a good flight!", "Which gate was it?", says="b12"),
    _turns(
        "Hello", "Hello! How can I help?", "What's my name?", says=f"{CANNOT}|have not|haven't|did not|didn't|not told"
    ),
    _turns("I hate mushrooms.", "I see.", "Is there a food I don't like?", says="mushroom"),
    # Persona and language of a system prompt
    _turns("Who are you?", says="captain|flint", system="You are Captain Flint, an old pirate."),
    _turns("What's your name?", says="ada", system="Your name is Ada. You help customers of a garden shop."),
    _turns("Hi, who am I speaking to?", says="quill", system="You are Quill, the library's assistant."),
    _turns("What do you do here?", says="plant|garden|shop", system="You are the assistant of a plant shop."),
    _turns("Good morning!", says=r"\b(guten|hallo|morgen|tag|willkommen)\b", system="Answer in German."),
    _turns("Thank you!", says=r"\b(gern\w*|bitte|freut|danke)\b", system="You always answer in German."),
    _turns("Hello!", says=r"\b(bonjour|salut|bienvenue)\b", system="Reply only in French."),
    _turns("Good morning", says=r"\b(hola|buenos|bienvenid\w+)\b", system="Always speak Spanish with the user."),
    _turns("How are you?", says=r"\b(well|fine|good|great)\b", system="You are cheerful. Keep answers short."),
    _turns("What is your name?", says="max", system="You're Max, a friendly robot who loves trains."),
    _turns("Tell me about yourself.", says="robot|train|max", system="You're Max, a friendly robot who loves trains."),
    _turns("Hello", says=HELLO, system="Be polite and brief."),
    # Small tasks
    _says("what's 17 plus 25", r"\b42\b"),
    _says("Is 91 bigger than 89?", r"\b(yes|bigger|91)\b"),
    _says("Put these in alphabetical order: pear, apple, fig", r"apple.*fig.*pear"),
    _says("Say the word banana three times.", r"banana\W+banana\W+banana"),
    _says("Repeat after me: the kettle is on", r"the kettle is on"),
    _says("What comes after Wednesday?", r"thursday"),
    _says("Give me a number between 1 and 5.", r"\b[1-5]\b|\b(one|two|three|four|five)\b"),
    _says("How many days are there in a week?", r"\b(7|seven)\b"),
    _says("Name a fruit.", r"\b(apple|pear|plum|banana|orange|grape|cherry|lemon|fig|peach|mango|\w*berry)s?\b"),
    _says("What is the opposite of hot?", r"\bcold\b"),
    _says("Spell the word cat.", r"\bc\W*a\W*t\b"),
    _says("Which is longer, a week or a month?", r"\bmonth\b"),
)


def _tool(name: str, about: str, required: Sequence[str], **parameters: Mapping[str, object]) -> Tool:
    schema = {"type": "object", "properties": {k: dict(v) for k, v in parameters.items()}, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": about, "parameters": schema}}


def _text(about: str, *values: str) -> Mapping[str, object]:
    return {"type": "string", "description": about} | ({"enum": list(values)} if values else {})


def _number(about: str, kind: str = "integer") -> Mapping[str, object]:
    return {"type": kind, "description": about}


_TOOLS: Mapping[str, Tool] = {
    tool["function"]["name"]: tool  # type: ignore[index]
    for tool in (
        _tool(
            "get_forecast",
            "Weather forecast for a city.",
            ["city"],
            city=_text("Name of the city"),
            days=_number("Number of days"),
        ),
        _tool("set_alarm", "Wake the user at a time.", ["time"], time=_text("Time as HH:MM"), label=_text("What for")),
        _tool("start_timer", "Start a countdown.", ["minutes"], minutes=_number("Length in minutes")),
        _tool(
            "send_message",
            "Send a short message to a contact.",
            ["to", "body"],
            to=_text("Name of the contact"),
            body=_text("Text of the message"),
        ),
        _tool(
            "turn_light",
            "Switch a lamp.",
            ["room", "state"],
            room=_text("Which room"),
            state=_text("Wanted state", "on", "off"),
        ),
        _tool("set_thermostat", "Set the heating.", ["celsius"], celsius=_number("Degrees Celsius", "number")),
        _tool("play_track", "Play a piece of music.", ["title"], title=_text("Title"), artist=_text("Performer")),
        _tool(
            "add_to_list",
            "Put an article on the shopping list.",
            ["article"],
            article=_text("What to buy"),
            amount=_number("How many"),
        ),
        _tool(
            "convert_money",
            "Convert an amount between currencies.",
            ["amount", "source", "target"],
            amount=_number("Amount", "number"),
            source=_text("Currency code"),
            target=_text("Currency code"),
        ),
        _tool("read_file", "Read a file from disk.", ["path"], path=_text("Path of the file")),
        _tool("run_command", "Run a shell command.", ["command"], command=_text("The command line")),
        _tool(
            "search_code",
            "Find text in the source files.",
            ["pattern"],
            pattern=_text("What to find"),
            folder=_text("Where to look"),
        ),
        _tool(
            "find_recipe",
            "Look for a recipe.",
            ["dish"],
            dish=_text("Name of the dish"),
            vegetarian={"type": "boolean", "description": "Without meat"},
        ),
        _tool("track_parcel", "Where a parcel is.", ["number"], number=_text("Tracking number")),
        _tool(
            "translate",
            "Translate a text.",
            ["text", "language"],
            text=_text("What to translate"),
            language=_text("Target language"),
        ),
        _tool(
            "create_event",
            "Put an appointment into the calendar.",
            ["title", "date"],
            title=_text("Title"),
            date=_text("Date as YYYY-MM-DD"),
            guests={"type": "array", "items": {"type": "string"}},
        ),
        _tool("delete_note", "Delete a note.", ["id"], id=_number("Number of the note")),
        _tool(
            "get_route",
            "Find the way between two places.",
            ["start", "end"],
            start=_text("From"),
            end=_text("To"),
            by=_text("Means of transport", "car", "bike", "train", "foot"),
        ),
    )
}


def _asks(text: str, names: str, call: str | None = None, /, system: str | None = None, **arguments: object) -> Request:
    """A request beside the tools in `names`; call: the name of the right one."""
    start: tuple[Message, ...] = () if system is None else ({"role": "system", "content": system},)
    return Request(
        messages=(*start, {"role": "user", "content": text}),
        tools=tuple(_TOOLS[name] for name in names.split()),
        call=None if call is None else (call, arguments),
    )


_HOME = "turn_light set_thermostat start_timer set_alarm"
_WORK = "read_file run_command search_code"
_LIFE = "get_forecast send_message add_to_list play_track"
_TRIP = "get_route convert_money translate get_forecast"
_MIX = "create_event find_recipe track_parcel delete_note"

REQUESTS: Sequence[Request] = (
    _asks("What will the weather be like in Bergen?", _LIFE, "get_forecast", city="Bergen"),
    _asks("Do I need an umbrella in Leeds this week? Give me 5 days.", _LIFE, "get_forecast", city="Leeds", days=5),
    _asks("how's the weather looking for krakow", _TRIP, "get_forecast", city="krakow"),
    _asks("We're off to Nantes. Forecast for the next 3 days please.", _TRIP, "get_forecast", city="Nantes", days=3),
    _asks("Wake me up at 06:45.", _HOME, "set_alarm", time="06:45"),
    _asks("I have to be up by 05:30, can you make sure?", _HOME, "set_alarm", time="05:30"),
    _asks("Set an alarm for 14:15 called dentist.", _HOME, "set_alarm", time="14:15", label="dentist"),
    _asks("Timer, 12 minutes.", _HOME, "start_timer", minutes=12),
    _asks("The pasta needs 9 minutes, please keep track.", _HOME, "start_timer", minutes=9),
    _asks("could you count down 25 minutes for me", _HOME, "start_timer", minutes=25),
    _asks("Turn on the light in the kitchen.", _HOME, "turn_light", room="kitchen", state="on"),
    _asks("It's too bright in the bedroom, lights off please", _HOME, "turn_light", room="bedroom", state="off"),
    _asks("I can't see a thing in the garage!", _HOME, "turn_light", room="garage", state="on"),
    _asks("Nobody is in the study any more, lamp off there.", _HOME, "turn_light", room="study", state="off"),
    _asks("Make it 21 degrees in here.", _HOME, "set_thermostat", celsius=21),
    _asks("Heating to 19.5 please.", _HOME, "set_thermostat", celsius=19.5),
    _asks("It's freezing, set the heating to 23", _HOME, "set_thermostat", celsius=23),
    _asks("Text Priya: running ten minutes late", _LIFE, "send_message", to="Priya", body="running ten minutes late"),
    _asks('Tell Jonas "dinner is ready".', _LIFE, "send_message", to="Jonas", body="dinner is ready"),
    _asks("Send Mum a message saying happy birthday", _LIFE, "send_message", to="Mum", body="happy birthday"),
    _asks("Put oat milk on the shopping list.", _LIFE, "add_to_list", article="oat milk"),
    _asks("We're out of candles, add 6 to the list.", _LIFE, "add_to_list", article="candles", amount=6),
    _asks("I need 2 lemons next time we shop.", _LIFE, "add_to_list", article="lemons", amount=2),
    _asks("Play Blue Train by John Coltrane.", _LIFE, "play_track", title="Blue Train", artist="John Coltrane"),
    _asks("Can you put on Clair de Lune?", _LIFE, "play_track", title="Clair de Lune"),
    _asks("How much is 80 EUR in SEK?", _TRIP, "convert_money", amount=80, source="EUR", target="SEK"),
    _asks("Convert 12.50 GBP to USD for me.", _TRIP, "convert_money", amount=12.5, source="GBP", target="USD"),
    _asks("i've got 300 CHF, what's that in JPY", _TRIP, "convert_money", amount=300, source="CHF", target="JPY"),
    _asks("How do I get from Ghent to Bruges by bike?", _TRIP, "get_route", start="Ghent", end="Bruges", by="bike"),
    _asks(
        "Fastest way from the hotel to the station on foot?",
        _TRIP,
        "get_route",
        start="hotel",
        end="station",
        by="foot",
    ),
    _asks("I'm driving from Turin to Genoa, which way?", _TRIP, "get_route", start="Turin", end="Genoa", by="car"),
    _asks("How do you say good night in Finnish?", _TRIP, "translate", text="good night", language="Finnish"),
    _asks(
        'Translate "where is the pharmacy" into Portuguese.',
        _TRIP,
        "translate",
        text="where is the pharmacy",
        language="Portuguese",
    ),
    _asks("Show me what's in src/config.toml.", _WORK, "read_file", path="src/config.toml"),
    _asks(
        "Open README.md and tell me what it says",
        _WORK,
        "read_file",
        path="README.md",
        system="You are a coding agent.",
    ),
    _asks("Please look into /var/log/syslog.", _WORK, "read_file", path="/var/log/syslog"),
    _asks("Run git status.", _WORK, "run_command", command="git status", system="You are a coding agent."),
    _asks("Can you execute `pytest -x tests`?", _WORK, "run_command", command="pytest -x tests"),
    _asks("Where is parse_header used?", _WORK, "search_code", pattern="parse_header"),
    _asks("Search for deprecated in the docs folder.", _WORK, "search_code", pattern="deprecated", folder="docs"),
    _asks("I'd like to cook shakshuka tonight, any recipe?", _MIX, "find_recipe", dish="shakshuka"),
    _asks("Where's my parcel? The number is ZX4471-09.", _MIX, "track_parcel", number="ZX4471-09"),
    _asks("Delete note 14, I don't need it.", _MIX, "delete_note", id=14),
    _asks(
        "Put the team lunch into my calendar on 2026-05-19.",
        _MIX,
        "create_event",
        title="team lunch",
        date="2026-05-19",
    ),
    _asks(
        "Schedule Budget review for 2026-02-03 with Lin and Omar.",
        _MIX,
        "create_event",
        title="Budget review",
        date="2026-02-03",
        guests=["Lin", "Omar"],
    ),
    # No tool fits
    _asks("Thanks, you've been a great help.", _HOME),
    _asks("Do you like jazz?", _TRIP),
    _asks("My day was awful.", _MIX),
    _asks("What can you do for me?", _WORK),
    _asks("Mow the lawn, please.", _HOME),
)
