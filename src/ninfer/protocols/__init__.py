"""Protocols: the plugin interface, its registry, what several of them share, and the built-in three."""
