"""K6: weights that are not finite, as given or as a recipe's own rounding would make them, end a conversion."""

import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from ninfer.engine.artifact import ArtifactError, convert
from ninfer.engine.artifact.formats import BF16, FORMATS, NVFP4_SEARCH, Format
from ninfer.engine.artifact.layouts import CONTIGUOUS
from ninfer.engine.artifact.recipe import BUILT_IN
from ninfer.engine.artifact.tensor_source import encoded
from tests.engine.artifact.damage import write_safetensors

FORMS = [*FORMATS.values(), NVFP4_SEARCH]
KINDS = [
    "layers.0.mlp.up_proj.weight",
    "layers.0.input_layernorm.weight",
    "layers.0.linear_attn.A_log",
    "layers.0.linear_attn.conv1d.weight",
    "layers.0.linear_attn.in_proj_a.weight",
    "embed_tokens.weight",
    "lm_head.weight",
    "mtp.fc.weight",
]
"""A matrix of a product, and one of each kind that a recipe stores in another way."""


def with_value(golden_folder: Path, folder: Path, name: str, value: float, dtype: type) -> Path:
    """The golden model in `dtype` with `value` as the last number of one tensor."""
    shutil.copytree(golden_folder, folder)
    tensors = {key: array.astype(dtype) for key, array in load_file(folder / "model.safetensors").items()}
    stored_name = name if name in tensors else f"model.{name}"
    tensors[stored_name].reshape(-1)[-1] = value
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


@pytest.mark.parametrize("recipe", BUILT_IN)
@pytest.mark.parametrize("name", KINDS)
def test_a_conversion_ends_with_the_name_of_the_tensor(
    golden_folder: Path, tmp_path: Path, recipe: str, name: str
) -> None:
    folder = with_value(golden_folder, tmp_path / "hf", name, np.nan, np.float32)
    with pytest.raises(ArtifactError, match="holds a number that is not finite") as error:
        convert(folder, tmp_path / "m.ninfer", recipe=BUILT_IN[recipe])
    assert error.value.object == f"tensor {name}"
    assert [file.name for file in tmp_path.iterdir()] == ["hf"]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_every_stored_type(golden_folder: Path, tmp_path: Path, dtype: type, value: float) -> None:
    folder = with_value(golden_folder, tmp_path / "hf", "norm.weight", value, dtype)
    with pytest.raises(ArtifactError, match=r"tensor norm\.weight: holds a number that is not finite"):
        convert(folder, tmp_path / "m.ninfer")


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@given(value=st.sampled_from([1e30, 3e38, float(np.finfo(np.float32).max)]), at=st.integers(0, 63))
def test_rounding_makes_no_number_that_is_not_finite(form: Format, value: float, at: int) -> None:
    """Large numbers are stored as finite ones, or refused."""
    values = np.ones((1, 64), np.float32)
    values[0, at] = value
    source = encoded(name="a", component="text", shape=(1, 64), format=form, layout=CONTIGUOUS, load=lambda: values)
    refused = False
    try:
        rows = source.open().stored(0, 1)
    except ValueError as error:
        refused = "would make a number that is not finite" in str(error)
    assert refused or np.isfinite([*form.decode(rows.planes)[0], rows.squared, rows.squared_error]).all()


def test_large_numbers_that_a_format_has_are_stored() -> None:
    """Their squares leave float32, which is no reason to refuse them."""
    values = np.array([[1e30, -1e25]], np.float32)
    source = encoded(name="a", component="text", shape=(1, 2), format=BF16, layout=CONTIGUOUS, load=lambda: values)
    rows = source.open().stored(0, 1)
    assert 0 < rows.squared_error < 2.0**-16 * rows.squared < np.inf
