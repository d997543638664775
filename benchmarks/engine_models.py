"""The models that the engine is measured with: an artifact, the golden model, and a wide random one.

All are float32 on the device. Knows nothing of what is measured.
"""

import json
from pathlib import Path

import attrs
import jax
import jax.numpy as jnp
from safetensors.numpy import load_file

from ninfer.engine.artifact import Artifact
from ninfer.engine.model.config import TextConfig, parse_text_config
from ninfer.engine.model.weights import TextWeights, load_weights
from ninfer.engine.programs import JaxDevice, PerLayer
from tests.engine.model.golden import FOLDER, WIDE, random_weights

ROOT = Path(__file__).parents[1]
DEMONSTRATION = ROOT / "src/ninfer/demo/demo.ninfer"


@attrs.frozen(kw_only=True, eq=False)
class BenchModel:
    """A model to measure."""

    name: str
    config: TextConfig
    weights: TextWeights
    context_tokens: int

    @property
    def weight_bytes(self) -> int:
        """What a decode round reads of the weights: all of them once; of an embedding that is no head only rows."""
        total: int = sum(leaf.nbytes for leaf in jax.tree.leaves(self.weights))
        return total if self.weights.head is None else total - int(self.weights.embed.nbytes)

    @property
    def state_bytes(self) -> int:
        """What a row of a decode round reads and writes of the recurrent state."""
        config = self.config
        matrix = config.linear_num_value_heads * config.linear_key_head_dim * config.linear_value_head_dim
        return 2 * 4 * config.linear_layers * (matrix + 3 * config.conv_channels)

    def device(self, *, lanes: int, chunk_tokens: int, cache: Path | None) -> JaxDevice:
        """A device that is not prepared yet, with room for `lanes` full contexts."""
        pages = lanes * -(-self.context_tokens // 64)
        return JaxDevice(
            PerLayer(self.config, self.weights),
            lanes=lanes,
            total_pages=pages,
            prefill_chunk_tokens=chunk_tokens,
            max_context_tokens=self.context_tokens,
            compile_cache=cache,
        )


def load(name: str, context_tokens: int) -> BenchModel:
    """`golden`, `wide`, `demo` or the path of an artifact."""
    if name == "golden":
        config = parse_text_config(json.loads((FOLDER / "config.json").read_text(encoding="utf-8")))
        stored = load_file(FOLDER / "model.safetensors")
        weights = load_weights(config, lambda key: stored[key] if key in stored else stored[f"model.{key}"])
    elif name == "wide":
        config, weights = WIDE, random_weights(WIDE)
    else:
        artifact = Artifact.open(artifact_path(name))
        config = parse_text_config(artifact.config("text"))
        weights = load_weights(config, artifact.read)
    weights = jax.tree.map(jnp.asarray, weights)
    return BenchModel(
        name=Path(name).stem,
        config=config,
        weights=weights,
        context_tokens=min(context_tokens, config.max_position_embeddings),
    )


def artifact_path(name: str) -> Path:
    """The file that `name` means; `demo` is the demonstration model."""
    return DEMONSTRATION if name == "demo" else Path(name)
