"""`python -m ninfer convert`: options and messages around `engine.artifact.convert`.

What was finished before a failure or a signal is kept beside the target, and the same command goes on from there.
"""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import attrs
from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.table import Table

from ninfer.cli.converting import progress_bar, terminated_cleanly
from ninfer.cli.failure import Failure
from ninfer.cli.options import name_text
from ninfer.engine.artifact import ArtifactError, Report, default_hub_dir, find_source
from ninfer.engine.artifact import convert as convert_folder
from ninfer.engine.artifact.conversion import Conversion
from ninfer.engine.artifact.partial import kept_files
from ninfer.engine.artifact.recipe import BUILT_IN, tensor_kind
from ninfer.engine.artifact.recipe_file import find_recipe
from ninfer.engine.artifact.writer import DEFAULT_VOLUME_LIMIT_BYTES


@attrs.frozen(kw_only=True)
class ConvertOptions:
    """What a conversion can be asked for."""

    name: Annotated[
        str | None, Parameter(help="Public model name; without it the folder's name.", validator=name_text)
    ] = None
    recipe: Annotated[
        str,
        Parameter(
            help=f"Formats of the weights: {', '.join(BUILT_IN)}, or a TOML or JSON file. source keeps all values.",
        ),
    ] = "source"
    volume_limit_mib: Annotated[
        int, Parameter(help="Largest size of one file, in MiB.", validator=Number(gte=1, lte=1 << 40))
    ] = DEFAULT_VOLUME_LIMIT_BYTES >> 20


def convert(
    folder: Annotated[
        Path, Parameter(help="Hugging Face folder with config.json and .safetensors files, or a downloaded model's id.")
    ],
    out: Annotated[Path, Parameter(help="The artifact to write, usually NAME.ninfer. Must not exist.")],
    /,
    *,
    options: Annotated[ConvertOptions, Parameter(name="*")] = ConvertOptions(),
) -> None:
    """Turn a Hugging Face folder into an artifact."""
    errors = Console(stderr=True)
    with terminated_cleanly(), progress_bar(errors) as report:
        conversion = run(folder, out, options, errors, report)
    for note in conversion.notes:
        say(errors, note)
    if any(conversion.relative_errors.values()):
        errors.print(quality_table(conversion.relative_errors))
    print(out)


def run(folder: Path, out: Path, options: ConvertOptions, errors: Console, report: Report) -> Conversion:
    """Convert; whatever ends it early, its line says what is there to go on from.

    Raises:
        Failure: it cannot be done.
    """
    from ninfer.cli.prompt_files import check_folder  # imported here, so that `--help` answers at once

    if not out.name:
        raise Failure(f"{out}: name the file that is to be written")
    try:
        return convert_folder(
            find_source(folder, default_hub_dir(os.environ)),
            out,
            name=options.name,
            recipe=find_recipe(options.recipe),
            volume_limit_bytes=options.volume_limit_mib << 20,
            resume=True,
            report=report,
            check=check_folder,
        )
    except ArtifactError as error:
        raise Failure("; ".join([str(error), *left_over(out)])) from error
    except (KeyboardInterrupt, SystemExit):
        say(errors, "; ".join(["stopped", *left_over(out)]))
        raise


def left_over(out: Path) -> list[str]:
    """What is there of an unfinished conversion, if anything."""
    kept = kept_files(out)
    size = sum(file.stat().st_size for file in kept)
    where = ", ".join(str(file) for file in kept[-1:])
    return [f"the same command goes on from {size:,} bytes in {where}"] if kept else []


def say(console: Console, line: str) -> None:
    """Print a line as it is."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def quality_table(relative_errors: Mapping[str, float]) -> Table:
    """How far stored weights are from the given ones: a row for each kind of tensor that changed, over all layers."""
    kinds: dict[str, list[float]] = {}
    for name, error in relative_errors.items():
        if error:
            kinds.setdefault(tensor_kind(name), []).append(error)
    table = Table("relative error of", "tensors", "root mean square", "worst", title_justify="left", box=None)
    for kind, values in kinds.items():
        middle = math.sqrt(sum(value * value for value in values) / len(values))
        table.add_row(kind, str(len(values)), f"{middle:.2e}", f"{max(values):.2e}")
    return table
