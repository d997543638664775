"""A benchmark's report as a picture: share of the pure read by recipe, and what a step costs as contexts grow.

Drawn with matplotlib, which is an extra: nothing else of NInfer needs it.
"""

import importlib.util
from pathlib import Path

from ninfer.cli.failure import Failure
from ninfer.engine.bench.report import Report

KINDS = (".svg", ".png")
AIM = 0.85
"""Share of the pure read that the kernels aim at."""


def needs_chart_library(file: Path) -> None:
    """Refuse early what could not be drawn.

    Raises:
        Failure: another kind of file, or no library.
    """
    if file.suffix not in KINDS:
        raise Failure(f"--chart {file}: a file of kind {' or '.join(KINDS)} is drawn")
    if importlib.util.find_spec("matplotlib") is None:
        raise Failure("--chart: needs matplotlib (pip install 'ninfer[chart]')")


def draw_chart(file: Path, *reports: Report) -> None:
    """Draw reports of one model on one device into `file`; each has ceilings of its own.

    Raises:
        Failure: it cannot be written.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    bars = [
        (f"{subject.name}\n{point.batch} x {point.context_tokens:,}", 100 * report.share_of_read(subject, point))
        for report in reports
        for subject in report.subjects
        for point in subject.decode
    ]
    figure = Figure(figsize=(11, 1.5 + 0.4 * max(8, len(bars))), layout="constrained")
    shares, steps = figure.subplots(1, 2)
    shares.barh([name for name, _ in bars], [share for _, share in bars], color="#4878a8")
    shares.axvline(100 * AIM, color="#888888", linestyle="--", linewidth=1)
    shares.set(xlim=(0, 100), xlabel="% of pure read", title="Decode steps: rows x context")
    shares.invert_yaxis()
    shares.tick_params(axis="y", labelsize=7)
    for subject in (subject for report in reports for subject in report.subjects):
        for batch in dict.fromkeys(point.batch for point in subject.decode):
            points = sorted((p for p in subject.decode if p.batch == batch), key=lambda point: point.context_tokens)
            steps.plot(
                [point.context_tokens for point in points],
                [1e3 * point.step_s.median for point in points],
                marker="o",
                label=f"{subject.name}, {batch} {'row' if batch == 1 else 'rows'}",
            )
    steps.set(xlabel="tokens of context", ylabel="ms a step", title="Step time")
    steps.set_ylim(bottom=0)
    if steps.lines:
        steps.legend(fontsize=7)
    figure.suptitle(f"{reports[0].config} on {reports[0].device}, {reports[0].date}", fontsize=10)
    try:
        with rc_context({"svg.fonttype": "none"}):  # text stays text
            figure.savefig(file)
    except OSError as error:
        raise Failure(f"--chart {file}: {error.strerror}") from error
