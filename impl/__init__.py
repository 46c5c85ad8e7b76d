"""What is fast: the optimized allocator on numpy arrays, batch first.  Shares nothing with `reference`."""

from kvoracle.impl.allocator import PagedAllocator
from kvoracle.impl.errors import BadCall, OutOfBlocks

__all__ = ["BadCall", "OutOfBlocks", "PagedAllocator"]
