"""Mutants of the core: owners, pins, fork, copy-on-write, append, release."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvoracle.impl import Growth, OutOfBlocks, PagedAllocator
from kvoracle.impl.growing import Growing
from kvoracle.impl.growth import Copy
from kvoracle.impl.ids import Ids
from kvoracle.impl.pool import BlockPool
from kvoracle.impl.tables import BlockTables
from kvoracle.model.mutants.base import mutant


class _EnqueuesEachEntry(BlockPool):
    def drop_owners(self, ids: Ids) -> None:
        np.subtract.at(self.owners, ids, 1)
        self._give_back_unheld(ids)


@mutant("DF07", "DF01")
class EnqueueOncePerEntry(PagedAllocator):
    """A batch release lowers all counts first and then gives a block back once per entry."""

    pool_class = _EnqueuesEachEntry


class _ForgetsOneOwner(BlockPool):
    def add_owner(self, ids: Ids) -> None:
        super().add_owner(ids[:-1])


@mutant("RC01", "DF02")
class ForkMissesAnOwner(PagedAllocator):
    """Fork does not count the child as an owner of the tail."""

    pool_class = _ForgetsOneOwner


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


class _IgnoresPins(BlockPool):
    def drop_owner(self, ids: Ids) -> None:
        self.owners[ids] -= 1
        pins, self.pins = self.pins, np.zeros_like(self.pins)
        self._give_back_unheld(ids)
        self.pins = pins


@mutant("UAF03", "UAF09")
class PinIgnoredOnRelease(PagedAllocator):
    """Release gives back blocks that a transfer still reads."""

    pool_class = _IgnoresPins


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


@mutant("PS01", "PS05")
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


@mutant("PS02", "PS03")
class CopySharesTheData(PagedAllocator):
    """Copy-on-write takes a block and redirects the table, but the data is never copied."""

    growing_class = _CopiesNothing


class _KeepsABlock(Growing):
    def make_room(self, row: int, position: int, end: int) -> tuple[list[Copy], Ids]:
        try:
            return super().make_room(row, position, end)
        except OutOfBlocks:
            self.pool.take(min(1, self.pool.num_free))
            raise


@mutant("AT02", "AT10")
class FailedAppendKeepsABlock(PagedAllocator):
    """An append that finds too few blocks keeps the one it had already taken."""

    growing_class = _KeepsABlock


@mutant("BT07", "PR01")
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


@mutant("RC08", "PR05")
class OffByOneAtAnExactMultiple(PagedAllocator):
    """A request of exactly k blocks is taken to hold k + 1."""

    tables_class = _OneTooManyAtTheEdge


@mutant("DF04", "DF08")
class DoubleReleaseAccepted(PagedAllocator):
    """A request that was already released is released once more without complaint."""

    def release(self, request: str) -> None:
        if request in self.requests.by_name:
            super().release(request)
