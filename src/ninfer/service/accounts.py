"""Facts of a request for its log record: counted where they are known, read where the request ends.

The server opens an account for each request; code that works for the request finds it through the context, which tasks
inherit. It holds names and numbers of ours only, nothing that a client wrote (LOG-022).
"""

from contextvars import ContextVar

import attrs


@attrs.define(kw_only=True)
class Account:
    """One request. None where it did not come so far."""

    protocol: str | None = None
    model: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None

    def text(self) -> str:
        """`openai_chat ninfer-demo, 20 prompt and 29 completion tokens`, as far as it is known."""
        names = " ".join(name for name in (self.protocol, self.model) if name is not None)
        if self.prompt_tokens is None:
            return names
        if self.completion_tokens is None:
            return f"{names}, {self.prompt_tokens} prompt tokens"
        return f"{names}, {self.prompt_tokens} prompt and {self.completion_tokens} completion tokens"


_CURRENT: ContextVar[Account] = ContextVar("ninfer.account")


def open_account() -> Account:
    """A new account, for the current task and all that it starts."""
    account = Account()
    _CURRENT.set(account)
    return account


def current_account() -> Account:
    """The account of the request that is being worked for; where there is none, one that is not read."""
    return _CURRENT.get(None) or Account()
