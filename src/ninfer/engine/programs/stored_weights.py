"""How weights lie on the device. The model functions see matrices (N, K), one row per output, whatever is chosen here.

On the CPU XLA's product packs a matrix (N, K) anew in every call, which takes as long as the product itself; of one
stored as (K, N) it packs nothing. So matrices are turned once, when a device is made, and a program turns them back:
a transpose in front of a product becomes part of the product. Rows still have equal bits in products of 2 to 32 rows
and in those of 64; a product of 33 to 63 rows rounds otherwise, and a program must not have one beside others.
"""

from dataclasses import dataclass, field, replace

import jax
import numpy as np
from jax import lax

from ninfer.engine.model.weights import TextWeights

_EXTRA_MATRICES = frozenset({"fc", "head"})


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StoredWeights:
    """The weights as a program takes them."""

    text: TextWeights
    turned: bool = field(metadata={"static": True})
    """Every matrix of a product is (K, N), and a tied head has a matrix of its own beside the embedding."""

    def opened(self) -> TextWeights:
        """The weights for model functions. Call it inside a program, and again in the body of each of its loops."""
        if not self.turned:
            return self.text
        # Without the barrier XLA moves the transposes of a loop's body in front of the loop, where they are copies.
        text: TextWeights = lax.optimization_barrier(self.text)
        opened: TextWeights = jax.tree_util.tree_map_with_path(
            lambda at, leaf: leaf.T if _is_matrix(at) else leaf, text
        )
        return opened


def store(weights: TextWeights) -> StoredWeights:
    """Choose for the default device, and turn if it is a CPU. What `weights` holds may be dropped afterwards."""
    if jax.devices()[0].platform != "cpu":
        return StoredWeights(weights, turned=False)
    text = replace(weights, head=weights.embed if weights.head is None else weights.head)
    return StoredWeights(jax.tree_util.tree_map_with_path(_turn, text), turned=True)


def _turn(path: tuple[jax.tree_util.GetAttrKey, ...], leaf: jax.Array) -> jax.Array:
    if not _is_matrix(path):
        return leaf
    turned: jax.Array = jax.numpy.asarray(np.ascontiguousarray(np.asarray(leaf).T))
    return turned


def _is_matrix(path: tuple[jax.tree_util.GetAttrKey, ...]) -> bool:
    """Whether a leaf is the matrix of a product. The embedding is looked up, the convolution is no product."""
    name = path[-1].name
    return name.endswith("_proj") or name.startswith("in_proj_") or name in _EXTRA_MATRICES
