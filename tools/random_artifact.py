"""An artifact of random weights of a named configuration, to measure and to serve what no checkpoint is at hand for.

    python -m tools.random_artifact CONFIG.json OUT.ninfer [--recipe nvfp4] [--name N] [--seed 0] [--resources ARTIFACT]
    python -m ninfer serve OUT.ninfer

`CONFIG.json` is a Hugging Face config.json. Tokenizer and template come from another artifact, without `--resources`
from the demonstration model: a model with more vocabulary rows than the tokenizer has tokens never chooses the others.

Weights of a matrix are normal with variance 1 / K, gains near 1: activations keep their size through all layers. Real
numbers are drawn and encoded for a pool of tiles of each shape only; a matrix is a random choice of tiles, which takes
no longer than writing it. Rows therefore repeat, and so do scores of the head.
"""

import argparse
import math
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np

from ninfer.engine.artifact import Artifact, Progress
from ninfer.engine.artifact.checked import parse_json
from ninfer.engine.artifact.checkpoint import RESOURCES, read_text_config
from ninfer.engine.artifact.expected import MTP, TEXT, expected_tensors
from ninfer.engine.artifact.formats import FORMATS, Array, Shape
from ninfer.engine.artifact.mapping import read_file
from ninfer.engine.artifact.placing import Contents
from ninfer.engine.artifact.recipe import Choice, Given
from ninfer.engine.artifact.recipe_file import find_recipe
from ninfer.engine.artifact.tensor_source import StoredRows, TensorSource, encoded
from ninfer.engine.artifact.writer import Report, write_artifact

DEMONSTRATION = Path(__file__).parents[1] / "src" / "ninfer" / "demo" / "demo.ninfer"
POOL_ELEMENTS = 1 << 24
"""Weights of a pool: about 3,000 different rows for a layer of 5,120."""
TILE_ROWS = 16
VOLUME_BYTES = 1 << 40


@attrs.frozen(kw_only=True)
class Pool:
    """Stored planes of some tiles, each as [tiles, items of a tile]."""

    planes: tuple[Array, ...]

    @property
    def tiles(self) -> int:
        """How many there are to choose from."""
        return len(self.planes[0])


