"""A Hugging Face folder of the Qwen3.5 family, seen as logical tensors, text config and resources.

Knows the family's file and tensor names; writes nothing. Invariant: each tensor of an open `Checkpoint` is exactly one
that the config asks for, with the config's shape, and none that it asks for is missing.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from ninfer.engine.artifact.checked import Checked, parse_json
from ninfer.engine.artifact.errors import ArtifactError
from ninfer.engine.artifact.expected import MTP, TEXT, expected_tensors
from ninfer.engine.artifact.foreign import CONFIG, INDEX, SINGLE, check_folder, check_not_quantized
from ninfer.engine.artifact.formats import Array, Shape
from ninfer.engine.artifact.mapping import read_file
from ninfer.engine.artifact.safetensors import SafetensorsFile
from ninfer.engine.model.config import ConfigError

CHAT_TEMPLATE = "chat_template.jinja"
TOKENIZER_CONFIG = "tokenizer_config.json"
RESOURCES = (
    "tokenizer.json",
    TOKENIZER_CONFIG,
    CHAT_TEMPLATE,
    "special_tokens_map.json",
    "generation_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
)
"""Files stored verbatim when the folder has them."""

_ARCHITECTURES: Mapping[str, str] = {"qwen3_5": "qwen3_5", "qwen3_5_text": "qwen3_5"}
_TEXT_PREFIXES = ("model.language_model.", "model.")
_VISION_PREFIXES = ("model.visual.", "visual.")
_FROM_OUTER = ("tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id")
"""Members of a wrapping config that rule the text model too. What ends a text is what either of them names."""


@attrs.frozen(kw_only=True)
class CheckpointTensor:
    """A tensor of the model in the file that has it."""

    name: str
    component: str
    shape: Shape
    source: SafetensorsFile
    source_name: str

    @property
    def stored_type(self) -> str:
        """The safetensors type: F32, F16 or BF16."""
        return self.source.entries[self.source_name].dtype

    def load(self) -> Array:
        """A view in the stored type."""
        return self.source.read(self.source_name)


@attrs.frozen(kw_only=True)
class Checkpoint:
    """What is in the folder."""

    folder: Path
    architecture: str
    text_config: Mapping[str, object]
    tensors: tuple[CheckpointTensor, ...]
    resources: Mapping[str, bytes]
    left_out: tuple[str, ...]
    """One sentence for each kind of thing that the folder has and the artifact will not."""

    @property
    def components(self) -> Mapping[str, Mapping[str, object]]:
        """Component name to config, for those that have tensors."""
        present = {tensor.component for tensor in self.tensors}
        configs: dict[str, Mapping[str, object]] = {TEXT: self.text_config, MTP: {"target": TEXT, "layers": 1}}
        return {name: config for name, config in configs.items() if name in present}


def open_checkpoint(folder: Path) -> Checkpoint:
    """Read config and headers of a Hugging Face folder; tensor bytes stay where they are.

    Raises:
        ArtifactError: unreadable, malformed, of another architecture, or not what the config describes.
    """
    check_folder(folder)
    config_file = folder / CONFIG
    config = parse_json(read_file(config_file), file=config_file, object=None)
    check_not_quantized(folder, config)
    architecture, text_config = read_text_config(config)
    try:
        expected = expected_tensors(text_config)
    except ConfigError as error:
        raise ArtifactError(str(error), file=config_file) from None
    found, vision = _logical(folder)
    left_out = []
    if vision:
        left_out.append(f"{vision} vision tensors: this build serves text")
    if text_config.get("tie_word_embeddings") and found.pop("lm_head.weight", None):
        left_out.append("lm_head.weight: the config ties the head to the embedding")
    if not any(name.startswith("mtp.") for name in found):
        expected.pop(MTP, None)
    elif MTP not in expected:
        dropped = [name for name in found if name.startswith("mtp.")]
        left_out.append(f"{len(dropped)} mtp tensors: the config names no prediction head")
        for name in dropped:
            del found[name]
    return Checkpoint(
        folder=folder,
        architecture=architecture,
        text_config=text_config,
        tensors=tuple(_match(folder, expected, found)),
        resources=_resources(folder),
        left_out=tuple(left_out),
    )


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files of a folder: the one, or the shards that the index lists.

    Raises:
        ArtifactError: neither is there, or the index names something else than files of the folder.
    """
    single, index = folder / SINGLE, folder / INDEX
    if single.exists() or not index.exists():
        return (single,)
    names = {file for _, file in _weight_map(index)}
    return tuple(folder / name for name in sorted(names))


def _weight_map(index: Path) -> Iterator[tuple[str, str]]:
    """(tensor name, shard file name) of an index."""
    content = parse_json(read_file(index), file=index, object=None)
    for name, item in content.member("weight_map").members():
        shard = item.text()
        if Path(shard).name != shard or "\0" in shard or not shard.endswith(".safetensors"):
            raise item.error("must be the name of a .safetensors file in the same folder")
        yield name, shard


