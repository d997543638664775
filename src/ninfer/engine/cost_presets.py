"""What moving and recomputing context costs: coefficients, and the files that give measured ones.

Three layers, the later one wins, transfer and prefill each by itself: generic guesses, values compiled in for a kind of
hardware, entries of a presets file. Transfers belong to hardware; prefill belongs to hardware and to a signature of
the model as it is run. Resolved once at startup. Knows no cache: who uses the costs asks for seconds.

Invariant: a malformed file is an error that names the member; a file that parses can only replace coefficients.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import attrs

from ninfer.engine.artifact.checked import Checked, parse_json
from ninfer.engine.artifact.mapping import read_small
from ninfer.engine.model.config import TextConfig

SCHEMA = 3
ARTIFACT_TYPE = "ninfer_context_cost_presets"
_Q32 = 1 << 32

Source: TypeAlias = Literal["generic", "compiled", "file"]


@attrs.frozen(kw_only=True)
class LinkCosts:
    """One direction of transfer, in nanoseconds; `_q32` is fixed point with 32 fraction bits."""

    batch_ns: int
    operation_ns: int
    ns_per_byte_q32: int

    def seconds(self, *, operations: int, size_bytes: int) -> float:
        """Time of one batch of `operations` copies with `size_bytes` in all."""
        moving_ns = size_bytes * self.ns_per_byte_q32 / _Q32
        return (self.batch_ns + max(operations * self.operation_ns, moving_ns)) * 1e-9


@attrs.frozen(kw_only=True)
class TransferCosts:
    """Device to host, host to device, device to device."""

    d2h: LinkCosts
    h2d: LinkCosts
    d2d: LinkCosts


@attrs.frozen(kw_only=True)
class PrefillCosts:
    """Prefilling a prompt, in nanoseconds; `_q32` is fixed point with 32 fraction bits."""

    chunk_ns: int
    token_ns_q32: int
    attention_pair_ns_q32: int
    vision_item_ns: int
    vision_patch_ns_q32: int

    def seconds(self, *, chunks: int, base_tokens: int, new_tokens: int) -> float:
        """Time of `new_tokens` text tokens in `chunks` units after `base_tokens` that are there."""
        pairs = base_tokens * new_tokens + new_tokens * (new_tokens + 1) // 2
        work_q32 = new_tokens * self.token_ns_q32 + pairs * self.attention_pair_ns_q32
        return (chunks * self.chunk_ns + work_q32 / _Q32) * 1e-9


_GENERIC: Source = "generic"
_LINKS = tuple(field.name for field in attrs.fields(TransferCosts))
_Costs = TypeVar("_Costs", LinkCosts, PrefillCosts)


@attrs.frozen(kw_only=True)
class MachineEntry:
    """What is known of one kind of hardware; `prefill` goes from signatures to costs."""

    transfer: TransferCosts | None = None
    prefill: Mapping[str, PrefillCosts] = attrs.field(factory=dict)


Presets: TypeAlias = Mapping[str, MachineEntry]
"""Hardware class -> entry."""


@attrs.frozen(kw_only=True)
class ContextCosts:
    """The coefficients of this process and where each half comes from (CTX-006)."""

    hardware_class: str
    prefill_signature: str
    transfer: TransferCosts
    transfer_source: Source
    prefill: PrefillCosts
    prefill_source: Source

    def record(self) -> str:
        """The operational record, one line."""
        return (
            f"context cost: transfer {self.transfer_source}, prefill {self.prefill_source} "
            f"({self.hardware_class}, {self.prefill_signature})"
        )


def _link(batch_ns: int, operation_ns: int, ns_per_byte: float) -> LinkCosts:
    return LinkCosts(batch_ns=batch_ns, operation_ns=operation_ns, ns_per_byte_q32=round(ns_per_byte * _Q32))


_SLOW_BUS = _link(50_000, 10_000, 0.08)
GENERIC_TRANSFER = TransferCosts(d2h=_SLOW_BUS, h2d=_SLOW_BUS, d2d=_link(20_000, 2_000, 0.005))
"""A guess that suits no machine in particular: 12 GB/s between host and device."""

GENERIC_PREFILL = PrefillCosts(
    chunk_ns=2_000_000,
    token_ns_q32=100_000 * _Q32,
    attention_pair_ns_q32=_Q32 // 50,
    vision_item_ns=1_000_000,
    vision_patch_ns_q32=20_000 * _Q32,
)
"""A guess likewise: 10,000 tokens a second."""

COMPILED: Presets = {
    # Medians of single copies of 4 KiB to 1 GiB. They do not tell a batch's own time from an operation's.
    "cpu": MachineEntry(
        transfer=TransferCosts(d2h=_link(440, 0, 0.105), h2d=_link(440, 0, 0.105), d2d=_link(440, 0, 0.105))
    ),
    "nvidia-h200-sm90": MachineEntry(
        # Pinned host memory, 2026-11: 48.7 GB/s either way; 1.9 TB/s within the device.
        transfer=TransferCosts(
            d2h=_link(158_000, 0, 0.01992), h2d=_link(138_000, 0, 0.01997), d2d=_link(78_000, 0, 0.00052)
        )
    ),
}
"""Measured values by hardware class."""


def hardware_class(device_kind: str, compute_capability: str | None = None) -> str:
    """The name of a kind of hardware in presets: "NVIDIA H200" of capability "9.0" is nvidia-h200-sm90."""
    name = re.sub(r"[^a-z0-9]+", "-", device_kind.lower()).strip("-")
    return name if compute_capability is None else f"{name}-sm{compute_capability.replace('.', '')}"


def prefill_signature(config: TextConfig, *, formats: Mapping[str, str], uses: tuple[str, ...] = ("text",)) -> str:
    """A name for a model as it is run: its shape, the storage format of each tensor, the components in use."""
    facts = {"config": attrs.asdict(config), "bindings": dict(formats), "uses": list(uses)}
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return f"{'+'.join(uses)}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def resolve_costs(hardware: str, signature: str, file: Presets | None = None) -> ContextCosts:
    """The coefficients for this hardware and model, each half from the last layer that has it."""
    transfer, prefill = GENERIC_TRANSFER, GENERIC_PREFILL
    transfer_source = prefill_source = _GENERIC
    layers: tuple[tuple[Source, Presets], ...] = (("compiled", COMPILED), ("file", file or {}))
    for source, layer in layers:
        entry = layer.get(hardware, MachineEntry())
        if entry.transfer is not None:
            transfer, transfer_source = entry.transfer, source
        if signature in entry.prefill:
            prefill, prefill_source = entry.prefill[signature], source
    return ContextCosts(
        hardware_class=hardware,
        prefill_signature=signature,
        transfer=transfer,
        transfer_source=transfer_source,
        prefill=prefill,
        prefill_source=prefill_source,
    )


def read_presets(file: Path) -> Presets:
    """A presets file.

    Raises:
        ArtifactError: it cannot be read, or is malformed; the message names file and member.
    """
    top = parse_json(read_small(file), file=file, object=None)
    top.only("schema", "artifact_type", "machines")
    if top.member("schema").count() != SCHEMA:
        raise top.member("schema").error(f"must be {SCHEMA}")
    if top.member("artifact_type").text() != ARTIFACT_TYPE:
        raise top.member("artifact_type").error(f"must be {ARTIFACT_TYPE!r}")
    machines: dict[str, MachineEntry] = {}
    for item in top.member("machines").items():
        name = item.member("hardware_class")
        _once(name, machines)
        machines[name.label()] = _machine(item)
    if not machines:
        raise top.member("machines").error("must not be empty")
    return machines


def _machine(item: Checked) -> MachineEntry:
    item.only("hardware_class", "transfer", "prefill")
    prefill: dict[str, PrefillCosts] = {}
    for entry in item.member("prefill").items() if item.has("prefill") else ():
        entry.only("prefill_signature", "coefficients")
        name = entry.member("prefill_signature")
        _once(name, prefill)
        prefill[name.label()] = _coefficients(entry.member("coefficients"), PrefillCosts)
    transfer = None
    if item.has("transfer"):
        links = item.member("transfer")
        links.only(*_LINKS)
        transfer = TransferCosts(**{name: _coefficients(links.member(name), LinkCosts) for name in _LINKS})
    if transfer is None and not prefill:
        raise item.error("has neither transfer nor prefill entries")
    return MachineEntry(transfer=transfer, prefill=prefill)


def _coefficients(item: Checked, kind: type[_Costs]) -> _Costs:
    names = [field.name for field in attrs.fields(kind)]
    item.only(*names)
    return kind(**{name: item.member(name).count() for name in names})


def _once(name: Checked, seen: Mapping[str, object]) -> None:
    if name.label() in seen:
        raise name.error(f"{name.label()!r} stands there twice")
