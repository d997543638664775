"""`python -m ninfer selftest`: does this model compute on this device what it should? For people and as JSON.

The device is the one that `serve` would run with the same options, compiled programs included. Status 0: no check has
failed; 1: one has; 2: there was nothing to test, or it did not fit.
"""

import json
import sys
from pathlib import Path
from typing import Annotated

import attrs
from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ninfer.cli.failure import FAILED_STATUS
from ninfer.cli.logs import log_to_stderr
from ninfer.cli.options import MOST_CHUNK_TOKENS, LogLevel, Switch, Whole
from ninfer.engine.types import KvDtype

LEAST_CONTEXT_TOKENS = 64
PIPED_COLUMNS = 120
"""Width of the tables where no terminal gives one."""


@attrs.frozen(kw_only=True)
class SelftestOptions:
    """What to test. Give the options that you serve with, and exactly the programs that will serve are tested."""

    json: Annotated[Switch, Parameter(help="Print one JSON object instead of tables.")] = False
    golden: Annotated[
        Path | None,
        Parameter(help="Folder with inputs.json and expected.safetensors; without it NAME.golden beside NAME.ninfer."),
    ] = None
    max_context: Annotated[Whole | None, Parameter(help="As of serve.", validator=Number(gte=LEAST_CONTEXT_TOKENS))] = (
        None
    )
    max_concurrency: Annotated[
        Whole, Parameter(help="Largest batch that is tested.", validator=Number(gte=1, lte=8))
    ] = 4
    prefill_chunk: Annotated[Whole, Parameter(help="As of serve.", validator=Number(gte=1, lte=MOST_CHUNK_TOKENS))] = (
        1024
    )
    kv_dtype: Annotated[KvDtype, Parameter(help="As of serve.")] = "bf16"
    prefill_split_workspace_mib: Annotated[
        Whole, Parameter(help="As of serve.", validator=Number(gte=0, lte=16384))
    ] = 256
    rope_yarn_factor: Annotated[float, Parameter(help="As of serve.", validator=Number(gte=1, lte=4))] = 1.0
    cache_dir: Annotated[Path | None, Parameter(help="As of serve.")] = None
    log_level: Annotated[LogLevel, Parameter(help="How much is logged to stderr.")] = "warning"


def selftest(
    artifact: Annotated[Path, Parameter(help="What serve takes: a .ninfer file, a Hugging Face folder or an id.")],
    /,
    *,
    options: Annotated[SelftestOptions, Parameter(name="*")] = SelftestOptions(),
) -> None:
    """Check what a model computes on this device."""
    log_to_stderr(options.log_level)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_COLUMNS)
    # Imported here, so that `--help` and bad usage answer at once.
    from ninfer.cli.selftest_run import run_selftest

    report = run_selftest(artifact, options, Console(stderr=True))
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        _show(console, report)
    if not report["passed"]:
        sys.stdout.flush()
        sys.exit(FAILED_STATUS)


def _show(console: Console, report: dict[str, object]) -> None:
    colours = {"passed": "green", "failed": "bold red", "skipped": "yellow"}
    console.print(
        f"{escape(str(report['model']))} on {escape(str(report['device']))}, ready in {report['ready_s']} s\n"
    )
    checks = Table("check", "outcome", "what was found", box=None)
    for check in _rows(report["checks"]):
        outcome = str(check["outcome"])
        found = escape(str(check["summary"]))
        checks.add_row(str(check["name"]), f"[{colours[outcome]}]{outcome}[/]", found)
    programs = Table("program", "compiled in", "workspace", box=None)
    for facts in _rows(report["programs"]):
        programs.add_row(str(facts["name"]), f"{facts['compile_s']:.1f} s", f"{facts['workspace_bytes']:,} bytes")
    memory = report["memory"]
    lines = memory["table"] if isinstance(memory, dict) else ()
    console.print(checks)
    console.print()
    console.print(programs)
    console.print("\nmemory", *lines, sep="\n  ", markup=False)


def _rows(value: object) -> list[dict[str, object]]:
    return value if isinstance(value, list) else []
