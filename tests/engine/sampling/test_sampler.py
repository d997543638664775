"""The sampler against its reference: each step, their order, draws, greedy, faults, and independence of the batch."""

from collections.abc import Sequence

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer.engine.sampling import sampler
from ninfer.engine.sampling.sampler import Chosen, SamplerRows
from ninfer.engine.types import MAX_CANDIDATES, Sampling
from tests.engine.model.golden import bits
from tests.engine.sampling.reference import draw, number, probabilities

VOCAB = 48
choose = jax.jit(sampler.choose, static_argnums=3)
weights_of = jax.jit(sampler.candidate_weights)


def rows_of(samplings: Sequence[Sampling], positions: Sequence[int]) -> SamplerRows:
    def real(name: str) -> np.ndarray:
        return np.array([getattr(sampling, name) for sampling in samplings], np.float32)

    seeds = np.array([sampling.seed for sampling in samplings], np.int64).view(np.uint32).reshape(-1, 2)
    return SamplerRows(
        temperature=real("temperature"),  # type: ignore[arg-type]
        top_k=np.array([sampling.top_k for sampling in samplings], np.int32),  # type: ignore[arg-type]
        top_p=real("top_p"),  # type: ignore[arg-type]
        min_p=real("min_p"),  # type: ignore[arg-type]
        presence_penalty=real("presence_penalty"),  # type: ignore[arg-type]
        frequency_penalty=real("frequency_penalty"),  # type: ignore[arg-type]
        seed_low=seeds[:, 0],  # type: ignore[arg-type]
        seed_high=seeds[:, 1],  # type: ignore[arg-type]
        position=np.array(positions, np.int32),  # type: ignore[arg-type]
    )


def pick(logits: np.ndarray, counts: np.ndarray, sampling: Sampling, position: int = 0) -> int:
    return int(choose(logits[None], counts[None], rows_of([sampling], [position])).token[0])


samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 1e-4, 0.3, 0.7, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 2, 5, 19, 20]),
    top_p=st.sampled_from([0.0, 0.1, 0.5, 0.8, 0.95, 1.0]),
    min_p=st.sampled_from([0.0, 0.01, 0.2, 1.0]),
    presence_penalty=st.sampled_from([-1.0, 0.0, 1.5]),
    frequency_penalty=st.sampled_from([-0.5, 0.0, 0.3, 2.0]),
    seed=st.integers(-(2**63), 2**63 - 1),
)


@pytest.mark.contract("SAMP-006")
@given(case=st.integers(0, 1 << 30), sampling=samplings, position=st.integers(0, 1 << 20))
def test_draws_are_those_of_the_reference(case: int, sampling: Sampling, position: int) -> None:
    rng = np.random.default_rng(case)
    logits = (2 * rng.standard_normal(VOCAB)).astype(np.float32)
    counts = rng.integers(0, 3, VOCAB).astype(np.int32)
    expected = draw(logits, counts, sampling, position)
    if sampling.temperature == 0 or expected.margin > 1e-5:
        assert pick(logits, counts, sampling, position) == expected.token


def support(sampling: Sampling, logits: Sequence[float], counts: Sequence[int]) -> set[int]:
    """Tokens that some draw of 200 chose."""
    many = [attrs.evolve(sampling, seed=seed) for seed in range(200)]
    scores, generated = np.array([logits] * 200, np.float32), np.array([counts] * 200, np.int32)
    chosen = choose(scores, generated, rows_of(many, [0] * 200))
    return set(np.asarray(chosen.token).tolist())


@pytest.mark.parametrize(
    ("sampling", "counts", "expected"),
    [
        # Penalties come before top-k: the best raw token, generated before, must not take one of the two places.
        pytest.param(Sampling(temperature=1, top_k=2, presence_penalty=3), [1, 0, 0, 0], {1, 2}, id="penalty, top-k"),
        # The softmax comes after top-k: of the two best alone, the first has 0.55; of all four only 0.33.
        pytest.param(Sampling(temperature=1, top_k=2, top_p=0.5), [0, 0, 0, 0], {0}, id="top-k, softmax, top-p"),
        # Temperature comes before min-p: at 0.1 the second's share is 0.13 of the best's, untempered 0.82.
        pytest.param(Sampling(temperature=0.1, min_p=0.5), [0, 0, 0, 0], {0}, id="temperature, min-p"),
        # Top-p is a prefix of what the softmax gave: 0.33 + 0.27 + 0.22 are needed for 0.7; after a renormalisation
        # of what min-p leaves two tokens would do.
        pytest.param(Sampling(temperature=1, min_p=0.66, top_p=0.7), [0, 0, 0, 0], {0, 1, 2}, id="no renormalising"),
        # Min-p is measured against the best after penalties.
        pytest.param(Sampling(temperature=1, min_p=0.9, presence_penalty=9), [1, 0, 0, 0], {1}, id="penalty, min-p"),
        # A negative penalty may lift a token into the candidates.
        pytest.param(Sampling(temperature=1, top_k=1, presence_penalty=-9), [0, 0, 0, 1], {3}, id="lifted"),
    ],
)
def test_a_wrong_order_would_choose_otherwise(sampling: Sampling, counts: list[int], expected: set[int]) -> None:
    logits = [0.0, -0.2, -0.4, -0.6]
    assert support(sampling, logits, counts) == expected
    shares = probabilities(np.array(logits, np.float32), np.array(counts), sampling)
    assert set(np.flatnonzero(shares).tolist()) == expected


