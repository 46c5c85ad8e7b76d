"""Mutants of the prefix cache: keys, entries, hits, idle blocks, reset."""

import hashlib

import numpy as np
from numpy.typing import ArrayLike

from kvoracle.impl import OutOfBlocks, PagedAllocator
from kvoracle.impl.allocator import Growth
from kvoracle.impl.ids import Ids
from kvoracle.impl.pool import BlockPool
from kvoracle.impl.prefix_index import PrefixIndex, sha256_key
from kvoracle.model.mutants.base import mutant


class _WithParts(PagedAllocator):
    """An allocator on a pool and an index of other classes."""

    pool_class: type[BlockPool] = BlockPool
    index_class: type[PrefixIndex] = PrefixIndex

    def __init__(self, blocks: int, block_size: int, *, prefix_cache: bool = False) -> None:
        super().__init__(blocks, block_size, prefix_cache=prefix_cache)
        self.index = self.index_class(block_size)
        self.pool = self.pool_class(blocks, self.index.forget)


class _KeepsEntries(BlockPool):
    def _evict(self, count: int) -> Ids:
        evicted = self.idle.pop(count)
        self.published[evicted] = False
        return evicted


@mutant("SH01", "SH02", "SH13", "RS01")
class RecycledBlockKeepsItsEntry(_WithParts):
    """A block that is taken for something else stays findable as what it held before."""

    pool_class = _KeepsEntries


class _LeavesHitsInTheQueue(BlockPool):
    def use(self, ids: Ids) -> None:
        self.owners[ids] += 1


@mutant("DF03", "EV02")
class HitStaysInTheIdleQueue(_WithParts):
    """An idle block that is hit is counted as owned and stays in the queue of blocks to take."""

    pool_class = _LeavesHitsInTheQueue


class _MissesAnOwner(BlockPool):
    def use(self, ids: Ids) -> None:
        super().use(ids[:-1])


@mutant("RC03", "RC06", "SH07")
class HitMissesAnOwner(_WithParts):
    """The last block of a hit gets no owner."""

    pool_class = _MissesAnOwner


@mutant("AT01", "AT05", "CP02")
class FailedAdmissionKeepsItsHits(PagedAllocator):
    """Hits are owned before the check for room, and stay owned when it fails."""

    def admit(self, request: str, prompt: ArrayLike) -> Growth:
        try:
            return super().admit(request, prompt)
        except OutOfBlocks:
            tokens = np.asarray(prompt, np.int64)
            self.pool.use(self._hits(self.index.keys(b"", tokens), len(tokens)))
            raise


@mutant("HL02")
class WholePromptHit(PagedAllocator):
    """A prompt that is wholly published is wholly hit, and no token is left to compute."""

    def _hits(self, keys: list[bytes], length: int) -> Ids:
        return super()._hits(keys, length + 1)


def _of_low_bytes(parent: bytes, tokens: bytes) -> bytes:
    return sha256_key(parent, (np.frombuffer(tokens, np.int64) & 0xFF).tobytes())


def _without_parent(_: bytes, tokens: bytes) -> bytes:
    return hashlib.sha256(tokens).digest()


class _TruncatesTokens(PrefixIndex):
    def __init__(self, block_size: int) -> None:
        super().__init__(block_size, _of_low_bytes)


@mutant("HC03")
class KeyOfLowBytes(_WithParts):
    """Token ids are cut to eight bits in the key of a block."""

    index_class = _TruncatesTokens


class _IgnoresTheParent(PrefixIndex):
    def __init__(self, block_size: int) -> None:
        super().__init__(block_size, _without_parent)


@mutant("HC01", "HC02", "HC08")
class KeyWithoutParent(_WithParts):
    """A block is known by its own tokens, whatever came before it."""

    index_class = _IgnoresTheParent


class _RecordsTheFirst(PrefixIndex):
    def add(self, key: bytes, block: int) -> None:
        if key not in self._blocks:
            super().add(key, block)

    def forget(self, ids: Ids) -> None:
        super().forget(np.array([block for block in ids if block in self._keys], np.int32))


@mutant("SH04")
class OnlyTheFirstDuplicateIsRecorded(_WithParts):
    """Of two blocks with one content the second is never findable, even when the first is gone."""

    index_class = _RecordsTheFirst


class _ForgetsTheKey(PrefixIndex):
    def forget(self, ids: Ids) -> None:
        for block in ids.tolist():
            self._blocks.pop(self._keys.pop(block), None)


@mutant("SH04", "RC09")
class ForgettingOneForgetsItsDuplicate(_WithParts):
    """Taking one of two blocks with one content drops the entry of the other as well."""

    index_class = _ForgetsTheKey


@mutant("SH15", "LK11")
class PublishedAndNeverInserted(PagedAllocator):
    """A full block is marked as published and never put into the index."""

    def _publish_block(self, row: int, logical: int, key: bytes) -> None:
        super()._publish_block(row, logical, key)
        block = self.tables.ids[row, logical : logical + 1]
        if logical % 2 == 1:
            self.index.forget(block)
            self.pool.published[block] = False


@mutant("SH09")
class ForkSharesItsChain(PagedAllocator):
    """Parent and child keep the tokens of their partial block in one list."""

    def fork(self, parent: str, child: str) -> None:
        super().fork(parent, child)
        self._chains[self._row(child)] = self._chains[self._row(parent)]


@mutant("RS02")
class ResetWhileInUse(PagedAllocator):
    """The cache is reset while requests still use it, and nothing is said."""

    def reset_prefix_cache(self) -> None:
        self.pool.forget_idle()
