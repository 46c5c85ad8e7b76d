"""Mutants of steps in flight: what they hold, for whom they write, when their tokens count."""

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kvoracle.impl import BatchGrowth, PagedAllocator
from kvoracle.impl.growing import Growing
from kvoracle.impl.ids import Ids, Rows
from kvoracle.impl.pool import BlockPool
from kvoracle.impl.requests import Requests
from kvoracle.impl.steps import Steps
from kvoracle.model.mutants.base import mutant
from kvoracle.model.mutants.core import RoomyPool


class _ListsEachEntry(Steps):
    def _hold(self, rows: Rows, sources: list[int]) -> Rows:
        listed = np.append(self.tables.concatenated(rows), sources).astype(np.intp)
        self.pool.add_hold(listed)
        return listed


@mutant("DF01")
class StepListsABlockTwice(PagedAllocator):
    """A block that two requests of a step share is twice on the list of what its end gives back."""

    pool_class = RoomyPool
    steps_class = _ListsEachEntry


class _FreesTheFinished(Steps):
    def end(self, name: str) -> None:
        step = self._step(name)
        has_finished = len(self._alive(step)) < len(step.rows)
        super().end(name)
        if has_finished:
            self.pool.drop_owner_of(int(step.held[-1]))


@mutant("DF04")
class FinishedInFlightFreedTwice(PagedAllocator):
    """The last block of a request that finished in flight is released, and again when its step ends."""

    steps_class = _FreesTheFinished


class _DropsTheAborted(Steps):
    def _drop(self, name: str) -> None:
        step = self.in_flight[name]
        if len(self._alive(step)) == len(step.rows):
            super()._drop(name)
        else:
            del self.in_flight[name]


@mutant("LK05")
class AbortedResultDroppedWithItsBlocks(PagedAllocator):
    """The end of a step is ignored when one of its requests is gone, and its blocks stay held."""

    steps_class = _DropsTheAborted


class _EndsAllHolds(Steps):
    def _drop(self, name: str) -> None:
        self.pool.holds[self.in_flight[name].held] = 1
        super()._drop(name)


@mutant("UAF04")
class FirstStepFreesForAll(PagedAllocator):
    """The end of a step gives back what a later step still writes."""

    steps_class = _EndsAllHolds


class _IgnoresHolds(BlockPool):
    def drop_owner(self, ids: Ids) -> None:
        self.owners[ids] -= 1
        holds, self.holds = self.holds, np.zeros_like(self.holds)
        self._give_back_unheld(ids)
        self.holds = holds


@mutant("UAF05")
class ReleaseIgnoresSteps(PagedAllocator):
    """A request that ends gives its blocks back while a step still writes them."""

    pool_class = _IgnoresHolds


class _FencesOneStep(Steps):
    def begin(self, name: str, requests: Sequence[str], tokens: ArrayLike) -> BatchGrowth:
        growth = super().begin(name, requests, tokens)
        for step in list(self.in_flight.values())[:-1]:
            self.pool.drop_hold(step.held)
            step.held = step.held[:0]
        return growth


@mutant("UAF06")
class FenceOfOneStep(PagedAllocator):
    """Only the latest step holds its blocks."""

    steps_class = _FencesOneStep


class _WritesForTheRow(Steps):
    def _alive(self, step: Any) -> Rows:
        is_open: Rows = self.tables.lives[step.rows].nonzero()[0]
        return is_open


@mutant("UAF11")
class StepWritesForWhoeverHasTheRow(PagedAllocator):
    """The token of a finished request is written for the next request in its row."""

    steps_class = _WritesForTheRow


class _HoldsNoSources(Steps):
    def _hold(self, rows: Rows, sources: list[int]) -> Rows:  # noqa: ARG002
        return super()._hold(rows, [])


@mutant("CO02")
class CopySourceNotHeld(PagedAllocator):
    """A step does not hold the blocks that its copies read."""

    steps_class = _HoldsNoSources


class _SharesInFlight(Requests):
    def check_unreserved(self, row: int) -> None:
        self.check_loaded(row)
        if not self.tables.in_flight[row]:
            super().check_unreserved(row)


@mutant("UAF07")
class SentBeforeItIsWritten(PagedAllocator):
    """A transfer reads blocks that a step is still writing."""

    requests_class = _SharesInFlight


class _WritesAtBegin(Steps):
    def __init__(self, growing: Growing) -> None:
        super().__init__(growing)
        self.chains = copy(growing.chains)
        self.chains.caching = False  # so that an end writes nothing

    def begin(self, name: str, requests: Sequence[str], tokens: ArrayLike) -> BatchGrowth:
        growth = super().begin(name, requests, tokens)
        step = self.in_flight[name]
        ahead = self.tables.lengths[step.rows] + self.tables.in_flight[step.rows] - 1
        self.growing.chains.write_each(step.rows, ahead, step.tokens)
        return growth


@mutant("SH05")
class PublishedWhenScheduled(PagedAllocator):
    """A block is published when the step that fills it begins."""

    steps_class = _WritesAtBegin
