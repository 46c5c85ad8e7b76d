"""The block pool: struct-of-arrays, taken and given back in batches.

Per block two int32 counts (owners and pins), an int32 cell of the free stack, a flag, and 12 bytes
of the idle queue: 25 bytes.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kvoracle.impl.errors import OutOfBlocks
from kvoracle.impl.idle_queue import IdleQueue
from kvoracle.impl.ids import Ids


class BlockPool:
    """`blocks` blocks named 0 .. blocks - 1, each held while it has an owner or a pin.

    A block that nothing holds is taken again: those that are not published first, last in first
    out; then the idle ones (published, held by nothing else), which became idle first.  Of a batch
    that is given back, the last goes before the first, so a sequence's tail before its head.
    `forget` is told which idle blocks are taken.  Every id array holds distinct ids unless a method
    says otherwise.
    """

    def __init__(self, blocks: int, forget: Callable[[Ids], None]) -> None:
        self.blocks = blocks
        self.owners = np.zeros(blocks, np.int32)
        self.pins = np.zeros(blocks, np.int32)
        self.published = np.zeros(blocks, np.bool_)
        self.idle = IdleQueue(blocks)
        self._forget = forget
        self._stack = np.arange(blocks - 1, -1, -1, dtype=np.int32)
        self._stacked = blocks

    @property
    def num_free(self) -> int:
        """How many blocks can be taken."""
        return self._stacked + len(self.idle)

    def take(self, count: int) -> Ids:
        """Take `count` blocks with one owner each; OutOfBlocks, and none, when there are fewer.

        Returns int32 [count], in the order of taking.
        """
        if count > self.num_free:
            raise OutOfBlocks(count, self.num_free)
        plain = min(count, self._stacked)
        top = self._stacked
        self._stacked = top - plain
        taken: Ids = self._stack[top - plain : top][::-1].copy()
        if plain < count:
            taken = np.concatenate([taken, self._evict(count - plain)])
        self.owners[taken] = 1
        return taken

    def use(self, ids: Ids) -> None:
        """Count one more owner for each block, idle or held."""
        self.idle.remove(ids[self._unheld(ids)])
        self.owners[ids] += 1

    def count_idle(self, ids: Ids) -> int:
        """How many of these published blocks nothing holds."""
        return int(np.count_nonzero(self._unheld(ids)))

    def forget_idle(self) -> None:
        """Drop the entries of all idle blocks and make them plain free ones."""
        self._stack_up(self._evict(len(self.idle)))

    def _evict(self, count: int) -> Ids:
        evicted = self.idle.pop(count)
        self.published[evicted] = False
        self._forget(evicted)
        return evicted

    def add_owner(self, ids: Ids) -> None:
        """Count one more owner for each block."""
        self.owners[ids] += 1

    def drop_owner(self, ids: Ids) -> None:
        """Count one owner less for each block and give back those that nothing holds."""
        self.owners[ids] -= 1
        self._give_back_unheld(ids)

    def drop_owners(self, ids: Ids) -> None:
        """As `drop_owner` for ids that may repeat: each occurrence drops one owner."""
        np.subtract.at(self.owners, ids, 1)
        _, last = np.unique(ids[::-1], return_index=True)
        self._give_back_unheld(ids[np.sort(len(ids) - 1 - last)])

    def add_pin(self, ids: Ids) -> None:
        """Count one more pin for each block."""
        self.pins[ids] += 1

    def drop_pin(self, ids: Ids) -> None:
        """Count one pin less for each block and give back those that nothing holds."""
        self.pins[ids] -= 1
        self._give_back_unheld(ids)

    def is_exclusive(self, block: int) -> bool:
        """Whether a block may be written in place: one owner, no pin."""
        return bool(self.owners[block] == 1 and self.pins[block] == 0)

    def are_exclusive(self, ids: Ids) -> NDArray[np.bool_]:
        """`is_exclusive` for many blocks; ids may repeat."""
        exclusive: NDArray[np.bool_] = (self.owners[ids] == 1) & (self.pins[ids] == 0)
        return exclusive

    def _give_back_unheld(self, ids: Ids) -> None:
        unheld = ids[self._unheld(ids)]
        published = self.published[unheld]
        self._stack_up(unheld[~published])
        self.idle.append(unheld[published][::-1])

    def _stack_up(self, ids: Ids) -> None:
        self._stack[self._stacked : self._stacked + len(ids)] = ids
        self._stacked += len(ids)

    def _unheld(self, ids: Ids) -> NDArray[np.bool_]:
        unheld: NDArray[np.bool_] = (self.owners[ids] | self.pins[ids]) == 0
        return unheld
