"""The configuration that the GPU's benchmark writes for an artifact is the shape that it was given."""

import attrs
import pytest

from benchmarks.gpu_serve import raw_config
from ninfer.engine.model.config import TextConfig, parse_text_config
from ninfer.engine.model.published import PUBLISHED
from tests.engine.model.golden import golden

B27 = PUBLISHED["27b"]


@pytest.mark.parametrize("config", [B27, golden().config, attrs.evolve(B27, tie_word_embeddings=True, rope_theta=1e6)])
def test_a_shape_survives_its_config_file(config: TextConfig) -> None:
    assert parse_text_config(raw_config(config)) == config
