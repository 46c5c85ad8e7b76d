"""Mutants of reserved room: what is recorded of it, written into it, and given back."""

from typing import Any

from numpy.typing import ArrayLike

from kvoracle.impl import Growth, PagedAllocator
from kvoracle.impl.growing import Growing
from kvoracle.impl.growth import Copy
from kvoracle.impl.idle_queue import IdleQueue
from kvoracle.impl.ids import Ids
from kvoracle.impl.requests import Requests
from kvoracle.model.mutants.base import mutant


class _WritesOverReserved(Growing):
    def make_room(self, row: int, position: int, end: int) -> tuple[list[Copy], Ids]:
        self.tables.counts[row] = -(-position // self.block_size)
        return super().make_room(row, position, end)


@mutant("LK03")
class ReservedEntriesOverwritten(PagedAllocator):
    """A request that grows writes new blocks over the entries of those that it had reserved."""

    growing_class = _WritesOverReserved


class _SkipsReserved(Requests):
    def release(self, name: str) -> None:
        row = self.by_name.get(name, -1)
        if row >= 0:
            written = -(-self.tables.lengths[row] // self.tables.block_size)
            self.tables.counts[row] = written
        super().release(name)


@mutant("SD01")
class ReleaseSkipsReserved(PagedAllocator):
    """A release gives back the blocks that hold tokens and not those that were reserved."""

    requests_class = _SkipsReserved


class _RecordsTokens(Growing):
    def _needs(self, row: int, position: int, end: int) -> tuple[int, bool]:
        lacking, copied = super()._needs(row, position, end)
        recorded = int(self.tables.lengths[row] + self.tables.reserved[row])
        return lacking and -(-(end - recorded) // self.block_size), copied


@mutant("SD02")
class RoomRecordedInTokens(PagedAllocator):
    """The room left in the last block is not known, and a request that grows takes a block too many."""

    growing_class = _RecordsTokens


class _ReservesBeyond(Growing):
    def reserve(self, name: str, count: int) -> Growth:
        limit, self.requests.max_length = self.requests.max_length, 0
        try:
            return super().reserve(name, count)
        finally:
            self.requests.max_length = limit


@mutant("SD03")
class ReservedBeyondTheLimit(PagedAllocator):
    """A request reserves room for more tokens than it may have."""

    growing_class = _ReservesBeyond


class _RoundsDown(Growing):
    def trim(self, name: str) -> None:
        row = self.requests.by_name.get(name, 0)
        length = int(self.tables.lengths[row])
        self.tables.lengths[row] -= length % self.block_size
        try:
            super().trim(name)
        finally:
            self.tables.lengths[row] = length


@mutant("SD04")
class TrimRoundsDown(PagedAllocator):
    """A trim gives back the last block although it holds tokens beside the rejected ones."""

    growing_class = _RoundsDown


class _CommitsBeyond(Growing):
    def commit(self, name: str, tokens: ArrayLike) -> Growth:
        reserved, row = self.tables.reserved, self.requests.by_name.get(name, 0)
        reserved[row] += reserved[row] > 0
        return super().commit(name, tokens)


@mutant("SD06")
class CommittedBeyondReserved(PagedAllocator):
    """A commit may write one token more than there is room reserved for."""

    growing_class = _CommitsBeyond


class _NeverEvicts(Growing):
    def reserve(self, name: str, count: int) -> Growth:
        idle, self.pool.idle = self.pool.idle, IdleQueue(self.pool.blocks)
        try:
            return super().reserve(name, count)
        finally:
            self.pool.idle = idle


@mutant("CP08")
class ReserveTakesNoIdleBlocks(PagedAllocator):
    """A reservation is refused when only idle blocks could be taken for it."""

    growing_class = _NeverEvicts


class _TakesOneMore(Growing):
    def reserve(self, name: str, count: int) -> Growth:
        growth = super().reserve(name, count)
        spare = self.pool.take(min(1, self.pool.num_free))
        self.tables.extend(self.requests.row(name), spare)
        return growth


@mutant("CP09")
class ReserveTakesOneMore(PagedAllocator):
    """A reservation takes a block beyond what it was asked for."""

    growing_class = _TakesOneMore


class _RemembersTrimmed(Growing):
    def trim(self, name: str) -> None:
        before = self.tables.table(self.requests.row(name)).copy()
        super().trim(name)
        left = len(self.tables.table(self.requests.row(name)))
        self.requests.mirror[name] = before[left:]  # type: ignore[attr-defined]


class _ReleasesTheMirror(Requests):
    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.mirror: dict[str, Ids] = {}

    def release(self, name: str) -> None:
        super().release(name)
        for block in self.mirror.pop(name, ()):
            self.pool.drop_owner_of(int(block))


@mutant("PR08")
class ReleaseByAnAppendOnlyMirror(PagedAllocator):
    """A release gives back every block that its request was ever given, trimmed ones once more."""

    growing_class = _RemembersTrimmed
    requests_class = _ReleasesTheMirror
