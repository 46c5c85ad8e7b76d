"""What is fast: the optimized allocator on numpy arrays, batch first.  Shares nothing with `reference`."""

from kvoracle.impl.allocator import PagedAllocator
from kvoracle.impl.errors import BadCall, OutOfBlocks
from kvoracle.impl.growth import BatchGrowth, Growth
from kvoracle.impl.statistics import Statistics

__all__ = ["BadCall", "BatchGrowth", "Growth", "OutOfBlocks", "PagedAllocator", "Statistics"]
