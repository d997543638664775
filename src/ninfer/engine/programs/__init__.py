"""Compiled programs: the `Device` port with JAX. Importing it imports JAX."""

from ninfer.engine.programs.jax_device import JaxDevice, JaxPending

__all__ = ["JaxDevice", "JaxPending"]
