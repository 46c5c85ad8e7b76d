"""Witnesses of the prefix cache: admit, lookup and use, preemption, eviction, reset."""

from collections.abc import Hashable, Iterator
from typing import NamedTuple

from kvoracle.model.operations import (
    Admit,
    Append,
    Cancel,
    ChangeWeights,
    Evict,
    LookUp,
    Preempt,
    Release,
    Reset,
    Resume,
    Use,
)
from kvoracle.model.witnesses.base import Looks, Needs
from kvoracle.reference import Oracle
from kvoracle.reference.records import ExtraKeys, Hits, extra_keys_of

WITNESSES: Needs = {
    "admit hits an idle block": frozenset({Admit, Release}),
    "admit hits a block in use": frozenset({Admit}),
    "admit hits a content that two blocks hold": frozenset({Admit}),
    "admit leaves the last block of a whole hit to be computed": frozenset({Admit}),
    "admit takes idle blocks and drops their entries": frozenset({Admit, Release}),
    "admit finds room only if its own hits were taken": frozenset({Admit, Release}),
    "append takes an idle block and drops its entry": frozenset({Admit, Append, Release}),
    "lookup holds an idle block": frozenset({Admit, LookUp, Release}),
    "use begins on blocks that were looked up": frozenset({LookUp, Use}),
    "use finds too few free blocks": frozenset({LookUp, Use}),
    "use follows the release of the request that wrote its blocks": frozenset(
        {LookUp, Use, Release}
    ),
    "cancel leaves blocks idle": frozenset({LookUp, Cancel, Release}),
    "preempt leaves blocks idle": frozenset({Preempt}),
    "resume hits blocks": frozenset({Preempt, Resume}),
    "resume recomputes a full block": frozenset({Preempt, Resume}),
    "evict forgets a block in use": frozenset({Admit, Evict}),
    "change_weights forgets a block in use": frozenset({Admit, ChangeWeights}),
    "reset forgets idle blocks": frozenset({Admit, Release, Reset}),
    "reset is refused while blocks are in use": frozenset({Admit, Reset}),
}

REJECTIONS = {"reset is refused while blocks are in use": "blocks in use"}

EXTRA_KEYS = "admit misses what only other extra keys would hit"
PARTIAL_HIT = "admit copies a block in use of which it hits a part"
IDLE_SOURCE = "admit copies an idle block of which it hits a part"
WATERMARK = "the watermark keeps a request out"


class Found(NamedTuple):
    """What a prompt finds: the pages that hold each whole block of its hits, those that its hit may
    end in, the fresh pages that it needs and those that it may take them from."""

    hits: Hits
    whole: list[set[int]]
    sources: set[int]
    fresh: int
    room: int
    watermark: int

    @property
    def has_room(self) -> bool:
        return self.fresh + self.watermark <= self.room


