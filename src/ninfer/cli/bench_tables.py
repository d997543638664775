"""A benchmark's report as Markdown: what the command prints, and what docs/performance.md is made from."""

from collections.abc import Iterator, Sequence

from ninfer.engine.bench.report import KernelTable, Report, Spread, SubjectReport

KERNEL_ROWS = 24
"""Kernels that a table shows; what the rest takes stands in one row."""


def report_lines(report: Report) -> list[str]:
    """Everything, as a document of its own."""
    lines = [heading(report), "", *ceiling_table(report)]
    for table in (decode_table(report), batch_table(report), context_table(report), prefill_table(report)):
        if table:
            lines += ["", *table]
    for subject in report.subjects:
        lines += ["", f"{subject.name}: ready in {subject.ready_s:.1f} s", "", *bytes_table(subject)]
        lines += ["", *program_table(subject)]
        for kernels in subject.kernels:
            lines += ["", f"{subject.name}: kernels of {kernels.of}", "", *kernel_table(kernels)]
    doubts = list(warnings(report))
    return [*lines, "", *doubts] if doubts else lines


def heading(report: Report) -> str:
    """Date, machine and command in one line."""
    return (
        f"{report.date}, {report.device}, JAX {report.jax_version}, {report.config}: "
        f"{report.parameters / 1e6:,.2f} million parameters, random weights. `{report.command}`"
    )


def ceiling_table(report: Report) -> list[str]:
    """What the device gives to plain programs."""
    ceilings = report.ceilings
    read_rates = Spread(tuple(ceilings.read_bytes / seconds for seconds in ceilings.read_s.values))
    rows, depth, columns = ceilings.gemm_shape
    flops = 2 * rows * depth * columns
    gemm_rates = Spread(tuple(flops / seconds for seconds in ceilings.gemm_s.values))
    return _table(
        ["ceiling, measured in this run", "rate"],
        [
            [f"pure read of {ceilings.read_bytes / 1e9:.2f} GB in bf16", f"{_spread(read_rates, 1e-12, '.2f')} TB/s"],
            [f"bf16 product {rows} x {depth} x {columns}", f"{_spread(gemm_rates, 1e-12, '.1f')} TFLOP/s"],
        ],
    )


def decode_table(report: Report) -> list[str]:
    """Decode steps: time, rate, bytes, share of the pure read."""
    rows = [
        [
            subject.name,
            str(point.batch),
            f"{point.context_tokens:,}",
            _spread(point.step_s, 1e3, ".3f"),
            f"{point.tokens_per_s:,.1f}",
            f"{subject.step_bytes(point) / 1e9:.3f}",
            f"{subject.step_bytes(point) / point.step_s.median / 1e12:.2f}",
            f"{report.share_of_read(subject, point):.1%}",
        ]
        for subject in report.subjects
        for point in subject.decode
    ]
    titles = ["decode", "rows", "context", "ms a step", "tokens/s", "GB a step", "TB/s", "share of pure read"]
    return _table(titles, rows)


def batch_table(report: Report) -> list[str]:
    """What more rows cost, at equal contexts."""
    rows = []
    for subject in report.subjects:
        for context in dict.fromkeys(point.context_tokens for point in subject.decode):
            points = sorted((p for p in subject.decode if p.context_tokens == context), key=lambda point: point.batch)
            for point in points[1:]:
                ratio = point.step_s.median / points[0].step_s.median
                rows.append([subject.name, f"{context:,}", f"{points[0].batch} to {point.batch}", f"{ratio:.2f}"])
    return _table(["more rows", "context", "rows", "times the step"], rows)


def context_table(report: Report) -> list[str]:
    """What a long context adds to a step, beside a pure read of its keys and values."""
    rows = []
    for subject in report.subjects:
        for batch in dict.fromkeys(point.batch for point in subject.decode):
            cost = report.context_cost(subject, batch)
            if cost is not None:
                grown = f"{cost.short_tokens:,} to {cost.long_tokens:,}"
                times = [f"{cost.more_s * 1e3:.3f}", f"{cost.read_s * 1e3:.3f}", f"{cost.ratio:.2f}"]
                rows.append([subject.name, str(batch), grown, *times])
    return _table(["longer context", "rows", "tokens", "ms more a step", "ms of pure read", "times pure read"], rows)


