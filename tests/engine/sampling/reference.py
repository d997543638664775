"""The sampler in float64 numpy, written from the rules and not from the code, with each step open to be swapped."""

import attrs
import numpy as np

from ninfer.engine.types import MAX_CANDIDATES, Sampling

_MASK = (1 << 32) - 1


def penalised(logits: np.ndarray, counts: np.ndarray, sampling: Sampling) -> np.ndarray:
    """float64 [V]."""
    return logits.astype(np.float64) - sampling.presence_penalty * (counts > 0) - sampling.frequency_penalty * counts


def probabilities(logits: np.ndarray, counts: np.ndarray, sampling: Sampling) -> np.ndarray:
    """float64 [V], summing to 1: what one row draws from."""
    scores = penalised(logits, counts, sampling)
    order = np.argsort(-scores, kind="stable")[: sampling.top_k or MAX_CANDIDATES]
    result = np.zeros(len(scores))
    if sampling.temperature == 0:
        result[order[0]] = 1
        return result
    shares = np.exp((scores[order] - scores[order[0]]) / sampling.temperature)
    shares /= shares.sum()
    shares[shares < sampling.min_p * shares[0]] = 0
    before = np.cumsum(shares) - shares
    keep = before < sampling.top_p
    keep[0] = True
    shares = np.where(keep, shares, 0)
    result[order] = shares / shares.sum()
    return result


def threefry(key: tuple[int, int], counter: tuple[int, int]) -> tuple[int, int]:
    """Threefry-2x32-20 in Python integers."""
    words = (key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA)
    x, y = (counter[0] + words[0]) & _MASK, (counter[1] + words[1]) & _MASK
    for block in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[block % 2]:
            x = (x + y) & _MASK
            y = ((y << turn) | (y >> (32 - turn))) & _MASK
            y ^= x
        x = (x + words[(block + 1) % 3]) & _MASK
        y = (y + words[(block + 2) % 3] + block + 1) & _MASK
    return x, y


def number(seed: int, position: int, purpose: int = 0) -> float:
    """The uniform number of (seed, position, purpose) in [0, 1)."""
    unsigned = seed & ((1 << 64) - 1)
    word, _ = threefry((unsigned & _MASK, unsigned >> 32), (position, purpose))
    return (word >> 8) / (1 << 24)


@attrs.frozen
class Expectation:
    """The token of the reference, and how far its draw was from a border between two tokens."""

    token: int
    margin: float


def draw(logits: np.ndarray, counts: np.ndarray, sampling: Sampling, position: int) -> Expectation:
    """Walk the candidates from the best downwards."""
    shares = probabilities(logits, counts, sampling)
    order = np.argsort(-penalised(logits, counts, sampling), kind="stable")
    borders = np.cumsum(shares[order])
    at = number(sampling.seed, position)
    index = min(int((borders <= at).sum()), int((shares > 0).sum()) - 1)
    return Expectation(int(order[index]), float(np.abs(borders - at).min()))
