"""Frames of streams as bytes: server-sent events, each perhaps a name, one `data:` line, a blank line; lines of JSON.

No `id:`, no `retry:`, never empty data (D32).
"""

import json

DONE_DATA = "[DONE]"
DONE = f"data: {DONE_DATA}\n\n".encode()

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
"""Made once: `json.dumps` would build one for each event."""


def dump_json(body: object) -> str:
    """Compact strict JSON; characters beyond ASCII stay as they are."""
    return _ENCODER.encode(body)


def data_frame(body: object) -> bytes:
    """One unnamed event whose data is `body` as JSON."""
    return f"data: {dump_json(body)}\n\n".encode()


def json_line(body: object) -> bytes:
    """One line of a stream of lines of JSON (`plugin.NDJSON`)."""
    return f"{dump_json(body)}\n".encode()


def event_frame(name: str, body: object) -> bytes:
    """One event of the type `name`; clients of the protocols that name events skip those without a name."""
    return f"event: {name}\ndata: {dump_json(body)}\n\n".encode()


def frame_data(frame: bytes) -> object:
    """What one frame that was made here carries: the JSON of its data, or the word that ends a stream."""
    return DONE_DATA if frame == DONE else json.loads(frame.partition(b"data: ")[2])
