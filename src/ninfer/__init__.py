"""NInfer: one large hybrid language model, one accelerator, three wire protocols.

`python -m ninfer serve` is the way in; docs/architecture.md is the map of the rooms.
"""

__version__ = "0.1.0"
