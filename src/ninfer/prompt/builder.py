"""From a request to the tokens of its prompt.

Lowers turns to what the template understands, resolves the thinking mode, renders, encodes, and tells in which channel
the reply begins and where the prompt may be cut for reuse. It knows no wire names, no engine and no media. Pure and
synchronous; one builder serves all threads.
"""

import contextlib
from collections.abc import Sequence

import attrs

from ninfer.conversation import CannotContinue, GenerationRequest, InvalidRequest, Turn
from ninfer.prompt.bounds import MAX_RENDERED_CHARS, Cancellation, RenderBounds
from ninfer.prompt.caller import CallerText, Variables, caller_json, caller_text
from ninfer.prompt.control import SafeRendering, Spell
from ninfer.prompt.encoded import MOST_TOKENS, EncodedRendering, too_many
from ninfer.prompt.floor import TokenFloor
from ninfer.prompt.frontiers import CacheFrontiers, Wanted, cache_frontiers
from ninfer.prompt.messages import Messages, lowered, marked_content, template_messages
from ninfer.prompt.modes import Mode, PromptDefaults, resolve_mode
from ninfer.prompt.probes import Probes
from ninfer.prompt.template import RenderingTooLong, Template
from ninfer.prompt.tokenizer import Tokenizer
from ninfer.prompt.tokenizer_files import TOKEN_ROLES
from ninfer.prompt.traits import THINK_CLOSE, THINK_OPEN, EffortLevels, TemplateTraits

_NOT_THINKING = f"{THINK_OPEN}\n\n{THINK_CLOSE}\n\n"

_OPTIONS = ("enable_thinking", "preserve_thinking", "reasoning_effort")
_RESERVED = frozenset(("messages", "tools", "add_generation_prompt", *_OPTIONS, *TOKEN_ROLES))


@attrs.frozen(kw_only=True)
class PreparedPrompt:
    """A prompt that is ready for the engine."""

    tokens: tuple[int, ...]
    """At least one."""
    opens_in_reasoning: bool
    """The prompt ends inside an open think block: the reply's first token is reasoning."""
    thinking: bool
    """The reply is expected to begin with reasoning, whether the prompt or the model opens the block."""
    frontiers: CacheFrontiers = attrs.field(factory=CacheFrontiers)
    """Where the prompt may be cut for reuse."""


