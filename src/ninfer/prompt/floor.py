"""A number of tokens that a conversation has at least, known without rendering it.

A conversation of a hundred thousand turns is beyond every context, and to render it first takes seconds. Each turn and
each call has a frame: control tokens, and texts between them that only become longer by what is said; and a token has
no more than so many characters. It knows the templates that show every turn; of others it promises nothing.
"""

from collections.abc import Mapping, Sequence
from itertools import dropwhile
from typing import Self, get_args

import attrs

from ninfer.conversation import Role, Turn
from ninfer.prompt.probes import Probes
from ninfer.prompt.tokenizer import Tokenizer


@attrs.frozen(kw_only=True)
class TokenFloor:
    """What turns and calls cost at least."""

    of_role: Mapping[str, int] = attrs.field(factory=dict)
    """Role -> tokens of a turn's frame."""
    of_call: int = 0
    chars_of_token: int = 1
    """Most characters of a text that one token stands for."""

    @classmethod
    def probe(cls, probes: Probes, tokenizer: Tokenizer) -> Self:
        """Measure the frames of a template that shows every turn; nothing where texts may be normalised to less."""
        if tokenizer.longest_token_chars is None:
            return cls()
        user = {"role": "user", "content": ""}
        call = {"type": "function", "id": "c", "function": {"name": "f", "arguments": {}}}

        def tokens(*messages: Mapping[str, object]) -> int:
            # Closed turns without their reasoning are the shortest.
            chat = {"messages": [user, *messages, user], "tools": None, "add_generation_prompt": False}
            pieces = tokenizer.split(probes.render({**tokenizer.named_tokens, **chat, "preserve_thinking": False}))
            return sum(bool(text) + (control is not None) for text, control in pieces)

        def turns(role: str, count: int) -> int:
            return tokens(*[{"role": role, "content": ""}] * count)

        def calls(count: int) -> int:
            return tokens({"role": "assistant", "content": "", "tool_calls": [call] * count})

        return cls(
            of_role={role: turns(role, 3) - turns(role, 2) for role in get_args(Role)},
            of_call=calls(3) - calls(2),
            chars_of_token=tokenizer.longest_token_chars,
        )

    def tokens(self, turns: Sequence[Turn]) -> int:
        """What `turns` have at least. Leading system and developer turns may become one, or none; all text is shown."""
        if not self.of_role:
            return 0
        chars = sum(len(turn.text.strip()) for turn in turns)
        shown = list(dropwhile(lambda turn: turn.role in ("system", "developer"), turns))
        frames = sum(self.of_role[turn.role] for turn in shown)
        frames += self.of_call * sum(len(turn.calls) for turn in shown)
        return max(frames, chars // self.chars_of_token)
