"""Threads with the stack that XLA's compiler needs. Knows no engine and no compiler."""

import threading

STACK_BYTES = 64 << 20
"""XLA's compiler recurses deeply: the default stack of a thread is not enough for it."""


def start_deep(*threads: threading.Thread) -> None:
    """Start them all, each with `STACK_BYTES` of stack."""
    before = threading.stack_size(STACK_BYTES)  # for all threads of the process: set it back at once
    try:
        for thread in threads:
            thread.start()
    finally:
        threading.stack_size(before)
