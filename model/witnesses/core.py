"""Witnesses of the core operations: create, append, fork, pin, unpin, release."""

from collections.abc import Iterator

from kvoracle.model.operations import (
    Append,
    AppendEach,
    Fork,
    Pin,
    Release,
    ReleaseEach,
    Unpin,
)
from kvoracle.model.witnesses.base import Looks, Needs, fates
from kvoracle.reference import Oracle

WITNESSES: Needs = {
    "append fills the tail in place": frozenset({Append}),
    "append starts a block at an exact multiple": frozenset({Append}),
    "append takes several blocks at once": frozenset({Append}),
    "append copies a shared tail": frozenset({Append, Fork}),
    "append copies a pinned tail of its only owner": frozenset({Append, Pin}),
    "append finds too few free blocks": frozenset({Append}),
    "append finds no block for its copy": frozenset({Append, Fork}),
    "append takes the last free block": frozenset({Append}),
    "append leaves one free block": frozenset({Append}),
    "append lacks one block": frozenset({Append}),
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


def _is_unsettled(kv: Oracle, request: str) -> bool:
    return kv.lives[request].waiting or kv.lives[request].in_flight > 0


def _append(kv: Oracle, operation: Append) -> Iterator[str]:
    if _is_unsettled(kv, operation.request):
        return
    length, tail = kv.length(operation.request), kv.tail_to_copy(operation.request)
    after = -(-(length + len(operation.tokens)) // kv.block_size)
    fresh = max(after - len(kv.tables[operation.request]), 0)
    need = fresh + (tail is not None)
    yield from _need_against_free(kv, need)
    if need > len(kv.takeable()):
        if tail is not None:
            yield "append finds no block for its copy"
        return
    if tail is not None and len(kv.pages[tail].owners) > 1:
        yield "append copies a shared tail"
    elif tail is not None:
        yield "append copies a pinned tail of its only owner"
    elif fresh == 0 and length % kv.block_size:
        yield "append fills the tail in place"
    if fresh > 0 and length > 0 and length % kv.block_size == 0:
        yield "append starts a block at an exact multiple"
    if fresh > 1:
        yield "append takes several blocks at once"


def _need_against_free(kv: Oracle, need: int) -> Iterator[str]:
    """Where one block more or less makes the difference."""
    free = len(kv.takeable())
    if len(kv.free) < need <= free:
        yield "append takes an idle block and drops its entry"
    if need > free:
        yield "append finds too few free blocks"
    if need == free + 1:
        yield "append lacks one block"
    if 0 < need == free:
        yield "append takes the last free block"
    if 0 < need == free - 1:
        yield "append leaves one free block"


def _append_each(kv: Oracle, operation: AppendEach) -> Iterator[str]:
    if any(_is_unsettled(kv, request) for request in operation.requests):
        return
    told = fates(kv, operation.requests)
    if len({fate.is_granted for fate in told}) == 2:
        yield "append_each grows some and refuses others"
    if any(fate.copied is not None for fate in told):
        yield "append_each meets a tail to copy"


def _fork(kv: Oracle, operation: Fork) -> Iterator[str]:
    if _is_unsettled(kv, operation.parent) or kv.lives[operation.parent].reserved:
        return
    length = kv.length(operation.parent)
    if length == 0:
        yield "fork of an empty request"
    elif length % kv.block_size == 0:
        yield "fork shares full blocks only"
    else:
        yield "fork shares a partial tail"


def _pin(kv: Oracle, operation: Pin) -> Iterator[str]:
    if any(kv.pages[page].pins for page in kv.tables[operation.request]):
        yield "pin of a block that another transfer pins"


def _unpin(kv: Oracle, operation: Unpin) -> Iterator[str]:
    pages = [kv.pages[page] for page in kv.transfers[operation.transfer].pages]
    if any(len(page.pins) > 1 for page in pages):
        yield "unpin leaves a block to another transfer"
    if any(len(page.pins) == 1 and not (page.owners or page.holds) for page in pages):
        yield "unpin frees a block that no request owns"


def _release(kv: Oracle, operation: Release) -> Iterator[str]:
    pages = [kv.pages[page] for page in kv.tables.get(operation.request, ())]
    if any(len(page.owners) == 1 and not (page.pins or page.holds) for page in pages):
        yield "release frees blocks"
    if any(len(page.owners) > 1 for page in pages):
        yield "release leaves a shared block"
    if any(page.pins for page in pages):
        yield "release leaves a pinned block"


def _release_each(kv: Oracle, operation: ReleaseEach) -> Iterator[str]:
    named = [page for request in operation.requests for page in kv.tables[request]]
    if len(set(named)) < len(named):
        yield "release_each names a block twice"


LOOKS: Looks = {
    Append: _append,
    AppendEach: _append_each,
    Fork: _fork,
    Pin: _pin,
    Unpin: _unpin,
    Release: _release,
    ReleaseEach: _release_each,
}
