"""`python -m ninfer inspect`: what an artifact holds, for people and as JSON. Loads no accelerator library."""

import json
import sys
from pathlib import Path
from typing import Annotated

import attrs
from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ninfer.cli.failure import Failure
from ninfer.engine.artifact import Artifact, ArtifactError, Facts
from ninfer.engine.artifact.directory import Stored
from ninfer.engine.artifact.framing import VERSION, volume_path

PIPED_COLUMNS = 140
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
            }
            | _place(artifact, record.stored)
            for record in directory.tensors
        ],
        "volumes": [
            {"file": str(volume_path(artifact.file, index)), "payload_bytes": size}
            for index, size in enumerate(directory.payload_bytes)
        ],
        "provenance": directory.provenance,
    }


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
    resources = Table("resource", "bytes", "volume", "offset", title_justify="left", box=None)
    for resource in artifact.directory.resources:
        resources.add_row(escape(resource.name), *_cells(artifact, resource.stored))
    tensors = Table("tensor", "component", "shape", "format", "layout", "bytes", "volume", "offset", box=None)
    for record in artifact.directory.tensors:
        shape = " x ".join(map(str, record.shape))
        tensors.add_row(
            escape(record.name),
            escape(record.component),
            shape,
            record.format.name,
            record.layout.name,
            *_cells(artifact, record.stored),
        )
    for table in (resources, tensors):
        if table.row_count:
            console.print()
            console.print(table)


def _cells(artifact: Artifact, stored: Stored) -> tuple[str, str, str]:
    return f"{stored.size_bytes:,}", str(stored.volume), f"{artifact.file_offset(stored):,}"


def _facts(facts: Facts) -> str:
    return f"{facts.parameters:,} parameters, {facts.weight_bytes:,} bytes, mostly {facts.dominant_format}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
