"""How requests grow: room for tokens, one request or many at once, and tokens written into it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvoracle.impl.contents import AnyTokens, as_tokens, as_whole
from kvoracle.impl.errors import BadCall, OutOfBlocks
from kvoracle.impl.growth import BatchGrowth, Copy, Growth
from kvoracle.impl.ids import ONE, Ids, Rows, Slots
from kvoracle.impl.requests import Requests
from kvoracle.impl.tables import Column, runs

COUNT_MAX = 2**31 - 1
"""Tokens of one request in one call; so that no sum of counts wraps around."""


@dataclass(slots=True)
class Room:
    """What was done to make room in a batch: `granted` is bool [requests], `fresh` was taken."""

    granted: NDArray[np.bool_]
    copies: list[Copy]
    fresh: Ids


class Growing:
    """Growth of the requests of one allocator."""

    def __init__(self, requests: Requests) -> None:
        self.requests = requests
        self.pool = requests.pool
        self.tables = requests.tables
        self.chains = requests.chains
        self.block_size = requests.tables.block_size

    def append(self, name: str, tokens: ArrayLike) -> Growth:
        """Grow a request by tokens (int [tokens]), into its reserved room first."""
        row = self.requests.row(name)
        self.requests.check_settled(row)
        new = as_tokens(tokens)
        copies, _ = self.make_room(row, *self._reach(name, row, len(new)))
        return Growth(self._write(row, new), copies)

    def can_append(self, name: str, count: int) -> bool:
        """Whether a request finds room for so many tokens; changes nothing."""
        row = self.requests.row(name)
        self.requests.check_settled(row)
        count = as_whole(count, "the number of tokens to append")
        lacking, copied = self._needs(row, *self._reach(name, row, count))
        return lacking + copied <= self.pool.num_free

    def reserve(self, name: str, count: int) -> Growth:
        """Make room for `count` tokens beyond the length of a request."""
        row = self.requests.row(name)
        self.requests.check_settled(row)
        count = as_whole(count, "the number of tokens to reserve")
        length, end = self._reach(name, row, count)
        copies, _ = self.make_room(row, length, end)
        self.tables.reserved[row] = end - length
        return Growth(self.tables.slots(row, length, end - length), copies)

    def commit(self, name: str, tokens: ArrayLike) -> Growth:
        """Write tokens (int [tokens]) into the room of a request."""
        row = self.requests.row(name)
        self.requests.check_settled(row)
        new = as_tokens(tokens)
        if len(new) == 0:
            raise BadCall("no tokens", name)
        if len(new) > self.tables.reserved[row]:
            raise BadCall("more than reserved", name)
        return Growth(self._write(row, new))

    def trim(self, name: str) -> None:
        """Give back the blocks of a request that no token is written to."""
        row = self.requests.row(name)
        self.requests.check_settled(row)
        keep = -(-int(self.tables.lengths[row]) // self.block_size)
        spare = self.tables.table(row)[keep:]
        self.tables.counts[row] = keep
        self.tables.reserved[row] = 0
        self.pool.drop_owner(spare)

    def append_batch(self, names: Sequence[str], tokens: ArrayLike) -> BatchGrowth:
        """Grow each request by one token (int [requests]), in order; those that find no block are
        refused."""
        rows = self.requests.rows(names)
        are_plain = self._are_plain(rows)
        new = as_tokens(tokens)
        if len(new) != len(rows):
            raise BadCall("one token for each request", ", ".join(names))
        return self._grow_by_one(rows, new, are_plain)

    def grow(self, rows: Rows, counts: Column, tokens: ArrayLike | None = None) -> BatchGrowth:
        """Grow row i by `counts[i]` tokens, in order, all or none; `tokens` is int [sum of counts],
        row after row, and needed with a prefix cache."""
        self._check_rows(rows)
        are_plain = self._are_plain(rows)
        counts, ones = self._check_counts(rows, counts)
        new = None if tokens is None else as_tokens(tokens)
        if new is None and self.chains.caching:
            raise ValueError("a prefix cache has to be told the tokens")
        if new is not None and len(new) != (len(rows) if ones else counts.sum()):
            raise ValueError(f"{len(new)} tokens were given for counts of {counts.sum()}")
        if ones:
            return self._grow_by_one(rows, new, are_plain)
        return self._grow(rows, counts, new)

    def make_room(self, row: int, position: int, end: int) -> tuple[list[Copy], Ids]:
        """Have blocks for positions position .. end - 1 of a row, and the first of them for itself.

        Returns the copy to make, if any, and the blocks taken.
        """
        lacking, copied = self._needs(row, position, end)
        if lacking + copied == 0:
            return [], np.zeros(0, np.int32)
        fresh = self.pool.take(lacking + copied)
        copies = []
        if copied:
            copies.append(self._redirect_tail(row, position // self.block_size, int(fresh[0])))
        self.tables.extend(row, fresh[copied:])
        return copies, fresh

    def make_room_each(self, rows: Rows, positions: Column, ends: Column) -> Room:
        """`make_room` for each row in order; those that find no block are refused."""
        if np.count_nonzero(self.tables.suspect[rows]) and self._any_tail_is_copied(
            rows, positions
        ):
            return self._make_room_one_by_one(rows, positions, ends)
        lacking = (ends + (self.block_size - 1)) // self.block_size - self.tables.counts[rows]
        short = (lacking > 0).nonzero()[0]
        granted = np.ones(len(rows), np.bool_)
        if len(short) == 0:
            return Room(granted, [], np.zeros(0, np.int32))
        numbers = lacking[short]
        needed, free = int(numbers.sum()), self.pool.num_free
        if needed > free:
            if needed > len(short):
                return self._make_room_one_by_one(rows, positions, ends)
            granted[short[free:]] = False
            short, numbers, needed = short[:free], numbers[:free], free
        fresh = self.pool.take(needed)
        self.tables.extend_each(rows[short], numbers, fresh)
        return Room(granted, [], fresh)

    def _are_plain(self, rows: Rows) -> bool:
        """Whether no row has reserved tokens or a suspect tail; refuses rows that wait."""
        if self.tables.are_plain(rows):
            return True
        self.requests.check_settled_each(rows)
        return False

    def _grow_by_one(self, rows: Rows, tokens: AnyTokens | None, are_plain: bool) -> BatchGrowth:
        """`_grow` by one token each; fast where the rows are plain and the blocks suffice."""
        tables = self.tables
        lengths = tables.lengths[rows]
        places = tables.places(lengths)
        starting = rows[tables.are_first(places, lengths)]
        if not are_plain or len(starting) > self.pool.num_free:
            return self._grow(rows, np.ones(len(rows), np.int64), tokens, ones=True)
        ends = lengths + ONE
        self.requests.check_length_each(rows, ends)
        fresh = self.pool.take(len(starting))
        tables.extend_by_one(starting, fresh)
        tables.lengths[rows] = ends
        if tokens is not None:
            self.chains.write_each(rows, lengths, tokens)
        granted = np.empty(len(rows), np.bool_)
        granted.fill(True)
        return BatchGrowth(tables.slots_in(rows, places, lengths), granted, [], fresh)

    def _grow(
        self, rows: Rows, counts: Column, tokens: AnyTokens | None, ones: bool = False
    ) -> BatchGrowth:
        tables = self.tables
        lengths, reserved = tables.lengths[rows], tables.reserved[rows]
        ends = lengths + counts
        self.requests.check_length_each(rows, ends)
        promised = np.count_nonzero(reserved) > 0
        room = self.make_room_each(
            rows, lengths, np.maximum(ends, lengths + reserved) if promised else ends
        )
        granted = room.granted
        if np.count_nonzero(granted) == len(rows):
            tables.lengths[rows] = ends
            if promised:
                tables.reserved[rows] = np.maximum(reserved - counts, 0)
            slots = self._fill(rows, lengths, counts, tokens, ones)
        else:
            tables.lengths[rows[granted]] = ends[granted]
            tables.reserved[rows[granted]] = np.maximum(reserved - counts, 0)[granted]
            each = granted if ones else granted.repeat(counts)
            slots = np.full(len(each), -1, np.int64)
            tokens = None if tokens is None else tokens[each]
            slots[each] = self._fill(rows[granted], lengths[granted], counts[granted], tokens, ones)
        return BatchGrowth(slots, granted, room.copies, room.fresh)

    def _fill(
        self, rows: Rows, lengths: Column, counts: Column, tokens: AnyTokens | None, ones: bool
    ) -> Slots:
        """Write tokens into rows that have room for them; returns the slots."""
        if ones:
            if tokens is not None:
                self.chains.write_each(rows, lengths, tokens)
            return self.tables.slots_at(rows, lengths)
        if tokens is not None:
            ends = counts.cumsum()
            parts = zip(
                rows.tolist(), lengths.tolist(), ends.tolist(), counts.tolist(), strict=True
            )
            for row, length, end, count in parts:
                self.chains.write(row, length, tokens[end - count : end])
        return self.tables.slots_at(rows.repeat(counts), runs(lengths, counts))

    def _write(self, row: int, tokens: AnyTokens) -> Slots:
        """Write tokens into a row that has room for them; returns the slots."""
        length, count = int(self.tables.lengths[row]), len(tokens)
        self.tables.lengths[row] = length + count
        self.tables.reserved[row] = max(int(self.tables.reserved[row]) - count, 0)
        self.chains.write(row, length, tokens)
        return self.tables.slots(row, length, count)

    def _check_rows(self, rows: Rows) -> None:
        if rows.ndim != 1 or rows.dtype != np.intp:
            raise ValueError("rows are what `rows` gave")
        if len(rows) == 0:
            raise BadCall("no requests", "")
        if not self.tables.are_distinct_and_open(rows):
            repeated = len(set(rows.tolist())) < len(rows)
            raise BadCall("repeated request" if repeated else "unknown request", str(rows.tolist()))

    def _check_counts(self, rows: Rows, counts: Column) -> tuple[Column, bool]:
        """The counts as int64, and whether all of them are 1."""
        counts = np.asarray(counts)
        if counts.shape != rows.shape or counts.dtype.kind not in "iu":
            raise ValueError("counts are one whole number for each row")
        if np.count_nonzero(counts == ONE) == len(counts):
            return counts, True
        if counts.min() < 1:
            raise BadCall("no tokens", str(counts.tolist()))
        if counts.max() > COUNT_MAX:
            raise ValueError(f"a count is at most {COUNT_MAX}, not {counts.max()}")
        return counts.astype(np.int64, copy=False), False

    def _reach(self, name: str, row: int, count: int) -> tuple[int, int]:
        """The length of a request, and where its room ends once it has room for `count` tokens."""
        if count < 1:
            raise BadCall("no tokens", name)
        length, reserved = int(self.tables.lengths[row]), int(self.tables.reserved[row])
        self.requests.check_length(name, length + count)
        return length, length + max(count, reserved)

    def _needs(self, row: int, position: int, end: int) -> tuple[int, bool]:
        """How many blocks a row lacks up to a position, and whether its tail is to be copied."""
        lacking = max(-(-end // self.block_size) - int(self.tables.counts[row]), 0)
        return lacking, self._tail_must_be_copied(row, position)

    def _tail_must_be_copied(self, row: int, position: int) -> bool:
        """Whether a position is in a partial block that others may read."""
        logical, offset = divmod(position, self.block_size)
        if offset == 0 or not self.tables.suspect[row]:
            return False
        return not self.pool.is_exclusive(int(self.tables.ids[row, logical]))

    def _any_tail_is_copied(self, rows: Rows, positions: Column) -> bool:
        """As `_tail_must_be_copied` for any row; the others are no longer suspect."""
        logical, offsets = np.divmod(positions, self.block_size)
        partial = offsets != 0
        tails = self.tables.ids[rows, logical * partial]
        copied = partial & (self.tables.suspect[rows] != 0) & ~self.pool.are_exclusive(tails)
        self.tables.suspect[rows[~copied]] = 0
        return bool(copied.any())

    def _redirect_tail(self, row: int, index: int, copy: int) -> Copy:
        source = int(self.tables.ids[row, index])
        self.tables.ids[row, index] = copy
        self.tables.suspect[row] = 0
        self.pool.drop_owner_of(source)
        self.chains.move_tail(row, copy)
        return source, copy

    def _make_room_one_by_one(self, rows: Rows, positions: Column, ends: Column) -> Room:
        room = Room(np.ones(len(rows), np.bool_), [], np.zeros(0, np.int32))
        taken = []
        needs = zip(rows.tolist(), positions.tolist(), ends.tolist(), strict=True)
        for index, (row, position, end) in enumerate(needs):
            try:
                copies, fresh = self.make_room(row, position, end)
            except OutOfBlocks:
                room.granted[index] = False
            else:
                room.copies += copies
                taken.append(fresh)
        room.fresh = np.concatenate(taken) if taken else room.fresh
        return room
