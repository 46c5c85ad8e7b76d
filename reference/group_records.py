"""What `GroupedKV` is made of: groups, places in tables, contents, and an allocator's choices."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kvoracle.reference.records import ExtraKeys

NULL_BLOCK = 0

Place = tuple[int, int]
"""A group, and a position in a request's table of that group."""

Identity = tuple[int, ExtraKeys, tuple[Hashable, ...]]
"""A group, extra keys, and every token value up to the end of a block."""

Findable = list[list[list[int]]]
"""By group and position, blocks that hold what belongs there."""


class Group(NamedTuple):
    """Layers with one block size, whose queries see `window` tokens; 0 is all of them."""

    block_size: int
    window: int = 0

    def blocks(self, length: int) -> int:
        """How many blocks so many tokens need."""
        return -(-length // self.block_size)

    def first_seen(self, length: int) -> int:
        """The position of the first block that the query at position `length` sees."""
        return max(0, length - self.window + 1) // self.block_size if self.window else 0


@dataclass
class Content:
    """What a request has written, and what keeps its blocks apart from others'."""

    extra_keys: ExtraKeys = ()
    tokens: list[object] = field(default_factory=list)


class Choices:
    """What is left to an allocator, and what the reference does when it is alone."""

    def hit(self, _request: str, lengths: list[int]) -> int:
        """Which of these numbers of tokens a prompt hits."""
        return lengths[-1]

    def hit_blocks(self, _request: str, candidates: Mapping[Place, list[int]]) -> list[int]:
        """Which block is hit for each place, of those that hold what belongs there."""
        return [blocks[0] for blocks in candidates.values()]

    def fresh_blocks(self, _request: str, places: list[Place], takeable: list[int]) -> list[int]:
        """Which blocks are taken for places."""
        return sorted(takeable)[: len(places)]
