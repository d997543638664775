"""What a folder's tokenizer, configs and template say, from the folder to the server: stop tokens, and what renders."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ninfer.cli.assembly import open_house
from ninfer.cli.failure import Failure
from ninfer.cli.options import CapacityOptions, ModelOptions, ServeOptions
from ninfer.engine.artifact import convert
from tests.cli.test_commands import run

END_OF_TURN, END_OF_TEXT = 307, 305
NO_TOKENS = {
    "config.json": {"eos_token_id": None},
    "generation_config.json": None,
    "tokenizer_config.json": {"eos_token": None},
}


@pytest.fixture
def folder(golden_folder: Path, tmp_path: Path) -> Path:
    """The golden folder, to be changed."""
    copy = tmp_path / "hf"
    shutil.copytree(golden_folder, copy)
    return copy


def change(folder: Path, changes: Mapping[str, Mapping[str, object] | None]) -> None:
    """Set members of JSON files, make such files, or remove them."""
    for name, members in changes.items():
        file = folder / name
        if members is None:
            file.unlink()
        else:
            content = json.loads(file.read_text()) if file.exists() else {}
            file.write_text(json.dumps(content | members))


def wrap(folder: Path, inner: object, outer: object) -> None:
    """Make the config one of a wrapping model, with these ends of a text in its two places."""
    config = json.loads((folder / "config.json").read_text())
    text = {**config, "model_type": "qwen3_5_text", "eos_token_id": inner}
    (folder / "config.json").write_text(
        json.dumps({"model_type": "qwen3_5", "text_config": text, "eos_token_id": outer})
    )


def house(path: Path, tmp_path: Path, **model: Any) -> Any:
    options = ServeOptions(
        model=ModelOptions(cache_dir=tmp_path / "cache", **model), capacity=CapacityOptions(max_context=300)
    )
    return open_house(path, options, lambda progress: None)


@pytest.mark.parametrize(
    ("changes", "stops"),
    [
        (  # K3: the config names the end of a turn, the tokenizer the end of a text
            {
                "generation_config.json": None,
                "config.json": {"eos_token_id": END_OF_TURN},
                "tokenizer_config.json": {"eos_token": "<|endoftext|>"},
            },
            {END_OF_TURN, END_OF_TEXT},
        ),
        ({**NO_TOKENS, "config.json": {"eos_token_id": [END_OF_TURN, END_OF_TEXT]}}, {END_OF_TURN, END_OF_TEXT}),
        ({**NO_TOKENS, "generation_config.json": {"eos_token_id": END_OF_TURN}}, {END_OF_TURN}),
        ({**NO_TOKENS, "tokenizer_config.json": {"eos_token": {"content": "<|im_end|>"}}}, {END_OF_TURN}),
        ({**NO_TOKENS, "special_tokens_map.json": {"eos_token": "<|im_end|>"}}, {END_OF_TURN}),
        ({**NO_TOKENS, "special_tokens_map.json": {"eos_token": {"content": "<|im_end|>"}}}, {END_OF_TURN}),
        (
            {
                "generation_config.json": {"eos_token_id": [END_OF_TEXT]},
                "config.json": {"eos_token_id": END_OF_TEXT},
                "tokenizer_config.json": {"eos_token": "<|endoftext|>"},
                "special_tokens_map.json": {"eos_token": "<|im_end|>"},
            },
            {END_OF_TURN, END_OF_TEXT},
        ),
    ],
)
def test_k3_stop_tokens_are_all_that_any_file_names(
    folder: Path, tmp_path: Path, changes: dict[str, Any], stops: set[int]
) -> None:
    (folder / "generation_config.json").write_text("{}")
    change(folder, changes)
    opened = house(folder, tmp_path)
    assert opened.tokenizer.stop_tokens == stops
    opened.artifact.close()


@pytest.mark.parametrize(
    ("inner", "outer", "stops"),
    [
        (END_OF_TEXT, END_OF_TURN, {END_OF_TEXT, END_OF_TURN}),
        ([END_OF_TEXT], [END_OF_TURN, END_OF_TEXT], {END_OF_TEXT, END_OF_TURN}),
        (END_OF_TEXT, None, {END_OF_TEXT}),
        (None, END_OF_TURN, {END_OF_TURN}),
    ],
)
def test_k3_the_wrapping_config_and_the_text_models_both_count(
    folder: Path, tmp_path: Path, inner: object, outer: object, stops: set[int]
) -> None:
    change(folder, NO_TOKENS)
    wrap(folder, inner, outer)
    opened = house(folder, tmp_path)
    assert opened.tokenizer.stop_tokens == stops
    opened.artifact.close()


@pytest.mark.parametrize("generation", [None, {}])
def test_k3_no_stop_token_at_all_ends_the_start_and_the_conversion(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], generation: object
) -> None:
    change(folder, NO_TOKENS)
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    says = f"{folder}: nothing names a token that ends a reply"
    with pytest.raises(Failure, match=says):
        house(folder, tmp_path)
    assert not list((tmp_path / "cache").glob("*.ninfer"))
    status, out, err = run(capsys, "convert", str(folder), str(tmp_path / "m.ninfer"))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert says in err
    assert not (tmp_path / "m.ninfer").exists()
    convert(folder, tmp_path / "older.ninfer")  # as older versions did
    with pytest.raises(Failure, match=r"older\.ninfer: nothing names a token that ends a reply"):
        house(tmp_path / "older.ninfer", tmp_path)


@pytest.mark.parametrize("eos", [99_999, -1, True, "2", [END_OF_TURN, 99_999]])
def test_k3_a_stop_token_that_is_none_is_told_with_its_file(folder: Path, tmp_path: Path, eos: object) -> None:
    change(folder, {"config.json": {"eos_token_id": eos}})
    with pytest.raises(Failure, match=r"config\.json: eos_token_id .* is no token id below"):
        house(folder, tmp_path)


TRAINED = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
"""K2: with the tags by which trainers find the model's own words."""

