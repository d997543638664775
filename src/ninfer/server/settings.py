"""What is fixed for a server when it starts. Sizes are bytes, times are seconds."""

import attrs
from attrs import validators


@attrs.frozen(kw_only=True)
class ServerSettings:
    """Limits and clocks of the HTTP side."""

    max_request_bytes: int = attrs.field(default=384 << 20, validator=validators.gt(0))
    """A body above this is answered 413 before anything of it is parsed."""
    keep_alive_s: float = attrs.field(default=5.0, validator=validators.gt(0))
    """Silence on an event stream after which a comment is sent."""
    grace_s: float = attrs.field(default=10.0, validator=validators.ge(0))
    """Time that running answers get to leave after a stop; then their sockets are closed."""
    allowed_hosts: frozenset[str] | None = None
    """Names that a request's Host header may carry, without port; None lets every name pass (D43)."""
    api_key: str | None = attrs.field(default=None, repr=False, validator=validators.optional(validators.min_len(1)))
    """What every request but one for /health has to carry; None lets everybody in."""
    cors: bool = False
    """Let web pages of every site read the answers."""
    unread_bytes: int = attrs.field(default=128 << 20, validator=validators.gt(0))
    """Most unread bytes of all answers; above that the answers that have been behind for longest are dropped."""
    unread_stream_bytes: int = attrs.field(default=32 << 20, validator=validators.gt(0))
    """Most unread bytes of one stream."""
    body_room_bytes: int | None = attrs.field(default=None, validator=validators.optional(validators.gt(0)))
    """Bodies of all requests together; what goes beyond is answered as an overload."""