def read_text_config(config: Checked) -> tuple[str, Mapping[str, object]]:
    """The architecture, and the text model's own config with what the wrapping config says about it."""
    kind = config.member("model_type").text()
    if kind not in _ARCHITECTURES:
        known = ", ".join(_ARCHITECTURES)
        raise config.member("model_type").error(f"unknown architecture {kind!r}, this build converts {known}")
    if not config.has("text_config"):
        return _ARCHITECTURES[kind], config.object()
    inner = dict(config.member("text_config").object())
    outer = config.object()
    ends = _either(inner.get("eos_token_id"), outer.get("eos_token_id"))
    inner |= {key: outer[key] for key in _FROM_OUTER if outer.get(key) is not None}
    if len(ends) > 1:
        inner["eos_token_id"] = ends
    return _ARCHITECTURES[kind], inner


def _either(*named: object) -> list[object]:
    """What is named, by itself or in a list, each once."""
    found: list[object] = []
    for value in named:
        listed = value if isinstance(value, list) else [] if value is None else [value]
        found += [item for item in listed if item not in found]
    return found


def _logical(folder: Path) -> tuple[dict[str, tuple[SafetensorsFile, str]], int]:
    """Logical name -> (file, name there) of all that is not vision, and how many vision tensors there are."""
    single, index = folder / SINGLE, folder / INDEX
    files = {file.name: SafetensorsFile(file) for file in weight_files(folder)}
    if single.exists() or not index.exists():
        located = [(name, files[SINGLE]) for name in files[SINGLE].entries]
    else:
        located = [(name, files[shard]) for name, shard in _weight_map(index)]
    found: dict[str, tuple[SafetensorsFile, str]] = {}
    vision = 0
    for source_name, source in located:
        if source_name not in source.entries:
            message = f"is not in {source.file.name}, where the index puts it"
            raise ArtifactError(message, file=index, object=f"tensor {source_name}")
        if source_name.startswith(_VISION_PREFIXES):
            vision += 1
            continue
        prefix = next((prefix for prefix in _TEXT_PREFIXES if source_name.startswith(prefix)), "")
        name = source_name.removeprefix(prefix)
        if name in found:
            message = f"is the same tensor as {found[name][1]}"
            raise ArtifactError(message, file=source.file, object=f"tensor {source_name}")
        found[name] = source, source_name
    return found, vision


def _match(
    folder: Path, expected: Mapping[str, Mapping[str, Shape]], found: Mapping[str, tuple[SafetensorsFile, str]]
) -> Iterator[CheckpointTensor]:
    """Pair what the config asks for with what the files have."""
    wanted = {name for shapes in expected.values() for name in shapes}
    for name, (source, source_name) in found.items():
        if name not in wanted:
            start = source.entries[source_name].start
            message = "is no part of the model that config.json describes"
            raise ArtifactError(message, file=source.file, object=f"tensor {source_name}", offset=start)
    for component, shapes in expected.items():
        for name, shape in shapes.items():
            if name not in found:
                where = folder / SINGLE if (folder / SINGLE).exists() else folder / INDEX
                raise ArtifactError("is missing", file=where, object=f"tensor {name}")
            source, source_name = found[name]
            entry = source.entries[source_name]
            if entry.shape != shape:
                message = f"has shape {list(entry.shape)}, but {CONFIG} says {list(shape)}"
                raise ArtifactError(message, file=source.file, object=f"tensor {source_name}", offset=entry.start)
            yield CheckpointTensor(name=name, component=component, shape=shape, source=source, source_name=source_name)


def _resources(folder: Path) -> Mapping[str, bytes]:
    """The folder's resources; the chat template may come out of the tokenizer's config."""
    found: dict[str, bytes] = {}
    for name in RESOURCES:
        if not (folder / name).exists():
            continue
        found[name] = read_file(folder / name)
        if name.endswith(".json"):
            parse_json(found[name], file=folder / name, object=None).object()
    if CHAT_TEMPLATE not in found and TOKENIZER_CONFIG in found:
        template = _embedded_template(folder / TOKENIZER_CONFIG, found[TOKENIZER_CONFIG])
        if template is not None:
            found[CHAT_TEMPLATE] = template
    return found


def _embedded_template(file: Path, data: bytes) -> bytes | None:
    """`chat_template` of a tokenizer config: a string, or a list of named ones of which `default` is taken."""
    config = parse_json(data, file=file, object=None)
    if not config.has("chat_template"):
        return None
    member = config.member("chat_template")
    if isinstance(member.value, list):
        named = {item.member("name").text(): item.member("template") for item in member.items()}
        if "default" not in named:
            raise member.error("has no template named 'default'")
        member = named["default"]
    try:
        return member.text().encode("utf-8")
    except UnicodeEncodeError:
        raise member.error(f"is not text: {json.dumps(member.value)[:40]}") from None
