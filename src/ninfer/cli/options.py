"""The options of `serve` whose part is built: each one attrs field with unit, range and default.

Grouped by what they configure; the command line flattens the groups. It knows no engine and no server.
Invariant: an instance of a group holds values in range; what depends on an artifact is checked where it is opened.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import attrs
from cyclopts import Parameter, Token
from cyclopts.validators import Number

from ninfer.conversation import SamplingFields
from ninfer.server.hosts import host_name

INT64 = 1 << 63

KvStorage = Literal["bf16", "int8", "fp8", "nvfp4", "k8v4", "vq2", "k4v2"]
"""What keys and values may be stored as (KVFMT-001); `KvDtype` of the engine has those that are built."""

Switch = Annotated[bool, Parameter(negative=())]
"""A flag that is either given or not."""


def whole_number(kind: object, tokens: Sequence[Token]) -> int | str:
    """The integer that is written, or "auto" where the option knows that; 1.5 is none, and is not rounded.

    Raises:
        ValueError: it is neither, or needs more than 64 bits, which no part of us could count with.
    """
    written = tokens[0].value
    if written == "auto" and kind is not int:
        return written
    if not re.fullmatch(r"[+-]?[0-9]{1,20}", written) or not -INT64 <= (number := int(written)) < INT64:
        raise ValueError
    return number


def is_header_key(key: str) -> bool:
    """Whether a header can carry `key` as it is."""
    return bool(key) and key == key.strip() and key.isprintable()


def header_key(kind: object, value: str | None) -> None:
    """Refuse a key that no header could carry.

    Raises:
        ValueError: it is empty, or has characters that a header drops or cannot have.
    """
    if value is not None and not is_header_key(value):
        raise ValueError("expected a key without white space around it")


def name_text(kind: object, value: str | None) -> None:
    """Refuse what is no name: nothing, control characters, bytes that are no UTF-8.

    Raises:
        ValueError: it is one of them.
    """
    if value is not None and not (value and value.isprintable()):
        raise ValueError("expected a name that can be printed")


def utf8_text(kind: object, value: str | None) -> None:
    """Refuse bytes that are no UTF-8, which Python carries from the command line as half characters.

    Raises:
        ValueError: there are such.
    """
    if value is not None and not is_utf8(value):
        raise ValueError("expected UTF-8")


def is_utf8(text: str) -> bool:
    """Whether `text` came from bytes that are UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def address(kind: object, value: str) -> None:
    """Refuse an empty address: a socket takes it for every address of the machine.

    Raises:
        ValueError: it is empty.
    """
    if not value.strip():
        raise ValueError("expected an address; 0.0.0.0 and :: are all of this machine")


def host_names(kind: object, values: Sequence[str]) -> None:
    """Refuse what no Host header names.

    Raises:
        ValueError: one of them is no host.
    """
    for value in values:
        if host_name(value) is None:
            raise ValueError("expected names or addresses")  # the value is shown before it


Whole = Annotated[int, Parameter(converter=whole_number)]
"""An integer, strictly."""

LogLevel = Literal["trace", "debug", "info", "warning", "error", "critical", "off"]
DEFAULT_MAX_CONTEXT = 8192
MOST_CHUNK_TOKENS = 1 << 20
"""As many as the longest context that any model here reaches: a longer chunk would never be filled."""
MOST_KV_TOKENS = 1 << 28
"""More than any device holds, and few enough for the ledger of their pages to fit a host."""
DEFAULT_URL = "http://127.0.0.1:8080"
"""Where a server that no option says otherwise answers."""


@attrs.frozen(kw_only=True)
class NetworkOptions:
    """Where and how HTTP is answered."""

    host: Annotated[str, Parameter(help="Address to listen on.", validator=address)] = "127.0.0.1"
    port: Annotated[Whole, Parameter(help="Port to listen on; 0 picks one.", validator=Number(gte=0, lte=65535))] = 8080
    allowed_hosts: Annotated[
        tuple[str, ...],
        Parameter(
            negative=(),
            help="Another name that requests may give as their Host; may be repeated.",
            validator=host_names,
        ),
    ] = ()
    max_request_mib: Annotated[
        Whole, Parameter(help="Largest request body in MiB.", validator=Number(gte=1, lte=1 << 20))
    ] = 384
    protocols: Annotated[
        tuple[str, ...],
        Parameter(negative=(), help="Serve only this protocol; may be repeated. Without it all are served."),
    ] = ()
    api_key: Annotated[
        str | None,
        Parameter(
            help="Key that every request but GET /health has to carry; other users of this machine can read it here. "
            "[default: NINFER_API_KEY of the environment, else none]",
            validator=header_key,
        ),
    ] = attrs.field(default=None, repr=False)
    api_key_file: Annotated[Path | None, Parameter(help="File whose one line is the key. [default: none]")] = None
    cors: Annotated[Switch, Parameter(help="Let web pages of every site read the answers.")] = False
    usage_chunk_choice: Annotated[
        Switch, Parameter(help="Give the streamed usage chunk one zero-delta choice instead of none.")
    ] = False


