"""Mutants of preemption: what is given back, what is remembered, what comes back."""

from typing import Any

import numpy as np

from kvoracle.impl import Growth, PagedAllocator
from kvoracle.impl.ids import Ids
from kvoracle.impl.requests import Requests
from kvoracle.model.mutants.base import mutant
from kvoracle.model.mutants.lookup import free_with_entries


class _CancelsPins(Requests):
    def preempt(self, name: str) -> None:
        table = self.table(name)
        super().preempt(name)
        pinned = table[(self.pool.pins[table] > 0) & (self.pool.owners[table] == 0)]
        self.pool.pins[pinned] = 0
        self.pool._give_back_unheld(pinned)


@mutant("UAF03")
class PreemptionIgnoresPins(PagedAllocator):
    """A preemption gives back blocks that a transfer still reads; a release does not."""

    requests_class = _CancelsPins


class _FreesPublished(Requests):
    def preempt(self, name: str) -> None:
        table = self.table(name)
        super().preempt(name)
        free_with_entries(self.pool, table)


@mutant("SH07")
class PreemptionFreesPublished(PagedAllocator):
    """The published blocks of a preempted request are free and still in the index."""

    requests_class = _FreesPublished


@mutant("PR01")
class ResumedTableAppended(PagedAllocator):
    """The table of a resumed request is what it was before, and then the new blocks."""

    def __init__(self, *sizes: int, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.old: dict[str, Ids] = {}

    def preempt(self, request: str) -> None:
        table = super().table(request)
        super().preempt(request)
        self.old[request] = table

    def release(self, request: str) -> None:
        super().release(request)
        self.old.pop(request, None)

    def table(self, request: str) -> Ids:
        table = super().table(request)
        return np.concatenate([self.old.get(request, table[:0]), table])


@mutant("PR02")
class StoredCursorNotRewound(PagedAllocator):
    """What a resumed request computes again is not published: it counts as published already."""

    def resume(self, request: str) -> Growth:
        growth = super().resume(request)
        again = self.table(request)[growth.hit // self.block_size :]
        entries = again[self.pool.published[again]]
        self.pool.published[entries] = False
        self.index.forget(entries)
        return growth


class _ForgetsAToken(Requests):
    def preempt(self, name: str) -> None:
        super().preempt(name)
        left = self.preempted[name]
        left.length = max(left.length - 1, 1)
        left.tokens = left.tokens[: left.length]


@mutant("PR05")
class ResumedWithoutItsLastToken(PagedAllocator):
    """A preempted request comes back without its last token."""

    requests_class = _ForgetsAToken


class _CountsRoom(Requests):
    def preempt(self, name: str) -> None:
        ahead = int(self.tables.reserved[self.by_name[name]]) if name in self.by_name else 0
        super().preempt(name)
        self.preempted[name].length += ahead


@mutant("PR07")
class PreemptedWithUnwrittenTokens(PagedAllocator):
    """A preempted request is remembered with the tokens that it had room for, written or not."""

    requests_class = _CountsRoom
