"""The request-to-token table: one row a request, one int32 a token, of fixed shape for CUDA graphs.

Row 0 is padding: the padded entries of a batch read and write there.  After SGLang 0.5.23,
srt/mem_cache/memory_pool.py, `ReqToTokenPool`.
"""

import numpy as np
from numpy.typing import ArrayLike

from kvoracle.impl.errors import BadCall, OutOfBlocks
from kvoracle.impl.ids import Rows, Slots


class OutOfRows(OutOfBlocks):
    """Fewer rows are free than requests are to begin."""

    def __init__(self, need: int, free: int) -> None:
        super().__init__(need, free)
        self.args = (f"{need} rows needed, {free} free: end a request or make more rows",)


class RequestTable:
    """Rows 1 .. `rows` of at most `max_context` tokens.

    `slots` is int32 [rows + 1, max_context], `lengths` int64 [rows + 1] in tokens, `generation`
    int64 [rows + 1]: how often a row was opened, by which a late reader sees that its row has
    another request now.  A call that raises changes nothing.
    """

    def __init__(self, rows: int, max_context: int) -> None:
        if rows < 1 or max_context < 1:
            raise ValueError("rows and max_context must be at least 1")
        self.slots = np.zeros((rows + 1, max_context), np.int32)
        self.lengths = np.zeros(rows + 1, np.int64)
        self.generation = np.zeros(rows + 1, np.int64)
        self._is_open = np.zeros(rows + 1, np.bool_)
        self._unused = list(range(rows, 0, -1))

    @property
    def num_free(self) -> int:
        """How many requests can begin."""
        return len(self._unused)

    def open(self, count: int) -> Rows:
        """Begin `count` requests: their rows, intp [count]; OutOfRows when too few are free."""
        if count < 0:
            raise BadCall("negative count", str(count))
        if count > self.num_free:
            raise OutOfRows(count, self.num_free)
        rows = np.array([self._unused.pop() for _ in range(count)], np.intp)
        self._is_open[rows] = True
        self.generation[rows] += 1
        return rows

    def close(self, rows: ArrayLike) -> None:
        """End requests (int [requests])."""
        checked = self.check(rows)
        self._is_open[checked] = False
        self.lengths[checked] = 0
        self._unused += checked[::-1].tolist()

    def append(self, rows: ArrayLike, counts: ArrayLike, slots: ArrayLike) -> None:
        """Write `counts` slots (int [requests]) at the ends of rows.

        `slots` is int [sum(counts)], one request after the other, as `TokenPool` returns them.
        """
        checked = self.check(rows)
        many, new = np.asarray(counts, np.int64), np.asarray(slots, np.int64)
        self._check_growth(checked, many, new)
        ends = np.cumsum(many)
        columns = np.repeat(self.lengths[checked] - ends + many, many)
        columns += np.arange(len(columns))
        self.slots[np.repeat(checked, many), columns] = new
        self.lengths[checked] += many

    def last(self, rows: ArrayLike) -> Slots:
        """The slot of each row's last token, -1 where it has none: int64 [requests]."""
        checked = self.check(rows)
        lengths = self.lengths[checked]
        slots = self.slots[checked, lengths - 1].astype(np.int64)
        return np.where(lengths > 0, slots, -1)

    def row(self, row: int) -> Slots:
        """The slots of a row's tokens: int64 [tokens], a copy."""
        self.check([row])
        slots: Slots = self.slots[row, : self.lengths[row]].astype(np.int64)
        return slots

    def check(self, rows: ArrayLike) -> Rows:
        """The rows as intp [requests], each open and named once; or BadCall."""
        named = np.asarray(rows, np.intp)
        known = (named > 0) & (named < len(self._is_open))
        known[known] = self._is_open[named[known]]
        if not known.all():
            raise BadCall("unknown row", f"row {named[~known][0]}")
        if len(set(named.tolist())) < len(named):
            raise BadCall("repeated row", f"rows {named.tolist()}")
        return named

    def _check_growth(self, rows: Rows, counts: Slots, slots: Slots) -> None:
        if len(counts) != len(rows):
            raise BadCall("one count for each row", f"{len(counts)} for {len(rows)}")
        if len(counts) > 0 and counts.min() < 0:
            raise BadCall("negative count", str(counts.min()))
        if len(slots) != counts.sum():
            raise BadCall("one slot for each token", f"{len(slots)} for {counts.sum()}")
        too_long = self.lengths[rows] + counts > self.slots.shape[1]
        if too_long.any():
            raise BadCall("longer than max_context", f"row {rows[too_long][0]}")