class PromptBuilder:
    """Prepares prompts for one tokenizer and one template."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: Template,
        *,
        no_thinking: bool = False,
        preserve_thinking: bool = False,
        effort: str | None = None,
        max_context_tokens: int = 0,
    ) -> None:
        """The server's flags are for requests that do not say; unset they leave it to the template.

        Prompts far beyond `max_context_tokens` are refused before they are encoded.

        Raises:
            BadTemplate: a first rendering of a few words reached a bound.
        """
        self._most_tokens = max(MOST_TOKENS, max_context_tokens)
        self._tokenizer = tokenizer
        self._template = template
        self._defaults = PromptDefaults(no_thinking=no_thinking, preserve_thinking=preserve_thinking, effort=effort)
        probes = Probes(template)
        self._traits = TemplateTraits.probe(probes, tokenizer.named_tokens)
        self._efforts = EffortLevels.probe(probes, tokenizer.named_tokens)
        self._floor = TokenFloor.probe(probes, tokenizer) if template.shows_every_turn else TokenFloor()

    @property
    def in_place(self) -> bool:
        """Whether a small prompt takes a millisecond or two, whatever is in it."""
        return self._template.in_place

    def build(
        self, request: GenerationRequest, *, most_tokens: int | None = None, cancellation: Cancellation | None = None
    ) -> PreparedPrompt:
        """The prompt of `request`, which may have `most_tokens`; `cancellation` can stop the work.

        A prompt with more tokens is refused as soon as that is certain; one with a few more may be built all the same.

        A final assistant turn is continued in place. That needs thinking to be switched off by the request, or by the
        server's flag where the request says nothing: an open think block cannot be continued.

        Raises:
            InvalidRequest: code invalid_prompt; the template or these rules refuse the conversation.
            ContextExceeded: it is far longer than it may be.
            EngineUnavailable: what renders the template has ended.
            Abandoned: `cancellation` has told so.
        """
        most_tokens = self._most_tokens if most_tokens is None else most_tokens
        mode = resolve_mode(request.thinking, self._defaults)
        turns, continued = request.turns, None
        if turns and turns[-1].role == "assistant":
            turns, continued = turns[:-1], _check_continued(turns[-1], mode)
        at_least = self._floor.tokens(turns)
        if at_least > most_tokens:
            raise too_many(at_least, most_tokens)
        shown = lowered(turns, self._traits)
        messages = template_messages(shown)
        variables = self._variables(messages, mode, request)
        reply = _Reply.of(continued, first_key=len(messages.asked))
        bounds = self._bounds(most_tokens, cancellation or Cancellation())
        try:
            rendering = SafeRendering(
                self._tokenizer,
                self._template,
                variables,
                continuation=reply.texts,
                finish=reply.follow,
                bounds=bounds,
            )
        except RenderingTooLong as error:
            raise too_many(most_tokens + 1, most_tokens) from error
        encoded = EncodedRendering(rendering, self._tokenizer, most_tokens, bounds.cancellation)
        if not encoded.tokens:
            raise InvalidRequest("The chat template renders this conversation to nothing", code="invalid_prompt")
        frontiers = CacheFrontiers()
        wanted = Wanted(
            asked=(*messages.asked, *(mark.key for text in reply.texts for mark in text.marks)),
            behind_calls=messages.behind_calls,
            behind_tools=tuple(at for at, tool in enumerate(request.tools) if tool.cache_point),
            leads=bool(request.tools) or (bool(shown) and shown[0].role in ("system", "developer")),
            opener=self._traits.openers.get(mode.enabled),
        )
        if len(encoded.tokens) <= most_tokens:
            with contextlib.suppress(InvalidRequest):  # no private character or no time is left to look for them
                frontiers = cache_frontiers(rendering, encoded, variables, wanted)
        return self._prepared(encoded.tokens, mode, frontiers)

    def _bounds(self, most_tokens: int, cancellation: Cancellation) -> RenderBounds:
        """Bounds of a prompt's renderings: no longer than `most_tokens` can be."""
        chars_of_token = self._tokenizer.longest_token_chars
        chars = MAX_RENDERED_CHARS if chars_of_token is None else most_tokens * chars_of_token
        return RenderBounds(chars=min(chars, MAX_RENDERED_CHARS), cancellation=cancellation)

    def _variables(self, messages: Messages, mode: Mode, request: GenerationRequest) -> dict[str, Variables]:
        variables: dict[str, Variables] = {}
        for name, value in request.template_kwargs.items():
            if name in _RESERVED:
                raise InvalidRequest(f"A request cannot set the template's variable {name}", code="invalid_prompt")
            variables[name] = caller_json(value)
        variables |= self._tokenizer.named_tokens
        variables["messages"] = messages.all
        # Shown as well where nothing is to be taken for a call: what a request may do changes no token of its prompt.
        variables["tools"] = [caller_json(tool.declaration) for tool in request.tools] or None
        variables["add_generation_prompt"] = True
        if mode.enabled is not None:
            variables["enable_thinking"] = mode.enabled
        if mode.preserve is not None:
            variables["preserve_thinking"] = mode.preserve
        if mode.effort is not None:
            variables["reasoning_effort"] = self._efforts.nearest(mode.effort)
        return variables

    def _prepared(self, tokens: tuple[int, ...], mode: Mode, frontiers: CacheFrontiers) -> PreparedPrompt:
        controls = self._tokenizer.control_tokens
        known = frozenset(controls.values())
        # Think blocks of earlier turns say nothing about this one (RSN-04): only the very last control token does.
        last = next((token for token in reversed(tokens) if token in known), None)
        opens = last is not None and last == controls.get(THINK_OPEN)
        closed = last is not None and last == controls.get(THINK_CLOSE)
        traits = self._traits
        wanted = traits.thinks_by_default if mode.enabled is None else mode.enabled and traits.thinking_switchable
        return PreparedPrompt(
            tokens=tokens,
            opens_in_reasoning=opens,
            thinking=opens or (wanted and not closed),
            frontiers=frontiers,
        )


@attrs.frozen(kw_only=True)
class _Reply:
    """The beginning of the reply, where the caller gives it."""

    reasoning: CallerText | None = None
    text: CallerText | None = None

    @classmethod
    def of(cls, turn: Turn | None, *, first_key: int) -> "_Reply":
        if turn is None:
            return cls()
        reasoning = (turn.reasoning or "").strip()
        return cls(
            reasoning=caller_text(reasoning) if reasoning else None, text=marked_content(turn, first_key=first_key)
        )

    @property
    def texts(self) -> Sequence[CallerText]:
        return [text for text in (self.reasoning, self.text) if text is not None]

    def follow(self, opened: str, spell: Spell) -> str:
        """`opened` and the reply's beginning; reasoning goes into the block that says there is none."""
        if self.text is None:
            return opened
        if self.reasoning is not None:
            if not opened.endswith(_NOT_THINKING):
                raise CannotContinue("the chat template cannot continue a turn with reasoning")
            block = f"{THINK_OPEN}\n{spell(self.reasoning)}\n{THINK_CLOSE}\n\n"
            opened = opened.removesuffix(_NOT_THINKING) + block
        return opened + spell(self.text)


def _check_continued(turn: Turn, mode: Mode) -> Turn:
    """The turn, if it can be continued."""
    if mode.enabled is not False:
        raise CannotContinue("the last turn is the assistant's: to continue it, thinking must be switched off")
    if turn.calls:
        raise CannotContinue(
            "the last turn is the assistant's and has made calls: it is complete and cannot be continued"
        )
    if not turn.text and not turn.reasoning:
        raise CannotContinue("the last turn is the assistant's and holds nothing that could be continued")
    return turn
