"""The engine: one device thread that runs ahead-of-time compiled JAX programs over memory it fully owns.

`types.py` is its whole face. It knows tokens, pages and lanes; it knows nothing of text, templates or protocols.
"""
