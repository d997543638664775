"""How values of a request are named in messages: ASCII-escaped, cut, with their size (ERR-004).

Shared by protocols and by the server's own reader. It knows JSON values, not what they are for.
"""

import json

SHOWN_CHARS = 60


def shown(value: object) -> str:
    """`value` as a short piece of ASCII: `"caf\\u00e9"`, `3.5`, `an array of 7 items`."""
    if isinstance(value, str):
        if len(value) <= SHOWN_CHARS:
            return json.dumps(value)
        return f"{json.dumps(value[:SHOWN_CHARS])}... ({len(value)} characters)"
    if isinstance(value, list | tuple):
        return f"an array of {len(value)} item{'' if len(value) == 1 else 's'}"
    if isinstance(value, dict):
        return f"an object of {len(value)} member{'' if len(value) == 1 else 's'}"
    if value is None or isinstance(value, bool | float):
        return json.dumps(value)
    digits = str(value)
    return digits if len(digits) <= SHOWN_CHARS else f"{digits[:SHOWN_CHARS]}... ({len(digits)} digits)"


def shown_name(name: str) -> str:
    """The name of a member as a part of a path: ASCII-escaped and cut like a value, without quotes."""
    return json.dumps(name[:SHOWN_CHARS])[1:-1] + ("" if len(name) <= SHOWN_CHARS else "...")
