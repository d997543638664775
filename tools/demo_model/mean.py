"""The mean of two checkpoints of one line of training: between two runs it is often better than either.

`python -m tools.demo_model.mean --one FOLDER --other FOLDER --share 0.5 --out FOLDER`: --share is that of the other.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def mean(one: Any, other: Any, share: float) -> Any:
    """(1 - share) of `one` and `share` of `other`, leaf by leaf."""
    import jax

    return jax.tree.map(lambda a, b: (1 - share) * a + share * b, one, other)


def main() -> None:
    """Read both, write the mean."""
    from tools.demo_model import checkpoint, geometry, model

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", type=Path, required=True)
    parser.add_argument("--other", type=Path, required=True)
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--name", default="model")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    like = model.fresh(geometry.full(), 0)
    one, other = (checkpoint.load_small(like, folder, args.name) for folder in (args.one, args.other))
    checkpoint.save_small(mean(one, other, args.share), args.out, args.name)


if __name__ == "__main__":
    main()
