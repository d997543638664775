"""Compiled programs: the `Device` port with JAX. Importing it imports JAX."""

from ninfer.engine.programs.jax_device import JaxDevice, JaxPending
from ninfer.engine.programs.per_layer import PerLayer

__all__ = ["JaxDevice", "JaxPending", "PerLayer"]
