"""The checks of the self-test: each one drives a prepared device and says what it found.

The device is the one that serves, with its compiled programs; nothing else computes. Checks leave slots and pages
dirty, which a prefill at position 0 clears. Invariant: a check that could not run says so and does not count as passed.
"""

import enum
from collections.abc import Callable, Iterator, Sequence

import attrs
import numpy as np

from ninfer.engine.cache import pages_for
from ninfer.engine.programs import JaxDevice
from ninfer.engine.selftest.golden import GoldenVectors
from ninfer.engine.selftest.lanes import LaneProbe, decode
from ninfer.engine.types import PAGE_TOKENS, EngineLimits, Sampling

MOST_KL = {32: 1e-8, 16: 1e-3}
"""Bits of activations -> largest divergence between decoding and prefilling the same tokens."""
MOST_GOLDEN_DIFFERENCE = {32: 1e-3, 16: 0.25}
"""Bits of activations -> largest difference between a logit and the float32 reference's."""

_LENGTHS = (150, 1, 65, 64, 63, 3, 130, 191)
_DECODED = 8
_GREEDY = Sampling(temperature=0)


class Outcome(enum.Enum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@attrs.frozen(kw_only=True)
class Check:
    """One check, for people and as numbers."""

    name: str
    outcome: Outcome
    summary: str
    figures: dict[str, float] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Subject:
    """What is tested."""

    device: JaxDevice
    limits: EngineLimits
    used_tokens: int
    """Ids below this one may be drawn for prompts."""
    golden: tuple[GoldenVectors, ...] = ()
    compared_tokens: int = 32
    """Tokens that each prompt of the divergence check decodes."""
    tell: Callable[[str], None] = lambda step: None
    """Called with what is done next: the checks of a large model take minutes."""

    def lane(
        self, prompt: tuple[int, ...], sampling: Sampling, *, slot: int = 0, order: Sequence[int] = ()
    ) -> LaneProbe:
        """A lane with all pages that a request can have, taken from `order` or else from the first page on."""
        pages = order or range(self.device.total_pages)
        most = min(len(pages), pages_for(self.limits.max_context_tokens))
        return LaneProbe(device=self.device, slot=slot, pages=tuple(pages[:most]), prompt=prompt, sampling=sampling)

    def room(self, length: int, new: int) -> int:
        """`length`, or the longest prompt that fits with `new` tokens after it."""
        most = min(self.limits.max_context_tokens, self.device.total_pages * PAGE_TOKENS)
        return max(1, min(length, most - new))


def run_checks(subject: Subject) -> Iterator[Check]:
    """All checks, one after the other."""
    before = subject.device.buffers(), subject.device.compilations
    checks: tuple[Callable[[Subject], Check], ...] = (check_divergence, check_determinism, check_golden)
    for check in checks:
        yield check(subject)
    yield check_memory(subject, before)


def check_divergence(subject: Subject) -> Check:
    """Decoded tokens against a cold prefill of the same ones: the mean of exp(d) - 1 - d over sampled tokens."""
    rng = np.random.default_rng(1)
    terms, farthest, same = [], 0.0, 0
    for seed, length in enumerate((7, 130)):
        subject.tell(f"decode against prefill: prompt {seed + 1} of 2")
        prompt = _prompt(rng, subject, subject.room(length, subject.compared_tokens + 1))
        lane = subject.lane(prompt, Sampling(temperature=1.0, seed=seed))
        lane.prefill(subject.limits.prefill_chunk_tokens)
        decode([lane], subject.compared_tokens)
        for count in range(1, len(lane.tokens)):
            cold = subject.lane(prompt + tuple(lane.tokens[:count]), _GREEDY)
            cold.prefill(subject.limits.prefill_chunk_tokens)
            ours, theirs, token = lane.logits[count], cold.logits[0], lane.tokens[count]
            difference = _log_probability(theirs, token) - _log_probability(ours, token)
            terms.append(np.expm1(difference) - difference)
            known = np.isfinite(ours)
            farthest = max(farthest, float(np.abs(ours[known] - theirs[known]).max(initial=0.0)))
            same += int(ours.argmax() == theirs.argmax())
    estimate = float(np.mean(terms))
    most = MOST_KL[subject.device.activation_bits]
    passed = bool(np.isfinite(estimate)) and estimate <= most
    return Check(
        name="decode against prefill",
        outcome=Outcome.PASSED if passed else Outcome.FAILED,
        summary=f"KL estimate {estimate:.1e} (at most {most:.0e}) over {len(terms)} tokens, "
        f"largest logit difference {farthest:.1e}, same best token {same} times",
        figures={
            "kl_estimate": estimate,
            "tokens": len(terms),
            "largest_logit_difference": farthest,
            "same_best_token": same,
        },
    )


def check_determinism(subject: Subject) -> Check:
    """Every batch size, several chunk sizes, other slots, pages and neighbours: the bits of every logits row."""
    rng = np.random.default_rng(2)
    lanes, chunk = subject.limits.lanes, subject.limits.prefill_chunk_tokens
    chunks = sorted({min(size, chunk) for size in (64, 128, 192, chunk)})
    # All lanes share the pool: with a small one prompts become shorter.
    share = max(1, subject.device.total_pages // lanes) * PAGE_TOKENS
    prompts = [
        _prompt(rng, subject, max(1, min(subject.room(length, _DECODED + 1), share - _DECODED - 1)))
        for length in _LENGTHS[: max(2, lanes)]
    ]
    alone = []
    for seed, prompt in enumerate(prompts):
        subject.tell(f"determinism: prompt {seed + 1} of {len(prompts)} alone")
        one = subject.lane(prompt, Sampling(temperature=0.8, seed=seed))
        one.prefill(chunk)
        decode([one], _DECODED)
        alone.append(one)
    rows = different = 0
    for batch in range(1, lanes + 1):
        subject.tell(f"determinism: batch {batch} of {lanes}")
        pages, slots = rng.permutation(subject.device.total_pages).tolist(), rng.permutation(lanes)
        together = []
        for place, index in enumerate(rng.permutation(len(prompts))[:batch]):
            count = pages_for(len(prompts[index]) + _DECODED + 1)
            order, pages = pages[:count], pages[count:]
            one = subject.lane(prompts[index], alone[index].sampling, slot=int(slots[place]), order=order)
            one.prefill(chunks[(place + batch) % len(chunks)])
            together.append((alone[index], one))
        decode([one for _, one in together], _DECODED)
        for expected, one in together:
            rows += len(one.logits)
            different += sum(_bits(a) != _bits(b) for a, b in zip(expected.logits, one.logits, strict=True))
    return Check(
        name="determinism",
        outcome=Outcome.FAILED if different else Outcome.PASSED,
        summary=f"{different} of {rows} logits rows differ in any bit from those of the request alone "
        f"(batches of 1 to {lanes}, chunks of {', '.join(map(str, chunks))})",
        figures={"rows": rows, "different_rows": different, "largest_batch": lanes},
    )


def check_golden(subject: Subject) -> Check:
    """Greedy tokens and their logits against a reference's, where there are any."""
    name = "golden vectors"
    if not subject.golden:
        return Check(name=name, outcome=Outcome.SKIPPED, summary="there are none beside the artifact")
    wrong, compared, farthest = 0, 0, 0.0
    for number, vectors in enumerate(subject.golden, 1):
        subject.tell(f"golden vectors: prompt {number} of {len(subject.golden)}")
        most = subject.room(len(vectors.prompt), len(vectors.greedy))
        if most < len(vectors.prompt):
            return Check(
                name=name,
                outcome=Outcome.FAILED,
                summary=f"a prompt of {len(vectors.prompt)} tokens does not fit --max-context",
            )
        lane = subject.lane(vectors.prompt, _GREEDY)
        lane.prefill(subject.limits.prefill_chunk_tokens)
        decode([lane], len(vectors.greedy) - 1)
        wrong += sum(ours != theirs for ours, theirs in zip(lane.tokens, vectors.greedy, strict=True))
        compared += len(vectors.greedy)
        width = min(subject.used_tokens, vectors.logits.shape[1])
        ours = np.stack(lane.logits)[:, :width]
        # Not `max`: it drops a NaN, and logits that are no numbers would pass.
        farthest = float(np.maximum(farthest, np.abs(ours - vectors.logits[:, :width]).max()))
    allowed = MOST_GOLDEN_DIFFERENCE[subject.device.activation_bits]
    passed = not wrong and farthest <= allowed
    return Check(
        name=name,
        outcome=Outcome.PASSED if passed else Outcome.FAILED,
        summary=f"{wrong} of {compared} greedy tokens differ, largest logit difference {farthest:.1e} "
        f"(at most {allowed:.0e})",
        figures={"tokens": compared, "wrong_tokens": wrong, "largest_logit_difference": farthest},
    )


def check_memory(subject: Subject, before: tuple[tuple[tuple[int, int], ...], int]) -> Check:
    """Nothing was allocated again, copied whole, or compiled after the device was ready."""
    device, (buffers, compilations) = subject.device, before
    held = sum(size for _, size in buffers)
    moved = sum(old != new for old, new in zip(buffers, device.buffers(), strict=True))
    copying = [facts.name for facts in device.programs if facts.aliased_bytes < held]
    late = device.compilations - compilations
    return Check(
        name="memory",
        outcome=Outcome.FAILED if moved or copying or late else Outcome.PASSED,
        summary=f"{moved} of {len(buffers)} buffers moved, {len(copying)} of {len(device.programs)} programs copy what "
        f"they should change in place, {late} compilations after readiness",
        figures={"buffers": len(buffers), "moved_buffers": moved, "copying_programs": len(copying), "late": late},
    )


def _prompt(rng: np.random.Generator, subject: Subject, length: int) -> tuple[int, ...]:
    return tuple(rng.integers(0, subject.used_tokens, length).tolist())


def _log_probability(logits: np.ndarray, token: int) -> float:
    wide = logits.astype(np.float64)
    best = wide.max()
    return float(wide[token] - best - np.log(np.exp(wide - best).sum()))


def _bits(row: np.ndarray) -> bytes:
    return np.ascontiguousarray(row, np.float32).view(np.uint32).tobytes()
