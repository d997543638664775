"""Draws against the target distribution, 60,000 a setting with fixed seeds; and that this test sees a wrong order."""

from collections.abc import Callable

import jax
import numpy as np
import pytest
from scipy.stats import chi2

from ninfer.engine.sampling.sampler import SamplerRows, choose
from ninfer.engine.types import MAX_CANDIDATES, Sampling
from tests.engine.sampling.reference import penalised, probabilities

DRAWS = 60_000
VOCAB = 40
LOGITS = (np.random.default_rng(7).standard_normal(VOCAB) * 0.7).astype(np.float32)
COUNTS = np.random.default_rng(8).integers(0, 3, VOCAB).astype(np.int32)

SETTINGS = [
    pytest.param(Sampling(temperature=1), id="plain"),
    pytest.param(Sampling(temperature=0.6, top_k=7), id="top-k"),
    pytest.param(Sampling(temperature=1.5, top_p=0.8), id="top-p"),
    pytest.param(Sampling(temperature=1, min_p=0.3), id="min-p"),
    pytest.param(Sampling(temperature=1, top_k=12, top_p=0.7), id="top-k and top-p"),
    pytest.param(Sampling(temperature=0.7, presence_penalty=1.5, frequency_penalty=0.5, top_k=8), id="penalties"),
    pytest.param(
        Sampling(temperature=0.8, top_k=15, top_p=0.9, min_p=0.1, presence_penalty=-0.5, frequency_penalty=0.3),
        id="everything",
    ),
]


def drawn(sampling: Sampling, *, by: str) -> np.ndarray:
    """int64 [VOCAB]: how often each token was chosen, at as many positions or with as many seeds."""
    numbers = np.arange(DRAWS, dtype=np.int32)
    still = np.zeros(DRAWS, np.int32)

    def real(value: float) -> np.ndarray:
        return np.full(DRAWS, value, np.float32)

    rows = SamplerRows(
        temperature=real(sampling.temperature),  # type: ignore[arg-type]
        top_k=np.full(DRAWS, sampling.top_k, np.int32),  # type: ignore[arg-type]
        top_p=real(sampling.top_p),  # type: ignore[arg-type]
        min_p=real(sampling.min_p),  # type: ignore[arg-type]
        presence_penalty=real(sampling.presence_penalty),  # type: ignore[arg-type]
        frequency_penalty=real(sampling.frequency_penalty),  # type: ignore[arg-type]
        seed_low=(numbers if by == "seed" else still + 11).astype(np.uint32),  # type: ignore[arg-type]
        seed_high=still.astype(np.uint32),  # type: ignore[arg-type]
        position=numbers if by == "position" else still + 300,  # type: ignore[arg-type]
    )
    chosen = CHOOSE(np.tile(LOGITS, (DRAWS, 1)), np.tile(COUNTS, (DRAWS, 1)), rows)
    assert not np.asarray(chosen.faulty).any()
    return np.bincount(np.asarray(chosen.token), minlength=VOCAB)


CHOOSE = jax.jit(choose)


def p_value(found: np.ndarray, shares: np.ndarray) -> float:
    """Pearson's test of counts against a distribution; categories of less than ten expected draws count as one."""
    expected = shares * found.sum()
    if found[expected == 0].any():
        return 0.0
    rare = (expected > 0) & (expected < 10)
    often = expected >= 10
    pairs = [*zip(found[often], expected[often], strict=True)]
    if rare.any():
        pairs.append((found[rare].sum(), expected[rare].sum()))
    assert len(pairs) > 1, "nothing is left to chance"
    return float(chi2.sf(sum((have - want) ** 2 / want for have, want in pairs), len(pairs) - 1))


@pytest.mark.contract("SAMP-006")
@pytest.mark.parametrize("by", ["position", "seed"])
@pytest.mark.parametrize("sampling", SETTINGS)
def test_draws_follow_the_distribution(sampling: Sampling, by: str) -> None:
    assert p_value(drawn(sampling, by=by), probabilities(LOGITS, COUNTS, sampling)) > 1e-4


def filtered(scores: np.ndarray, sampling: Sampling) -> np.ndarray:
    """What the reference makes of scores that are penalised already."""
    plain = Sampling(temperature=sampling.temperature, top_k=sampling.top_k, top_p=sampling.top_p, min_p=sampling.min_p)
    return probabilities(scores.astype(np.float32), np.zeros(VOCAB), plain)


def top_p_before_top_k(sampling: Sampling) -> np.ndarray:
    """The prefix is measured on all tokens, then the best `top_k` of it are kept."""
    scores = penalised(LOGITS, COUNTS, sampling)
    order = np.argsort(-scores, kind="stable")
    shares = np.exp(scores[order] / sampling.temperature)
    shares /= shares.sum()
    kept = np.where(np.cumsum(shares) - shares < sampling.top_p, shares, 0)
    kept[sampling.top_k or MAX_CANDIDATES :] = 0
    result = np.zeros(VOCAB)
    result[order] = kept / kept.sum()
    return result


def penalties_after_top_k(sampling: Sampling) -> np.ndarray:
    """The raw logits choose the candidates, and only these are penalised."""
    best = np.argsort(-LOGITS, kind="stable")[: sampling.top_k or MAX_CANDIDATES]
    scores = np.full(VOCAB, -np.inf)
    scores[best] = penalised(LOGITS, COUNTS, sampling)[best]
    shares = np.exp((scores - scores.max()) / sampling.temperature)
    return np.asarray(shares / shares.sum())


def penalties_after_temperature(sampling: Sampling) -> np.ndarray:
    """The temperature does not reach the penalties."""
    scores = LOGITS + sampling.temperature * (penalised(LOGITS, COUNTS, sampling) - LOGITS)
    return filtered(scores, sampling)


def penalties_once(sampling: Sampling) -> np.ndarray:
    """Frequency counts like presence."""
    return probabilities(LOGITS, np.minimum(COUNTS, 1), sampling)


def min_p_after_top_p(sampling: Sampling) -> np.ndarray:
    """A renormalisation between the two: what min-p leaves is taken for all there is."""
    without = filtered(penalised(LOGITS, COUNTS, sampling), Sampling(temperature=sampling.temperature, min_p=0.5))
    order = np.argsort(-without, kind="stable")
    kept = np.where(np.cumsum(without[order]) - without[order] < sampling.top_p, without[order], 0)
    result = np.zeros(VOCAB)
    result[order] = kept / kept.sum()
    return result


@pytest.mark.contract("SAMP-006")
@pytest.mark.parametrize(
    ("wrong", "sampling"),
    [
        (top_p_before_top_k, Sampling(temperature=1, top_k=12, top_p=0.7)),
        (top_p_before_top_k, Sampling(temperature=1.5, top_p=0.8)),
        (penalties_after_top_k, Sampling(temperature=0.7, presence_penalty=1.5, frequency_penalty=0.5, top_k=8)),
        (penalties_after_temperature, Sampling(temperature=0.7, presence_penalty=0.3)),
        (penalties_once, Sampling(temperature=1, frequency_penalty=0.3)),
        (min_p_after_top_p, Sampling(temperature=1, min_p=0.5, top_p=0.6)),
    ],
)
def test_it_rejects_a_wrong_order(wrong: Callable[[Sampling], np.ndarray], sampling: Sampling) -> None:
    found = drawn(sampling, by="position")
    assert p_value(found, probabilities(LOGITS, COUNTS, sampling)) > 1e-4
    assert p_value(found, wrong(sampling)) < 1e-6
