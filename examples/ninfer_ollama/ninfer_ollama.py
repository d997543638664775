"""Ollama's chat over the plugin interface: /api/chat, and what its clients ask besides: tags, show, ps and version.

It knows Ollama's wire form and nothing of tokens or of the engine. A whole answer is a fold over the pieces of the
stream that it would have been, so the two cannot say different things.
"""

import itertools
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import attrs
import trio

from ninfer import conversation as ir
from ninfer.protocols.call_results import ResultMatching
from ninfer.protocols.function_tools import read_functions
from ninfer.protocols.openai_errors import openai_error
from ninfer.protocols.plugin import NDJSON, Call, JSONValue, ProtocolHost, Route, WireError
from ninfer.protocols.refusal import UNCONSTRAINED, Refusals, needs_vision, one_of, refuse_fields, unsupported
from ninfer.protocols.sampler_members import SamplerMembers
from ninfer.protocols.sse import json_line
from ninfer.protocols.structure import AnyObject, Array, Integer, String, structure

SPOKEN = "0.12.0"  # the Ollama whose API this is: some clients ask for a least version
TEXTS = ("messages[].content", "messages[].thinking", "messages[].tool_calls[].function.arguments.**")
LIMITS = (ir.FinishReason.OUTPUT_LIMIT, ir.FinishReason.CONTEXT_LIMIT)
MEMBERS: Refusals = {
    # member of a request -> what asks for nothing, and the guarantee that is not given
    "format": (one_of(""), UNCONSTRAINED),
    "logprobs": (one_of(False), "log probabilities are not computed"),
    "top_logprobs": (one_of(0), "log probabilities are not computed"),
    "truncate": (one_of(False), "what does not fit is refused, nothing is dropped from a history"),
    "shift": (one_of(False), "a reply that fills the context ends, nothing is dropped from its beginning"),
    "keep_alive": (lambda value: str(value).strip("0.smh") != "", "the model stays loaded"),
}
NEUTRAL = {"repeat_penalty": 1, "repeat_last_n": -1, "mirostat": 0, "tfs_z": 1, "typical_p": 1}
SAMPLER = "replies are drawn by temperature, top_k, top_p, min_p, presence_penalty and frequency_penalty"
# Parts of an option that is refused, and options of how a model is loaded: they change no answer.
WITHOUT_EFFECT = {
    "mirostat_tau", "mirostat_eta", "penalize_newline", "num_keep", "num_batch", "num_gpu", "num_thread", "main_gpu",
    "numa", "low_vram", "f16_kv", "use_mmap", "use_mlock", "vocab_only", "logits_all", "embedding_only",
}  # fmt: skip


@attrs.frozen(kw_only=True)
class CalledFunction:
    name: str
    arguments: AnyObject = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class WireCall:
    function: CalledFunction
    id: str | None = None


@attrs.frozen(kw_only=True)
class Message:
    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    thinking: str | None = None
    images: tuple[object, ...] = ()
    tool_calls: tuple[WireCall, ...] = ()
    tool_name: str | None = None
    tool_call_id: str | None = None


@attrs.frozen(kw_only=True)
class Options(SamplerMembers):
    num_predict: Annotated[int, Integer(-2)] = -1
    num_ctx: Annotated[int, Integer(1)] = 1
    stop: Annotated[tuple[Annotated[str, String(non_empty=True)], ...], Array(most=16)] = ()


@attrs.frozen(kw_only=True)
class ChatBody:
    model: str
    messages: tuple[Message, ...] = ()
    tools: tuple[AnyObject, ...] = ()
    stream: bool = True
    think: bool | Literal["low", "medium", "high"] | None = None
    options: Options = Options()
    keep_alive: float | str | None = None


@attrs.frozen(kw_only=True)
class ShowBody:
    model: str


def decode(body: JSONValue) -> tuple[ChatBody, ir.GenerationRequest]:
    """What `body` asks for; raises what it refuses."""
    if isinstance(body, dict):
        refuse_fields(body, MEMBERS)
        given = options if isinstance(options := body.get("options"), dict) else {}
        others = given.keys() - attrs.fields_dict(Options).keys() - WITHOUT_EFFECT
        refuse_fields(given, {name: (one_of(NEUTRAL.get(name)), SAMPLER) for name in others}, at="options")
    chat = structure(body, ChatBody)
    effort, enabled = (chat.think, None) if isinstance(chat.think, str) else (None, chat.think)
    return chat, ir.GenerationRequest(
        turns=tuple(turns_of(chat.messages)),
        tools=read_functions(chat.tools),
        sampling=chat.options.sampling(),
        thinking=ir.ThinkingFields(enabled=enabled, effort=effort),
        max_output_tokens=None if chat.options.num_predict < 0 else chat.options.num_predict,
        stop=chat.options.stop,
    )


def turns_of(messages: Sequence[Message]) -> Iterator[ir.Turn]:
    """The turns. Most clients know no ids of calls: a result answers the first call of its name that waits for one."""
    matching = ResultMatching(may_lead=True)
    waiting: list[ir.ToolCall] = []
    for at, message in enumerate(messages):
        if message.images:
            raise needs_vision(f"messages[{at}].images", "image")
        text = [ir.Text(message.content)] if message.content else []
        if message.role == "tool":
            fits = (call.id for call in waiting if message.tool_name in (None, call.name))
            call_id = message.tool_call_id or next(fits, None)
            waiting = [call for call in waiting if call.id != call_id]
            matching.result(ir.Turn(role="tool", parts=tuple(text), call_id=call_id), f"messages[{at}]")
            continue
        yield from matching.end()
        if message.role != "system":
            matching.speak()
        waiting = [
            ir.ToolCall(id=call.id or f"call_{at}_{n}", name=call.function.name, arguments=call.function.arguments)
            for n, call in enumerate(message.tool_calls)
        ]
        for n, call in enumerate(waiting):
            matching.call(call.id, f"messages[{at}].tool_calls[{n}]")
        thought = [] if message.thinking is None else [ir.Reasoning(message.thinking)]
        yield ir.Turn(role=message.role, parts=(*thought, *text, *waiting))
    yield from matching.end()


