"""Mutants of the prefix cache: keys, entries, hits, idle blocks, reset."""

import hashlib
from collections.abc import Iterable

import numpy as np

from kvoracle.impl import OutOfBlocks, PagedAllocator
from kvoracle.impl.admission import Admission
from kvoracle.impl.chains import Chain, Chains, Prompt
from kvoracle.impl.ids import Ids
from kvoracle.impl.pool import BlockPool
from kvoracle.impl.prefix_index import KeyOf, PrefixIndex, sha256_key
from kvoracle.model.mutants.base import mutant


class _KeepsEntries(BlockPool):
    def _forget_oldest(self, count: int) -> Ids:
        kept = self.idle.pop(count)
        self.published[kept] = False
        return kept


@mutant("SH01", "SH02", "SH13", "RS01")
class RecycledBlockKeepsItsEntry(PagedAllocator):
    """A block that is taken for something else stays findable as what it held before."""

    pool_class = _KeepsEntries


class _LeavesHitsInTheQueue(BlockPool):
    def use(self, ids: Ids) -> None:
        self.owners[ids] += 1


@mutant("DF03", "EV02")
class HitStaysInTheIdleQueue(PagedAllocator):
    """An idle block that is hit is counted as owned and stays in the queue of blocks to take."""

    pool_class = _LeavesHitsInTheQueue


class _MissesAnOwner(BlockPool):
    def use(self, ids: Ids) -> None:
        super().use(ids[:-1])


@mutant("RC03", "RC06", "SH07")
class HitMissesAnOwner(PagedAllocator):
    """The last block of a hit gets no owner."""

    pool_class = _MissesAnOwner


class _KeepsHits(Admission):
    def begin(self, name: str, prompt: Prompt) -> int:
        try:
            return super().begin(name, prompt)
        except OutOfBlocks:
            self.pool.use(prompt.hit)
            raise


@mutant("AT01", "AT05", "CP02")
class FailedAdmissionKeepsItsHits(PagedAllocator):
    """Hits are owned before the check for room, and stay owned when it fails."""

    admission_class = _KeepsHits


class _HitsTheLastToken(Admission):
    def hits(self, keys: list[bytes], length: int) -> Ids:
        return super().hits(keys, length + 1)


@mutant("HL02")
class WholePromptHit(PagedAllocator):
    """A prompt that is wholly published is wholly hit, and no token is left to compute."""

    admission_class = _HitsTheLastToken


def _of_low_bytes(parent: bytes, text: bytes) -> bytes:
    first, width = (1, 8) if len(text) % 4 else (0, 4)
    return sha256_key(parent, text[first::width])


def _without_parent(_: bytes, text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


class _TruncatesTokens(PrefixIndex):
    def __init__(self, _: KeyOf) -> None:
        super().__init__(_of_low_bytes)


@mutant("HC03")
class KeyOfLowBytes(PagedAllocator):
    """Token ids are cut to eight bits in the key of a block."""

    index_class = _TruncatesTokens


class _IgnoresTheParent(PrefixIndex):
    def __init__(self, _: KeyOf) -> None:
        super().__init__(_without_parent)


@mutant("HC01", "HC02", "HC08")
class KeyWithoutParent(PagedAllocator):
    """A block is known by its own tokens, whatever came before it."""

    index_class = _IgnoresTheParent


class _RecordsTheFirst(PrefixIndex):
    def add(self, key: bytes, block: int) -> None:
        if key not in self._blocks:
            super().add(key, block)

    def forget(self, ids: Ids) -> None:
        super().forget(np.array([block for block in ids if block in self._keys], np.int32))


@mutant("SH04")
class OnlyTheFirstDuplicateIsRecorded(PagedAllocator):
    """Of two blocks with one content the second is never findable, even when the first is gone."""

    index_class = _RecordsTheFirst


class _ForgetsTheKey(PrefixIndex):
    def forget(self, ids: Ids) -> None:
        for block in ids.tolist():
            self._blocks.pop(self._keys.pop(block), None)


@mutant("SH04", "RC09")
class ForgettingOneForgetsItsDuplicate(PagedAllocator):
    """Taking one of two blocks with one content drops the entry of the other as well."""

    index_class = _ForgetsTheKey


class _InsertsHalf(Chains):
    def _publish(self, chains: Iterable[Chain], blocks: list[int], keys: list[bytes]) -> None:
        half = [n for n, key in enumerate(keys) if key[0] % 2 == 0]
        chosen = [chain for n, chain in zip(range(len(keys)), chains, strict=False) if n in half]
        super()._publish(chosen, [blocks[n] for n in half], [keys[n] for n in half])


@mutant("SH15", "LK11")
class PublishedAndNeverInserted(PagedAllocator):
    """Half of the full blocks are taken as published and never put into the index."""

    chains_class = _InsertsHalf


class _SharesTheChain(Chains):
    def fork(self, parent: int, child: int) -> None:
        super().fork(parent, child)
        if self.caching:
            self.of_row[child] = self.of_row[parent]


@mutant("SH09")
class ForkSharesItsChain(PagedAllocator):
    """Parent and child keep one chain, which the blocks of both are put into."""

    chains_class = _SharesTheChain


@mutant("RS02")
class ResetWhileInUse(PagedAllocator):
    """The cache is reset while requests still use it, and nothing is said."""

    def reset_prefix_cache(self) -> None:
        self.pool.forget_idle()
