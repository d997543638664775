"""Measurements that docs/performance.md quotes. Each module is a command: `python -m benchmarks.NAME`."""
