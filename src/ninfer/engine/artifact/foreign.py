"""What people take for a model that can be converted, and what to do with it instead: one sentence for each.

Knows names and first bytes of files that other programs write; reads no weights. Invariant: a folder that both checks
let pass has a config.json and says nowhere that its weights are quantized.
"""

from collections.abc import Mapping
from pathlib import Path

from ninfer.engine.artifact.checked import Checked
from ninfer.engine.artifact.errors import ArtifactError
from ninfer.engine.artifact.mapping import exists, map_file

CONFIG = "config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

HEAD_BYTES = 64
"""So much of a file tells what it is."""

_ORIGINAL = "download the original model (`hf download OWNER/NAME`) and name its folder"
_FIRST_BYTES: Mapping[bytes, str] = {
    b"GGUF": f"is a GGUF file, which cannot be read: {_ORIGINAL}",
    b"PK\x03\x04": f"is a PyTorch file or a zip archive, which cannot be read: {_ORIGINAL}",
}

_QUANTIZED_MEMBERS = ("quantization_config", "quantization", "compression_config")
"""Members of a config with which programs mark quantized weights: Transformers, MLX, older compressed-tensors."""
_QUANTIZED_FILES = ("hf_quant_config.json", "quantize_config.json", "quant_config.json", "quantization_config.json")
"""Files beside a config that say the same: ModelOpt, AutoGPTQ, AutoAWQ, AutoRound."""
_QUANTIZED = "quantized checkpoints cannot be converted: take the one it was made from"


def foreign_file(head: bytes) -> str | None:
    """What a file is that begins with `head`, `HEAD_BYTES` or all of it; None if it is not known."""
    for first, what in _FIRST_BYTES.items():
        if head.startswith(first):
            return what
    return None


def mistaken_file(head: bytes) -> str | None:
    """The same of a file that somebody names as a model: weights alone are none."""
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 32:
        return f"is a safetensors file: name the folder that holds it and its {CONFIG}"
    return foreign_file(head)


def check_folder(folder: Path) -> None:
    """Refuse what is no folder of a model in safetensors.

    Raises:
        ArtifactError: it is something else; the text says what to do.
    """
    if not exists(folder):
        raise ArtifactError("no such folder", file=folder)
    if not folder.is_dir():
        what = mistaken_file(bytes(map_file(folder)[:HEAD_BYTES]))
        raise ArtifactError(what or "is not a folder", file=folder)
    weights = (folder / SINGLE).exists() or (folder / INDEX).exists()
    if not weights and (what := _without_weights(folder)):
        raise ArtifactError(what, file=folder)
    if not (folder / CONFIG).exists():
        raise ArtifactError("is missing: this is not the folder of a Hugging Face model", file=folder / CONFIG)


def check_not_quantized(folder: Path, config: Checked) -> None:
    """Refuse a folder whose config, or a file beside it, says that its weights are quantized.

    Raises:
        ArtifactError: naming the member or the file.
    """
    configs = [config]
    if config.has("text_config"):
        configs.append(config.member("text_config"))
    for one in configs:
        for name in _QUANTIZED_MEMBERS:
            if one.has(name):
                raise one.member(name).error(_QUANTIZED)
    for name in _QUANTIZED_FILES:
        if (folder / name).exists():
            raise ArtifactError(_QUANTIZED, file=folder / name)


def _without_weights(folder: Path) -> str | None:
    """What a folder is that has neither weights nor an index under the names that Transformers gives them."""
    names = sorted(file.name for file in folder.iterdir())
    if "adapter_config.json" in names:
        return (
            "is an adapter (LoRA), not a model: merge it into its base model first "
            "(peft: `merge_and_unload`, then `save_pretrained`), and name the folder of the result"
        )
    if any(name.endswith(".gguf") for name in names):
        return f"has GGUF weights, which cannot be read: {_ORIGINAL}"
    if any(name.startswith("pytorch_model") and name.endswith(".bin") for name in names):
        return (
            "has its weights as .bin files only, which cannot be read: save it with Transformers "
            "(`save_pretrained` writes safetensors), and name the folder of the result"
        )
    return None
