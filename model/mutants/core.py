"""Mutants of the core: owners, pins, fork, copy-on-write, append, release."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvoracle.impl import BatchGrowth, Growth, OutOfBlocks, PagedAllocator
from kvoracle.impl.contents import AnyTokens
from kvoracle.impl.growing import Growing, Room
from kvoracle.impl.growth import Copy
from kvoracle.impl.idle_queue import IdleQueue
from kvoracle.impl.ids import Ids, Rows, Slots
from kvoracle.impl.pool import BlockPool
from kvoracle.impl.requests import Requests
from kvoracle.impl.tables import BlockTables, Column
from kvoracle.model.mutants.base import mutant


class RoomyPool(BlockPool):
    """A pool with room for blocks that are given back more than once."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._stack = np.resize(self._stack, 16 * self.blocks)
        self._cells = self._stack.data
        self.idle = IdleQueue(16 * self.blocks)


class _EnqueuesEachEntry(RoomyPool):
    def drop_owners(self, ids: Ids) -> None:
        np.subtract.at(self.owners, ids, 1)
        self._give_back_unheld(ids)


@mutant("DF07")
class EnqueueOncePerEntry(PagedAllocator):
    """A batch release lowers all counts first and then gives a block back once per entry."""

    pool_class = _EnqueuesEachEntry


class _ForgetsOneOwner(BlockPool):
    def add_owner(self, ids: Ids) -> None:
        super().add_owner(ids[:-1])


@mutant("RC01")
class ForkMissesAnOwner(PagedAllocator):
    """Fork does not count the child as an owner of the tail."""

    pool_class = _ForgetsOneOwner


class _DropsTwoOwners(Growing):
    def _redirect_tail(self, row: int, index: int, copy: int) -> Copy:
        source, copy = super()._redirect_tail(row, index, copy)
        self.pool.drop_owner_of(source)
        return source, copy


@mutant("DF02")
class CopyDropsTwoOwners(PagedAllocator):
    """Copy-on-write drops two owners of the tail that it leaves."""

    growing_class = _DropsTwoOwners