@pytest.mark.contract("SAMP-006")
@pytest.mark.parametrize("top_k", [0, 20])
def test_never_more_than_twenty_candidates(top_k: int) -> None:
    flat = np.linspace(0, -1e-3, VOCAB)
    found = support(Sampling(temperature=2.0, top_k=top_k), flat.tolist(), [0] * VOCAB)
    assert found == set(range(MAX_CANDIDATES))


@pytest.mark.parametrize(
    ("logits", "counts", "sampling", "token"),
    [
        ([1, 3, 3, 2], [0, 0, 0, 0], Sampling(temperature=0), 1),  # the lowest id among equals
        ([1, 3, 3, 2], [0, 1, 0, 0], Sampling(temperature=0, presence_penalty=0.5), 2),
        ([1, 3, 3, 2], [0, 1, 1, 0], Sampling(temperature=0, presence_penalty=1), 1),  # equal again: 2, 2, 2
        ([1, 3, 3, 2], [0, 1, 2, 0], Sampling(temperature=0, frequency_penalty=1), 1),
        ([1, 3, 3, 2], [0, 3, 2, 0], Sampling(temperature=0, frequency_penalty=1), 3),
        ([1, 3, 3, 2], [0, 0, 0, 0], Sampling(temperature=1, top_k=1, seed=5), 1),
        ([1, 3, 3, 2], [0, 0, 0, 0], Sampling(temperature=1, top_p=0, seed=5), 1),
    ],
)
def test_greedy(logits: list[float], counts: list[int], sampling: Sampling, token: int) -> None:
    assert pick(np.array(logits, np.float32), np.array(counts, np.int32), sampling) == token


def test_greedy_does_not_look_at_other_settings() -> None:
    logits = np.array([0.0, 1.0, 0.9], np.float32)
    for seed in range(20):
        sampling = Sampling(temperature=0, top_p=1.0, top_k=20, seed=seed)
        assert pick(logits, np.zeros(3, np.int32), sampling, position=seed) == 1


@pytest.mark.parametrize("sampling", [Sampling(temperature=1), Sampling(temperature=0.5, top_p=0.8, min_p=0.02)])
def test_draws_have_the_right_distribution(sampling: Sampling) -> None:
    """20,000 draws with fixed seeds; chi-square at 0.1 %."""
    draws = 20_000
    logits = np.random.default_rng(3).standard_normal(12).astype(np.float32) / 3
    one = rows_of([sampling], [0])
    many = SamplerRows(*(jnp.repeat(part, draws) for part in one))._replace(position=jnp.arange(draws))
    tiled = np.broadcast_to(logits, (draws, 12))
    found = np.bincount(np.asarray(choose(tiled, np.zeros((draws, 12), np.int32), many).token), minlength=12)
    expected = draws * probabilities(logits, np.zeros(12), sampling)
    possible = expected > 0
    assert not found[~possible].any()
    free = int(possible.sum()) - 1
    assert free >= 4
    critical = free * (1 - 2 / (9 * free) + 3.09 * (2 / (9 * free)) ** 0.5) ** 3  # Wilson and Hilferty
    assert float(((found - expected)[possible] ** 2 / expected[possible]).sum()) < critical


@settings(max_examples=15)
@given(case=st.integers(0, 1 << 30), chosen=st.lists(samplings, min_size=8, max_size=8))
def test_a_row_does_not_see_the_others(case: int, chosen: list[Sampling]) -> None:
    rng = np.random.default_rng(case)
    logits = rng.standard_normal((8, 1024)).astype(np.float32)
    counts = rng.integers(0, 2, (8, 1024)).astype(np.int32)
    together = choose(logits, counts, rows_of(chosen, range(8)))
    for row in range(8):
        single = choose(logits[row : row + 1], counts[row : row + 1], rows_of(chosen[row : row + 1], [row]))
        assert int(single.token[0]) == int(together.token[row])
    best = -np.sort(-logits, axis=-1)[:, :20]
    whole = bits(weights_of(best, rows_of(chosen, range(8))))
    for row in range(8):
        alone = weights_of(best[row : row + 1], rows_of(chosen[row : row + 1], [0]))
        np.testing.assert_array_equal(bits(alone)[0], whole[row])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_faults_are_flagged_and_stay_in_their_row(bad: float) -> None:
    logits = np.zeros((3, VOCAB), np.float32)
    logits[1, 40] = bad
    found: Chosen = choose(logits, np.zeros((3, VOCAB), np.int32), rows_of([Sampling(temperature=1)] * 3, [0, 1, 2]))
    assert found.faulty.tolist() == [False, True, False]
    assert 0 <= int(found.token[1]) < VOCAB


def test_ids_without_a_token_are_no_fault_and_never_chosen() -> None:
    logits = np.zeros((2, VOCAB), np.float32)
    logits[:, 30:] = [[-np.inf], [np.nan]]
    logits[:, 29] = 1
    rows = rows_of([Sampling(temperature=0), Sampling(temperature=1, top_k=1)], [0, 0])
    found = choose(logits, np.zeros((2, VOCAB), np.int32), rows, 30)
    assert found.faulty.tolist() == [False, False]
    assert found.token.tolist() == [29, 29]


def test_seeds_and_positions_give_different_numbers() -> None:
    drawn = {number(seed, position) for seed in (0, 1, -1, 1 << 40) for position in range(50)}
    assert len(drawn) == 200
