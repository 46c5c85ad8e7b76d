"""What is right: the oracle, in the standard library alone.

Goals, in order: correct, complete, accessible.  Nothing here imports anything of ours.
"""

from kvoracle.reference.invariants import BrokenInvariant
from kvoracle.reference.lists import ListOracle
from kvoracle.reference.oracle import Oracle
from kvoracle.reference.paged_kv import PagedKV
from kvoracle.reference.prefix_cache import PrefixCachedKV
from kvoracle.reference.records import Rejected, WrongChoice

__all__ = [
    "BrokenInvariant",
    "ListOracle",
    "Oracle",
    "PagedKV",
    "PrefixCachedKV",
    "Rejected",
    "WrongChoice",
]
