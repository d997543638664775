"""Pallas GPU kernels, one folder per operation. Each has a plain jnp `reference.py`, which is its meaning."""
