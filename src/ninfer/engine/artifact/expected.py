"""What an architecture's components must hold: which tensors, of which shapes.

Knows no files. The names and shapes themselves come from `engine.model`, the one place that has them. Invariant: what
`check_components` lets pass can be loaded without asking again whether a tensor is there or has its shape.
"""

from collections.abc import Mapping
from pathlib import Path

from ninfer.engine.artifact.directory import Directory
from ninfer.engine.artifact.errors import ArtifactError
from ninfer.engine.artifact.formats import Shape
from ninfer.engine.artifact.framing import HEADER_BYTES
from ninfer.engine.model.config import ConfigError, parse_text_config
from ninfer.engine.model.shapes import tensor_shapes

TEXT = "text"
"""The component that every artifact has."""
MTP = "mtp"
ARCHITECTURES = ("qwen3_5",)
"""What this build can run, by the name that an artifact carries."""


def expected_tensors(text_config: Mapping[str, object]) -> dict[str, dict[str, Shape]]:
    """Component -> logical name -> shape, for `text` and for `mtp` (which an artifact may lack).

    Raises:
        ConfigError: the config describes no supported model.
    """
    config = parse_text_config(text_config)
    text = tensor_shapes(config)
    if not config.mtp_layers:
        return {TEXT: text}
    both = tensor_shapes(config, mtp=True)
    return {TEXT: text, MTP: {name: shape for name, shape in both.items() if name not in text}}


def check_components(directory: Directory, file: Path) -> None:
    """Compare the directory's tensors with its own text config. Components this build does not know are left alone.

    Raises:
        ArtifactError: an architecture this build does not know, a tensor missing, unexpected or of another shape.
    """

    def error(object: str, message: str) -> ArtifactError:
        return ArtifactError(message, file=file, object=object, offset=HEADER_BYTES)

    if directory.architecture not in ARCHITECTURES:
        message = f"unknown architecture {directory.architecture!r}, this build runs {', '.join(ARCHITECTURES)}"
        raise error("directory.architecture", message)
    if TEXT not in directory.components:
        raise error("directory.components.text", "is missing")
    try:
        expected = expected_tensors(directory.components[TEXT])
    except ConfigError as problem:
        raise error("directory.components.text.config", str(problem)) from None
    if MTP in directory.components and MTP not in expected:
        raise error("directory.components.mtp", "is there, but the text config names no prediction head")
    for component, shapes in expected.items():
        if component not in directory.components:
            continue
        found = {record.name: record.shape for record in directory.tensors if record.component == component}
        for name, shape in shapes.items():
            if name not in found:
                raise error(f"tensor {name}", f"is missing from component {component}")
            if found[name] != shape:
                raise error(f"tensor {name}", f"has shape {list(found[name])}, but the config says {list(shape)}")
        for name in found.keys() - shapes.keys():
            raise error(f"tensor {name}", f"is no part of component {component} of {directory.architecture}")
