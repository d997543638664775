"""What a benchmark found, as values: times with their spread, bytes, and the shares that follow from both.

Knows no device and no clock. Every time is kept as measured, one entry a run; medians and rates are derived here, so
that the JSON file, the tables and the chart cannot disagree.
"""

import statistics
from collections.abc import Mapping, Sequence

import attrs


@attrs.frozen
class Spread:
    """Seconds of the same thing, one entry a run."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle run."""
        return statistics.median(self.values)

    @property
    def least(self) -> float:
        """The fastest run."""
        return min(self.values)

    @property
    def most(self) -> float:
        """The slowest run."""
        return max(self.values)


@attrs.frozen(kw_only=True)
class Ceilings:
    """What the device gives to plain programs, measured in the same process."""

    read_bytes: int
    """Of the array that was summed."""
    read_s: Spread
    gemm_shape: tuple[int, int, int]
    """M, K, N of the bfloat16 product."""
    gemm_s: Spread

    @property
    def read_bytes_per_s(self) -> float:
        """Pure read: the denominator of every share of bandwidth."""
        return self.read_bytes / self.read_s.median

    @property
    def gemm_flops_per_s(self) -> float:
        """Two operations a multiply-add."""
        rows, depth, columns = self.gemm_shape
        return 2 * rows * depth * columns / self.gemm_s.median


@attrs.frozen(kw_only=True)
class Traffic:
    """What a decode step must move: weights once, keys and values of every row's context, states there and back."""

    weights: Mapping[str, int]
    """Kind of tensor -> stored bytes that a step reads, scales included"""
    looked_up_bytes: int
    """Of the embedding, for each row"""
    token_bytes: int
    """Keys and values of one token, over all layers, scales included"""
    slot_bytes: int
    """Recurrent state of one row, over all layers"""

    @property
    def weight_bytes(self) -> int:
        """All that is read once a step."""
        return sum(self.weights.values())

    def kv_bytes(self, *, batch: int, context_tokens: int) -> int:
        """Read for keys and values; what is appended is left out."""
        return batch * context_tokens * self.token_bytes

    def state_bytes(self, *, batch: int) -> int:
        """Read and written again."""
        return 2 * batch * self.slot_bytes

    def step_bytes(self, *, batch: int, context_tokens: int) -> int:
        """Everything."""
        return (
            self.weight_bytes
            + batch * self.looked_up_bytes
            + self.kv_bytes(batch=batch, context_tokens=context_tokens)
            + self.state_bytes(batch=batch)
        )


@attrs.frozen(kw_only=True)
class DecodePoint:
    """Decode rounds of `batch` rows whose contexts end at `context_tokens`."""

    batch: int
    context_tokens: int
    steps: int
    """Rounds of a run, dispatched one ahead of the reading."""
    step_s: Spread
    faulty_rounds: int = 0
    """Rounds with logits that were not finite: times count all the same, but something is wrong."""

    @property
    def tokens_per_s(self) -> float:
        """Of all rows together."""
        return self.batch / self.step_s.median


@attrs.frozen(kw_only=True)
class PrefillPoint:
    """One prompt from position 0 to its first token."""

    tokens: int
    chunk_tokens: int
    prompt_s: Spread
    flops: int
    """Of the products with weights; attention and the delta rule are left out."""
    faulty: bool = False

    @property
    def tokens_per_s(self) -> float:
        """Of the prompt."""
        return self.tokens / self.prompt_s.median

    @property
    def flops_per_s(self) -> float:
        """Rate of the products with weights, had they taken all of the time."""
        return self.flops / self.prompt_s.median


@attrs.frozen(kw_only=True)
class KernelRow:
    """All launches of one kernel in one step."""

    name: str
    calls: float
    """A step; a fraction where steps differ."""
    step_us: float
    """In which it ran and nothing that ended before it still did"""
    share: float
    """Of the time of all kernels."""


@attrs.frozen(kw_only=True)
class KernelTable:
    """Where the device's time goes in one kind of step, from the profiler."""

    of: str
    rows: tuple[KernelRow, ...]

    @property
    def step_us(self) -> float:
        """All kernels of a step."""
        return sum(row.step_us for row in self.rows)

    @property
    def calls(self) -> float:
        """Launches a step."""
        return sum(row.calls for row in self.rows)


@attrs.frozen(kw_only=True)
class ProgramRow:
    """One compiled program."""

    name: str
    compile_s: float
    workspace_bytes: int
    aliased_bytes: int


@attrs.frozen(kw_only=True)
class SubjectReport:
    """One recipe with one format of keys and values."""

    recipe: str
    kv_format: str
    ready_s: float
    """From nothing to compiled programs and allocated memory."""
    traffic: Traffic
    decode: tuple[DecodePoint, ...]
    prefill: tuple[PrefillPoint, ...]
    kernels: tuple[KernelTable, ...]
    programs: tuple[ProgramRow, ...]

    @property
    def name(self) -> str:
        """Recipe and format."""
        return f"{self.recipe}, KV {self.kv_format}"

    def step_bytes(self, point: DecodePoint) -> int:
        """What a step of `point` must move."""
        return self.traffic.step_bytes(batch=point.batch, context_tokens=point.context_tokens)

    def at(self, *, batch: int, context_tokens: int) -> DecodePoint | None:
        """The point that was measured there."""
        return next((p for p in self.decode if (p.batch, p.context_tokens) == (batch, context_tokens)), None)


@attrs.frozen(kw_only=True)
class Report:
    """One run of the benchmark."""

    date: str
    device: str
    jax_version: str
    command: str
    config: str
    parameters: int
    ceilings: Ceilings
    subjects: tuple[SubjectReport, ...]

    def share_of_read(self, subject: SubjectReport, point: DecodePoint) -> float:
        """Bytes a second of a decode step over those of a pure read."""
        return subject.step_bytes(point) / point.step_s.median / self.ceilings.read_bytes_per_s

    def share_of_gemm(self, point: PrefillPoint) -> float:
        """Operations a second of a prefill over those of a plain product."""
        return point.flops_per_s / self.ceilings.gemm_flops_per_s

    def context_cost(self, subject: SubjectReport, batch: int) -> "ContextCost | None":
        """What the longest context costs beyond the shortest one; None with less than two."""
        points: Sequence[DecodePoint] = sorted(
            (point for point in subject.decode if point.batch == batch), key=lambda point: point.context_tokens
        )
        if len(points) < 2:
            return None
        short, long = points[0], points[-1]
        more = batch * (long.context_tokens - short.context_tokens) * subject.traffic.token_bytes
        return ContextCost(
            short_tokens=short.context_tokens,
            long_tokens=long.context_tokens,
            more_s=long.step_s.median - short.step_s.median,
            read_s=more / self.ceilings.read_bytes_per_s,
        )


@attrs.frozen(kw_only=True)
class ContextCost:
    """Seconds that a long context adds to a step."""

    short_tokens: int
    long_tokens: int
    more_s: float
    read_s: float
    """What a pure read of the added keys and values takes."""

    @property
    def ratio(self) -> float:
        """How many times the pure read."""
        return self.more_s / self.read_s
