"""Mutants of the core: owners, pins, fork, copy-on-write, append, release."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvoracle.impl import OutOfBlocks, PagedAllocator
from kvoracle.impl.allocator import Copy, Growth
from kvoracle.impl.ids import Ids
from kvoracle.impl.pool import BlockPool
from kvoracle.impl.tables import BlockTables
from kvoracle.model.mutants.base import mutant


class _WithPool(PagedAllocator):
    """An allocator on a pool of another class."""

    pool_class: type[BlockPool] = BlockPool

    def __init__(self, blocks: int, block_size: int, *, prefix_cache: bool = False) -> None:
        super().__init__(blocks, block_size, prefix_cache=prefix_cache)
        self.pool = self.pool_class(blocks, self.index.forget)


class _EnqueuesEachEntry(BlockPool):
    def drop_owners(self, ids: Ids) -> None:
        np.subtract.at(self.owners, ids, 1)
        self._give_back_unheld(ids)


@mutant("DF07", "DF01")
class EnqueueOncePerEntry(_WithPool):
    """A batch release lowers all counts first and then gives a block back once per entry."""

    pool_class = _EnqueuesEachEntry


class _ForgetsOneOwner(BlockPool):
    def add_owner(self, ids: Ids) -> None:
        super().add_owner(ids[:-1])


@mutant("RC01", "DF02")
class ForkMissesAnOwner(_WithPool):
    """Fork does not count the child as an owner of the tail."""

    pool_class = _ForgetsOneOwner


@mutant("RC02")
class RemovalOrder(PagedAllocator):
    """A request that is released before its fork leaves the blocks they share counted for ever."""

    def __init__(self, blocks: int, block_size: int, *, prefix_cache: bool = False) -> None:
        super().__init__(blocks, block_size, prefix_cache=prefix_cache)
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
        pins, self.pins = self.pins, np.zeros_like(self.pins)
        super().drop_owner(ids)
        self.pins = pins


@mutant("UAF03", "UAF09")
class PinIgnoredOnRelease(_WithPool):
    """Release gives back blocks that a transfer still reads."""

    pool_class = _IgnoresPins


class _OneUnpinEndsAll(BlockPool):
    def drop_pin(self, ids: Ids) -> None:
        self.pins[ids] = 1
        super().drop_pin(ids)


@mutant("UAF08")
class OneUnpinEndsBoth(_WithPool):
    """The first of two transfers that ends takes the pins of the other with it."""

    pool_class = _OneUnpinEndsAll


class _ExclusiveWithOwners(BlockPool):
    def is_exclusive(self, block: int) -> bool:
        return bool(self.pins[block] == 0)

    def are_exclusive(self, ids: Ids) -> NDArray[np.bool_]:
        exclusive: NDArray[np.bool_] = self.pins[ids] == 0
        return exclusive


@mutant("PS01", "PS05")
class CopySkippedOnSharedTail(_WithPool):
    """An append writes a tail in place that another request shares."""

    pool_class = _ExclusiveWithOwners


class _ExclusiveWithPins(BlockPool):
    def is_exclusive(self, block: int) -> bool:
        return bool(self.owners[block] == 1)

    def are_exclusive(self, ids: Ids) -> NDArray[np.bool_]:
        exclusive: NDArray[np.bool_] = self.owners[ids] == 1
        return exclusive


@mutant("UAF07")
class CopySkippedOnPinnedTail(_WithPool):
    """The only owner of a tail writes it in place while a transfer reads it."""

    pool_class = _ExclusiveWithPins


@mutant("PS02", "PS03")
class CopySharesTheData(PagedAllocator):
    """Copy-on-write takes a block and redirects the table, but the data is never copied."""

    def _redirect_tail(self, row: int, index: int, copy: int) -> Copy:
        super()._redirect_tail(row, index, copy)
        return copy, copy


@mutant("AT02", "AT10")
class FailedAppendKeepsABlock(PagedAllocator):
    """An append that finds too few blocks keeps the one it had already taken."""

    def _grow(self, row: int, count: int) -> Growth:
        try:
            return super()._grow(row, count)
        except OutOfBlocks:
            self.pool.take(min(1, self.num_free))
            raise


@mutant("BT07", "PR01")
class AppendRepeatsTheWholeNeed(PagedAllocator):
    """An append takes blocks for the whole request again, and its table is longer than it needs."""

    def __init__(self, blocks: int, block_size: int, *, prefix_cache: bool = False) -> None:
        super().__init__(blocks, block_size, prefix_cache=prefix_cache)
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
    def num_blocks(self, row: int) -> int:
        length = int(self.lengths[row])
        return length // self.block_size + (length > 0)


@mutant("RC08", "PR05")
class OffByOneAtAnExactMultiple(PagedAllocator):
    """A request of exactly k blocks is taken to hold k + 1."""

    def __init__(self, blocks: int, block_size: int, *, prefix_cache: bool = False) -> None:
        super().__init__(blocks, block_size, prefix_cache=prefix_cache)
        self.tables = _OneTooManyAtTheEdge(block_size)


@mutant("DF04", "DF08")
class DoubleReleaseAccepted(PagedAllocator):
    """A request that was already released is released once more without complaint."""

    def release(self, request: str) -> None:
        if request in self._rows:
            super().release(request)
