"""How weights lie on the device. The model functions see matrices (N, K), one row per output, whatever is chosen here.

On the CPU XLA's product packs a matrix (N, K) anew in every call, which takes as long as the product itself; of one
stored as (K, N) it packs nothing. So matrices are turned once, when a device is made, and a program turns them back:
a transpose in front of a product becomes part of the product. Rows still have equal bits in products of 2 to 32 rows
and in those of 64; a product of 33 to 63 rows rounds otherwise, and a program must not have one beside others.
Every array that a program takes costs the host 2 to 3 us a round, so matrices with the same input are one matrix
there, and the vectors of a layer are one vector that a program cuts. Not the vectors of all layers: XLA makes a kernel
once for all layers that have it, unless it cuts at another place in each. That was a third of all kernels.
"""

import math
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ninfer.engine.model.config import TextConfig
from ninfer.engine.model.reduce import Matrix, Part
from ninfer.engine.model.weights import AttentionWeights, DeltaNetWeights, LayerWeights, TextWeights

_EXTRA_MATRICES = frozenset({"fc", "head"})
_PANEL = 64
"""Joined matrices have a multiple of so many outputs: of one or two behind it the bits depend on the number of rows."""


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where a leaf of the weights is found."""

    array: int
    turned: bool = False
    """The array is a matrix (K, N)"""
    start: int = 0
    shape: tuple[int, ...] | None = None
    """What is cut out of a joined vector, from `start` on; without it the whole array is meant"""

    def find(self, arrays: tuple[jax.Array, ...]) -> jax.Array:
        array = arrays[self.array]
        if self.shape is not None:
            return lax.slice_in_dim(array, self.start, self.start + math.prod(self.shape)).reshape(self.shape)
        return array.T if self.turned else array


@dataclass(kw_only=True)
class _Joined:
    """A vector that is put together."""

    array: int
    parts: list[np.ndarray] = field(default_factory=list)

    def add(self, leaf: np.ndarray) -> _Place:
        start = sum(part.size for part in self.parts)
        self.parts.append(leaf.ravel())
        return _Place(array=self.array, start=start, shape=leaf.shape)


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """How the weights of a model are made of arrays."""

    structure: jax.tree_util.PyTreeDef
    places: tuple[_Place, ...]
    """Of the leaves of the structure; parts of a matrix share one"""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class StoredWeights:
    """The weights as a program takes them."""

    arrays: tuple[jax.Array, ...]
    layout: _Layout = field(metadata={"static": True})

    def opened(self) -> TextWeights:
        """The weights for model functions. Call it inside a program, and again in the body of each of its loops."""
        # Without the barrier XLA moves the transposes of a loop's body in front of the loop, where they are copies.
        arrays = lax.optimization_barrier(self.arrays)
        opened: TextWeights = self.layout.structure.unflatten([place.find(arrays) for place in self.layout.places])
        return opened


def store(weights: TextWeights) -> StoredWeights:
    """Choose for the default device: on a CPU turn and join. What `weights` holds may be dropped afterwards."""
    return _turned(weights) if jax.devices()[0].platform == "cpu" else as_they_are(weights)


def padding_parameters(config: TextConfig) -> int:
    """Zeros that `store` adds to joined matrices on a CPU."""
    heads, keys = config.num_attention_heads, config.num_key_value_heads
    values = config.linear_num_value_heads
    attention = 2 * (heads + keys) * config.head_dim
    delta_net = config.conv_channels + values * config.linear_value_head_dim + 2 * values
    feed_forward = 2 * config.intermediate_size
    outputs = config.full_layers * (-attention % _PANEL) + config.linear_layers * (-delta_net % _PANEL)
    return (outputs + len(config.layer_types) * (-feed_forward % _PANEL)) * config.hidden_size


def as_they_are(weights: TextWeights) -> StoredWeights:
    """No array is touched."""
    leaves, structure = jax.tree_util.tree_flatten(weights)
    places = tuple(_Place(array=index) for index in range(len(leaves)))
    return StoredWeights(arrays=tuple(leaves), layout=_Layout(structure=structure, places=places))


def _turned(weights: TextWeights) -> StoredWeights:
    """Matrices (K, N), those with the same input joined; a tied head has a matrix of its own beside the embedding."""
    text = replace(
        weights,
        layers=tuple(_joined_layer(layer) for layer in weights.layers),
        head=weights.embed if weights.head is None else weights.head,
    )
    leaves, structure = jax.tree_util.tree_flatten_with_path(text)
    arrays: list[jax.Array] = [weights.embed]
    vectors: dict[int | None, _Joined] = {}  # by layer; None: of no layer
    places: list[_Place] = []
    known: dict[int, _Place] = {}
    for path, leaf in leaves:
        if path[-1].name == "embed":
            places.append(_Place(array=0))
        elif _is_matrix(path):
            if id(leaf) not in known:
                known[id(leaf)] = _Place(array=len(arrays), turned=True)
                arrays.append(jnp.asarray(np.ascontiguousarray(np.asarray(leaf).T)))
            places.append(known[id(leaf)])
        else:
            joined = vectors.setdefault(_layer(path), _Joined(array=len(vectors)))
            places.append(joined.add(np.asarray(leaf, np.float32)))
    # Behind the matrices, whose number is known now.
    places = [replace(place, array=place.array + len(arrays)) if place.shape is not None else place for place in places]
    arrays += [jnp.asarray(np.concatenate(joined.parts)) for joined in vectors.values()]
    return StoredWeights(arrays=tuple(arrays), layout=_Layout(structure=structure, places=tuple(places)))


def _joined_layer(layer: LayerWeights) -> LayerWeights:
    """The same with parts of one matrix (still [N, K]) in place of matrices with the same input."""
    mixer: AttentionWeights | DeltaNetWeights
    if isinstance(layer.mixer, AttentionWeights):
        q, k, v = _joined(layer.mixer.q_proj, layer.mixer.k_proj, layer.mixer.v_proj)
        mixer = replace(layer.mixer, q_proj=q, k_proj=k, v_proj=v)
    else:
        given = layer.mixer
        qkv, z, a, b = _joined(given.in_proj_qkv, given.in_proj_z, given.in_proj_a, given.in_proj_b)
        mixer = replace(given, in_proj_qkv=qkv, in_proj_z=z, in_proj_a=a, in_proj_b=b)
    gate, up = _joined(layer.mlp.gate_proj, layer.mlp.up_proj)
    return replace(layer, mixer=mixer, mlp=replace(layer.mlp, gate_proj=gate, up_proj=up))


def _joined(*given: Matrix) -> tuple[Part, ...]:
    matrices = [np.asarray(matrix) for matrix in given]
    ends = np.cumsum([len(matrix) for matrix in matrices]).tolist()
    padding = np.zeros((-ends[-1] % _PANEL, matrices[0].shape[1]), matrices[0].dtype)
    whole = jnp.asarray(np.concatenate([*matrices, padding]))
    starts = (0, *ends[:-1])
    return tuple(Part(matrix=whole, start=at, width=end - at) for at, end in zip(starts, ends, strict=True))


def _layer(path: tuple[object, ...]) -> int | None:
    """The layer that a leaf belongs to."""
    return next((key.idx for key in path if isinstance(key, jax.tree_util.SequenceKey)), None)


def _is_matrix(path: tuple[jax.tree_util.GetAttrKey, ...]) -> bool:
    """Whether a leaf is the matrix of a product. The embedding is looked up, the convolution is no product."""
    name = path[-1].name
    return name.endswith("_proj") or name in _EXTRA_MATRICES or name == "matrix"
