"""Seeded generators of conversations. A task is a function (Words) -> Example; `mixture` says how often."""
