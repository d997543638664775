"""From a request to the tokens of its prompt.

Lowers turns to what the template understands, resolves the thinking mode (request fields, then the server's flags,
then the template's own default), renders, encodes, and tells in which channel the reply begins. It knows no wire
names, no engine and no media. Pure and synchronous; one builder serves all threads.
"""

import attrs

from ninfer.conversation import GenerationRequest, InvalidRequest, Turn
from ninfer.prompt.control import Variables, caller_json, encode_rendering, well_formed
from ninfer.prompt.messages import lowered, template_messages
from ninfer.prompt.template import ChatTemplate
from ninfer.prompt.tokenizer import Tokenizer
from ninfer.prompt.traits import THINK_CLOSE, THINK_OPEN, TemplateTraits


@attrs.frozen(kw_only=True)
class PreparedPrompt:
    """A prompt that is ready for the engine."""

    tokens: tuple[int, ...]
    """At least one."""
    opens_in_reasoning: bool
    """The prompt ends inside an open think block: the reply's first token is reasoning."""
    thinking: bool
    """The reply is expected to begin with reasoning, whether the prompt or the model opens the block."""


class PromptBuilder:
    """Prepares prompts for one tokenizer and one template."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        *,
        no_thinking: bool = False,
        preserve_thinking: bool = False,
    ) -> None:
        """`no_thinking` and `preserve_thinking` are the server's flags; unset they leave it to the template."""
        self._tokenizer = tokenizer
        self._template = template
        self._no_thinking = no_thinking
        self._preserve_thinking = preserve_thinking
        self._traits = TemplateTraits.probe(template, tokenizer.named_tokens)

    def build(self, request: GenerationRequest) -> PreparedPrompt:
        """The prompt of `request`.

        A final assistant turn is continued in place. That needs thinking to be switched off by the request, or by the
        server's flag where the request says nothing: an open think block cannot be continued.

        Raises:
            InvalidRequest: code invalid_prompt; the template or these rules refuse the conversation.
        """
        enabled = request.thinking.enabled
        if enabled is None and self._no_thinking:
            enabled = False
        turns, continuation = request.turns, ""
        if turns and turns[-1].role == "assistant":
            if enabled is not False:
                raise InvalidRequest(
                    "The last turn is the assistant's: to continue it, thinking must be switched off",
                    code="invalid_prompt",
                )
            turns, continuation = turns[:-1], well_formed(turns[-1].text)
        tokens = encode_rendering(
            self._tokenizer, self._template, self._variables(turns, enabled, request), continuation=continuation
        )
        if not tokens:
            raise InvalidRequest("The chat template renders this conversation to nothing", code="invalid_prompt")
        return self._prepared(tokens, enabled)

    def _variables(
        self, turns: tuple[Turn, ...], enabled: bool | None, request: GenerationRequest
    ) -> dict[str, Variables]:
        variables: dict[str, Variables] = {**self._tokenizer.named_tokens}
        variables["messages"] = template_messages(lowered(turns, self._traits))
        # Shown as well where nothing is to be taken for a call: what a request may do changes no token of its prompt.
        variables["tools"] = [caller_json(tool.declaration) for tool in request.tools] or None
        variables["add_generation_prompt"] = True
        if enabled is not None:
            variables["enable_thinking"] = enabled
        preserve = request.thinking.preserve
        if preserve is not None or self._preserve_thinking:
            variables["preserve_thinking"] = self._preserve_thinking if preserve is None else preserve
        return variables

    def _prepared(self, tokens: tuple[int, ...], enabled: bool | None) -> PreparedPrompt:
        controls = self._tokenizer.control_tokens
        known = frozenset(controls.values())
        # Think blocks of earlier turns say nothing about this one (RSN-04): only the very last control token does.
        last = next((token for token in reversed(tokens) if token in known), None)
        opens = last is not None and last == controls.get(THINK_OPEN)
        closed = last is not None and last == controls.get(THINK_CLOSE)
        wanted = self._traits.thinks_by_default if enabled is None else enabled and self._traits.thinking_switchable
        return PreparedPrompt(tokens=tokens, opens_in_reasoning=opens, thinking=opens or (wanted and not closed))
