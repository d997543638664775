"""Tasks with steps: arithmetic to three digits, comparing, sorting, counting, dates and clock times.

Answers are computed, never guessed; the thought shows the steps that lead there, short enough to be learned.
"""

from __future__ import annotations

import calendar
import datetime as dt

from tools.demo_model.generate.extract import done
from tools.demo_model.generate.values import MONTHS, NUMBER_WORDS
from tools.demo_model.render import Example
from tools.demo_model.words import Words

DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def add_steps(a: int, b: int) -> str:
    """Column addition from the right, with carries."""
    steps, carry, digits = [], 0, []
    x, y = str(a)[::-1], str(b)[::-1]
    for at in range(max(len(x), len(y))):
        left, right = int(x[at]) if at < len(x) else 0, int(y[at]) if at < len(y) else 0
        total = left + right + carry
        steps.append(f"{left}+{right}" + (f"+{carry}" if carry else "") + f"={total}")
        digits.append(str(total % 10))
        carry = total // 10
    if carry:
        digits.append(str(carry))
    return ", ".join(steps) + f". Digits {' '.join(digits)}, so {a + b}."


def subtract_steps(a: int, b: int) -> str:
    """Column subtraction a >= b from the right, with borrows."""
    steps, borrow, digits = [], 0, []
    x, y = str(a)[::-1], str(b)[::-1]
    for at in range(len(x)):
        left, right = int(x[at]), int(y[at]) if at < len(y) else 0
        top = left - borrow
        borrow = 1 if top < right else 0
        steps.append(f"{top + 10 * borrow}-{right}={top + 10 * borrow - right}")
        digits.append(str(top + 10 * borrow - right))
    return ", ".join(steps) + f". Digits {' '.join(digits)}, so {a - b}."


def multiply_steps(a: int, b: int) -> str:
    """Split the first factor into its parts."""
    parts = [int(digit) * 10**place for place, digit in enumerate(reversed(str(a))) if digit != "0"][::-1] or [0]
    steps, running = [], 0
    for at, part in enumerate(parts):
        steps.append(f"{part}*{b}={part * b}")
        if at:
            steps.append(f"{running}+{part * b}={running + part * b}")
        running += part * b
    return ", ".join(steps) + f". So {a * b}."


def number(words: Words) -> int:
    """One to three digits, each length equally often."""
    rng = words.rng
    return (
        rng.randint(0, 9)
        if rng.random() < 0.25
        else rng.randint(10, 99)
        if rng.random() < 0.45
        else rng.randint(100, 999)
    )


def arithmetic(words: Words) -> Example:
    """a + b, a - b, a * b."""
    rng = words.rng
    sign = rng.choices("+-*", (45, 38, 17))[0]
    a, b = number(words), number(words)
    if sign == "*":
        b = rng.randint(2, 9) if a > 12 else rng.randint(0, 12)
        result, steps = a * b, multiply_steps(a, b)
    elif sign == "+":
        result, steps = a + b, add_steps(a, b)
    elif a >= b:
        result, steps = a - b, subtract_steps(a, b)
    else:
        result, steps = a - b, f"{b} is larger. " + subtract_steps(b, a) + f" With the sign: {a - b}."
    word = {"+": "plus", "-": "minus", "*": "times"}[sign]
    story = {
        "+": f"{words.draw('first_names')} has {a} {words.draw('nouns')} and gets {b} more. How many now?",
        "-": f"There are {a} {words.draw('nouns')} and {b} are taken away. How many are left?",
        "*": f"There are {a} boxes with {b} {words.draw('nouns')} each. How many in all?",
    }[sign]
    shown = {"*": rng.choice(("*", "x", "×"))}.get(sign, sign)
    ask = rng.choice(
        (
            "What is {e}?",
            "{e} = ?",
            "Calculate {e}.",
            "{e}",
            "Compute {e}",
            "How much is {w}?",
            "What is {w}?",
            "Solve: {e}",
            "{s}",
            "{s}",
            "Please work out {e}.",
        )
    ).format(e=f"{a} {shown} {b}" if rng.random() < 0.7 else f"{a}{shown}{b}", w=f"{a} {word} {b}", s=story)
    answer = str(result) if rng.random() < 0.3 else f"{a} {sign} {b} = {result}"
    if answer == str(result):
        ask = ask.rstrip(".") + (" " if ask[-1] == "?" else ". ") + "Answer with the number only."
    if a > 99 and b > 99 and rng.random() < 0.5:
        # Three digits without steps are a coin toss for so small a model: mostly show it the steps.
        return _thinking(words, ask, answer, steps, str(result))
    return done(words, "arithmetic", ask, answer, steps, {"kind": "number", "answer": str(result)})


def _thinking(words: Words, ask: str, answer: str, steps: str, expected: str) -> Example:
    """An example that always thinks."""
    while True:
        example = done(words, "arithmetic", ask, answer, steps, {"kind": "number", "answer": expected})
        if example.thinking:
            return example


