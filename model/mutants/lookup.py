"""Mutants of lookups: what is held between finding a prefix and using it."""

from collections.abc import Mapping

from numpy.typing import ArrayLike

from kvoracle.impl import Growth, OutOfBlocks, PagedAllocator
from kvoracle.impl.admission import Admission
from kvoracle.impl.ids import Ids
from kvoracle.impl.pool import BlockPool
from kvoracle.model.mutants.base import mutant


def free_with_entries(pool: BlockPool, ids: Ids) -> None:
    """Make those blocks that are idle free ones whose entries stay."""
    idle = ids[pool.published[ids] & pool._unheld(ids)]
    pool.idle.remove(idle)
    pool.published[idle] = False
    pool._stack_up(idle)


class _HoldsNothing(Admission):
    def look_up(self, name: str, prompt: ArrayLike, extra_keys: Mapping[str, str]) -> int:
        length = super().look_up(name, prompt, extra_keys)
        self.pool.drop_hold(self.requests.looked_up[name].hit)
        return length


@mutant("EV06")
class LookupHoldsNothing(PagedAllocator):
    """What a lookup found may be taken before it is used."""

    admission_class = _HoldsNothing


class _KeepsCancelled(Admission):
    def cancel(self, name: str) -> None:
        self._looked_up(name)
        del self.requests.looked_up[name]


@mutant("LK10")
class CancelledLookupStillHolds(PagedAllocator):
    """A lookup is forgotten when it is cancelled, before what it holds was given back."""

    admission_class = _KeepsCancelled


class _FreesTheUnused(Admission):
    def cancel(self, name: str) -> None:
        hit = self._looked_up(name).hit
        super().cancel(name)
        free_with_entries(self.pool, hit)


@mutant("UAF14")
class UnusedLookupFreesIndexed(PagedAllocator):
    """The blocks of a lookup that was not used are free and still in the index."""

    admission_class = _FreesTheUnused


class _KeepsHalf(Admission):
    def use(self, name: str) -> Growth:
        try:
            return super().use(name)
        except OutOfBlocks:
            self.pool.take((self.pool.num_free + 1) // 2)
            raise


@mutant("AT10")
class FailedUseKeepsHalf(PagedAllocator):
    """A lookup whose use finds too few blocks keeps the first half that it found."""

    admission_class = _KeepsHalf


class _ForgetsOnFailure(Admission):
    def use(self, name: str) -> Growth:
        try:
            return super().use(name)
        except OutOfBlocks:
            found = self._looked_up(name)
            self.pool.drop_hold(found.hit)
            found.hit = found.hit[:0]
            raise


@mutant("PR06")
class FoundCountLostOnRetry(PagedAllocator):
    """A lookup whose use finds too few blocks is used without what it found the next time."""

    admission_class = _ForgetsOnFailure
