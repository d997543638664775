"""The real shapes of the prefill products: those of the 27B configuration. Tests compile them, benches run them."""

from __future__ import annotations

import dataclasses

from .epilogue import Epilogue


@dataclasses.dataclass(frozen=True, kw_only=True)
class Product:
    """One product of a layer: w [n, k] and what is done to its result."""

    name: str
    n: int
    k: int
    epilogue: Epilogue = "none"


PRODUCTS = (
    Product(name="delta-net in", n=16384, k=5120),
    Product(name="attention in", n=14336, k=5120),
    Product(name="mixer out", n=5120, k=6144, epilogue="residual_add"),
    Product(name="gate and up", n=34816, k=5120, epilogue="silu_product"),
    Product(name="down", n=5120, k=17408, epilogue="residual_add"),
)
ROWS = (64, 128, 192, 512, 1024, 2048, 4096, 8192)
