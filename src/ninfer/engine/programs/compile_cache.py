"""JAX's persistent compile cache in a private folder.

The cache is trusted input: what lies there is loaded as machine code. So the folder is created for its owner alone,
and one that others may write is refused. Where nothing can be written there is no cache, which costs time only.
Setting it is process-wide, as it is in JAX.
"""

import errno
import logging
import os
import stat
from pathlib import Path

import jax

log = logging.getLogger(__name__)

_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


def use_compile_cache(folder: Path) -> None:
    """Keep compiled programs in `folder` from now on; where it cannot be written, say so and compile anew.

    Raises:
        PermissionError: others than the owner may write there.
        OSError: it is no folder, or cannot be made for another reason than a lack of rights.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise
        log.warning("every start compiles its programs anew, --cache-dir changes that: %s", error)
        return
    if folder.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(
            f"compile cache {folder} can be written by others: `chmod go-w` it, or take another --cache-dir"
        )
    if not os.access(folder, os.W_OK):
        log.warning("every start compiles programs that are not in %s yet: it is read-only", folder)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