UNSEEN = "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}."
"""K7: it looks for parts in a string."""


@pytest.mark.parametrize("embedded", [False, True], ids=["file", "tokenizer_config"])
def test_k2_a_template_with_a_trainers_tags_is_served(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], embedded: bool
) -> None:
    if embedded:
        change(folder, {"chat_template.jinja": None, "tokenizer_config.json": {"chat_template": TRAINED}})
    else:
        (folder / "chat_template.jinja").write_text(TRAINED)
    assert run(capsys, "convert", str(folder), str(tmp_path / "m.ninfer"))[0] == 0
    for path in (folder, tmp_path / "m.ninfer"):
        house(path, tmp_path).artifact.close()


@pytest.mark.parametrize("embedded", [False, True], ids=["file", "tokenizer_config"])
@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{% generation %}x", "line 1"),
        ("{{ raise_exception('never') }}", "not even a chat of one message: .*never"),
        (UNSEEN, "the text of a user's message is not in what the template renders"),
        ("{{ '%2000000000d' % 1 }}{{ messages[0].content }}", "more than 1024 MiB of memory"),
    ],
    ids=["syntax", "refuses", "k7", "memory"],
)
def test_what_cannot_be_rendered_is_not_converted(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str, says: str, embedded: bool
) -> None:
    if embedded:
        change(folder, {"chat_template.jinja": None, "tokenizer_config.json": {"chat_template": source}})
    else:
        (folder / "chat_template.jinja").write_text(source)
    status, out, err = run(capsys, "convert", str(folder), str(tmp_path / "m.ninfer"))
    assert (status, out, err.count("\n")) == (2, "", 1)
    with pytest.raises(Failure, match=f"{folder}: chat template: .*{says}"):
        house(folder, tmp_path)
    assert not (tmp_path / "m.ninfer").exists()
    # Another template is all that it lacks.
    good = tmp_path / "good.jinja"
    good.write_text("{{ messages[0].content }}")
    house(folder, tmp_path, chat_template=good).artifact.close()


def test_an_artifact_of_before_that_cannot_be_rendered_ends_the_start(folder: Path, tmp_path: Path) -> None:
    (folder / "chat_template.jinja").write_text(UNSEEN)
    convert(folder, tmp_path / "older.ninfer")
    with pytest.raises(Failure, match=r"chat template of .*older\.ninfer: the text of a user's message is not in"):
        house(tmp_path / "older.ninfer", tmp_path)


def test_inspect_renders_nothing(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "chat_template.jinja").write_text("{% for a in range(99999) %}{% for b in range(99999) %}")
    convert(folder, tmp_path / "older.ninfer")
    assert run(capsys, "inspect", str(tmp_path / "older.ninfer"), "--verify")[0] == 0
