"""The rules of `PagedKV`, each one named and recomputed from scratch.

An invariant yields one sentence for each place where it is broken, naming the page and its holders.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvoracle.reference.paged_kv import PagedKV


class BrokenInvariant(AssertionError):
    """`check()` found a rule broken; `invariant` is the rule's name."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant


def describe(kv: "PagedKV", page: int) -> str:
    """A page and its holders in words."""
    if page not in kv.usable:
        return f"block {page} (outside the pool)"
    if page not in kv.pages:
        return f"block {page} (not allocated)"
    owners = ", ".join(sorted(kv.pages[page].owners)) or "none"
    pins = ", ".join(sorted(kv.pages[page].pins)) or "none"
    holds = "; ".join(f"{kind}: {name}" for kind, name in sorted(kv.pages[page].holds))
    return f"block {page} (owners: {owners}; pins: {pins}{'; ' if holds else ''}{holds})"


def free_and_allocated_partition_the_pool(kv: "PagedKV") -> Iterator[str]:
    """Every usable page is free or allocated, never both, and listed once."""
    if sorted([*kv.free, *kv.pages]) == list(kv.usable):
        return
    for page in kv.free:
        if page in kv.pages:
            yield f"{describe(kv, page)} is free and allocated at once"
        if kv.free.count(page) > 1:
            yield f"{describe(kv, page)} is on the free list {kv.free.count(page)} times"
    for page in kv.usable:
        if page not in kv.pages and page not in kv.free:
            yield f"{describe(kv, page)} is neither free nor allocated: it leaked"
    for page in sorted({*kv.free, *kv.pages} - set(kv.usable)):
        yield f"{describe(kv, page)} is listed as free or allocated"


def tables_and_owners_agree(kv: "PagedKV") -> Iterator[str]:
    """A table names a page exactly when the page's owner set names the request."""
    owners: dict[int, set[str]] = {page: set() for page in kv.pages}
    for request, table in kv.tables.items():
        for page in table:
            if page not in owners:
                yield f"the table of {request!r} names {describe(kv, page)}"
                return
            owners[page].add(request)
    for page, expected in owners.items():
        if kv.pages[page].owners != expected:
            tables = ", ".join(sorted(expected)) or "no table"
            yield f"{describe(kv, page)} is named by {tables}"


def every_page_is_held(kv: "PagedKV") -> Iterator[str]:
    """An allocated page has a holder."""
    for page in kv.pages:
        if not kv.is_held(page):
            yield f"{describe(kv, page)} is allocated and nothing holds it"


def pins_and_transfers_agree(kv: "PagedKV") -> Iterator[str]:
    """Every pin has a live transfer record, and every record its page pins."""
    pins: dict[int, set[str]] = {page: set() for page in kv.pages}
    for name, transfer in kv.transfers.items():
        if not transfer.pages:
            yield f"the record of transfer {name!r} has no block"
        if len(set(transfer.pages)) < len(transfer.pages):
            repeated = next(page for page in transfer.pages if transfer.pages.count(page) > 1)
            yield f"the record of transfer {name!r} names {describe(kv, repeated)} twice"
        for page in transfer.pages:
            if page not in pins:
                yield f"the record of transfer {name!r} names {describe(kv, page)}"
                return
            pins[page].add(name)
    for page, expected in pins.items():
        if kv.pages[page].pins != expected:
            records = ", ".join(sorted(expected)) or "no transfer record"
            yield f"{describe(kv, page)} is named by {records}"


def tables_name_no_page_twice(kv: "PagedKV") -> Iterator[str]:
    """A request's table names each page once."""
    for request, table in kv.tables.items():
        if len(set(table)) < len(table):
            repeated = next(page for page in table if table.count(page) > 1)
            yield f"the table of {request!r} names {describe(kv, repeated)} twice: {table}"


def only_the_tail_is_partial(kv: "PagedKV") -> Iterator[str]:
    """Every page before the tail is full, the tail holds 1 to block_size tokens, reserved ones none."""
    size = kv.block_size
    for request, table in kv.tables.items():
        reserved = kv.lives[request].reserved
        filled = [len(kv.pages[page].tokens) for page in table]
        tail = -(-sum(filled) // size) - 1 if reserved else len(table) - 1
        for index, page in enumerate(table):
            least, most = _right_fill(index, tail, size)
            if not least <= filled[index] <= most:
                where = f"position {index} of the table of {request!r}"
                right = f"{least} to {most}"
                yield f"{describe(kv, page)} at {where} holds {filled[index]} tokens, not {right}"


def _right_fill(index: int, tail: int, size: int) -> tuple[int, int]:
    """How many tokens the page at a position may hold, at least and at most."""
    if index < tail:
        return size, size
    return (1, size) if index == tail else (0, 0)


def tables_are_as_long_as_needed(kv: "PagedKV") -> Iterator[str]:
    """A table has room for the tokens written, those in flight and those reserved, and no more."""
    for request, table in kv.tables.items():
        life = kv.lives[request]
        needed = -(-(kv.length(request) + life.reserved) // kv.block_size)
        if len(table) != needed or not 0 <= life.in_flight <= life.reserved:
            said = f"{life.reserved} tokens reserved, {life.in_flight} of them in flight"
            yield f"the table of {request!r} names {len(table)} blocks, not {needed} ({said})"


def holds_and_records_agree(kv: "PagedKV") -> Iterator[str]:
    """A lookup or a step holds a page exactly when its record names the page."""
    holds: dict[int, set[tuple[str, str]]] = {page: set() for page in kv.pages}
    for hold, pages in kv.holds():
        for page in pages:
            if page not in holds:
                yield f"the {hold[0]} {hold[1]!r} names {describe(kv, page)}"
                return
            holds[page].add(hold)
    for page, expected in holds.items():
        if kv.pages[page].holds != expected:
            records = ", ".join(name for _, name in sorted(expected)) or "no record"
            yield f"{describe(kv, page)} is named by {records}"


def pinned_contents_are_frozen(kv: "PagedKV") -> Iterator[str]:
    """What a transfer reads is what it pinned, until it ends."""
    for name, transfer in kv.transfers.items():
        for page, contents in itertools.zip_longest(transfer.pages, transfer.contents):
            if page not in kv.pages or kv.pages[page].tokens != contents:
                yield f"{describe(kv, page)} changed while transfer {name!r} pins it"


INVARIANTS: tuple[Callable[["PagedKV"], Iterator[str]], ...] = (
    free_and_allocated_partition_the_pool,
    tables_and_owners_agree,
    every_page_is_held,
    pins_and_transfers_agree,
    tables_name_no_page_twice,
    holds_and_records_agree,
    only_the_tail_is_partial,
    tables_are_as_long_as_needed,
    pinned_contents_are_frozen,
)
