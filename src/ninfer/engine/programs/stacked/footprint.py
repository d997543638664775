"""What the stacked form needs of a device, before anything is loaded or compiled. Shapes are traced alone."""

from collections.abc import Callable

import jax

from kernels_pallas.kv_cache import unindexable_pages
from ninfer.engine.memory import MemoryNeeds, program_allowance_bytes
from ninfer.engine.model.config import TextConfig
from ninfer.engine.programs.stacked.form import chunk_buckets
from ninfer.engine.programs.stacked.memory import stacked_state_bytes
from ninfer.engine.programs.stacked.weights import weight_bytes
from ninfer.engine.types import PAGE_TOKENS


def stacked_needs(
    config: TextConfig,
    formats: Callable[[str], str],
    *,
    kv_format: str,
    lanes: int,
    table_pages: int,
    chunk_tokens: int,
) -> MemoryNeeds:
    """What `config` needs with `lanes` lanes; `formats` tells the format of a matrix by its logical name."""
    page, slot = stacked_state_bytes(config, kv_format=kv_format)
    on_gpu = jax.default_backend() == "gpu"
    programs_bytes = program_allowance_bytes(
        decode=lanes, prefill=len(chunk_buckets(chunk_tokens)), layers=config.num_layers
    )
    return MemoryNeeds(
        weights_bytes=weight_bytes(config, formats),
        slots_bytes=lanes * (slot + 4 * table_pages),
        counts_bytes=lanes * 4 * (config.vocab_size + 1),
        workspace_bytes=estimated_workspace_bytes(config, chunk_tokens=chunk_tokens, lanes=lanes),
        graphs_bytes=programs_bytes if on_gpu else 0,
        page_bytes=page,
        impossible_pages=unindexable_pages(
            kv_format, layers=config.full_layers, heads=config.num_key_value_heads, width=config.head_dim
        ),
    )


def estimated_workspace_bytes(config: TextConfig, *, chunk_tokens: int, lanes: int) -> int:
    """What a prefill of the largest chunk allocates while it runs, or a decode round, before they are compiled.

    A matrix written out, the residual with what is made of it, and the delta rule's float32 rows and chunk matrices.
    """
    hidden, heads = config.hidden_size, config.linear_num_value_heads
    attended = config.num_attention_heads * config.head_dim
    projected = max(config.conv_channels + config.value_width, 2 * attended + 2 * config.intermediate_size)
    matrix = 2 * hidden * max(2 * config.intermediate_size, config.conv_channels + config.value_width)
    delta = 4 * (6 * heads * config.linear_value_head_dim + 4 * heads * PAGE_TOKENS)
    row = 4 * 3 * hidden + 2 * 2 * projected + delta
    return matrix + chunk_tokens * row + 4 * 4 * max(1, lanes) * config.vocab_size
