"""`python -m ninfer inspect`: what an artifact holds, for people and as JSON. Loads no accelerator library."""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import attrs
from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ninfer.cli.failure import Failure
from ninfer.engine.artifact import Artifact, ArtifactError, Facts
from ninfer.engine.artifact.directory import Stored, TensorRecord
from ninfer.engine.artifact.framing import VERSION, volume_path

PIPED_COLUMNS = 160
"""Width of the tables where no terminal gives one."""


@attrs.frozen(kw_only=True)
class InspectOptions:
    """What to show and check."""

    json: Annotated[bool, Parameter(negative="", help="Print one JSON object instead of tables.")] = False
    verify: Annotated[bool, Parameter(negative="", help="Compare everything stored with its checksum first.")] = False


def inspect(
    file: Annotated[Path, Parameter(help="The artifact's first file.")],
    /,
    *,
    options: Annotated[InspectOptions, Parameter(name="*")] = InspectOptions(),
) -> None:
    """Show what an artifact holds."""
    try:
        with Artifact.open(file) as artifact:
            verified = sum(1 for _ in artifact.verify()) if options.verify else None
            if options.json:
                print(json.dumps(describe(artifact, verified), indent=2))
            else:
                _show(artifact, verified)
    except ArtifactError as error:
        raise Failure(str(error)) from error


def describe(artifact: Artifact, verified: int | None) -> dict[str, object]:
    """The artifact as plain JSON values. `verified` is the number of objects whose checksums were compared."""
    directory = artifact.directory
    return {
        "file": str(artifact.file),
        "container_version": VERSION,
        "artifact_id": artifact.id,
        "architecture": artifact.architecture,
        "name": artifact.name,
        "verified_objects": verified,
        "facts": attrs.asdict(artifact.facts()),
        "components": {
            name: {"facts": attrs.asdict(artifact.facts(name)), "config": artifact.config(name)}
            for name in artifact.components
        },
        "resources": [{"name": record.name} | _place(artifact, record.stored) for record in directory.resources],
        "tensors": [
            {
                "name": record.name,
                "component": record.component,
                "shape": list(record.shape),
                "format": record.format.name,
                "layout": record.layout.name,
                "bits_per_weight": bits_per_weight(record),
                "relative_error": record.relative_error,
            }
            | _place(artifact, record.stored)
            for record in directory.tensors
        ],
        "formats": [attrs.asdict(share) for share in format_shares(directory.tensors)],
        "volumes": [
            {"file": str(volume_path(artifact.file, index)), "payload_bytes": size}
            for index, size in enumerate(directory.payload_bytes)
        ],
        "provenance": directory.provenance,
    }


def bits_per_weight(*records: TensorRecord) -> float:
    """Stored bits of the tensors, scales and padding included, for each of their elements."""
    elements = sum(math.prod(record.shape) for record in records)
    return 8 * sum(record.stored.size_bytes for record in records) / max(1, elements)


@attrs.frozen(kw_only=True)
class FormatShare:
    """What is stored in one format and layout."""

    format: str
    layout: str
    tensors: int
    parameters: int
    bytes: int
    bits_per_weight: float
    worst_relative_error: float | None


def format_shares(tensors: Sequence[TensorRecord]) -> list[FormatShare]:
    """The shares of all formats and layouts, the largest first."""
    kinds: dict[tuple[str, str], list[TensorRecord]] = {}
    for record in tensors:
        kinds.setdefault((record.format.name, record.layout.name), []).append(record)
    shares = [
        FormatShare(
            format=form,
            layout=layout,
            tensors=len(records),
            parameters=sum(math.prod(record.shape) for record in records),
            bytes=sum(record.stored.size_bytes for record in records),
            bits_per_weight=bits_per_weight(*records),
            worst_relative_error=max(
                (record.relative_error for record in records if record.relative_error is not None), default=None
            ),
        )
        for (form, layout), records in kinds.items()
    ]
    return sorted(shares, key=lambda share: -share.bytes)


def _place(artifact: Artifact, stored: Stored) -> dict[str, object]:
    return {
        "volume": stored.volume,
        "file_offset": artifact.file_offset(stored),
        "bytes": stored.size_bytes,
        "checksum": stored.checksum,
    }


def _show(artifact: Artifact, verified: int | None) -> None:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_COLUMNS)
    volumes = artifact.directory.payload_bytes
    head = Table.grid(padding=(0, 2))
    head.add_row("file", escape(str(artifact.file)))
    head.add_row("name", escape(artifact.name or "(none)"))
    head.add_row("architecture", artifact.architecture)
    head.add_row("container", f"version {VERSION}, id {artifact.id}, {_count(len(volumes), 'volume')}")
    head.add_row("weights", _facts(artifact.facts()))
    for name in artifact.components:
        head.add_row(f"component {escape(name)}", _facts(artifact.facts(name)))
    if verified is not None:
        head.add_row("verified", f"{_count(verified, 'object')}, all as written")
    console.print(head)
    for table in (_formats(artifact), _resources(artifact), _tensors(artifact)):
        if table.row_count:
            console.print()
            console.print(table)


def _formats(artifact: Artifact) -> Table:
    table = Table("format", "layout", "tensors", "parameters", "bytes", "bits/weight", "worst error", box=None)
    for share in format_shares(artifact.directory.tensors):
        table.add_row(
            share.format,
            share.layout,
            str(share.tensors),
            f"{share.parameters:,}",
            f"{share.bytes:,}",
            f"{share.bits_per_weight:.2f}",
            _error(share.worst_relative_error),
        )
    return table


def _resources(artifact: Artifact) -> Table:
    table = Table("resource", "bytes", "volume", "offset", title_justify="left", box=None)
    for resource in artifact.directory.resources:
        table.add_row(escape(resource.name), *_cells(artifact, resource.stored))
    return table


def _tensors(artifact: Artifact) -> Table:
    table = Table(
        "tensor", "component", "shape", "format", "layout", "bits", "error", "bytes", "volume", "offset", box=None
    )
    for record in artifact.directory.tensors:
        table.add_row(
            escape(record.name),
            escape(record.component),
            " x ".join(map(str, record.shape)),
            record.format.name,
            record.layout.name,
            f"{bits_per_weight(record):.2f}",
            _error(record.relative_error),
            *_cells(artifact, record.stored),
        )
    return table


def _error(error: float | None) -> str:
    return "" if error is None else f"{error:.2e}"


def _cells(artifact: Artifact, stored: Stored) -> tuple[str, str, str]:
    return f"{stored.size_bytes:,}", str(stored.volume), f"{artifact.file_offset(stored):,}"


def _facts(facts: Facts) -> str:
    return f"{facts.parameters:,} parameters, {facts.weight_bytes:,} bytes, mostly {facts.dominant_format}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
