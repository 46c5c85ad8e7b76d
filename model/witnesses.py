"""Situations that a campaign must have met; one that was never met means a rule never exercised.

Each function looks at the reference just before an operation and names what is about to happen.
"""

from collections.abc import Callable, Iterator
from typing import Any

from kvoracle.model.operations import (
    Append,
    AppendEach,
    Fork,
    Operation,
    Pin,
    Release,
    ReleaseEach,
    Unpin,
)
from kvoracle.reference import PagedKV

WITNESSES: dict[str, frozenset[type[Operation]]] = {
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


def required(operations: tuple[type[Operation], ...]) -> list[str]:
    """The witnesses that these operations can reach."""
    return [name for name, needs in WITNESSES.items() if needs <= set(operations)]


def about_to_happen(kv: PagedKV, operation: Operation) -> list[str]:
    """The witnesses of an operation that the reference is about to accept or find too large."""
    look = _LOOKS.get(type(operation))
    return list(look(kv, operation)) if look else []


def _append(kv: PagedKV, operation: Append) -> Iterator[str]:
    length, free = kv.length(operation.request), len(kv.free)
    tail = kv.tail_to_copy(operation.request)
    after = -(-(length + len(operation.tokens)) // kv.block_size)
    fresh = after - len(kv.tables[operation.request])
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


def _append_each(kv: PagedKV, operation: AppendEach) -> Iterator[str]:
    lengths = [kv.length(request) for request in operation.requests]
    starting = sum(length % kv.block_size == 0 for length in lengths)
    if starting > len(kv.free) and (kv.free or starting < len(lengths)):
        yield "append_each grows some and refuses others"
    if any(kv.tail_to_copy(request) is not None for request in operation.requests):
        yield "append_each meets a tail to copy"


def _fork(kv: PagedKV, operation: Fork) -> Iterator[str]:
    length = kv.length(operation.parent)
    if length == 0:
        yield "fork of an empty request"
    elif length % kv.block_size == 0:
        yield "fork shares full blocks only"
    else:
        yield "fork shares a partial tail"


def _pin(kv: PagedKV, operation: Pin) -> Iterator[str]:
    if any(kv.pages[page].pins for page in kv.tables[operation.request]):
        yield "pin of a block that another transfer pins"


def _unpin(kv: PagedKV, operation: Unpin) -> Iterator[str]:
    pages = [kv.pages[page] for page in kv.transfers[operation.transfer].pages]
    if any(len(page.pins) > 1 for page in pages):
        yield "unpin leaves a block to another transfer"
    if any(len(page.pins) == 1 and not page.owners for page in pages):
        yield "unpin frees a block that no request owns"


def _release(kv: PagedKV, operation: Release) -> Iterator[str]:
    pages = [kv.pages[page] for page in kv.tables[operation.request]]
    if any(len(page.owners) == 1 and not page.pins for page in pages):
        yield "release frees blocks"
    if any(len(page.owners) > 1 for page in pages):
        yield "release leaves a shared block"
    if any(page.pins for page in pages):
        yield "release leaves a pinned block"


def _release_each(kv: PagedKV, operation: ReleaseEach) -> Iterator[str]:
    named = [page for request in operation.requests for page in kv.tables[request]]
    if len(set(named)) < len(named):
        yield "release_each names a block twice"


_LOOKS: dict[type[Operation], Callable[[PagedKV, Any], Iterator[str]]] = {
    Append: _append,
    AppendEach: _append_each,
    Fork: _fork,
    Pin: _pin,
    Unpin: _unpin,
    Release: _release,
    ReleaseEach: _release_each,
}
