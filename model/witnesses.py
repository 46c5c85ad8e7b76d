"""Situations that a campaign must have met; one that was never met means a rule never exercised.

Each function looks at the reference just before an operation and names what is about to happen.
"""

from collections.abc import Callable, Iterator
from typing import Any

from kvoracle.model.operations import (
    Admit,
    Append,
    AppendEach,
    Fork,
    Operation,
    Pin,
    Release,
    ReleaseEach,
    Reset,
    Unpin,
)
from kvoracle.reference import PrefixCachedKV

WITNESSES: dict[str, frozenset[type[Operation]]] = {
    "admit hits an idle block": frozenset({Admit, Release}),
    "admit hits a block in use": frozenset({Admit}),
    "admit hits a content that two blocks hold": frozenset({Admit}),
    "admit leaves the last block of a whole hit to be computed": frozenset({Admit}),
    "admit takes idle blocks and drops their entries": frozenset({Admit, Release}),
    "admit finds room only if its own hits were taken": frozenset({Admit, Release}),
    "append takes an idle block and drops its entry": frozenset({Admit, Append, Release}),
    "reset forgets idle blocks": frozenset({Admit, Release, Reset}),
    "reset is refused while blocks are in use": frozenset({Admit, Reset}),
    "append fills the tail in place": frozenset({Append}),
    "append starts a block at an exact multiple": frozenset({Append}),
    "append takes several blocks at once": frozenset({Append}),
    "append copies a shared tail": frozenset({Append, Fork}),
    "append copies a pinned tail of its only owner": frozenset({Append, Pin}),
    "append finds too few free blocks": frozenset({Append}),
    "append finds no block for its copy": frozenset({Append, Fork}),
    "append takes the last free block": frozenset({Append}),
    "append_each grows some and refuses others": frozenset({Append, AppendEach}),
    "append_each meets a tail to copy": frozenset({Append, AppendEach, Fork}),
    "fork shares a partial tail": frozenset({Append, Fork}),
    "fork shares full blocks only": frozenset({Append, Fork}),
    "fork of an empty request": frozenset({Fork}),
    "pin of a block that another transfer pins": frozenset({Append, Pin}),
    "unpin frees a block that no request owns": frozenset({Append, Pin, Unpin, Release}),
    "unpin leaves a block to another transfer": frozenset({Append, Pin, Unpin}),
    "release frees blocks": frozenset({Append, Release}),
    "release leaves a shared block": frozenset({Append, Fork, Release}),
    "release leaves a pinned block": frozenset({Append, Pin, Release}),
    "release_each names a block twice": frozenset({Append, Fork, ReleaseEach}),
}


REJECTIONS = frozenset({"reset is refused while blocks are in use"})
"""The witnesses that a call is rejected for; every other one is of a call that is not."""

PARTIAL_BLOCKS = frozenset(
    {
        "append fills the tail in place",
        "append copies a shared tail",
        "append copies a pinned tail of its only owner",
        "append finds no block for its copy",
        "append_each meets a tail to copy",
        "fork shares a partial tail",
    }
)
"""The witnesses that blocks of one slot cannot reach."""


def required(operations: tuple[type[Operation], ...], block_sizes: range) -> list[str]:
    """The witnesses that an allocator with these operations and block sizes can reach."""
    return [
        name
        for name, needs in WITNESSES.items()
        if needs <= set(operations) and (block_sizes[-1] > 1 or name not in PARTIAL_BLOCKS)
    ]


def about_to_happen(kv: PrefixCachedKV, operation: Operation) -> list[str]:
    """The witnesses of an operation that the reference is about to accept or find too large."""
    look = _LOOKS.get(type(operation))
    return list(look(kv, operation)) if look else []


