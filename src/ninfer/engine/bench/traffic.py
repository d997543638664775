"""Counts what a step must move, from the arrays that it is given: nothing here is a formula about a model.

A leaf of the weights counts with all of its bytes; the embedding, of which a step takes a row for each token, counts
apart. Memory is traced with one more page and one more slot, and the difference is what each takes.
"""

from collections import Counter
from collections.abc import Iterator
from math import prod

import jax

from ninfer.engine.bench.report import Traffic
from ninfer.engine.model.config import TextConfig
from ninfer.engine.model.shapes import tensor_shapes
from ninfer.engine.programs.form import Form, Tree
from ninfer.engine.programs.stored_weights import StoredWeights
from ninfer.engine.types import PAGE_TOKENS


def traffic_of(form: Form) -> Traffic:
    """What a decode step of `form` moves."""
    arrays = list(_named_arrays(form.weights))
    has_head = any("head" in name.split(".") for name, _ in arrays)
    weights: Counter[str] = Counter()
    looked_up = 0
    for name, array in arrays:
        if has_head and name == "embed":
            looked_up = array.nbytes // array.shape[0]
        else:
            weights[name] += array.nbytes

    def memory_bytes(pages: int, slots: int) -> int:
        memory = jax.eval_shape(lambda: form.zero_memory(pages=pages, slots=slots, table_pages=1))
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(memory.text))

    one = memory_bytes(1, 1)
    return Traffic(
        weights=dict(weights),
        looked_up_bytes=looked_up,
        token_bytes=(memory_bytes(2, 1) - one) // PAGE_TOKENS,
        slot_bytes=memory_bytes(1, 2) - one,
    )


def product_flops(config: TextConfig, tokens: int) -> int:
    """Operations of all products with weights for a prompt of `tokens`, of which the last one reaches the head."""
    shapes = tensor_shapes(config)
    trunk = sum(prod(shape) for name, shape in shapes.items() if len(shape) == 2 and name.startswith("layers."))
    return 2 * (trunk * tokens + config.vocab_size * config.hidden_size)


def parameters_of(config: TextConfig) -> int:
    """Numbers in all tensors of the text model, prediction heads apart."""
    return sum(prod(shape) for shape in tensor_shapes(config).values())


def _named_arrays(weights: Tree) -> Iterator[tuple[str, jax.Array]]:
    """Each array once, with the kind of tensor that it is; of joined tensors, all their kinds."""
    if not isinstance(weights, StoredWeights):
        for path, leaf in jax.tree_util.tree_flatten_with_path(weights)[0]:
            yield _name(path), leaf
        return
    places = weights.layout.places
    leaves = weights.layout.structure.unflatten(range(len(places)))
    kinds: dict[int, dict[str, None]] = {}
    for (path, _), place in zip(jax.tree_util.tree_flatten_with_path(leaves)[0], places, strict=True):
        kind = "vectors" if place.shape is not None else _name(path).removesuffix(".matrix")
        kinds.setdefault(place.array % len(weights.arrays), {})[kind] = None
    for index, array in enumerate(weights.arrays):
        yield " + ".join(kinds[index]), array


def _name(path: tuple[object, ...]) -> str:
    """Field names on the way to a leaf, joined by dots, without the numbers of layers."""
    fields = [key.name for key in path if isinstance(key, jax.tree_util.GetAttrKey)]
    return ".".join(field for field in fields if field != "layers")