async def pieces(events: AsyncIterator[ir.Event], begin_s: float) -> AsyncIterator[dict[str, Any]]:
    """What goes out for each event; the last piece says how it ended and what it took, in nanoseconds."""
    async for event in events:
        match event:
            case ir.TextDelta(text, "answer"):
                yield said({"content": text})
            case ir.TextDelta(text):
                yield said({"content": "", "thinking": text})
            case ir.CallMade(call):
                function = {"name": call.name, "arguments": call.arguments}
                yield said({"content": "", "tool_calls": [{"id": call.id, "function": function}]})
            case ir.Finished():
                spent_s = {"total": trio.current_time() - begin_s, "load": 0.0}
                spent_s |= {"prompt_eval": event.timings.prompt_s, "eval": event.timings.generation_s}
                yield {
                    **said({"content": ""}),
                    "done": True,
                    "done_reason": "length" if event.reason in LIMITS else "stop",
                    "prompt_eval_count": event.usage.prompt_tokens,
                    "eval_count": event.usage.completion_tokens,
                    **{f"{name}_duration": round(seconds * 1e9) for name, seconds in spent_s.items()},
                }


def said(message: dict[str, object]) -> dict[str, Any]:
    message = {"role": "assistant", **message}
    return {"created_at": datetime.now(UTC).isoformat(), "message": message, "done": False}


def folded(messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One message of many: texts and lists of calls joined."""
    whole: dict[str, Any] = {"role": "assistant"}
    for name in ("content", "thinking", "tool_calls"):
        found = [message[name] for message in messages if name in message]
        if found:
            whole[name] = "".join(found) if isinstance(found[0], str) else [*itertools.chain(*found)]
    return whole


@attrs.frozen
class OllamaChat:
    """The protocol."""

    host: ProtocolHost

    name = "ollama_chat"
    request_id_header = "x-request-id"

    def routes(self) -> Sequence[Route]:
        def models(call: Call) -> Awaitable[None]:
            return call.reply({"models": [self.entry()]})

        return (
            Route("POST", "/api/chat", self.chat, summary="Generate one message.", body=ChatBody, streams=NDJSON),
            Route("POST", "/api/show", self.show, summary="What the model is.", body=ShowBody),
            Route("GET", "/api/tags", models, summary="The one model."),
            Route("GET", "/api/ps", models, summary="The one model, which stays loaded."),
            Route("GET", "/api/version", lambda call: call.reply({"version": SPOKEN}), summary="Whose API this is."),
        )

    def error(self, error: ir.RequestError, request_id: str) -> WireError:
        return WireError(status=openai_error(error).status, body={"error": error.message})

    def stream_error(self, error: ir.RequestError, request_id: str) -> bytes:
        return json_line({"error": error.message})

    async def chat(self, call: Call) -> None:
        begin_s = trio.current_time()
        chat, request = await call.decoded(decode, texts=TEXTS)
        self.check_model(chat.model)
        most = self.host.model.max_context_tokens
        if chat.options.num_ctx > most:
            raise unsupported("options.num_ctx", chat.options.num_ctx, f"this server's context is {most} tokens")
        head = {"model": chat.model}
        if not chat.messages:  # a client asks for the model to be loaded
            await call.reply({**head, **said({"content": ""}), "done": True, "done_reason": "load"})
        elif chat.stream:
            async with call.stream() as sink, self.host.generate(request) as events:
                async for piece in pieces(events, begin_s):
                    await sink.send(json_line({**head, **piece}))
        else:
            async with self.host.generate(request) as events:
                found = [piece async for piece in pieces(events, begin_s)]
            await call.reply({**head, **found[-1], "message": folded([piece["message"] for piece in found])})

    async def show(self, call: Call) -> None:
        self.check_model(await call.decoded(lambda body: structure(body, ShowBody).model))
        card, entry = self.host.model, self.entry()
        info = {
            "general.architecture": "ninfer",
            "general.parameter_count": card.parameters,
            "ninfer.context_length": card.max_context_tokens,
            "ninfer.embedding_length": card.embedding_width,
        }
        about = {"details": entry["details"], "modified_at": entry["modified_at"], "model_info": info}
        await call.reply({**about, "capabilities": ["completion", "tools", "thinking"]})

    def check_model(self, name: str) -> None:
        self.host.check_model(name.removesuffix(":latest"))  # what clients add to a name without a tag

    def entry(self) -> dict[str, object]:
        """The model as lists show it; a digest of its files is not known here."""
        card, made = self.host.model, datetime.fromtimestamp(self.host.model.created_unix_s, UTC)
        details = {"format": "ninfer", "family": "", "families": [], "parent_model": ""}
        details |= {"parameter_size": f"{card.parameters / 1e9:.1f}B", "quantization_level": card.dominant_format}
        sizes = {"size": card.weight_bytes, "size_vram": card.weight_bytes, "context_length": card.max_context_tokens}
        names = {"name": card.id, "model": card.id, "digest": "", "modified_at": made.isoformat()}
        return {**names, **sizes, "details": details}
