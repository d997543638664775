"""The stacked form: packed weights in few arrays, and the kernels of `kernels_pallas`."""

from ninfer.engine.programs.stacked.form import Stacked
from ninfer.engine.programs.stacked.weights import StackedWeights, load_stacked, matrix_shapes, stacked_shapes

__all__ = ["Stacked", "StackedWeights", "load_stacked", "matrix_shapes", "stacked_shapes"]
