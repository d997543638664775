"""Control tokens come from the template alone: what a caller writes stays text.

Before rendering, each control token spelled in a caller's string is replaced by one private character that occurs
nowhere else, so neither the tokenizer nor the template's own logic can mistake it; afterwards the rendering is cut at
the control tokens that are left - the template's - and the stand-ins in between are turned back and encoded as plain
text. It knows no roles and no fields.

Invariant: where no caller string spells a control token, the ids are those of `Tokenizer.encode(rendering)`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from ninfer.conversation import ContextExceeded, InvalidRequest
from ninfer.prompt.bounds import MAX_RENDERED_CHARS, RenderBounds
from ninfer.prompt.caller import CallerText, Variables, bind, caller_texts
from ninfer.prompt.template import RenderingStopped, Template
from ninfer.prompt.tokenizer import Tokenizer

Spell: TypeAlias = Callable[[CallerText], str]

Finish: TypeAlias = Callable[[str, Spell], str]
"""Goes on from a template's rendering; a caller's text goes through `Spell` like all others."""

_PRIVATE = re.compile("[\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd]")
_PRIVATE_CODES = (*range(0xE000, 0xF900), *range(0xF0000, 0xFFFFE), *range(0x100000, 0x10FFFE))


class SafeRendering:
    """The rendering of one conversation in which only the template has written control tokens."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: Template,
        variables: Mapping[str, Variables],
        *,
        continuation: Sequence[CallerText] = (),
        finish: Finish = lambda rendered, spell: rendered,
        bounds: RenderBounds | None = None,
    ) -> None:
        """`finish` goes on from what the template renders; `continuation` are the callers' texts that it uses.

        `bounds` are those of all renderings of this conversation together.

        Raises:
            InvalidRequest: code invalid_prompt; the template refuses, or no private character is left to stand in.
            RenderingStopped: a bound was reached.
            ContextExceeded: the texts are longer than any rendering may be.
            Abandoned: the cancellation in `bounds` has told so.
        """
        self._bounds = bounds or RenderBounds()
        self._tokenizer = tokenizer
        self._template = template
        self._variables = variables
        self._finish = finish
        texts = {wrapped.text for wrapped in (*caller_texts(variables), *continuation)}
        if sum(map(len, texts)) > MAX_RENDERED_CHARS:  # to look for control tokens in them would take seconds
            raise ContextExceeded(
                f"the prompt has more than {MAX_RENDERED_CHARS} characters, which is beyond every context here"
            )
        self._stand_ins = _StandIns(tokenizer, template, texts)
        self._spelled = {text: self._stand_ins.hide_spellings(text) for text in texts}
        self.opened = self._render(self.spell)
        """What the template has rendered, stand-ins and all."""
        self._hide_edges()
        self.text = finish(self.opened, self.spell)
        """The whole rendering, stand-ins and all."""

    def spell(self, wrapped: CallerText) -> str:
        """How a caller's text was given to the template."""
        return self._spelled[wrapped.text]

    def first_control(self, text: str) -> str | None:
        """The control token at the beginning of `text`."""
        found = self._tokenizer.control_pattern.match(text)
        return None if found is None else found.group()

    def restore(self, rendered: str) -> str:
        """A part of the rendering as the callers wrote it."""
        return self._stand_ins.restore(rendered)

    def again(self, spell: Spell, variables: Mapping[str, Variables] | None = None) -> str | None:
        """The whole rendering with other spellings or variables; None where the template refuses them.

        Raises:
            RenderingStopped: a bound was reached.
        """
        try:
            return self._finish(self._render(spell, variables), spell)
        except RenderingStopped:
            raise
        except InvalidRequest:
            return None

    def private_characters(self, count: int) -> list[str]:
        """Characters that stand nowhere in this rendering.

        Raises:
            InvalidRequest: code invalid_prompt; so many are not left.
        """
        return [self._stand_ins.take() for _ in range(count)]

    def marked(self, wrapped: CallerText, characters: Mapping[int, str], *, trimmed: bool) -> str:
        """The spelling of `wrapped` with the characters of its marks in their places, for the marks that have one.

        With `trimmed` a mark stands before the white space that precedes it: templates trim. A mark within a spelled
        control token is left out.
        """
        spelled, at, written = self.spell(wrapped), 0, []
        hide = self._stand_ins.hide_spellings
        for mark in wrapped.marks:
            before = wrapped.text[: mark.at].rstrip() if trimmed else wrapped.text[: mark.at]
            place = len(hide(before))
            # Cut in two, a spelled control token is not hidden, and the halves are longer than the whole.
            if mark.key in characters and place + len(hide(wrapped.text[len(before) :])) == len(spelled):
                written += [spelled[at:place], characters[mark.key]]
                at = place
        return "".join((*written, spelled[at:]))

    def _render(self, spell: Spell, variables: Mapping[str, Variables] | None = None) -> str:
        given = self._variables if variables is None else variables
        self._bounds.cancellation.check()
        return self._template.render({name: bind(value, spell) for name, value in given.items()}, self._bounds)

    def _hide_edges(self) -> None:
        """Hide parts of control tokens at the edges of callers' texts, if text beside them has completed one.

        With the edges hidden it could not, so a token that was made so is missing then. If none is, the first rendering
        stands: a template that looks at these very characters has seen them there.
        """
        apart = {text: self._stand_ins.hide_edges(hidden) for text, hidden in self._spelled.items()}
        if apart == self._spelled:
            return

        def controls(rendered: str, spelled: Mapping[str, str]) -> list[str]:
            return self._tokenizer.control_pattern.findall(self._finish(rendered, lambda text: spelled[text.text]))

        try:
            separate = self._render(lambda text: apart[text.text])
            if controls(separate, apart) != controls(self.opened, self._spelled):
                self._spelled, self.opened = apart, separate
        except RenderingStopped:  # that tells nothing about the tokens: a caller could have arranged it
            raise
        except InvalidRequest:
            return