@attrs.frozen(kw_only=True)
class ModelOptions:
    """Which model, under which name, with which template."""

    engine: Annotated[
        Literal["model", "scripted"],
        Parameter(help="scripted answers what directives in the user's text say, without a model: a test aid."),
    ] = "model"
    model_id: Annotated[
        str | None, Parameter(help="Public model id; without it the artifact's name.", validator=name_text)
    ] = None
    chat_template: Annotated[Path | None, Parameter(help="A Jinja file that replaces the artifact's template.")] = None
    cache_dir: Annotated[Path | None, Parameter(help="Folder for converted artifacts and compiled programs.")] = None
    rope_yarn_factor: Annotated[
        float,
        Parameter(
            help="Stretch positions (YaRN): 1 to 4 times the native context may be asked for.",
            validator=Number(gte=1, lte=4),
        ),
    ] = 1.0
    default_thinking_budget: Annotated[
        Whole | None,
        Parameter(help="Most tokens of thinking where a request does not say. [default: no bound]",
                  validator=Number(gte=1)),
    ] = None  # fmt: skip
    thinking_budget_message: Annotated[
        str | None,
        Parameter(help="What ends thinking at its budget; without it a sentence of ours.", validator=utf8_text),
    ] = None
    reasoning_effort: Annotated[
        Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None,
        Parameter(help="Effort of requests that name none; a level that the template lacks becomes the nearest."),
    ] = None
    no_thinking: Annotated[Switch, Parameter(help="Switch thinking off where a request does not say.")] = False
    preserve_thinking: Annotated[
        Switch, Parameter(help="Keep reasoning of earlier turns in the prompt where a request does not say.")
    ] = False
    tolerant_tool_calls: Annotated[
        Switch, Parameter(help="Recover calls from markup that is damaged, cut, or left inside thinking.")
    ] = False


@attrs.frozen(kw_only=True)
class CapacityOptions:
    """How much is served at once, and how much memory it may take."""

    max_context: Annotated[
        Whole | None,
        Parameter(
            help="Most tokens of one request with its output. [default: 8192, or the model's context if smaller]",
            validator=Number(gte=1),
        ),
    ] = None
    kv_capacity: Annotated[
        int | Literal["auto"] | None,
        Parameter(
            help="Tokens of KV memory that all requests share. auto, the default, takes what the device has free, "
            "up to --max-context for every lane. With --no-prefix-reuse the default is --max-context.",
            converter=whole_number,
        ),
    ] = None
    vram_headroom_mib: Annotated[
        Whole | None,
        Parameter(
            help="MiB of device memory that an automatic --kv-capacity leaves free; 1024 unless given.",
            validator=Number(gte=0, lte=1 << 40),
        ),
    ] = None
    kv_dtype: Annotated[
        KvStorage, Parameter(help="How keys and values are stored: bf16, int8 or fp8 in this build.")
    ] = "bf16"
    no_prefix_reuse: Annotated[Switch, Parameter(help="Reuse nothing between requests; nothing is in this build.")] = (
        False
    )
    no_cuda_graph: Annotated[
        Switch,
        Parameter(help="Dispatch decode call by call instead of running prepared programs: same output, slower."),
    ] = False
    context_cost_presets: Annotated[
        Path | None, Parameter(help="A JSON file with measured costs of moving and recomputing context.")
    ] = None
    max_concurrency: Annotated[Whole, Parameter(help="Requests that run at once.", validator=Number(gte=1, lte=8))] = 1
    max_pending_requests: Annotated[
        Whole, Parameter(help="Requests that may wait besides.", validator=Number(gte=0))
    ] = 16
    pending_timeout_ms: Annotated[
        Whole, Parameter(help="Longest preparation and wait of a request, in ms.", validator=Number(gte=1))
    ] = 30_000
    prefill_chunk: Annotated[
        Whole,
        Parameter(
            help="Prompt tokens of one unit; rounded down to 64s, at least 64.",
            validator=Number(gte=1, lte=MOST_CHUNK_TOKENS),
        ),
    ] = 1024
    default_max_tokens: Annotated[
        Whole, Parameter(help="Output limit of a request that names none.", validator=Number(gte=1))
    ] = 8192