@mutant("RC02")
class RemovalOrder(PagedAllocator):
    """A request that is released before its fork leaves the blocks they share counted for ever."""

    def __init__(self, *sizes: int, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.parents: dict[str, str] = {}

    def fork(self, parent: str, child: str) -> None:
        super().fork(parent, child)
        self.parents[child] = parent

    def release(self, request: str) -> None:
        if request in self.parents.values():
            table = self.table(request)
            self.pool.owners[table] += self.pool.owners[table] > 1
        super().release(request)
        self.parents.pop(request, None)


class _OwnsNothing(BlockPool):
    def take_one(self) -> int:
        block = super().take_one()
        self.owners[block] = 0
        return block

    def _take(self, count: int) -> Ids:
        taken = super()._take(count)
        self.owners[taken] = 0
        return taken


@mutant("RC08")
class TakenWithoutAnOwner(PagedAllocator):
    """A fresh block begins with no owner."""

    pool_class = _OwnsNothing


class _KeepsAFullTail(Requests):
    def release(self, name: str) -> None:
        row = self.by_name.get(name, -1)
        if row >= 0 and self.tables.lengths[row] % self.tables.block_size == 0:
            self.pool.owners[self.tables.table(row)[-1:]] += 1
        super().release(name)


@mutant("LK02")
class FullTailNeverComesBack(PagedAllocator):
    """A request that ends at the edge of a block keeps that block when it is released."""

    requests_class = _KeepsAFullTail


class _IgnoresPins(BlockPool):
    def drop_owner(self, ids: Ids) -> None:
        self.owners[ids] -= 1
        pins, self.pins = self.pins, np.zeros_like(self.pins)
        self._give_back_unheld(ids)
        self.pins = pins


@mutant("UAF09")
class PinIgnoredOnRelease(PagedAllocator):
    """Release gives back blocks that a transfer still reads."""

    pool_class = _IgnoresPins


class _IgnoresPinsInBatches(BlockPool):
    def drop_owners(self, ids: Ids) -> None:
        pins, self.pins = self.pins, np.zeros_like(self.pins)
        super().drop_owners(ids)
        self.pins = pins


@mutant("UAF15")
class BatchReleaseIgnoresReaders(PagedAllocator):
    """Only the release of several requests at once gives back what a transfer still reads."""

    pool_class = _IgnoresPinsInBatches


class _OneUnpinEndsAll(BlockPool):
    def drop_pin(self, ids: Ids) -> None:
        self.pins[ids] = 1
        super().drop_pin(ids)


@mutant("UAF08")
class OneUnpinEndsBoth(PagedAllocator):
    """The first of two transfers that ends takes the pins of the other with it."""

    pool_class = _OneUnpinEndsAll


class _ExclusiveWithOwners(BlockPool):
    def is_exclusive(self, block: int) -> bool:
        return bool(self.pins[block] == 0)

    def are_exclusive(self, ids: Ids) -> NDArray[np.bool_]:
        exclusive: NDArray[np.bool_] = self.pins[ids] == 0
        return exclusive


@mutant("PS05")
class CopySkippedOnSharedTail(PagedAllocator):
    """An append writes a tail in place that another request shares."""

    pool_class = _ExclusiveWithOwners


class _ExclusiveWithPins(BlockPool):
    def is_exclusive(self, block: int) -> bool:
        return bool(self.owners[block] == 1)

    def are_exclusive(self, ids: Ids) -> NDArray[np.bool_]:
        exclusive: NDArray[np.bool_] = self.owners[ids] == 1
        return exclusive


@mutant("UAF07")
class CopySkippedOnPinnedTail(PagedAllocator):
    """The only owner of a tail writes it in place while a transfer reads it."""

    pool_class = _ExclusiveWithPins


class _CopiesNothing(Growing):
    def _redirect_tail(self, row: int, index: int, copy: int) -> Copy:
        super()._redirect_tail(row, index, copy)
        return copy, copy


@mutant("PS02")
class CopySharesTheData(PagedAllocator):
    """Copy-on-write takes a block and redirects the table, but the data is never copied."""

    growing_class = _CopiesNothing


class _BatchesOrderNoCopies(Growing):
    def append_batch(self, names: Sequence[str], tokens: ArrayLike) -> BatchGrowth:
        growth = super().append_batch(names, tokens)
        growth.copies.clear()
        return growth


@mutant("PS03")
class BatchOrdersNoCopies(PagedAllocator):
    """Single appends order the copies of shared tails, and batches do not."""

    growing_class = _BatchesOrderNoCopies


class _ChainsCopies(Growing):
    def _make_room_one_by_one(self, rows: Rows, positions: Column, ends: Column) -> Room:
        room = super()._make_room_one_by_one(rows, positions, ends)
        for index, (_, before) in enumerate(room.copies[:-1], start=1):
            room.copies[index] = before, room.copies[index][1]
        return room


@mutant("CO01")
class CopyOfACopy(PagedAllocator):
    """Of two copies in one batch, the second has the destination of the first as its source."""

    growing_class = _ChainsCopies


class _CopiesNoSingleToken(Growing):
    def _tail_must_be_copied(self, row: int, position: int) -> bool:
        return position % self.block_size > 1 and super()._tail_must_be_copied(row, position)


@mutant("CO04")
class TailOfOneTokenNotCopied(PagedAllocator):
    """A shared tail is copied when it holds two tokens or more."""

    growing_class = _CopiesNoSingleToken


class _WritesBeforeTheEdge(Growing):
    def _write(self, row: int, tokens: AnyTokens) -> Slots:
        first, size = int(self.tables.lengths[row]), self.block_size
        slots = super()._write(row, tokens)
        is_short = first > 0 and first % size == 0 and len(tokens) < size
        return self.tables.slots(row, first - size, len(tokens)) if is_short else slots


@mutant("PS01")
class ShortChunkWrittenOneBlockBefore(PagedAllocator):
    """A chunk shorter than a block is written to the full block before it."""

    growing_class = _WritesBeforeTheEdge


class _KeepsABlock(Growing):
    def make_room(self, row: int, position: int, end: int) -> tuple[list[Copy], Ids]:
        try:
            return super().make_room(row, position, end)
        except OutOfBlocks:
            self.pool.take(min(1, self.pool.num_free))
            raise


@mutant("AT02")
class FailedAppendKeepsABlock(PagedAllocator):
    """An append that finds too few blocks keeps the one it had already taken."""

    growing_class = _KeepsABlock


class _ForeseesNoCopy(Growing):
    def can_append(self, name: str, count: int) -> bool:
        suspect, self.tables.suspect[:] = self.tables.suspect.copy(), 0
        try:
            return super().can_append(name, count)
        finally:
            self.tables.suspect[:] = suspect


@mutant("CP04")
class PredictionForgetsTheCopy(PagedAllocator):
    """Asked whether there is room, it forgets the block for the copy of a shared tail."""

    growing_class = _ForeseesNoCopy


class _CountsFirst(BlockPool):
    lost = 0

    @property
    def num_free(self) -> int:
        return super().num_free - self.lost

    def take(self, count: int) -> Ids:
        if count > self.num_free > 0:
            self.lost += 1
        return super().take(count)


@mutant("AT03")
class CounterLoweredBeforeTheCheck(PagedAllocator):
    """The count of free blocks is lowered before the check that can fail."""

    pool_class = _CountsFirst


class _TakesAgain(BlockPool):
    def take(self, count: int) -> Ids:
        if count > self.num_free > 0:
            return np.resize(super().take(self.num_free), count)
        return super().take(count)


@mutant("AT09")
class TakenTwiceInOneCall(PagedAllocator):
    """A call that needs more blocks than there are takes those again that it has just taken."""

    pool_class = _TakesAgain


class _DropsTheTable(Growing):
    def append(self, name: str, tokens: ArrayLike) -> Growth:
        try:
            return super().append(name, tokens)
        except OutOfBlocks:
            self.tables.counts[self.requests.row(name)] = 0
            raise


@mutant("AT11")
class FailedAppendDropsTheTable(PagedAllocator):
    """An append that finds too few blocks is undone as if its request had begun with it."""

    growing_class = _DropsTheTable


class _Truncates(Growing):
    def append(self, name: str, tokens: ArrayLike) -> Growth:
        try:
            return super().append(name, tokens)
        except OutOfBlocks:
            self.tables.lengths[self.requests.row(name)] = 1
            raise


@mutant("LK04")
class RefusedAppendTruncates(PagedAllocator):
    """A request whose append is refused has one token afterwards."""

    growing_class = _Truncates


class _CountsTheRefused(Growing):
    def append_batch(self, names: Sequence[str], tokens: ArrayLike) -> BatchGrowth:
        growth = super().append_batch(names, tokens)
        self.tables.lengths[self.requests.rows(names)[~growth.granted]] += 1
        return growth


@mutant("AT08")
class RefusedInABatchYetLonger(PagedAllocator):
    """A request that is refused in a batch is one token longer all the same."""

    growing_class = _CountsTheRefused


@mutant("BT07")
class AppendRepeatsTheWholeNeed(PagedAllocator):
    """An append takes blocks for the whole request again, and its table is longer than it needs."""

    def __init__(self, *sizes: int, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.repeated: dict[str, Ids] = {}

    def append(self, request: str, tokens: ArrayLike) -> Growth:
        held = len(self.table(request))
        growth = super().append(request, tokens)
        self.repeated[request] = self.pool.take(min(held, self.num_free))
        return growth

    def table(self, request: str) -> Ids:
        table = super().table(request)
        return np.concatenate([table, self.repeated.get(request, table[:0])])


class _OneTooManyAtTheEdge(BlockTables):
    def table(self, row: int) -> Ids:
        length = int(self.lengths[row])
        ids: Ids = self.ids[row, : length // self.block_size + (length > 0)]
        return ids


@mutant("RC08")
class OffByOneAtAnExactMultiple(PagedAllocator):
    """A request of exactly k blocks is taken to hold k + 1."""

    tables_class = _OneTooManyAtTheEdge


class _PadsTheBlockSize(BlockTables):
    def slots(self, row: int, first: int, count: int) -> Slots:
        return self.slots_at(np.intp(row), np.arange(first, first + count))

    def slots_in(self, rows: Rows | np.intp, places: Column, positions: Column) -> Slots:
        padded = 1 << (self.block_size - 1).bit_length()
        blocks = self.ids[rows, places].astype(np.int64)
        slots: Slots = blocks * padded + positions % self.block_size
        return slots


@mutant("SM05")
class SlotsOfAnotherBlockSize(PagedAllocator):
    """Slots are worked out with the block size rounded up to a power of two."""

    tables_class = _PadsTheBlockSize


@mutant("DF04")
class DoubleReleaseAccepted(PagedAllocator):
    """A request that was already released is released once more without complaint."""

    def release(self, request: str) -> None:
        if request in self.requests.by_name:
            super().release(request)


class _TakesAnyName(Requests):
    def check_new(self, name: str) -> None:
        """Any name is taken."""


@mutant("BI01")
class SecondRequestOfAName(PagedAllocator):
    """A request begins under a name that is live, and takes its place."""

    requests_class = _TakesAnyName