class _StandIns:
    """Private characters that stand in for text of one request's callers."""

    def __init__(self, tokenizer: Tokenizer, template: Template, texts: Iterable[str]) -> None:
        self._tokenizer = tokenizer
        taken = {character for text in (*texts, template.own_text) for character in _PRIVATE.findall(text)}
        self._free = (chr(code) for code in _PRIVATE_CODES if chr(code) not in taken)
        self._of: dict[str, str] = {}  # hidden text -> its character
        self._hidden: dict[int, str] = {}  # code of the character -> hidden text

    def hide_spellings(self, text: str) -> str:
        """`text` with a stand-in for every control token that it spells."""
        return self._tokenizer.control_pattern.sub(lambda found: self._stand_in(found.group()), text)

    def hide_edges(self, text: str) -> str:
        """`text` with stand-ins for characters at its edges that text beside it could complete to a control token.

        Edges are those of the trimmed text, since templates trim.
        """
        parts = self._tokenizer.control_parts
        core = text.strip()
        start = len(text) - len(text.lstrip())
        reach = range(1, min(parts.longest, len(core)) + 1)
        hidden = {start + size - 1 for size in reach if core[:size] in parts.endings}
        hidden |= {start + len(core) - size for size in reach if core[-size:] in parts.beginnings}
        if core in parts.middles:
            hidden.add(start)
        if not hidden:
            return text
        characters = list(text)
        for at in hidden:
            characters[at] = self._stand_in(characters[at])
        return "".join(characters)

    def restore(self, rendered: str) -> str:
        """`rendered` with every stand-in turned back."""
        return rendered.translate(self._hidden) if self._hidden else rendered

    def take(self) -> str:
        """A character that is not used yet.

        Raises:
            InvalidRequest: code invalid_prompt; there is none.
        """
        character = next(self._free, None)
        if character is None:
            raise InvalidRequest("The texts use every private character of Unicode", code="invalid_prompt")
        return character

    def _stand_in(self, hidden: str) -> str:
        if hidden not in self._of:
            character = self.take()
            self._of[hidden] = character
            self._hidden[ord(character)] = hidden
        return self._of[hidden]
