"""`python -m ninfer bench`: what decoding and prompts cost on this device, with random weights of a named shape.

The programs are those that `serve` runs with the same recipe. Shares are of what the device gives to a pure read and a
plain product, measured in the same run. Status 0: everything was measured, whatever it came to.
"""

import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import attrs
from cyclopts import Parameter, Token
from cyclopts.validators import Number
from rich.console import Console

from ninfer.cli.bench_chart import draw_chart, needs_chart_library
from ninfer.cli.bench_file import read_report, write_report
from ninfer.cli.bench_tables import report_lines
from ninfer.cli.failure import Failure
from ninfer.cli.logs import log_to_stderr
from ninfer.cli.options import MOST_CHUNK_TOKENS, LogLevel, Switch, Whole

TILE_TOKENS = 64
MOST_TIMES = 1 << 20


def whole_numbers(kind: object, tokens: Sequence[Token]) -> tuple[int, ...]:
    """Integers with commas between them; an empty text is none.

    Raises:
        ValueError: something else, or a number below 1 or of more than nine digits.
    """
    parts = [part.strip() for part in tokens[0].value.split(",") if part.strip()]
    if not all(re.fullmatch(r"[0-9]{1,9}", part) and int(part) for part in parts):
        raise ValueError
    return tuple(dict.fromkeys(map(int, parts)))


def words(kind: object, tokens: Sequence[Token]) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(dict.fromkeys(part.strip() for part in tokens[0].value.split(",") if part.strip()))


Numbers = Annotated[tuple[int, ...], Parameter(converter=whole_numbers, n_tokens=1, negative=())]
Words = Annotated[tuple[str, ...], Parameter(converter=words, n_tokens=1, negative=())]


@attrs.frozen(kw_only=True)
class BenchOptions:
    """What to measure. Lists are written with commas."""

    config: Annotated[
        str, Parameter(help="Shape of the model: 27b, demo, or the path of a config.json or of its folder.")
    ] = "27b"
    recipe: Annotated[
        Words, Parameter(help="Recipes of convert: fp32, bf16, fp8, int8, q4, nvfp4 ... [default: q4; on a CPU fp32]")
    ] = ()
    kv_dtype: Annotated[
        Words, Parameter(help="Keys and values: bf16, int8, fp8. [default: bf16; with recipe fp32 always fp32]")
    ] = ()
    batch: Annotated[Numbers, Parameter(help="Rows of a decode round, 1 to 8.")] = (1, 8)
    context: Annotated[
        Numbers | None,
        Parameter(
            help="Tokens of each row's context; '' for no decode rounds. [default: 1024, or the model's if smaller]",
            converter=whole_numbers,
            n_tokens=1,
            negative=(),
        ),
    ] = None
    prefill: Annotated[
        Numbers | None,
        Parameter(
            help="Tokens of a prompt; '' for none. [default: 8192, or the model's context if smaller]",
            converter=whole_numbers,
            n_tokens=1,
            negative=(),
        ),
    ] = None
    prefill_chunk: Annotated[
        Whole,
        Parameter(
            help="As of serve: prompt tokens of one unit.", validator=Number(gte=TILE_TOKENS, lte=MOST_CHUNK_TOKENS)
        ),
    ] = 1024
    steps: Annotated[
        Whole, Parameter(help="Decode rounds of a run, chained.", validator=Number(gte=2, lte=MOST_TIMES))
    ] = 64
    runs: Annotated[Whole, Parameter(help="Runs of each measurement.", validator=Number(gte=1, lte=MOST_TIMES))] = 5
    kernels: Annotated[Switch, Parameter(help="Tell which kernels a step runs and what each takes.")] = False
    json: Annotated[Path | None, Parameter(help="Write what was found into this file; after each recipe.")] = None
    chart: Annotated[Path | None, Parameter(help="Draw it into this .svg or .png (extra `chart`).")] = None
    show: Annotated[Path | None, Parameter(help="Measure nothing: show what an earlier --json file holds.")] = None
    cache_dir: Annotated[Path | None, Parameter(help="As of serve.")] = None
    log_level: Annotated[LogLevel, Parameter(help="How much is logged to stderr.")] = "warning"


_PLACES = ("--json", "--chart", "--cache-dir", "--log-level")
_WITH_SHOW = ("show", "chart", "log_level")


def bench(*, options: Annotated[BenchOptions, Parameter(name="*")] = BenchOptions()) -> None:
    """Measure what decoding and prompts cost on this device."""
    log_to_stderr(options.log_level)
    if options.chart is not None:
        needs_chart_library(options.chart)
    if options.show is not None:
        for field in attrs.fields(BenchOptions):
            if field.name not in _WITH_SHOW and getattr(options, field.name) != field.default:
                raise Failure(f"--{field.name.replace('_', '-')}: --show {options.show} measures nothing")
        report = read_report(options.show)
    else:
        _check(options)
        # Imported here, so that `--help`, bad usage and `--show` need no accelerator library.
        from ninfer.cli.bench_run import run_bench

        report = run_bench(options, measured_command(sys.argv[1:]), Console(stderr=True))
        if options.json is not None:
            write_report(options.json, report)
    if options.chart is not None:
        draw_chart(options.chart, report)
    print("\n".join(report_lines(report)))


def measured_command(arguments: Sequence[str]) -> str:
    """The command as a report quotes it: without what only says where something is put."""
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        name, given, _ = word.partition("=")
        if name not in _PLACES:
            kept.append(word)
        elif not given:
            next(words, None)
    return shlex.join(["python", "-m", "ninfer", *kept])


def _check(options: BenchOptions) -> None:
    """What ranges alone cannot say.

    Raises:
        Failure: one line that names the option.
    """
    if not options.batch or max(options.batch) > 8:
        raise Failure(f"--batch {_listed(options.batch)}: 1 to 8 rows are decoded together")
    if options.prefill_chunk % TILE_TOKENS:
        raise Failure(f"--prefill-chunk {options.prefill_chunk}: a multiple of {TILE_TOKENS} is needed")
    for name, file in (("json", options.json), ("chart", options.chart)):
        if file is not None and not os.path.isdir(file.absolute().parent):
            raise Failure(f"--{name} {file}: there is no folder {file.absolute().parent}")


def _listed(values: Sequence[int]) -> str:
    return ",".join(map(str, values)) or "''"
