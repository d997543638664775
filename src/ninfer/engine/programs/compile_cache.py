"""JAX's persistent compile cache in a private folder.

The cache is trusted input: what lies there is loaded as machine code. So the folder is created for its owner alone,
and one that others may write is refused. Setting it is process-wide, as it is in JAX.
"""

import stat
from pathlib import Path

import jax


def use_compile_cache(folder: Path) -> None:
    """Keep compiled programs in `folder` from now on.

    Raises:
        PermissionError: others than the owner may write there.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(
            f"compile cache {folder} can be written by others: `chmod go-w` it, or take another --cache-dir"
        )
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
