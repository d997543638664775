"""What the stacked form remembers between units: one array for each kind of thing, over all layers.

Page tables live here too: a lane's table grows by a page every 64 tokens, so a decode plan brings that page alone
instead of the 16 KiB that a table for 256K tokens takes. Who owns which page or slot is the ledger's business.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from kernels_pallas.gdn_step import GdnState, zero_state
from kernels_pallas.kv_cache import KvPool, page_bytes, zero_pool
from ninfer.engine.model.config import TextConfig


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class StackedState:
    """The trunk's memory; kernels change it in place."""

    pool: KvPool
    delta: GdnState
    tables: jax.Array
    """int32 [slots, P]: each slot's page table from position 0"""

    def with_parts(self, **parts: object) -> "StackedState":
        """With some of its parts replaced."""
        return replace(self, **parts)  # type: ignore[arg-type]


def zero_stacked_state(config: TextConfig, *, kv_format: str, pages: int, slots: int, table_pages: int) -> StackedState:
    """Fresh memory of `pages` pages and `slots` slots; traceable."""
    return StackedState(
        pool=zero_pool(
            kv_format,
            layers=config.full_layers,
            pages=pages,
            heads=config.num_key_value_heads,
            width=config.head_dim,
        ),
        delta=zero_state(
            layers=config.linear_layers,
            slots=slots,
            value_heads=config.linear_num_value_heads,
            key_dim=config.linear_key_head_dim,
            value_dim=config.linear_value_head_dim,
            channels=config.conv_channels,
        ),
        tables=jnp.zeros((slots, table_pages), jnp.int32),
    )


def stacked_state_bytes(config: TextConfig, *, kv_format: str) -> tuple[int, int]:
    """Device bytes of one page and of one slot, over all layers, page tables apart."""
    page = page_bytes(kv_format, layers=config.full_layers, heads=config.num_key_value_heads, width=config.head_dim)
    one = jax.eval_shape(lambda: zero_stacked_state(config, kv_format=kv_format, pages=1, slots=1, table_pages=1).delta)
    return page, sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(one))
