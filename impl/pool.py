"""The block pool: struct-of-arrays, taken and given back in batches, last in first out.

Per block two int32 counts (owners and pins) and one int32 cell of the free stack: 12 bytes.
"""

import numpy as np
from numpy.typing import NDArray

from kvoracle.impl.errors import OutOfBlocks

Ids = NDArray[np.int32]


class BlockPool:
    """`blocks` blocks named 0 .. blocks - 1, each free exactly when it has no owner and no pin.

    Blocks given back are reused last in first out, the last of a batch before its first, so that
    the tail of a sequence goes before its head.  Every id array holds distinct ids unless a method
    says otherwise.
    """

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.owners = np.zeros(blocks, np.int32)
        self.pins = np.zeros(blocks, np.int32)
        self._stack = np.arange(blocks - 1, -1, -1, dtype=np.int32)
        self.num_free = blocks

    def take(self, count: int) -> Ids:
        """Take `count` free blocks with one owner each; OutOfBlocks, and none, when there are fewer.

        Returns int32 [count], in the order of taking.
        """
        if count > self.num_free:
            raise OutOfBlocks(count, self.num_free)
        top = self.num_free
        self.num_free = top - count
        taken: Ids = self._stack[top - count : top][::-1].copy()
        self.owners[taken] = 1
        return taken

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
        unheld = ids[(self.owners[ids] | self.pins[ids]) == 0]
        self._stack[self.num_free : self.num_free + len(unheld)] = unheld
        self.num_free += len(unheld)
