"""All errors of a request. Statuses and envelopes are the protocols' business.

RequestError            code, message, param (path in the wire body, or None)
├── InvalidRequest      the caller can mend it
│   ├── ContextExceeded     the prompt does not fit the context ceiling
│   ├── CannotContinue      the last turn is the assistant's and cannot be gone on with
│   └── Unsupported         understood, but not offered here or not in this combination
├── RequestTooLarge     the raw body is over the limit
├── Unauthenticated     no key, or a wrong one
├── Forbidden           this caller may not reach this server (foreign Host)
├── NotFound            no such model, response, path
├── Overloaded          all capacity is taken
├── QueueTimeout        not admitted before its deadline
├── EngineUnavailable   the server is stopping, or the engine has stopped; health says so too
└── InternalError       our fault; never a relabelled client error, and never the other way round
"""


class RequestError(Exception):
    """Base of all errors that a caller gets to see.

    `code` is stable and machine-readable, `message` says what was wrong, where, and what would be right; `param` is
    the path of the offending value in the wire body (`messages[2].content`) where there is one.
    """

    default_code = "internal_error"

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.param = param


class InvalidRequest(RequestError):
    """The request is malformed or contradicts itself."""

    default_code = "invalid_value"


class ContextExceeded(InvalidRequest):
    """Prompt (and at least one output token) do not fit the context ceiling; both numbers are in the message."""

    default_code = "context_length_exceeded"


class CannotContinue(InvalidRequest):
    """The last turn is the assistant's, and it is complete, empty, or to be continued while thinking."""

    default_code = "invalid_prompt"


class Unsupported(InvalidRequest):
    """A known feature that this server or build does not offer (D40)."""

    default_code = "unsupported_parameter"


class RequestTooLarge(RequestError):
    """The body exceeds `--max-request-mib`."""

    default_code = "request_too_large"


class Unauthenticated(RequestError):
    """The API key is missing or wrong."""

    default_code = "invalid_api_key"


class Forbidden(RequestError):
    """The request names a host that this server does not answer for (D43)."""

    default_code = "forbidden_host"


class NotFound(RequestError):
    """What the request names does not exist."""

    default_code = "not_found"


class Overloaded(RequestError):
    """Every place, running and waiting, is taken."""

    default_code = "server_overloaded"


class QueueTimeout(RequestError):
    """The request was not admitted within `--pending-timeout-ms` of its arrival."""

    default_code = "request_queue_timeout"


class EngineUnavailable(RequestError):
    """Nothing is generated any more: the server is stopping or its engine has failed."""

    default_code = "service_unavailable"


class InternalError(RequestError):
    """A fault of ours."""

    default_code = "internal_error"
