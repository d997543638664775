"""What a model costs on a device: decode steps, prompts, bytes, kernels, beside what the device gives. Imports JAX.

The records of `report.py` need no JAX; whoever only shows a report imports that module.
"""
