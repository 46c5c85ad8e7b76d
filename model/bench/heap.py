"""Freed memory is kept by the process while it measures.

Otherwise a large array comes now from memory that was freed, now page by page from the kernel, and
its allocator looks up to seven times as slow as in the run before.
"""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 2**30


def keep_freed_memory() -> None:
    """Tell glibc; other C libraries do as they do."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
