"""Mutants of groups of layers: windows, the null block, agreed hits, one pool for all."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kvoracle.impl import OutOfBlocks
from kvoracle.impl.chains import Prompt
from kvoracle.impl.groups import GroupedAllocator
from kvoracle.impl.ids import Ids, Rows
from kvoracle.impl.layer_group import NULL, GroupIndex, LayerGroup
from kvoracle.impl.tables import Column
from kvoracle.model.adapters.impl_groups import ImplGroupsAdapter
from kvoracle.model.mutants.base import mutant


class _PrunesEarly(LayerGroup):
    def first_seen(self, lengths: Column) -> Column:
        return super().first_seen(lengths + 1) if self.window else super().first_seen(lengths)


@mutant("SW01", adapter=ImplGroupsAdapter)
class WindowOneTokenTooShort(GroupedAllocator):
    """Windows are pruned for the token after the next one, as if that were written already."""

    group_class = _PrunesEarly


class _PrunesLate(LayerGroup):
    def first_seen(self, lengths: Column) -> Column:
        return super().first_seen(np.maximum(lengths - 1, 0))


@mutant("SW01", adapter=ImplGroupsAdapter)
class WindowOneTokenTooLong(GroupedAllocator):
    """Windows are pruned for the last token instead of the next one."""

    group_class = _PrunesLate


class _NeverStraddles(LayerGroup):
    def first_seen(self, lengths: Column) -> Column:
        first = super().first_seen(lengths)
        kept = -(-self.window // self.block_size)
        return np.maximum(first, -(-lengths // self.block_size) - kept) if kept else first


@mutant("CP05", adapter=ImplGroupsAdapter)
class WindowAsIfItNeverStraddled(GroupedAllocator):
    """A window keeps as many blocks as it fills, and none for the one that it straddles."""

    group_class = _NeverStraddles


@mutant("CP01", adapter=ImplGroupsAdapter)
class NeedCappedAtTheWindow(GroupedAllocator):
    """Asked whether there is room, it counts no more blocks for a group than its window fills."""

    def can_append(self, name: str, count: int) -> bool:
        befores = self._lengths(self._rows([name]))
        needs = self._needs(befores, befores + count)[:, 0].tolist()
        caps = [-(-group.window // group.block_size) or count for group in self.groups]
        return bool(sum(map(min, needs, caps)) <= self.num_free)


class _NamesNull(LayerGroup):
    def held(self, rows: Rows) -> Ids:
        return self.tables.concatenated(rows)


@mutant("NB01", adapter=ImplGroupsAdapter)
class NullBlockFreed(GroupedAllocator):
    """A release gives back the null block for every entry that names it."""

    group_class = _NamesNull


@mutant("NB01", adapter=ImplGroupsAdapter)
class NullBlockHandedOut(GroupedAllocator):
    """The null block is taken like any other."""

    def reserve_null(self) -> None:
        """Nothing is reserved."""


@mutant("NB03", adapter=ImplGroupsAdapter)
class NullBlockCountedUsable(GroupedAllocator):
    """The null block is never taken and yet counted as one that can be."""

    @property
    def num_free(self) -> int:
        return super().num_free + 1


@mutant("LK02", adapter=ImplGroupsAdapter)
class SlidBlockKeepsItsOwner(GroupedAllocator):
    """What leaves a window becomes null in the table and is not given back."""

    def slide(self, rows: Rows, befores: Column) -> None:
        for group in self.groups:
            group.slide(rows, befores)


class _LeavesEntries(LayerGroup):
    def slide(self, rows: Rows, befores: Column) -> Ids:
        ids = self.tables.ids.copy()
        left = super().slide(rows, befores)
        self.tables.ids[:] = ids
        return left


@mutant("BT04", adapter=ImplGroupsAdapter)
class SlidBlockStaysInTheTable(GroupedAllocator):
    """What leaves a window is given back and the table still names it."""

    group_class = _LeavesEntries


@mutant("HL01", "HL05", adapter=ImplGroupsAdapter)
class HitLengthOfEachGroup(GroupedAllocator):
    """Every group keeps the longest hit of its own."""

    def agree(self, prompts: Sequence[Prompt], length: int) -> list[int]:
        edges = np.arange(0, length if self.prefix_cache else 1, self.hit_unit)
        able = [group.can_hit(p.hit, edges) for group, p in zip(self.groups, prompts, strict=True)]
        return [int(edges[can][-1]) for can in able]


class _KeysWithoutGroup(GroupIndex):
    def group_root(self, group: int, extra_keys: Mapping[str, str], epoch: int) -> bytes:  # noqa: ARG002
        return self.root(extra_keys, epoch)


@mutant("HC08", adapter=ImplGroupsAdapter)
class KeyWithoutGroup(GroupedAllocator):
    """The same tokens have the same key in every group."""

    index_class = _KeysWithoutGroup


@mutant("EV01", adapter=ImplGroupsAdapter)
class GroupEvictsAnothersHits(GroupedAllocator):
    """Each group marks its hits and takes its blocks before the next group marks its own."""

    def take(self, hits: Sequence[Ids], numbers: Sequence[int]) -> list[Ids]:
        idle = sum(int(np.count_nonzero(self.pool.owners[hit] == 0)) for hit in hits)
        if sum(numbers) + idle > self.num_free:
            raise OutOfBlocks(sum(numbers) + idle, self.num_free)
        return [
            self.pool.use_and_take(hit, number, 0)[len(hit) :]
            for hit, number in zip(hits, numbers, strict=True)
        ]


class _NeedsEverything(LayerGroup):
    def can_hit(self, found: Ids, edges: Column) -> NDArray[np.bool_]:
        missing = np.concatenate([[0], (found == NULL).cumsum()])
        whole: NDArray[np.bool_] = missing[edges // self.block_size] == 0
        return whole


@mutant("HG02", adapter=ImplGroupsAdapter)
class WindowVetoesAHit(GroupedAllocator):
    """A group with a window hits only where it still has what is out of the window."""

    group_class = _NeedsEverything


@mutant("AT02", "AT10", adapter=ImplGroupsAdapter)
class FailedAppendKeepsAGroupsBlocks(GroupedAllocator):
    """Groups take their blocks one after the other, and keep them when there are none for the next."""

    def _make_room(self, rows: Rows, afters: Column) -> NDArray[np.bool_]:
        needs = self._needs(self._lengths(rows), afters)
        if len(rows) == 1 and needs.sum() > self.num_free >= needs[0, 0]:
            self.pool.take(int(needs[0, 0]))
        return super()._make_room(rows, afters)
