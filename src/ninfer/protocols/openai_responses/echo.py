"""The request's fields as the Response object repeats them. It knows Responses' wire names and no events."""

from collections.abc import Mapping

from ninfer.protocols.openai_responses.decode import ResponsesCall


def echoed_fields(call: ResponsesCall) -> Mapping[str, object]:
    """Every key that strict readers want, null or neutral where the request says nothing (C11, D30)."""
    wire = call.wire
    return {
        "background": False,
        "instructions": wire.instructions,
        "max_output_tokens": wire.max_output_tokens,
        "max_tool_calls": wire.max_tool_calls,
        "parallel_tool_calls": wire.parallel_tool_calls,
        "previous_response_id": wire.previous_response_id,
        "prompt_cache_key": wire.prompt_cache_key,
        "prompt_cache_retention": wire.prompt_cache_retention,
        "reasoning": {"effort": wire.reasoning.effort, "summary": call.summary},
        "safety_identifier": wire.safety_identifier,
        "service_tier": "default",
        "store": wire.store,
        "temperature": 1.0 if wire.temperature is None else wire.temperature,
        "text": {"format": {"type": "text"}, **_verbosity(wire.text.verbosity)},
        "tool_choice": "auto" if wire.tool_choice is None else wire.tool_choice,
        "tools": list(call.table.echoed),
        "top_logprobs": 0,
        "top_p": 1.0 if wire.top_p is None else wire.top_p,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "truncation": "disabled",
        "metadata": dict(wire.metadata or {}),
        "user": wire.user,
    }


def _verbosity(said: str | None) -> dict[str, object]:
    return {} if said is None else {"verbosity": said}