@attrs.frozen(kw_only=True)
class StoreOptions:
    """How many Responses are kept for retrieval and continuation, in this process."""

    response_store_max_records: Annotated[
        Whole, Parameter(help="Most Responses that are stored.", validator=Number(gte=1))
    ] = 1024
    response_store_max_mib: Annotated[
        Whole,
        Parameter(help="MiB for stored Responses and the Items behind them.", validator=Number(gte=1, lte=1 << 20)),
    ] = 256


@attrs.frozen(kw_only=True)
class SamplerOptions:
    """The process's sampler values: stronger than the model's presets, weaker than a request's fields."""

    temperature: Annotated[float | None, Parameter(help="0 to 2.", validator=Number(gte=0, lte=2))] = None
    top_p: Annotated[float | None, Parameter(help="0 to 1.", validator=Number(gte=0, lte=1))] = None
    top_k: Annotated[
        Whole | None, Parameter(help="0 to 20; 0 means the cap of 20.", validator=Number(gte=0, lte=20))
    ] = None
    min_p: Annotated[float | None, Parameter(help="0 to 1.", validator=Number(gte=0, lte=1))] = None
    presence_penalty: Annotated[float | None, Parameter(help="-2 to 2.", validator=Number(gte=-2, lte=2))] = None
    frequency_penalty: Annotated[float | None, Parameter(help="-2 to 2.", validator=Number(gte=-2, lte=2))] = None
    seed: Annotated[
        Whole | None,
        Parameter(help="Seed of requests that give none; without it each gets a fresh one.",
                  validator=Number(gte=-INT64, lt=INT64)),
    ] = None  # fmt: skip
    greedy: Annotated[Switch, Parameter(help="Temperature 0 for every request, whatever it asks for.")] = False

    def fields(self) -> SamplingFields:
        """The values as `service` takes them; `greedy` is not among them."""
        return SamplingFields(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            seed=self.seed,
        )


@attrs.frozen(kw_only=True)
class KernelOptions:
    """What prompt attention may do. Each KV format has one kernel in this build: its choices change nothing (D16)."""

    use_original_int8_prefill_kernel: Annotated[
        Switch, Parameter(help="Only with --kv-dtype int8, and changes nothing in this build: it has one kernel.")
    ] = False
    prefill_8bit_pv: Annotated[Switch, Parameter(help="Changes nothing in this build: one kernel a KV format.")] = False
    no_prefill_8bit_pv: Annotated[Switch, Parameter(help="Changes nothing in this build.")] = False
    prefill_split_workspace_mib: Annotated[
        Whole,
        Parameter(
            help="MiB that one launch of prompt attention may take to split the keys of a short chunk over the GPU; "
            "0 never splits. For --kv-dtype int8 and fp8 on a GPU; bf16 heeds it not.",
            validator=Number(gte=0, lte=16384),
        ),
    ] = 256

    def conflict(self, kv_dtype: KvStorage) -> str | None:
        """What is wrong with the choices, if anything is."""
        if self.use_original_int8_prefill_kernel and kv_dtype != "int8":
            return "--use-original-int8-prefill-kernel: only with --kv-dtype int8"
        if self.prefill_8bit_pv and self.no_prefill_8bit_pv:
            return "--prefill-8bit-pv and --no-prefill-8bit-pv contradict each other"
        return None

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The options that were given and change nothing, as they are written."""
        names = ("use_original_int8_prefill_kernel", "prefill_8bit_pv", "no_prefill_8bit_pv")
        return tuple(f"--{name.replace('_', '-')}" for name in names if getattr(self, name))


@attrs.frozen(kw_only=True)
class LogOptions:
    """What is written to stderr, and what is looked at while serving."""

    log_level: Annotated[LogLevel, Parameter(help="How much is logged to stderr.")] = "info"
    check_events: Annotated[
        Switch, Parameter(help="Judge the order of every event that is sent, and fail a stream that breaks its rules.")
    ] = False


FLAT = Parameter(name="*")
"""A group whose options stand on the command line without the group's name."""


@attrs.frozen(kw_only=True)
class ServeOptions:
    """All options of `serve` whose part is built."""

    network: Annotated[NetworkOptions, FLAT] = attrs.field(factory=NetworkOptions)
    model: Annotated[ModelOptions, FLAT] = attrs.field(factory=ModelOptions)
    capacity: Annotated[CapacityOptions, FLAT] = attrs.field(factory=CapacityOptions)
    store: Annotated[StoreOptions, FLAT] = attrs.field(factory=StoreOptions)
    sampler: Annotated[SamplerOptions, FLAT] = attrs.field(factory=SamplerOptions)
    kernels: Annotated[KernelOptions, FLAT] = attrs.field(factory=KernelOptions)
    logs: Annotated[LogOptions, FLAT] = attrs.field(factory=LogOptions)
