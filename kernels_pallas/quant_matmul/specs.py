"""The products of the 27B model: for benches, tests and tuning."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class ProductSpec:
    """One product and how often a decode step makes it."""

    name: str
    epilogue: str
    n: int
    k: int
    calls: int


HIDDEN, INNER, VOCABULARY = 5120, 17408, 248320
PRODUCTS = (
    ProductSpec(name="delta_in", epilogue="plain", n=16384, k=HIDDEN, calls=48),  # q, k, v 10240 and z 6144
    ProductSpec(name="attention_in", epilogue="plain", n=14336, k=HIDDEN, calls=16),  # q and gate 12288, k, v 1024 each
    ProductSpec(name="out", epilogue="residual", n=HIDDEN, k=6144, calls=64),
    ProductSpec(name="gate_up", epilogue="gated", n=2 * INNER, k=HIDDEN, calls=64),
    ProductSpec(name="down", epilogue="residual", n=HIDDEN, k=INNER, calls=64),
    ProductSpec(name="head", epilogue="plain", n=VOCABULARY, k=HIDDEN, calls=1),
)
