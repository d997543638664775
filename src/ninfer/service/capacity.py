"""How many generations may exist at once, from their arrival to their end (EXEC-006).

It knows nothing of what they do.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ninfer.conversation import Overloaded


class Capacity:
    """A fixed number of places. Taking one never waits: who finds none is told so."""

    def __init__(self, places: int) -> None:
        self.places = places
        self.taken = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold one place for the length of the block.

        Raises:
            Overloaded: there is none.
        """
        if self.taken >= self.places:
            raise Overloaded(f"all {self.places} places of this server, running and waiting, are taken")
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1