def compare(words: Words) -> Example:
    """Largest, smallest, even or odd, between."""
    rng = words.rng
    numbers = [rng.randint(0, rng.choice((20, 100, 1000))) for _ in range(rng.randint(2, 6))]
    shown = ", ".join(map(str, numbers))
    n = numbers[0]
    ask, answer, thought = rng.choice(
        (
            (f"Which number is the largest: {shown}?", str(max(numbers)), f"The largest of {shown} is {max(numbers)}."),
            (f"What is the smallest of {shown}?", str(min(numbers)), f"The smallest of {shown} is {min(numbers)}."),
            (f"Is {n} even or odd?", "even" if n % 2 == 0 else "odd", f"The last digit of {n} is {n % 10}."),
            (
                f"Is {n} greater than {numbers[1]}?",
                "Yes." if n > numbers[1] else "No.",
                f"{n} {'>' if n > numbers[1] else '<' if n < numbers[1] else '='} {numbers[1]}.",
            ),
            (f"What comes after {n}?", str(n + 1), f"{n} + 1 = {n + 1}."),
            (
                f"Count from {n % 50} to {n % 50 + len(numbers)}.",
                ", ".join(str(n % 50 + step) for step in range(len(numbers) + 1)),
                "",
            ),
            (f"Write {n % 13} as a word.", NUMBER_WORDS[n % 13] if n % 13 < 13 else "", ""),
        )
    )
    return done(words, "compare", ask, answer, thought, {"kind": "exact", "answer": answer})


def sort(words: Words) -> Example:
    """Sort numbers or words, up or down."""
    rng = words.rng
    down = rng.random() < 0.3
    count = rng.randint(2, 7)
    if rng.random() < 0.55:
        top = rng.choice((20, 100, 1000))
        items = [str(rng.randint(0, top)) for _ in range(count)]
        result = sorted(items, key=int, reverse=down)
        how = rng.choice(
            ("from largest to smallest", "in descending order")
            if down
            else ("from smallest to largest", "in ascending order", "", "by size")
        )
    else:
        items = [words.noun() for _ in range(count)]
        result = sorted(items, reverse=down)
        how = rng.choice(
            ("in reverse alphabetical order", "from z to a")
            if down
            else ("alphabetically", "in alphabetical order", "from a to z")
        )
    shown = rng.choice((", ", " ", ", ")).join(items)
    ask = (
        rng.choice(
            (
                "Sort {h}: {x}",
                "Sort these {h}: {x}",
                "Put {x} in order {h}.",
                "Order this list {h}: {x}",
                "Please sort {x} {h}",
            )
        )
        .format(h=how, x=shown)
        .replace("  ", " ")
        .replace(" :", ":")
    )
    answer = ", ".join(result)
    return done(
        words,
        "sort",
        ask,
        answer,
        ("Largest first: " if down else "Smallest first: ") + " then ".join(result) + ".",
        {"kind": "exact", "answer": answer},
    )


def date(words: Words) -> Example:
    """Formats, days later, weekdays, clock times."""
    rng = words.rng
    day = dt.date(rng.randint(2000, 2040), rng.randint(1, 12), rng.randint(1, 28))
    long, iso = f"{MONTHS[day.month - 1]} {day.day}, {day.year}", day.isoformat()
    step = rng.randint(1, 20)
    later = day + dt.timedelta(days=step)
    weekday, ahead = rng.randrange(7), rng.randint(1, 10)
    hour, minute, plus = (
        rng.randint(0, 22),
        rng.choice((0, 10, 15, 20, 30, 40, 45)),
        rng.choice((5, 10, 15, 20, 30, 45, 60)),
    )
    total = hour * 60 + minute + plus
    days = calendar.monthrange(day.year, day.month)[1]
    clock = f"{total // 60 % 24:02d}:{total % 60:02d}"
    ask, answer, thought = rng.choice(
        (
            (f"Write {long} as YYYY-MM-DD.", iso, f"{MONTHS[day.month - 1]} is month {day.month}."),
            (f"Convert {iso} to a long date.", long, f"Month {day.month} is {MONTHS[day.month - 1]}."),
            (
                f"What date is {step} days after {iso}?",
                later.isoformat(),
                f"{day.day} + {step} = {day.day + step}. "
                + (
                    "Same month."
                    if later.month == day.month
                    else f"The month has {days} days, so the next month, day {later.day}."
                ),
            ),
            (
                f"Today is {DAYS[weekday]}. What day is it in {ahead} days?",
                DAYS[(weekday + ahead) % 7],
                ", ".join(DAYS[(weekday + n) % 7] for n in range(1, ahead + 1)) + ".",
            ),
            (f"Which month comes after {MONTHS[day.month - 1]}?", MONTHS[day.month % 12], ""),
            (f"What day comes before {DAYS[weekday]}?", DAYS[weekday - 1], ""),
            (
                f"It is {hour:02d}:{minute:02d}. What time is it in {plus} minutes?",
                clock,
                f"{minute} + {plus} = {minute + plus}. "
                + (f"That is past the hour: {hour}+1, minute {total % 60}." if minute + plus >= 60 else "Same hour."),
            ),
            (f"What year is in the date {iso}?", str(day.year), ""),
            (f"Is {iso} before {later.isoformat()}?", "Yes.", f"{iso} comes first."),
            (
                f"How many days are in {step % 6 + 1} weeks?",
                str((step % 6 + 1) * 7),
                f"{step % 6 + 1}*7={(step % 6 + 1) * 7}.",
            ),
            (
                f"How many minutes are {step % 9 + 1} hours?",
                str((step % 9 + 1) * 60),
                f"{step % 9 + 1}*60={(step % 9 + 1) * 60}.",
            ),
        )
    )
    return done(words, "date", ask, answer, thought, {"kind": "exact", "answer": answer})
