"""What is right: the oracle, in the standard library alone.

Goals, in order: correct, complete, accessible.  Nothing here imports anything of ours.
"""

from kvoracle.reference.invariants import BrokenInvariant
from kvoracle.reference.lists import ListOracle
from kvoracle.reference.paged_kv import PagedKV, Rejected, WrongChoice
from kvoracle.reference.prefix_cache import PrefixCachedKV

__all__ = ["BrokenInvariant", "ListOracle", "PagedKV", "PrefixCachedKV", "Rejected", "WrongChoice"]
