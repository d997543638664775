"""How many bytes of request bodies may be held at once, over all connections (EXEC-014).

It knows bytes and no request. Small bodies never wait for large ones: what does not fit is refused, not queued.
"""

import attrs
from attrs import validators


@attrs.define
class BodyRoom:
    """Room for the bodies of all requests that are being answered."""

    limit_bytes: int | None = attrs.field(default=None, validator=validators.optional(validators.gt(0)))
    """None: each body is bounded, all together are not."""
    held_bytes: int = attrs.field(default=0, init=False)

    def take(self, count_bytes: int) -> bool:
        """Hold so much more; false, and nothing is held for it, if there is no room."""
        if self.limit_bytes is not None and self.held_bytes + count_bytes > self.limit_bytes:
            return False
        self.held_bytes += count_bytes
        return True

    def give_back(self, count_bytes: int) -> None:
        """A request of so much has ended."""
        self.held_bytes -= count_bytes
