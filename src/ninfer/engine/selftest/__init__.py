"""What a user can check of a model on a device, with the programs that serve it. Importing it imports JAX."""

from ninfer.engine.selftest.checks import Check, Outcome, Subject, run_checks
from ninfer.engine.selftest.golden import GoldenVectors, golden_folder, read_golden

__all__ = ["Check", "GoldenVectors", "Outcome", "Subject", "golden_folder", "read_golden", "run_checks"]
