"""What a protocol asks for: one generation, in terms that all protocols share.

A field that is None was not given by the caller; who fills it in and in which order of precedence is the business
of `service`. Ranges are checked by the protocol that knows the field's wire name.
"""

from collections.abc import Mapping

import attrs

from ninfer.conversation.tools import Tool
from ninfer.conversation.turns import Turn

EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
"""Standard effort levels, from least to most (THINK-012)."""

NO_EFFORT = "none"
"""The effort level that switches thinking off (D7)."""


@attrs.frozen(kw_only=True)
class SamplingFields:
    """Sampler fields as the caller gave them."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None


@attrs.frozen(kw_only=True)
class ThinkingFields:
    """What the caller says about reasoning. None leaves it to the server's flags and the template (D6)."""

    enabled: bool | None = None
    preserve: bool | None = None
    effort: str | None = None
    """Effort level as the caller named it; the template's accepted values decide what it becomes (THINK-013)."""
    budget_tokens: int | None = None
    """Most tokens that the model may think before it is told to answer (THINK-003)."""


@attrs.frozen(kw_only=True)
class GenerationRequest:
    """One conversation in, one assistant turn out."""

    turns: tuple[Turn, ...]
    sampling: SamplingFields = SamplingFields()
    thinking: ThinkingFields = ThinkingFields()
    tools: tuple[Tool, ...] = ()
    calls_allowed: bool = True
    """False shows the tools and takes nothing for a call (tool_choice "none")."""
    template_kwargs: Mapping[str, object] = attrs.field(factory=dict)
    """Further variables for the chat template; never its own standard ones (TMPL-013 to TMPL-016)."""
    max_output_tokens: int | None = None
    """Limit of generated tokens, reasoning included; 0 processes the prompt and generates nothing."""
    stop: tuple[str, ...] = ()
    """Strings that end the reply; they apply to reasoning and answer alike and are never shown."""


@attrs.frozen(kw_only=True)
class ModelCard:
    """What clients may know of the model that is loaded (MODELS-002 to MODELS-009)."""

    id: str
    max_context_tokens: int
    """Ceiling of one request on this instance: prompt and output together."""
    native_context_tokens: int
    vocabulary_tokens: int
    """Ids that the tokenizer can address; the weight matrices may have more rows."""
    embedding_width: int
    parameters: int
    """Logical weight elements of the distinct loaded tensors."""
    weight_bytes: int
    """Encoded payload bytes of the loaded tensors."""
    dominant_format: str
    """Numeric format with the most payload bytes, by our name."""
    created_unix_s: int
