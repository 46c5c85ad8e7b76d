"""The state of each request in columns, one row a live request; everything is grown by doubling."""

import numpy as np
from numpy.typing import NDArray

from kvoracle.impl.ids import ONE, Ids, Rows, Slots

Column = NDArray[np.int64]


class BlockTables:
    """Rows of block ids, int32 [rows, width], and int64 [rows] each:

    `counts` blocks in the table; `lengths` written tokens; `reserved` tokens of room promised beyond
    them; `in_flight` tokens of steps under way, which are reserved as well; `waiting` for a transfer
    in, 0 or 1, which only rows with reserved tokens are; `suspect`, 0 only where the partial tail
    is surely nobody else's; `lives`, a number of which every opening of a row gives another, 0
    while closed.
    """

    counts: Column
    lengths: Column
    reserved: Column
    in_flight: Column
    waiting: Column
    suspect: Column
    lives: Column

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._size = np.array(block_size)  # as `ONE` is
        self.ids = np.zeros((8, 8), np.int32)
        self._width = np.array(8)
        self._columns = np.zeros((7, 8), np.int64)
        self._name_columns()
        self._unused = list(range(7, -1, -1))
        self._opened = 0
        self._checked = b""

    def open_row(self) -> int:
        """A row with an empty table."""
        if not self._unused:
            rows = len(self.lengths)
            self.ids = np.concatenate([self.ids, np.zeros_like(self.ids)])
            self._columns = np.hstack([self._columns, np.zeros_like(self._columns)])
            self._name_columns()
            self._unused = list(range(2 * rows - 1, rows - 1, -1))
        row = self._unused.pop()
        self._opened += 1
        self.lives[row] = self._opened
        return row

    def close_row(self, row: int) -> None:
        """Empty a row for reuse."""
        self._columns[:, row] = 0
        self._unused.append(row)
        self._checked = b""

    def are_plain(self, rows: Rows) -> bool:
        """Whether none of the rows has reserved tokens or a tail that may be somebody else's too."""
        if not np.count_nonzero(self.reserved) and not np.count_nonzero(self.suspect):
            return True  # most often, and told in half the time
        return not np.count_nonzero(self.reserved[rows]) and not np.count_nonzero(
            self.suspect[rows]
        )

    def are_first(self, places: Column, positions: Column) -> NDArray[np.bool_]:
        """Whether each position is the first of the block at its place."""
        first: NDArray[np.bool_] = places * self._size == positions
        return first

    def are_distinct_and_open(self, rows: Rows) -> bool:
        """Whether a batch names open rows, each once.  The rows of the last batch are known."""
        text = rows.tobytes()
        if text != self._checked:
            if len(rows) > 0 and (rows.min() < 0 or rows.max() >= len(self.lives)):
                return False
            if not self.lives[rows].all() or np.bincount(rows).max(initial=0) > 1:
                return False
            self._checked = text
        return True

    def table(self, row: int) -> Ids:
        """The block ids of a row, a view."""
        ids: Ids = self.ids[row, : self.counts[row]]
        return ids

    def concatenated(self, rows: Rows) -> Ids:
        """The tables of rows, one after the other."""
        counts = self.counts[rows]
        width = int(counts.max(initial=0))
        ids: Ids = self.ids[rows, :width][np.arange(width) < counts[:, None]]
        return ids

    def extend(self, row: int, ids: Ids) -> None:
        """Put blocks at the end of the table of a row."""
        held = int(self.counts[row])
        self._reserve_width(held + len(ids))
        self.ids[row, held : held + len(ids)] = ids
        self.counts[row] = held + len(ids)

    def extend_by_one(self, rows: Rows, ids: Ids) -> None:
        """Put one of the blocks at the end of the table of each row."""
        held = self.counts[rows]
        self._reserve_width(1 + max(held.tolist(), default=0))
        self.ids[rows, held] = ids
        self.counts[rows] = held + ONE

    def extend_each(self, rows: Rows, numbers: Column, ids: Ids) -> None:
        """Put the next `numbers[i]` of the blocks at the end of the table of row i."""
        held = self.counts[rows]
        self._reserve_width(int((held + numbers).max(initial=0)))
        self.ids[rows.repeat(numbers), runs(held, numbers)] = ids
        self.counts[rows] = held + numbers

    def slots(self, row: int, first: int, count: int) -> Slots:
        """The slots of positions first .. first + count - 1 of a row: int64 [count]."""
        size, end = self.block_size, first + count
        if first % size == end % size == 0:
            blocks = self.ids[row, first // size : end // size].astype(np.int64)
            slots: Slots = (blocks[:, np.newaxis] * size + np.arange(size)).ravel()
            return slots
        return self.slots_at(np.intp(row), np.arange(first, end))

    def slots_at(self, rows: Rows | np.intp, positions: Column) -> Slots:
        """The slot of a position in each row: int64 [positions]."""
        return self.slots_in(rows, self.places(positions), positions)

    def slots_in(self, rows: Rows | np.intp, places: Column, positions: Column) -> Slots:
        """As `slots_at`, when the places of the blocks in their tables are known."""
        blocks = self.ids.ravel().take(rows * self._width + places)
        slots: Slots = blocks.astype(np.int64)
        slots -= places
        slots *= self._size
        slots += positions
        return slots

    def places(self, positions: Column) -> Column:
        """Which block of its table each position is in."""
        places: Column = positions // self._size
        return places

    def _reserve_width(self, blocks: int) -> None:
        rows, width = self.ids.shape
        if blocks > width:
            wider = np.zeros((rows, max(blocks, 2 * width)), np.int32)
            wider[:, :width] = self.ids
            self.ids = wider
            self._width = np.array(wider.shape[1])

    def _name_columns(self) -> None:
        self.counts, self.lengths, self.reserved, self.in_flight = self._columns[:4]
        self.waiting, self.suspect, self.lives = self._columns[4:]


def runs(firsts: Column, numbers: Column) -> Column:
    """firsts[0], firsts[0] + 1, ... `numbers[0]` of them, then the same of each further entry."""
    ends = numbers.cumsum()
    total = int(ends[-1]) if len(ends) else 0
    found: Column = (firsts - ends + numbers).repeat(numbers) + np.arange(total)
    return found
