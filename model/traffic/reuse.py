"""What a prefix cache could hit on traffic, whatever its allocator: with unlimited memory and with any.

A block of a prompt is named by the prefix identity it ends in and by its end.  Equal identities mean
that the prompts are equal up to there, or up to the end of the shorter one; both have the block's last
token, so a name stands for all tokens up to it.  For the same reason whoever has a block has all blocks
before it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvoracle.model.traffic.arrival import Arrival


class Hits(NamedTuple):
    """Tokens of all prompts: those found in the cache, and all of them."""

    hit_tokens: int
    prompt_tokens: int


def unlimited(arrivals: Iterable[Arrival], block_size: int) -> Hits:
    """Hits of a cache that forgets nothing, on blocks of so many tokens; keeps every name there is."""
    _check_block_size(block_size)
    seen: set[tuple[int, int]] = set()
    hit_blocks = prompt_tokens = 0
    for arrival in arrivals:
        ends = range(block_size, _known_tokens(arrival) + 1, block_size)
        names = [(arrival.prefixes[(end - 1) // arrival.prefix_block], end) for end in ends]
        findable = names[: _findable_blocks(arrival, block_size)]
        hit_blocks += sum(1 for _ in takewhile(seen.__contains__, findable))
        seen.update(names)
        prompt_tokens += arrival.prompt
    return Hits(hit_blocks * block_size, prompt_tokens)


@dataclass(frozen=True, slots=True, eq=False)
class Reuse:
    """The hits of a least-recently-used cache of any size.

    Of each run that was found, the blocks have the distances younger + 1, ..., younger + found.
    """

    block_size: int
    """Tokens."""
    prompt_tokens: int
    """Of all requests."""
    younger: NDArray[np.int64]
    found: NDArray[np.int64]

    @property
    def unlimited(self) -> int:
        """Tokens hit where nothing is ever evicted."""
        return int(self.found.sum()) * self.block_size

    def hit_tokens(self, blocks: int) -> int:
        """Tokens hit with a memory of so many blocks."""
        if blocks < 0:
            raise ValueError(f"a memory cannot have {blocks} blocks; give 0 or more.")
        return int(np.clip(blocks - self.younger, 0, self.found).sum()) * self.block_size


def reuse_distances(arrivals: Iterable[Arrival], block_size: int) -> Reuse:
    """The exact curve in one pass, by reuse distances.

    Requests are served one at a time.  When one ends, all its full blocks, those of its answer too, are
    the youngest there are, the first of them foremost, so that tails are evicted first.  A block's
    distance is its place in that order, from 1 on, before its request begins: a memory of C blocks has
    it if that is at most C (Mattson, Gecsei, Slutz, Traiger: Evaluation techniques for storage
    hierarchies, IBM Systems Journal 9(2), 1970).  Whoever uses a block uses those before it and leaves
    them younger, so distances grow along a prompt, and what a memory has of it is a prefix.
    """
    _check_block_size(block_size)
    cache = _Cache(block_size)
    prompt_tokens = 0
    for arrival in arrivals:
        cache.serve(arrival)
        prompt_tokens += arrival.prompt
    younger, found = np.array(cache.distances, np.int64).reshape(-1, 2).T
    return Reuse(block_size, prompt_tokens, younger, found)


def _check_block_size(block_size: int) -> None:
    if block_size < 1:
        raise ValueError(f"a block cannot have {block_size} tokens; give 1 or more.")


def _known_tokens(arrival: Arrival) -> int:
    """The prompt's, as far as its identities go."""
    return min(arrival.prompt, arrival.prefix_block * len(arrival.prefixes))


def _findable_blocks(arrival: Arrival, block_size: int) -> int:
    """At most so many are hit: the last token of a prompt is always computed, to have an output."""
    return (arrival.prompt - 1) // block_size


@dataclass
class _Stack:
    """Numbers of blocks in slots from the oldest to the youngest: a Fenwick tree that grows.

    Node n is the sum of the slots after n without its lowest bit, up to n (Fenwick: A new data
    structure for cumulative frequency tables, Software: Practice and Experience 24(3), 1994).
    """

    nodes: list[int] = field(default_factory=lambda: [0])
    blocks: int = 0

    def push(self, blocks: int) -> int:
        """Blocks younger than all others; their slot."""
        slot = len(self.nodes)
        self.nodes.append(blocks + self._sum(slot & (slot - 1), slot - 1))
        self.blocks += blocks
        return slot

    def take(self, slot: int, blocks: int) -> None:
        """So many of a slot's go."""
        self.blocks -= blocks
        while slot < len(self.nodes):
            self.nodes[slot] -= blocks
            slot += slot & -slot

    def younger(self, slot: int) -> int:
        """Blocks in the slots after this one."""
        return self.blocks - self._sum(0, slot)

    def _sum(self, after: int, slot: int) -> int:
        """Of the slots after one, up to another, whose number less some of its low bits the first is."""
        total = 0
        while slot > after:
            total += self.nodes[slot]
            slot &= slot - 1
        return total


class _Run(NamedTuple):
    """Blocks begin, ..., end - 1 of all prompts that have a prefix identity; last used together."""

    begin: int
    end: int
    slot: int


@dataclass
class _Cache:
    """Blocks that end under one identity are used together, so runs are kept and not blocks.

    A prompt that ends there uses only the first of them: what it leaves of a run keeps its slot, and no
    two runs of an identity have a block in common.
    """

    block_size: int
    runs: dict[int, list[_Run]] = field(default_factory=dict)
    stack: _Stack = field(default_factory=_Stack)
    distances: list[tuple[int, int]] = field(default_factory=list)
    """A run that was found: how many blocks were younger than all of it, how many it has."""

    def serve(self, arrival: Arrival) -> None:
        known = _known_tokens(arrival)
        length = arrival.prefix_block
        pieces = [
            (prefix, begin // self.block_size, min(begin + length, known) // self.block_size)
            for prefix, begin in zip(arrival.prefixes, range(0, known, length), strict=False)
        ]
        findable = _findable_blocks(arrival, self.block_size)
        for prefix, _, end in pieces:
            self._find(prefix, min(end, findable))
        # No other request has the blocks that hold a token of the answer.
        self.stack.push(arrival.tokens // self.block_size - known // self.block_size)
        for prefix, begin, end in reversed(pieces):
            self._use(prefix, begin, end)

    def _find(self, prefix: int, end: int) -> None:
        for run in self.runs.get(prefix, ()):
            if run.begin < end:
                self.distances.append((self.stack.younger(run.slot), min(run.end, end) - run.begin))

    def _use(self, prefix: int, begin: int, end: int) -> None:
        left = []
        for run in self.runs.get(prefix, ()):
            if run.begin < end:
                self.stack.take(run.slot, min(run.end, end) - run.begin)
            if run.end > end:
                left.append(run._replace(begin=max(run.begin, end)))
        self.runs[prefix] = [_Run(begin, end, self.stack.push(end - begin)), *left]
