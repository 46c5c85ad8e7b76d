"""Block tables: one rectangular int32 array, one row a live request, grown by doubling."""

import numpy as np

from kvoracle.impl.ids import Ids, Slots


class BlockTables:
    """Rows of block ids with the number of tokens each request holds.

    `ids` is int32 [rows, width]; `lengths` is int64 [rows], in tokens.  Row r's table is its first
    `ceil(lengths[r] / block_size)` entries.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.ids = np.zeros((8, 8), np.int32)
        self.lengths = np.zeros(8, np.int64)
        self._unused = list(range(7, -1, -1))

    def open_row(self) -> int:
        """A row with an empty table."""
        if not self._unused:
            rows = len(self.lengths)
            self.ids = np.concatenate([self.ids, np.zeros_like(self.ids)])
            self.lengths = np.concatenate([self.lengths, np.zeros_like(self.lengths)])
            self._unused = list(range(2 * rows - 1, rows - 1, -1))
        return self._unused.pop()

    def close_row(self, row: int) -> None:
        """Empty a row for reuse."""
        self.lengths[row] = 0
        self._unused.append(row)

    def num_blocks(self, row: int) -> int:
        """How many blocks the table of a row names."""
        return -(-int(self.lengths[row]) // self.block_size)

    def table(self, row: int) -> Ids:
        """The block ids of a row, a view."""
        ids: Ids = self.ids[row, : self.num_blocks(row)]
        return ids

    def reserve_width(self, blocks: int) -> None:
        """Make every row at least `blocks` wide."""
        rows, width = self.ids.shape
        if blocks > width:
            wider = np.zeros((rows, max(blocks, 2 * width)), np.int32)
            wider[:, :width] = self.ids
            self.ids = wider

    def slots(self, row: int, first: int, count: int) -> Slots:
        """The slots of positions first .. first + count - 1 of a row: int64 [count]."""
        positions = np.arange(first, first + count)
        blocks = self.ids[row, positions // self.block_size].astype(np.int64)
        slots: Slots = blocks * self.block_size + positions % self.block_size
        return slots
