"""The error tree that callers see: drawn as it is, one code for each kind."""

import inspect
import re

from ninfer.conversation import errors
from ninfer.conversation.errors import InternalError, RequestError


def classes() -> list[type[RequestError]]:
    return [
        member
        for _, member in inspect.getmembers(errors, inspect.isclass)
        if issubclass(member, RequestError) and member.__module__ == errors.__name__
    ]


def test_the_drawn_tree_is_the_real_one() -> None:
    drawn: dict[str, str] = {}
    above: list[str] = []
    for line in inspect.cleandoc(errors.__doc__ or "").splitlines():
        found = re.match(r"(?P<branch>[│├└─ ]*)(?P<name>[A-Z][A-Za-z]+)\s", line + " ")
        if found is None or found["name"] not in vars(errors):
            continue
        depth = len(found["branch"]) // 4
        del above[depth:]
        drawn[found["name"]] = above[-1] if above else "Exception"
        above.append(found["name"])
    assert drawn == {member.__name__: member.__bases__[0].__name__ for member in classes()}


def test_codes_are_stable_words_and_tell_the_kinds_apart() -> None:
    codes = {member.__name__: member.default_code for member in classes() if member is not RequestError}
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", code) for code in codes.values())
    assert len(set(codes.values())) == len(codes)
    # An error without a kind of its own is our fault, never the caller's.
    assert RequestError.default_code == InternalError.default_code


def test_an_error_keeps_what_it_was_told() -> None:
    error = errors.InvalidRequest("no", param="messages[2].content")
    assert (error.message, error.code, error.param, str(error)) == ("no", "invalid_value", "messages[2].content", "no")
    assert errors.Unsupported("no", code="vision_disabled").code == "vision_disabled"
