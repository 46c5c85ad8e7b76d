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
    return f"block {page} (owners: {owners}; pins: {pins})"


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
    """Every page of a table but the last is full; the last holds 1 to block_size tokens."""
    for request, table in kv.tables.items():
        for index, page in enumerate(table):
            filled = len(kv.pages[page].tokens)
            least = 1 if index == len(table) - 1 else kv.block_size
            if not least <= filled <= kv.block_size:
                where = f"position {index} of the table of {request!r}"
                right = f"{least} to {kv.block_size}"
                yield f"{describe(kv, page)} at {where} holds {filled} tokens, not {right}"


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
    only_the_tail_is_partial,
    pinned_contents_are_frozen,
)
