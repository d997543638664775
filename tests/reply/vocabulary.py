"""A vocabulary of bytes and a few markers, so that a test can cut a reply into tokens anywhere."""

import itertools
import re
from collections.abc import Iterable, Sequence

from ninfer.conversation import TextDelta
from ninfer.reply import ReplyReader, ReplyTokens

MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_start|>", "<|im_end|>")
OPEN, CLOSE, CALL, CALL_END, START, END = range(6)


class Vocabulary:
    """Ids of arbitrary byte strings, given out as they are asked for; the first ones are the markers'."""

    def __init__(self) -> None:
        self._bytes = [marker.encode() for marker in MARKERS]

    def token(self, data: bytes) -> int:
        """An id that stands for `data` and is no control token, even if it spells one."""
        self._bytes.append(data)
        return len(self._bytes) - 1

    def bytes_of(self, token: int) -> bytes:
        """What `token` stands for."""
        return self._bytes[token]

    def tokens(self, reply: str | bytes, cuts: Iterable[int] | None = None) -> list[int]:
        """Tokens of `reply`: markers as control tokens, the bytes between them cut at `cuts` (None: at every byte)."""
        data = reply.encode() if isinstance(reply, str) else reply
        wanted = range(len(data)) if cuts is None else sorted(cuts)
        found = re.finditer(b"|".join(re.escape(marker.encode()) for marker in MARKERS), data)
        ids: list[int] = []
        at = 0
        for start, end, marker in [*((hit.start(), hit.end(), hit.group()) for hit in found), (len(data), 0, b"")]:
            borders = [at, *(cut for cut in wanted if at < cut < start), start]
            ids += [self.token(data[a:b]) for a, b in itertools.pairwise(borders) if a < b]
            ids += [MARKERS.index(marker.decode())] if marker else []
            at = end
        return ids

    def reader(self, *, opens_in_reasoning: bool = False, stops: Sequence[str] = ()) -> ReplyReader:
        """A reader of this vocabulary; the turn markers are hidden."""
        known = ReplyTokens(
            token_bytes=self.bytes_of,
            hidden=frozenset({START, END}),
            reasoning_open=OPEN,
            reasoning_close=CLOSE,
        )
        return ReplyReader(known, opens_in_reasoning=opens_in_reasoning, stops=stops)


def joined(deltas: Iterable[TextDelta]) -> tuple[str, str]:
    """(reasoning, answer)."""
    texts = {"reasoning": "", "answer": ""}
    for delta in deltas:
        assert delta.text
        texts[delta.channel] += delta.text
    return texts["reasoning"], texts["answer"]


def read(
    reply: str | bytes,
    *,
    opens_in_reasoning: bool = False,
    stops: Sequence[str] = (),
    cuts: Iterable[int] | None = None,
) -> tuple[str, str]:
    """(reasoning, answer) of a whole reply."""
    vocabulary = Vocabulary()
    reader = vocabulary.reader(opens_in_reasoning=opens_in_reasoning, stops=stops)
    return joined([*reader.feed(vocabulary.tokens(reply, cuts)), *reader.finish()])