def prefill_table(report: Report) -> list[str]:
    """Prompts: time, rate, share of the plain product."""
    rows = [
        [
            subject.name,
            f"{point.tokens:,}",
            f"{point.chunk_tokens:,}",
            _spread(point.prompt_s, 1e3, ".1f"),
            f"{point.tokens_per_s:,.0f}",
            f"{point.flops_per_s / 1e12:.1f}",
            f"{report.share_of_gemm(point):.1%}",
        ]
        for subject in report.subjects
        for point in subject.prefill
    ]
    titles = ["prompt", "tokens", "chunk", "ms", "tokens/s", "TFLOP/s of products", "share of the bf16 product"]
    return _table(titles, rows)


def bytes_table(subject: SubjectReport) -> list[str]:
    """Stored bytes that a step moves, by kind of tensor."""
    traffic = subject.traffic
    rows = [[f"`{name}`", f"{size:,}"] for name, size in sorted(traffic.weights.items(), key=lambda item: -item[1])]
    rows += [
        ["all weights, once a step", f"{traffic.weight_bytes:,}"],
        ["embedding, a row", f"{traffic.looked_up_bytes:,}"],
        ["keys and values, a token of context", f"{traffic.token_bytes:,}"],
        ["recurrent state, a row; read and written", f"2 x {traffic.slot_bytes:,}"],
    ]
    return _table(["read by a step", "bytes"], rows)


def program_table(subject: SubjectReport) -> list[str]:
    """What was compiled."""
    rows = [
        [program.name, f"{program.compile_s:.1f}", f"{program.workspace_bytes:,}", f"{program.aliased_bytes:,}"]
        for program in subject.programs
    ]
    return _table(["program", "compiled in s", "workspace, bytes", "changed in place, bytes"], rows)


def kernel_table(kernels: KernelTable) -> list[str]:
    """The slowest kernels of a step, and the sum of all."""
    shown, rest = kernels.rows[:KERNEL_ROWS], kernels.rows[KERNEL_ROWS:]
    rows = [_kernel(row.name, row.calls, row.step_us, row.share) for row in shown]
    if rest:
        sums = (sum(row.calls for row in rest), sum(row.step_us for row in rest), sum(row.share for row in rest))
        rows.append(_kernel(f"{len(rest)} others", *sums))
    rows.append(_kernel("all", kernels.calls, kernels.step_us, 1.0))
    return _table(["kernel", "calls a step", "µs each", "µs a step", "share"], rows)


def warnings(report: Report) -> Iterator[str]:
    """What makes a figure doubtful, a sentence each."""
    for subject in report.subjects:
        for point in subject.decode:
            if point.faulty_rounds:
                yield (
                    f"{subject.name}, {point.batch} rows at {point.context_tokens:,} tokens: {point.faulty_rounds} "
                    "rounds had logits that were not finite."
                )
        for prompt in subject.prefill:
            if prompt.faulty:
                yield f"{subject.name}, prompt of {prompt.tokens:,} tokens: its logits were not finite."


def _kernel(name: str, calls: float, step_us: float, share: float) -> list[str]:
    return [name, f"{calls:g}", f"{step_us / max(calls, 1e-9):.2f}", f"{step_us:,.1f}", f"{share:.1%}"]


def _spread(spread: Spread, factor: float, form: str) -> str:
    """Median, smallest and largest."""
    low, middle, high = (value * factor for value in (spread.least, spread.median, spread.most))
    return f"{middle:{form}} ({low:{form}} to {high:{form}})"


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table, its columns as wide as they need to be; nothing without rows."""
    if not rows:
        return []
    widths = [max(len(row[column]) for row in (titles, *rows)) for column in range(len(titles))]
    lines = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in (titles, *rows)]
    ruler = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    head, *body = ("| " + " | ".join(cells) + " |" for cells in lines)
    return [head, ruler, *body]