def found_of(kv: Oracle, keys: ExtraKeys, values: tuple[Hashable, ...]) -> Found:
    """What a request that begins with these tokens finds; what it hits it cannot take."""
    hits, idle = kv.hits_of(keys, values), set(kv.idle())
    whole = [set(kv.holding(identity)) for identity in hits.whole]
    sources = set(kv.beginning_with(hits.partial)) if hits.partial else set[int]()
    fresh = -(-len(values) // kv.block_size) - len(whole)
    lost = sum(1 for pages in [*whole, *([sources] if sources else [])] if pages <= idle)
    return Found(hits, whole, sources, fresh, len(kv.takeable()) - lost, kv.watermark)


def _admit(kv: Oracle, operation: Admit) -> Iterator[str]:
    if operation.request in kv.tables:
        return
    keys, idle = extra_keys_of(operation.extra_keys), set(kv.idle())
    found = found_of(kv, keys, operation.prompt)
    if found.fresh <= found.room < found.fresh + kv.watermark:
        yield WATERMARK
    if not found.has_room:
        if found.fresh + kv.watermark <= len(kv.takeable()):
            yield "admit finds room only if its own hits were taken"
        return
    yield from _hits(found.whole, idle)
    if found.sources:
        yield IDLE_SOURCE if found.sources <= idle else PARTIAL_HIT
    others = [kv.hits_of(other, operation.prompt) for other in _keys_known(kv)]
    if any(other.tokens > found.hits.tokens for other in others):
        yield EXTRA_KEYS
    if kv.holding((keys, operation.prompt)) and found.fresh == 1:
        yield "admit leaves the last block of a whole hit to be computed"
    if found.fresh > len(kv.free):
        yield "admit takes idle blocks and drops their entries"


def _hits(hits: list[set[int]], idle: set[int]) -> Iterator[str]:
    if any(pages <= idle for pages in hits):
        yield "admit hits an idle block"
    if any(not idle & pages for pages in hits):
        yield "admit hits a block in use"
    if any(len(pages) > 1 for pages in hits):
        yield "admit hits a content that two blocks hold"


def _keys_known(kv: Oracle) -> set[tuple[tuple[str, str], ...]]:
    return {keys for keys, _ in kv.index.values()}


def _look_up(kv: Oracle, operation: LookUp) -> Iterator[str]:
    hits = kv.hits_of(extra_keys_of(operation.extra_keys), operation.prompt).whole
    idle = set(kv.idle())
    if any(set(kv.holding(identity)) <= idle for identity in hits):
        yield "lookup holds an idle block"


def _use(kv: Oracle, operation: Use) -> Iterator[str]:
    found = kv.lookups[operation.request]
    fresh = -(-len(found.tokens) // kv.block_size) - len(found.pages)
    if fresh + kv.watermark > len(kv.takeable()):
        yield "use finds too few free blocks"
    elif found.pages:
        yield "use begins on blocks that were looked up"
        if not any(kv.pages[page].owners for page in found.pages):
            yield "use follows the release of the request that wrote its blocks"


def _cancel(kv: Oracle, operation: Cancel) -> Iterator[str]:
    pages = [kv.pages[page] for page in kv.lookups[operation.request].pages if page in kv.index]
    if any(len(page.holds) == 1 and not (page.owners or page.pins) for page in pages):
        yield "cancel leaves blocks idle"


def _preempt(kv: Oracle, operation: Preempt) -> Iterator[str]:
    pages = [kv.pages[page] for page in kv.tables[operation.request] if page in kv.index]
    if any(len(page.owners) == 1 and not (page.pins or page.holds) for page in pages):
        yield "preempt leaves blocks idle"


def _resume(kv: Oracle, operation: Resume) -> Iterator[str]:
    tokens, keys = kv.preempted[operation.request]
    found = found_of(kv, keys, kv.values_of(tokens))
    if not found.has_room:
        return
    if found.whole:
        yield "resume hits blocks"
    if kv.caching and len(found.whole) < (len(tokens) - 1) // kv.block_size:
        yield "resume recomputes a full block"


def _evict(kv: Oracle, operation: Evict) -> Iterator[str]:
    if any(page in kv.index for page in kv.tables[operation.request][operation.first :]):
        yield "evict forgets a block in use"


def _reset(kv: Oracle, _: Reset) -> Iterator[str]:
    if len(kv.takeable()) < kv.capacity:
        yield "reset is refused while blocks are in use"
    elif kv.idle():
        yield "reset forgets idle blocks"


def _change_weights(kv: Oracle, _: ChangeWeights) -> Iterator[str]:
    if any(kv.pages[page].is_in_use for page in kv.index) and not kv.lookups:
        yield "change_weights forgets a block in use"


LOOKS: Looks = {
    Admit: _admit,
    LookUp: _look_up,
    Use: _use,
    Cancel: _cancel,
    Preempt: _preempt,
    Resume: _resume,
    Evict: _evict,
    Reset: _reset,
    ChangeWeights: _change_weights,
}
