"""YaRN: rotary frequencies that reach beyond the context a model was trained on (Peng et al., 2023).

Fast pairs (more than `BETA_FAST` turns within the native context) keep their frequency, slow ones (fewer than
`BETA_SLOW`) are stretched by the factor, those between are mixed by a linear ramp; cosines and sines grow by
`attention_scale`. Host arithmetic in float64, rounded once. Frequencies belong to pairs, so the axis that a pair
follows (MRoPE) does not matter here. Knows a config's numbers and no arrays of the device.

Invariant: the result depends on the factor and the native context alone, never on the length of a request.
"""

import math

import numpy as np

from ninfer.engine.model.config import TextConfig

BETA_FAST = 32.0
"""Turns within the native context from which on a pair is left alone."""
BETA_SLOW = 1.0
"""Turns within the native context up to which a pair is stretched by the whole factor."""


def stretched_frequencies(config: TextConfig) -> np.ndarray:
    """Angle per position of each rotary pair, float32 [rotary_dims / 2], at `config.rope_yarn_factor`."""
    dims, theta = config.rotary_dims, config.rope_theta
    pairs = np.arange(dims // 2, dtype=np.float64)
    native = theta ** (-2.0 * pairs / dims)
    low = max(math.floor(_pair_with_turns(config, BETA_FAST)), 0)
    high = min(math.ceil(_pair_with_turns(config, BETA_SLOW)), dims - 1)
    # A ramp of no width would divide by zero: make it a step.
    ramp = np.clip((pairs - low) / (max(high - low, 0) or 0.001), 0.0, 1.0)
    mixed: np.ndarray = native * (1.0 - ramp) + native / config.rope_yarn_factor * ramp
    return mixed.astype(np.float32)


def attention_scale(factor: float) -> float:
    """What cosines and sines are multiplied by; 1 at factor 1."""
    return 0.1 * math.log(factor) + 1.0


def _pair_with_turns(config: TextConfig, turns: float) -> float:
    """Index (not whole) of the pair that turns this often within the native context."""
    wave = config.max_position_embeddings / (turns * 2.0 * math.pi)
    return config.rotary_dims * math.log(wave) / (2.0 * math.log(config.rope_theta))
