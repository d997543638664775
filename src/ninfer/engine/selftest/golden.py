"""Golden vectors: what a reference computed for some prompts, in a folder beside an artifact.

`inputs.json` lists prompts (`input_ids`, `greedy`); `expected.safetensors` holds, for prompt K, `pK.greedy_logits`
[n, V]: the logits behind each greedy token. Everything else in them is ignored.
"""

from pathlib import Path

import attrs
import numpy as np

from ninfer.engine.artifact import ArtifactError
from ninfer.engine.artifact.checked import parse_json
from ninfer.engine.artifact.mapping import read_file
from ninfer.engine.artifact.safetensors import SafetensorsFile


@attrs.frozen(kw_only=True)
class GoldenVectors:
    """One prompt and what comes after it."""

    prompt: tuple[int, ...]
    greedy: tuple[int, ...]
    logits: np.ndarray
    """float32 [n, V], one row per greedy token"""


def golden_folder(artifact: Path) -> Path:
    """Where golden vectors of an artifact are looked for: NAME.golden beside NAME.ninfer."""
    return artifact.with_suffix(".golden")


def read_golden(folder: Path) -> tuple[GoldenVectors, ...]:
    """All prompts of a folder.

    Raises:
        ArtifactError: they cannot be read, are malformed, or do not fit each other.
    """
    inputs, expected = folder / "inputs.json", SafetensorsFile(folder / "expected.safetensors")
    found = []
    for index, item in enumerate(parse_json(read_file(inputs), file=inputs, object=None).member("prompts").items()):
        prompt, greedy = item.member("input_ids").counts(), item.member("greedy").counts()
        name = f"p{index}.greedy_logits"
        if name not in expected.entries:
            raise ArtifactError("is missing", file=expected.file, object=f"tensor {name}")
        logits = np.asarray(expected.read(name), np.float32)
        if not prompt or not greedy or logits.ndim != 2 or len(logits) != len(greedy):
            raise item.error(f"{len(prompt)} prompt tokens, {len(greedy)} greedy ones, logits {list(logits.shape)}")
        found.append(GoldenVectors(prompt=prompt, greedy=greedy, logits=logits))
    return tuple(found)
