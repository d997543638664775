"""A benchmark's report as a JSON file: what was measured, and under `derived` the rates and shares that follow from it.

Reading takes only what was measured; what is derived is derived again.
"""

import json
from pathlib import Path

import cattrs

from ninfer.cli.failure import Failure
from ninfer.engine.artifact import ArtifactError
from ninfer.engine.artifact.checked import parse_json
from ninfer.engine.artifact.mapping import read_small
from ninfer.engine.bench.report import Report

MOST_BYTES = 64 << 20

_converter = cattrs.Converter()


def report_values(report: Report) -> dict[str, object]:
    """The report as plain JSON values."""
    values: dict[str, object] = _converter.unstructure(report)
    values["derived"] = {
        "pure_read_bytes_per_s": report.ceilings.read_bytes_per_s,
        "gemm_flops_per_s": report.ceilings.gemm_flops_per_s,
        "decode": [
            {
                "subject": subject.name,
                "batch": point.batch,
                "context_tokens": point.context_tokens,
                "step_ms": point.step_s.median * 1e3,
                "tokens_per_s": point.tokens_per_s,
                "step_bytes": subject.step_bytes(point),
                "share_of_read": report.share_of_read(subject, point),
            }
            for subject in report.subjects
            for point in subject.decode
        ],
        "prefill": [
            {
                "subject": subject.name,
                "tokens": point.tokens,
                "tokens_per_s": point.tokens_per_s,
                "share_of_gemm": report.share_of_gemm(point),
            }
            for subject in report.subjects
            for point in subject.prefill
        ],
    }
    return values


def write_report(file: Path, report: Report) -> None:
    """Write `file`, in place of what was there.

    Raises:
        Failure: it cannot be written.
    """
    try:
        file.write_text(json.dumps(report_values(report), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise Failure(f"--json {file}: {error.strerror}") from error


def read_report(file: Path) -> Report:
    """The report that `write_report` has written.

    Raises:
        Failure: there is none, or it holds something else.
    """
    try:
        data = read_small(file, MOST_BYTES)
    except ArtifactError as error:
        raise Failure(f"--show {error}") from error
    try:
        return _converter.structure(parse_json(data, file=file, object=None).value, Report)
    except (ArtifactError, ValueError, cattrs.BaseValidationError) as error:
        raise Failure(f"--show {file}: not a report of bench") from error
