"""The demonstration model that the package carries (docs/demo-model.md): data, no code."""
