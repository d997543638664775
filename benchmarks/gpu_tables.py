"""Puts reports of `python -m ninfer bench --json` into a document: the GPU part of docs/performance.md is made by this.

    python -m benchmarks.gpu_tables REPORT.json... [--kernels] [--write docs/performance.md] [--chart FILE.svg]

Each report is a section of its own, since shares are of the ceilings of the same run.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.http_overhead import write
from ninfer.cli.bench_chart import draw_chart
from ninfer.cli.bench_file import read_report
from ninfer.cli.bench_tables import (
    batch_table,
    bytes_table,
    ceiling_table,
    context_table,
    decode_table,
    heading,
    kernel_table,
    prefill_table,
    warnings,
)
from ninfer.engine.bench.report import Report

MARKS = "gpu_bench"


def section(report: Report, *, kernels: bool) -> list[str]:
    """One run: what was measured where, then the tables that have rows."""
    lines = [heading(report), "", *ceiling_table(report)]
    for table in (decode_table(report), batch_table(report), context_table(report), prefill_table(report)):
        lines += ["", *table] if table else []
    for subject in report.subjects if kernels else ():
        lines += ["", f"Bytes of {subject.name}:", "", *bytes_table(subject)]
        for table in subject.kernels:
            lines += ["", f"Kernels of {table.of}, {subject.name}:", "", *kernel_table(table)]
    doubts = list(warnings(report))
    return [*lines, "", *doubts] if doubts else lines


def main(arguments: Sequence[str]) -> None:
    """Print or write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_tables")
    parser.add_argument("reports", type=Path, nargs="+", metavar="REPORT.json")
    parser.add_argument("--kernels", action="store_true", help="also bytes by tensor and the tables of kernels")
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--chart", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    reports = [read_report(file) for file in options.reports]
    lines: list[str] = []
    for report in reports:
        lines += [*([""] if lines else []), *section(report, kernels=options.kernels)]
    print("\n".join(lines))
    if options.write is not None:
        write(options.write, lines, MARKS)
    if options.chart is not None:
        draw_chart(options.chart, *reports)


if __name__ == "__main__":
    main(sys.argv[1:])
