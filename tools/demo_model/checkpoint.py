"""Parameters on disk: bfloat16 in parts of at most 15 MiB, so that they fit through narrow places; and full state."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np

PART_BYTES = 15 * 2**20


def save_small(params: Any, folder: Path, name: str, part_bytes: int = PART_BYTES) -> None:
    """Write name.0.bin, name.1.bin, ...: all leaves in tree order as bfloat16."""
    folder.mkdir(parents=True, exist_ok=True)
    data = b"".join(np.asarray(leaf).astype(ml_dtypes.bfloat16).tobytes() for leaf in jax.tree.leaves(params))
    for part, at in enumerate(range(0, len(data), part_bytes)):
        (folder / f"{name}.{part}.bin").write_bytes(data[at : at + part_bytes])


def load_small(like: Any, folder: Path, name: str) -> Any:
    """The inverse: float32 arrays in the tree of `like`."""
    data = b"".join(path.read_bytes() for path in sorted(folder.glob(f"{name}.*.bin")))
    flat = np.frombuffer(data, ml_dtypes.bfloat16).astype(np.float32)
    leaves, tree = jax.tree.flatten(like)
    if sum(leaf.size for leaf in leaves) != flat.size:
        raise ValueError(f"{folder}/{name}: {flat.size} numbers, but the model has {sum(leaf.size for leaf in leaves)}")
    out, at = [], 0
    for leaf in leaves:
        out.append(flat[at : at + leaf.size].reshape(leaf.shape))
        at += leaf.size
    return jax.tree.unflatten(tree, out)


def save_state(path: Path, state: Any) -> None:
    """Everything, exact: only for a machine that stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(jax.tree.map(np.asarray, state)))


def load_state(path: Path) -> Any:
    """The inverse."""
    return pickle.loads(path.read_bytes())
