"""Witnesses of groups of layers: what leaves a window, what all groups agree on."""

from collections.abc import Callable, Iterator
from typing import Any

from kvoracle.model.operations import Admit, Append, AppendEach, Operation
from kvoracle.model.witnesses.base import Needs
from kvoracle.reference.group_records import Findable
from kvoracle.reference.groups import GroupedKV
from kvoracle.reference.records import extra_keys_of

REUSED = "a block of one group is taken by another"
NULL_HIT = "a hit begins with the null block"
"""What depends on the allocator's choice, and so is seen as it chooses."""

WITNESSES: Needs = {
    "a block leaves its window": frozenset({Append}),
    "append_each lets a block leave its window": frozenset({AppendEach}),
    "a window straddles one block more than it fills": frozenset({Append}),
    "a window is smaller than its block": frozenset({Append}),
    "append finds room in one group and not in all": frozenset({Append}),
    "the agreed hit is shorter than that of one group": frozenset({Admit}),
    NULL_HIT: frozenset({Admit}),
    "a prompt outgrows the window of its own hit": frozenset({Admit}),
    REUSED: frozenset({Append}),
}


def _append(kv: GroupedKV, operation: Append) -> Iterator[str]:
    before = kv.length(operation.request)
    after, room = before + len(operation.tokens), len(kv.takeable())
    places = [number for number, _ in kv.places(before, after)]
    if len(places) > room:
        if any(0 < places.count(number) <= room for number in places):
            yield "append finds room in one group and not in all"
        return
    yield from _windows(kv, before, after)


def _windows(kv: GroupedKV, before: int, after: int) -> Iterator[str]:
    for group in kv.groups:
        if group.first_seen(after) > group.first_seen(before):
            yield "a block leaves its window"
        if not 0 < group.window <= after:
            continue
        seen = after // group.block_size - group.first_seen(after) + 1
        if seen > group.blocks(group.window):
            yield "a window straddles one block more than it fills"
        if group.window < group.block_size:
            yield "a window is smaller than its block"


def _append_each(kv: GroupedKV, operation: AppendEach) -> Iterator[str]:
    lengths = [kv.length(request) for request in operation.requests]
    if any(g.first_seen(n + 1) > g.first_seen(n) for g in kv.groups for n in lengths):
        yield "append_each lets a block leave its window"


def _admit(kv: GroupedKV, operation: Admit) -> Iterator[str]:
    length = len(operation.prompt)
    found = kv.findable(extra_keys_of(operation.extra_keys), operation.prompt)
    hit = kv.hit_lengths(found, length)[-1] if length else 0
    idle = set(kv.idle())
    lost = sum(1 for pages in kv.candidates(found, hit).values() if idle.issuperset(pages))
    if len(kv.places(hit, length)) > len(kv.takeable()) - lost:
        return
    edges = range(hit + kv.hit_unit, length, kv.hit_unit)
    if any(_alone(kv, found, number, edge) for edge in edges for number in range(len(kv.groups))):
        yield "the agreed hit is shorter than that of one group"
    for group in kv.groups:
        if hit and group.first_seen(hit) < hit // group.block_size <= group.first_seen(length):
            yield "a prompt outgrows the window of its own hit"


def _alone(kv: GroupedKV, found: Findable, number: int, edge: int) -> bool:
    """Whether one group holds all that it needs for a hit, and needs something."""
    seen = [pages for (group, _), pages in kv.candidates(found, edge).items() if group == number]
    return bool(seen) and all(seen)


LOOKS: dict[type[Operation], Callable[[GroupedKV, Any], Iterator[str]]] = {
    Append: _append,
    AppendEach: _append_each,
    Admit: _admit,
}
