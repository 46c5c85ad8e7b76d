"""Mutants of the prefix cache: entries, hits, idle blocks, reset, weights."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from kvoracle.impl import Growth, OutOfBlocks, PagedAllocator
from kvoracle.impl.admission import Admission
from kvoracle.impl.chains import Chains, Prompt
from kvoracle.impl.errors import BadCall
from kvoracle.impl.idle_queue import IdleQueue
from kvoracle.impl.ids import Ids, Rows
from kvoracle.impl.pool import BlockPool
from kvoracle.impl.prefix_index import KeyOf, PrefixIndex, sha256_key
from kvoracle.model.mutants.base import mutant

# Entries


class _KeepsEntries(BlockPool):
    def _forget_oldest(self, count: int) -> Ids:
        kept = self.idle.pop(count)
        self.published[kept] = False
        return kept


@mutant("SH01", "SH02", "SH13")
class RecycledBlockKeepsItsEntry(PagedAllocator):
    """A block that is taken for something else stays findable as what it held before."""

    pool_class = _KeepsEntries


class _RecordsTheFirst(PrefixIndex):
    def add(self, keys: list[bytes], blocks: list[int]) -> None:
        for key, block in zip(keys, blocks, strict=True):
            if key not in self._blocks:
                super().add([key], [block])

    def forget(self, ids: Ids) -> None:
        super().forget(np.array([block for block in ids if block in self._keys], np.int32))


@mutant("SH04")
class OnlyTheFirstDuplicateIsRecorded(PagedAllocator):
    """Of two blocks with one content the second is never findable, even when the first is gone."""

    index_class = _RecordsTheFirst


class _ForgetsTheKey(PrefixIndex):
    def _drop(self, keys: Iterable[bytes], blocks: list[int]) -> None:  # noqa: ARG002
        for key in keys:
            self._blocks.pop(key, None)


@mutant("SH04")
class ForgettingOneForgetsItsDuplicate(PagedAllocator):
    """Taking one of two blocks with one content drops the entry of the other as well."""

    index_class = _ForgetsTheKey


class _UnlinksParents(PrefixIndex):
    def __init__(self, _: KeyOf) -> None:
        super().__init__(self._chained)
        self.parents: dict[bytes, bytes] = {}

    def forget(self, ids: Ids) -> None:
        parents = [self.parents[self._keys[block]] for block in ids.tolist()]
        for block in ids.tolist():
            listed = self._blocks.setdefault(self._keys[block], [block])
            listed += [block] * (block not in listed)
        super().forget(ids)
        for key in parents:
            self._blocks.pop(key, None)

    def _chained(self, parent: bytes, text: bytes) -> bytes:
        key = sha256_key(parent, text)
        self.parents[key] = parent
        return key


@mutant("UAF18")
class EvictionUnlinksTheParent(PagedAllocator):
    """When a block is taken for something else, the block before it in its chain is lost as well."""

    index_class = _UnlinksParents


class _InsertsHalf(Chains):
    def _publish(self, epochs: list[int], blocks: Ids, keys: list[bytes]) -> None:
        half = [n for n, key in enumerate(keys) if key[0] % 2 == 0]
        super()._publish([epochs[n] for n in half], blocks[half], [keys[n] for n in half])


@mutant("SH15")
class PublishedAndNeverInserted(PagedAllocator):
    """Half of the full blocks are taken as published and never put into the index."""

    chains_class = _InsertsHalf


class _FreesDuplicates(Chains):
    def _publish(self, epochs: list[int], blocks: Ids, keys: list[bytes]) -> None:
        for n, (epoch, key) in enumerate(zip(epochs, keys, strict=True)):
            if self.index.match([key], self.pool.is_held):
                self.pool.drop_owner_of(int(blocks[n]))
            else:
                super()._publish([epoch], blocks[n : n + 1], [key])


@mutant("BT03")
class DuplicateFreedInUse(PagedAllocator):
    """A block whose content is published already is given back, and the table still names it."""

    chains_class = _FreesDuplicates


# Hits


class _MissesAnOwner(BlockPool):
    def use(self, ids: Ids) -> None:
        super().use(ids[:-1])


@mutant("RC03")
class HitMissesAnOwner(PagedAllocator):
    """The last block of a hit gets no owner."""

    pool_class = _MissesAnOwner


class _CountsADuplicate(Admission):
    def begin(self, name: str, prompt: Prompt) -> int:
        hit = prompt.hit
        prompt.hit = np.array([self._latest(block) for block in hit.tolist()], np.int32)
        row = super().begin(name, prompt)
        self.tables.ids[row, : len(hit)] = prompt.hit = hit
        return row

    def _latest(self, block: int) -> int:
        return self.index._blocks[self.index._keys[block]][-1]


@mutant("RC06")
class HitCountedOnADuplicate(PagedAllocator):
    """The owner of a hit is counted for the latest block of that content, and the first is used."""

    admission_class = _CountsADuplicate


class _KeepsHits(Admission):
    def begin(self, name: str, prompt: Prompt) -> int:
        try:
            return super().begin(name, prompt)
        except OutOfBlocks:
            self.pool.use(prompt.hit)
            raise


@mutant("AT01")
class FailedAdmissionKeepsItsHits(PagedAllocator):
    """Hits are owned before the check for room, and stay owned when it fails."""

    admission_class = _KeepsHits


class _KeepsARow(Admission):
    def begin(self, name: str, prompt: Prompt) -> int:
        try:
            return super().begin(name, prompt)
        except OutOfBlocks:
            self.requests.open(name)
            raise


@mutant("AT05")
class FailedAdmissionKeepsItsRow(PagedAllocator):
    """A request that was not admitted keeps the row that it was given beforehand."""

    admission_class = _KeepsARow


class _CountsHitsAsFree(BlockPool):
    def use_and_take(self, hit: Ids, count: int, spare: int, read: Ids | None = None) -> Ids:
        if count + spare <= self.num_free:
            count, spare = min(count, self.room_beside(hit)), 0
        return super().use_and_take(hit, count, spare, read)


@mutant("CP02")
class IdleHitsCountedAsFree(PagedAllocator):
    """The check for room counts the idle blocks that are hit among those that can be taken."""

    pool_class = _CountsHitsAsFree


class _TakesFirst(BlockPool):
    def use_and_take(self, hit: Ids, count: int, spare: int, read: Ids | None = None) -> Ids:
        if count + spare > self.num_free or (read is not None and len(read)):
            return super().use_and_take(hit, count, spare, read)
        taken = self._take(count)
        self.use(hit)
        return np.concatenate([hit, taken])


@mutant("EV02")
class FreshBlocksTakenBeforeHits(PagedAllocator):
    """An admission takes its fresh blocks first, and so what it was about to hit."""

    pool_class = _TakesFirst


class _HitsTheLastToken(Admission):
    def hits(self, keys: list[bytes], length: int) -> Ids:
        return super().hits(keys, length + 1)


@mutant("HL02")
class WholePromptHit(PagedAllocator):
    """A prompt that is wholly published is wholly hit, and no token is left to compute."""

    admission_class = _HitsTheLastToken


class _BacksOffTwice(Admission):
    def hits(self, keys: list[bytes], length: int) -> Ids:
        is_whole = length % self.block_size == 0
        return super().hits(keys, max(length - is_whole * self.block_size, 1))


@mutant("HL04")
class BackOffRepeated(PagedAllocator):
    """The block that is left out for the sake of the last token is left out twice."""

    admission_class = _BacksOffTwice


class _RemembersHits(Admission):
    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.known: dict[tuple[int, bytes], Ids] = {}

    def hits(self, keys: list[bytes], length: int) -> Ids:
        found = super().hits(keys, length)
        return self.known.setdefault((length, keys[-1]), found) if len(found) else found


@mutant("EV07")
class HitsOfAnEarlierAttempt(PagedAllocator):
    """What a prompt hits is worked out once, and believed when the same prompt comes again."""

    admission_class = _RemembersHits


class _KeepsTheSource(BlockPool):
    def use_and_take(self, hit: Ids, count: int, spare: int, read: Ids | None = None) -> Ids:
        blocks = super().use_and_take(hit, count, spare, read)
        self.use(hit[:0] if read is None else read)
        return blocks


@mutant("RC05")
class PartialHitOwnsTheWholeBlock(PagedAllocator):
    """A request that hits a part of a block owns that block for ever, beside its copy."""

    pool_class = _KeepsTheSource


class _CountsWholeBlocks(Admission):
    def count(self, prompt: Prompt) -> None:
        super().count(prompt)
        self.hit_tokens += (-prompt.part) % self.block_size


@mutant("HL03")
class PartialHitCountedAsABlock(PagedAllocator):
    """The tokens of a hit are counted as its blocks times their size."""

    admission_class = _CountsWholeBlocks


class _CopiesNoPart(Admission):
    def growth(self, row: int, prompt: Prompt) -> Growth:
        growth = super().growth(row, prompt)
        growth.copies.clear()
        return growth


@mutant("PS05")
class PartialHitNotCopied(PagedAllocator):
    """The part of a block that a prompt hits is never copied to the block of the request."""

    admission_class = _CopiesNoPart


# Idle blocks


class _LeavesHitsInTheQueue(BlockPool):
    def use(self, ids: Ids) -> None:
        self.owners[ids] += 1


@mutant("DF03")
class HitStaysInTheIdleQueue(PagedAllocator):
    """An idle block that is hit is counted as owned and stays in the queue of blocks to take."""

    pool_class = _LeavesHitsInTheQueue


class _QueuesNothing(BlockPool):
    def _give_back(self, ids: Ids | Rows) -> None:
        super()._give_back(ids[~self.published[ids]])


@mutant("LK11")
class PublishedBlocksNeverQueued(PagedAllocator):
    """Published blocks that are given back together are never there to be taken again."""

    pool_class = _QueuesNothing


class _DriftingQueue(IdleQueue):
    def remove(self, ids: Ids | Rows) -> None:
        super().remove(ids)
        self._count -= len(ids) > 1 and self._count > 0


class _Drifts(BlockPool):
    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.idle = _DriftingQueue(self.blocks)


@mutant("RC10")
class CountOfIdleBlocksDrifts(PagedAllocator):
    """The count of idle blocks goes down by one too many when several are no longer idle."""

    pool_class = _Drifts


class _CountsTheSkipped(IdleQueue):
    def pop(self, count: int) -> Ids:
        looked_at = self._ring[self._head : self._head + count]
        alive = int(np.count_nonzero(self._is_alive(looked_at, self._head)))
        return super().pop(max(alive, min(count, 1)))


class _EvictsTooFew(BlockPool):
    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.idle = _CountsTheSkipped(self.blocks)


@mutant("EV08")
class SkippedBlocksCountAsEvicted(PagedAllocator):
    """Eviction counts the blocks in use that it passes over, and ends before it has enough."""

    pool_class = _EvictsTooFew


class _HeadFirst(BlockPool):
    def _give_back(self, ids: Ids | Rows) -> None:
        super()._give_back(ids[::-1])


@mutant("EO01")
class HeadTakenBeforeItsTail(PagedAllocator):
    """Of a request that ends the first block is taken first, and the rest is out of reach."""

    pool_class = _HeadFirst


class _ReadsAClearedFlag(BlockPool):
    def forget_idle(self) -> None:
        ids = self.idle.ids()
        self._forget(ids)
        self.published[ids] = False
        moved = ids[self.published[ids]]
        self.idle.remove(moved)
        self._stack_up(moved)


@mutant("EV05")
class QueueToldByAClearedFlag(PagedAllocator):
    """Blocks that lose their entries stay in the idle queue: the flag that tells is already cleared."""

    pool_class = _ReadsAClearedFlag


# Reset and weights


@mutant("RS01")
class ResetKeepsTheIndex(PagedAllocator):
    """After a reset the blocks are free and still findable."""

    def reset_prefix_cache(self) -> None:
        forget, self.pool._forget = self.pool._forget, lambda _: None
        try:
            super().reset_prefix_cache()
        finally:
            self.pool._forget = forget


@mutant("RS01")
class ResetWhileInUse(PagedAllocator):
    """The cache is reset while requests still use it, and nothing is said."""

    def reset_prefix_cache(self) -> None:
        self.pool.forget_idle()


@mutant("RS02")
class OldWeightsStillHit(PagedAllocator):
    """What was computed with old weights is hit with new ones."""

    def change_weights(self) -> None:
        for request in self.requests.looked_up:
            raise BadCall("lookup outstanding", request)