@attrs.frozen(kw_only=True)
class PoolRows:
    """A matrix made of tiles of a pool."""

    pool: Pool
    chosen: Array
    """Tile number of each 16 rows."""

    def stored(self, start: int, stop: int) -> StoredRows:
        """See `ninfer.engine.artifact.tensor_source.Rows`."""
        tiles = self.chosen[start // TILE_ROWS : stop // TILE_ROWS]
        return StoredRows(planes=tuple(plane[tiles] for plane in self.pool.planes))


class RandomTensors:
    """Sources of random tensors; pools are made once for each format, layout and width."""

    def __init__(self, seed: int, pool_elements: int) -> None:
        self._seed = seed
        self._pool_elements = pool_elements
        self._pools: dict[tuple[Choice, int, float], Pool] = {}

    def source(self, name: str, component: str, shape: Shape, choice: Choice) -> TensorSource:
        """A source for one tensor."""
        # A search for good scales would be wasted on numbers that mean nothing.
        choice = attrs.evolve(choice, format=FORMATS[choice.format.name])
        if len(shape) == 2 and shape[0] % TILE_ROWS == 0:
            return TensorSource(
                name=name,
                component=component,
                shape=shape,
                format=choice.format,
                layout=choice.layout,
                open=lambda: self._rows(name, shape, choice),
                row_step=TILE_ROWS,
            )
        values = small_tensor(name, shape, self._generator(name))
        return encoded(
            name=name,
            component=component,
            shape=shape,
            format=choice.format,
            layout=choice.layout,
            load=lambda: values,
        )

    def _rows(self, name: str, shape: Shape, choice: Choice) -> PoolRows:
        # Rows of the embedding are used as they are, rows of all other matrices are summed over.
        size = 1.0 if name == "embed_tokens.weight" else shape[1] ** -0.5
        key = choice, shape[1], size
        if key not in self._pools:
            tiles = max(1, self._pool_elements // shape[1] // TILE_ROWS)
            self._pools[key] = make_pool(choice, tiles, shape[1], size, self._generator(str(key)))
        pool = self._pools[key]
        return PoolRows(pool=pool, chosen=self._generator(name).integers(0, pool.tiles, shape[0] // TILE_ROWS))

    def _generator(self, name: str) -> np.random.Generator:
        return np.random.default_rng([self._seed, zlib.crc32(name.encode())])


def make_pool(choice: Choice, tiles: int, columns: int, size: float, generator: np.random.Generator) -> Pool:
    """Tiles of normal numbers of standard deviation `size`, encoded and packed."""
    values = generator.standard_normal((tiles * TILE_ROWS, columns), np.float32)
    values *= np.float32(size)
    planes = choice.layout.pack(choice.format, choice.format.encode(values))
    return Pool(planes=tuple(plane.reshape(tiles, -1) for plane in planes))


def small_tensor(name: str, shape: Shape, generator: np.random.Generator) -> Array:
    """float32 values of a tensor that is no large matrix, in the range that trained ones have."""
    if name.endswith("A_log"):
        return np.log(generator.uniform(1, 16, shape)).astype(np.float32)
    if name.endswith("dt_bias"):
        steps = np.exp(generator.uniform(math.log(1e-3), math.log(1e-1), shape))
        return np.log(np.expm1(steps)).astype(np.float32)  # softplus of it is the step
    if name.endswith("conv1d.weight"):
        return generator.standard_normal(shape, np.float32) / 2
    if name.endswith("linear_attn.norm.weight"):
        return np.ones(shape, np.float32)
    if len(shape) == 1:  # gains are 1 + weight
        return generator.standard_normal(shape, np.float32) / 20
    return generator.standard_normal(shape, np.float32) / np.float32(math.sqrt(shape[-1]))


def write_random_artifact(
    config_file: Path,
    entry: Path,
    *,
    recipe: str = "nvfp4",
    name: str | None = None,
    seed: int = 0,
    mtp: bool = False,
    resources: Path = DEMONSTRATION,
    pool_elements: int = POOL_ELEMENTS,
    report: Report = lambda progress: None,
) -> None:
    """Write the artifact `entry` in one file, replacing what is there."""
    config = parse_json(read_file(config_file), file=config_file, object=None)
    architecture, text_config = read_text_config(config)
    components = expected_tensors(text_config)
    if not mtp:
        components.pop(MTP, None)
    shapes = {name: (component, shape) for component, own in components.items() for name, shape in own.items()}
    found = find_recipe(recipe)
    chosen = found.choose({name: Given(shape=shape, stored_type="BF16") for name, (_, shape) in shapes.items()})
    tensors = RandomTensors(seed, pool_elements)
    # A stop token belongs to the tokenizer, which is another artifact's: its resources name its own.
    text_config = {key: value for key, value in text_config.items() if key != "eos_token_id"}
    configs: dict[str, Mapping[str, object]] = {TEXT: text_config, MTP: {"target": TEXT, "layers": 1}}
    contents = Contents(
        architecture=architecture,
        name=name or f"random-{config_file.stem}-{found.name}",
        components={component: configs[component] for component in components},
        resources=_resources(resources),
        tensors=[
            tensors.source(name, component, shape, chosen.choices[name]) for name, (component, shape) in shapes.items()
        ],
        provenance={"source": "random", "seed": seed, "recipe": found.to_json()},
    )
    write_artifact(entry, contents, volume_limit_bytes=VOLUME_BYTES, replace=True, report=report)


def _resources(file: Path) -> dict[str, bytes]:
    with Artifact.open(file) as artifact:
        found = {name: artifact.resource(name) for name in RESOURCES}
    return {name: data for name, data in found.items() if data is not None}


def _teller() -> Callable[[Progress], None]:
    """A line every tenth of the way: whoever waits on another machine sees that it moves."""
    began, told = time.monotonic(), -1

    def tell(progress: Progress) -> None:
        nonlocal told
        tenth = 10 * progress.done_bytes // max(1, progress.total_bytes)
        if tenth > told:
            told = tenth
            print(f"{progress.done_bytes / 1e9:.1f} GB in {time.monotonic() - began:.1f} s", flush=True)

    return tell


def main(arguments: Sequence[str]) -> None:
    """Write one artifact."""
    parser = argparse.ArgumentParser(prog="python -m tools.random_artifact", description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--recipe", default="nvfp4")
    parser.add_argument("--name")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mtp", action="store_true", help="with the prediction head that the config names")
    parser.add_argument("--resources", type=Path, default=DEMONSTRATION)
    options = parser.parse_args(arguments)
    write_random_artifact(
        options.config,
        options.out,
        recipe=options.recipe,
        name=options.name,
        seed=options.seed,
        mtp=options.mtp,
        resources=options.resources,
        report=_teller(),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
