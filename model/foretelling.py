"""What an allocator says beforehand that a prompt would hit, held against what the admission then hits.

An admission that is refused or rejected says nothing, and an allocator that does not say is held to
nothing.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple


class WouldHit(NamedTuple):
    """The tokens and idle blocks that the allocator named, and the blocks that were idle then."""

    told: tuple[int, int]
    idle: frozenset[int]

    def contradiction(self, hit: int, hit_blocks: Sequence[int]) -> str | None:
        """What came otherwise, where so many tokens were hit, and of whole blocks these."""
        came = (hit, sum(block in self.idle for block in hit_blocks))
        if self.told == came:
            return None
        said = "asked what the prompt would hit it said (tokens, idle blocks)"
        return f"{said} {self.told}, yet: {came}"


def is_pair(pair: Any) -> bool:
    """two whole numbers, or None"""
    return pair is None or (type(pair) is tuple and list(map(type, pair)) == [int, int])
