"""The demonstration model that the package carries (docs/demo-model.md): where its file lies, not what is in it."""

from importlib.resources import files
from pathlib import Path


def artifact_file() -> Path:
    """The artifact; an installation may have left it out."""
    return Path(str(files(__name__))) / "demo.ninfer"
