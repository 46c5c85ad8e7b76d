"""Idle blocks in the order in which they became idle: appended, removed and popped in batches.

A ring with lazy deletion: a removed block stays where it is and no longer counts.  When the ring
is full it is compacted, which by then has at least one dead entry for each block of the pool, so
every method is O(1) amortised a block.  12 bytes a block.
"""

import numpy as np
from numpy.typing import NDArray

from kvoracle.impl.ids import Ids, Rows


class IdleQueue:
    """Distinct ids of a pool of `blocks` blocks, the oldest first."""

    def __init__(self, blocks: int) -> None:
        self._ring = np.empty(2 * blocks, np.int32)
        self._place = np.full(blocks, -1, np.int32)
        self._head = 0
        self._tail = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, ids: Ids | Rows) -> None:
        """Add blocks at the young end, in order."""
        if len(ids) == 0:
            return
        if self._tail + len(ids) > len(self._ring):
            self._compact()
        end = self._tail + len(ids)
        self._ring[self._tail : end] = ids
        self._place[ids] = np.arange(self._tail, end, dtype=np.int32)
        self._tail = end
        self._count += len(ids)

    def remove(self, ids: Ids | Rows) -> None:
        """Take blocks out, wherever they are."""
        self._place[ids] = -1
        self._count -= len(ids)

    def pop(self, count: int) -> Ids:
        """Take the oldest `count` blocks out: int32 [count], the oldest first."""
        window = count
        while True:
            entries = self._ring[self._head : min(self._head + window, self._tail)]
            alive = np.flatnonzero(self._is_alive(entries, self._head))
            if len(alive) >= count:
                break
            window *= 2
        oldest: Ids = entries[alive[:count]].copy()
        if count:
            self._head += int(alive[count - 1]) + 1
        self.remove(oldest)
        return oldest

    def ids(self) -> Ids:
        """Every block in the queue, the oldest first: a copy."""
        entries = self._ring[self._head : self._tail]
        alive: Ids = entries[self._is_alive(entries, self._head)]
        return alive

    def _is_alive(self, entries: Ids, first: int) -> NDArray[np.bool_]:
        places = np.arange(first, first + len(entries), dtype=np.int32)
        alive: NDArray[np.bool_] = self._place[entries] == places
        return alive

    def _compact(self) -> None:
        alive = self.ids()
        self._head, self._tail = 0, len(alive)
        self._ring[: self._tail] = alive
        self._place[alive] = np.arange(self._tail, dtype=np.int32)
