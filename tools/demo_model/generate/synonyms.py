"""Words that stand for each other in everyday requests, so that tools are found by meaning, not by spelling alone."""

from __future__ import annotations

import random

GROUPS = """
get fetch retrieve obtain show
find search locate query
create make add register
delete remove erase discard
update change edit modify
send deliver dispatch transmit
book reserve
order buy purchase
cancel abort revoke
start begin launch run
stop end halt
check verify inspect
calculate compute
schedule plan arrange
save store keep archive
move relocate transfer
copy duplicate clone
close shut
track follow
merge combine join
split divide
notify inform alert
repair fix mend
approve accept
reject decline
hotel room
photo picture image
car vehicle
meeting appointment event
city town place location
film movie
song track
message text
email mail
task job
shop store
house home
trip journey
price cost
bill invoice
file document
folder directory
user member account
customer client
worker employee
phone telephone
road street
boat ship
gift present
error bug
flat apartment
holiday vacation
date day
amount quantity
person name
recipient receiver
title subject heading
query keywords
"""
BY_WORD: dict[str, tuple[str, ...]] = {}
for _line in GROUPS.strip().splitlines():
    for _word in _line.split():
        BY_WORD.setdefault(_word, tuple(other for other in _line.split() if other != _word))


def another(rng: random.Random, word: str) -> str:
    """A word of the same meaning, or the word itself when none is known."""
    others = BY_WORD.get(word)
    return rng.choice(others) if others else word


def alike(one: str, other: str) -> bool:
    """Whether two words may stand for each other."""
    return one == other or other in BY_WORD.get(one, ())