def _admit(kv: PrefixCachedKV, operation: Admit) -> Iterator[str]:
    if operation.request in kv.tables:
        return
    depth = kv.depth_of(operation.prompt)
    size, idle = kv.block_size, set(kv.idle())
    hits = [kv.holding(operation.prompt[: (index + 1) * size]) for index in range(depth)]
    fresh = -(-len(operation.prompt) // size) - depth
    room = len(kv.takeable()) - sum(1 for pages in hits if set(pages) <= idle)
    if fresh > room:
        if fresh <= len(kv.takeable()):
            yield "admit finds room only if its own hits were taken"
        return
    if any(set(pages) <= idle for pages in hits):
        yield "admit hits an idle block"
    if any(not idle & set(pages) for pages in hits):
        yield "admit hits a block in use"
    if any(len(pages) > 1 for pages in hits):
        yield "admit hits a content that two blocks hold"
    if kv.holding(operation.prompt):
        yield "admit leaves the last block of a whole hit to be computed"
    if fresh > len(kv.free):
        yield "admit takes idle blocks and drops their entries"


def _reset(kv: PrefixCachedKV, _: Reset) -> Iterator[str]:
    if len(kv.takeable()) < kv.capacity:
        yield "reset is refused while blocks are in use"
    elif kv.idle():
        yield "reset forgets idle blocks"


def _append(kv: PrefixCachedKV, operation: Append) -> Iterator[str]:
    length, free = kv.length(operation.request), len(kv.takeable())
    tail = kv.tail_to_copy(operation.request)
    after = -(-(length + len(operation.tokens)) // kv.block_size)
    fresh = after - len(kv.tables[operation.request])
    if len(kv.free) < fresh + (tail is not None) <= len(kv.takeable()):
        yield "append takes an idle block and drops its entry"
    if fresh + (tail is not None) > free:
        yield "append finds too few free blocks"
        if tail is not None:
            yield "append finds no block for its copy"
        return
    if tail is not None:
        shared = len(kv.pages[tail].owners) > 1
        yield (
            "append copies a shared tail"
            if shared
            else ("append copies a pinned tail of its only owner")
        )
    elif fresh == 0:
        yield "append fills the tail in place"
    if fresh > 0 and length > 0 and length % kv.block_size == 0:
        yield "append starts a block at an exact multiple"
    if fresh > 1:
        yield "append takes several blocks at once"
    if 0 < fresh + (tail is not None) == free:
        yield "append takes the last free block"


def _append_each(kv: PrefixCachedKV, operation: AppendEach) -> Iterator[str]:
    lengths = [kv.length(request) for request in operation.requests]
    starting = sum(length % kv.block_size == 0 for length in lengths)
    free = len(kv.takeable())
    if starting > free and (free or starting < len(lengths)):
        yield "append_each grows some and refuses others"
    if any(kv.tail_to_copy(request) is not None for request in operation.requests):
        yield "append_each meets a tail to copy"


def _fork(kv: PrefixCachedKV, operation: Fork) -> Iterator[str]:
    length = kv.length(operation.parent)
    if length == 0:
        yield "fork of an empty request"
    elif length % kv.block_size == 0:
        yield "fork shares full blocks only"
    else:
        yield "fork shares a partial tail"


def _pin(kv: PrefixCachedKV, operation: Pin) -> Iterator[str]:
    if any(kv.pages[page].pins for page in kv.tables[operation.request]):
        yield "pin of a block that another transfer pins"


def _unpin(kv: PrefixCachedKV, operation: Unpin) -> Iterator[str]:
    pages = [kv.pages[page] for page in kv.transfers[operation.transfer].pages]
    if any(len(page.pins) > 1 for page in pages):
        yield "unpin leaves a block to another transfer"
    if any(len(page.pins) == 1 and not page.owners for page in pages):
        yield "unpin frees a block that no request owns"


def _release(kv: PrefixCachedKV, operation: Release) -> Iterator[str]:
    pages = [kv.pages[page] for page in kv.tables[operation.request]]
    if any(len(page.owners) == 1 and not page.pins for page in pages):
        yield "release frees blocks"
    if any(len(page.owners) > 1 for page in pages):
        yield "release leaves a shared block"
    if any(page.pins for page in pages):
        yield "release leaves a pinned block"


def _release_each(kv: PrefixCachedKV, operation: ReleaseEach) -> Iterator[str]:
    named = [page for request in operation.requests for page in kv.tables[request]]
    if len(set(named)) < len(named):
        yield "release_each names a block twice"


_LOOKS: dict[type[Operation], Callable[[PrefixCachedKV, Any], Iterator[str]]] = {
    Admit: _admit,
    Reset: _reset,
    Append: _append,
    AppendEach: _append_each,
    Fork: _fork,
    Pin: _pin,
    Unpin: _unpin,
    Release: _release,
    ReleaseEach: _release_each,
}
