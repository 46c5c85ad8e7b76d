"""PagedKV: one pool of pages, one table a request, owners and transfer pins as two separate sets.

A page is retained by the requests whose tables name it (its owners) and by the transfers that may
still read it (its pins).  It is free exactly when both sets are empty.  A page that is shared or
pinned is never written in place: the writer copies it first.

Used alone it takes the smallest free page.  Given `choose`, it is told which pages an allocator
took and judges them.  Each operation is written in the same parts: check, take, record, result.
No append, and no other operation
but a batch of them, changes anything before its last check has passed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kvoracle.reference.invariants import INVARIANTS, BrokenInvariant, describe

Choose = Callable[[str, list[int]], Sequence[int]]


class Rejected(ValueError):
    """The call itself is wrong, whatever the state of the pool; nothing was changed."""

    def __init__(self, reason: str, name: str) -> None:
        super().__init__(f"{reason}: {name!r}")
        self.reason = reason


class WrongChoice(AssertionError):
    """The pages that an allocator took for an append were not its to take; it changed nothing."""

    def __init__(self, message: str, page: int | None = None) -> None:
        super().__init__(message)
        self.page = page


@dataclass
class Page:
    """An allocated page: its tokens so far, and every reason why it is retained."""

    tokens: list[object] = field(default_factory=list)
    owners: set[str] = field(default_factory=set)
    pins: set[str] = field(default_factory=set)


@dataclass
class Transfer:
    """An outstanding read: the pages it may still read, as they were when it began."""

    pages: list[int]
    contents: list[list[object]]


class PagedKV:
    """A pool of `capacity` pages of `block_size` token slots each.

    Pages are named `first_page`, `first_page + 1`, ...: engines that reserve page 0 say 1.
    `choose(request, positions)` returns the pages taken for those positions of the request's
    table; without it the smallest free pages are taken.  Out of pages is a MemoryError.
    """

    def __init__(
        self, capacity: int, block_size: int, *, first_page: int = 0, choose: Choose | None = None
    ) -> None:
        if capacity < 1 or block_size < 1:
            raise ValueError("capacity and block_size must be at least 1")
        self.capacity = capacity
        self.block_size = block_size
        self.usable = range(first_page, first_page + capacity)
        self.free: list[int] = list(self.usable)
        self.pages: dict[int, Page] = {}
        self.tables: dict[str, list[int]] = {}
        self.transfers: dict[str, Transfer] = {}
        self.copied: list[tuple[int, int]] = []
        """Every copy (source, destination) that an append had to make, in order."""
        self.demand = (0, 0)
        """The pages that the call under way takes, and those that it may take them from."""
        self._choose = choose or self._smallest

    def create(self, request: str) -> None:
        """Begin a request with an empty table."""
        self._check_new(request)
        self.tables[request] = []

    def append(self, request: str, *tokens: object) -> None:
        """Write tokens at the end of a request: all of them, or MemoryError and none."""
        # check
        table = self._table(request)
        if not tokens:
            raise Rejected("no tokens", request)
        length = self.length(request)
        copied = self.tail_to_copy(request)
        pages_after = -(-(length + len(tokens)) // self.block_size)
        positions = list(range(len(table), pages_after))
        if copied is not None:
            positions.insert(0, len(table) - 1)
        self._check_capacity(len(positions), copied)
        # take
        fresh = self._take(request, positions)
        # record
        if copied is not None:
            self._redirect_tail(request, copied, fresh.pop(0))
        self._write(request, fresh, tokens)

    def append_each(self, requests: Sequence[str], tokens: Sequence[object]) -> list[str]:
        """Write one token to each request, in order; the result names those that found no page."""
        # check
        self._check_batch(requests)
        if len(requests) != len(tokens):
            raise Rejected("one token for each request", ", ".join(requests))
        # take and record
        refused = []
        for request, token in zip(requests, tokens, strict=True):
            try:
                self.append(request, token)
            except MemoryError:
                refused.append(request)
        # result
        return refused

    def fork(self, parent: str, child: str) -> None:
        """Begin a request that shares every page of its parent, a partial tail included."""
        # check
        table = self._table(parent)
        self._check_new(child)
        # record
        self.tables[child] = list(table)
        for page in table:
            self.pages[page].owners.add(child)

    def pin(self, request: str, transfer: str) -> list[int]:
        """Begin a transfer that may read every page of the request; the result is those pages."""
        # check
        table = self._table(request)
        if transfer in self.transfers:
            raise Rejected("duplicate transfer", transfer)
        if not table:
            raise Rejected("nothing to pin", request)
        # record
        contents = [list(self.pages[page].tokens) for page in table]
        self.transfers[transfer] = Transfer(list(table), contents)
        for page in table:
            self.pages[page].pins.add(transfer)
        # result
        return list(table)

    def unpin(self, transfer: str) -> None:
        """End a transfer.  It never ends an ownership."""
        # check
        if transfer not in self.transfers:
            raise Rejected("unknown transfer", transfer)
        # record
        pages = self.transfers.pop(transfer).pages
        for page in pages:
            self.pages[page].pins.remove(transfer)
        self._free_unheld(pages)

    def release(self, request: str) -> None:
        """End a request: finished, cancelled or preempted.  It never ends a transfer."""
        # check
        table = self._table(request)
        # record
        del self.tables[request]
        for page in table:
            self.pages[page].owners.remove(request)
        self._free_unheld(table)

    def release_each(self, requests: Sequence[str]) -> None:
        """End several requests in one call."""
        # check
        self._check_batch(requests)
        # record
        for request in requests:
            self.release(request)

    def read(self, request: str) -> list[object]:
        """The tokens of a request, read through its table."""
        return [token for page in self._table(request) for token in self.pages[page].tokens]

    def length(self, request: str) -> int:
        """How many tokens a request holds."""
        return sum(len(self.pages[page].tokens) for page in self._table(request))

    def check(self) -> None:
        """Recompute every invariant; BrokenInvariant names the page and its holders."""
        for invariant in INVARIANTS:
            for broken in invariant(self):
                raise BrokenInvariant(invariant.__name__, broken)

    def _table(self, request: str) -> list[int]:
        if request not in self.tables:
            raise Rejected("unknown request", request)
        return self.tables[request]

    def _check_new(self, request: str) -> None:
        if request in self.tables:
            raise Rejected("duplicate request", request)

    def _check_batch(self, requests: Sequence[str]) -> None:
        if not requests:
            raise Rejected("no requests", "")
        for request in requests:
            self._table(request)
        if len(set(requests)) < len(requests):
            raise Rejected("repeated request", ", ".join(requests))

    def takeable(self) -> list[int]:
        """The pages that may be taken: those that nothing holds."""
        return self.free

    def is_held(self, page: int) -> bool:
        """Whether an allocated page has a holder."""
        return bool(self.pages[page].owners or self.pages[page].pins)

    def _check_capacity(self, need: int, copied: int | None) -> None:
        self.demand = (need, len(self.takeable()))
        if need > len(self.takeable()):
            copy = f" (one to copy block {copied})" if copied is not None else ""
            raise MemoryError(f"{need} blocks needed{copy}, {len(self.takeable())} free")

    def tail_to_copy(self, request: str) -> int | None:
        """The tail page that an append must not write in place: partial, and shared or pinned."""
        if self.length(request) % self.block_size == 0:
            return None
        tail = self.tables[request][-1]
        held_by_others = len(self.pages[tail].owners) > 1 or self.pages[tail].pins
        return tail if held_by_others else None

    def _smallest(self, _request: str, positions: list[int]) -> list[int]:
        return sorted(self.takeable())[: len(positions)]

    def _take(self, request: str, positions: list[int]) -> list[int]:
        taken = list(self._choose(request, positions)) if positions else []
        if len(taken) != len(positions):
            raise WrongChoice(f"{len(positions)} blocks were needed and {len(taken)} taken")
        takeable = set(self.takeable())
        for index, page in enumerate(taken):
            if page in taken[:index]:
                raise WrongChoice(f"block {page} was taken twice in one call", page)
            if page not in takeable:
                said = f"{describe(self, page)} was taken for {request!r} but is not free"
                raise WrongChoice(said, page)
        for page in taken:
            self._claim(page)
        return taken

    def _claim(self, page: int) -> None:
        self.free.remove(page)

    def _write(self, request: str, fresh: Sequence[int], tokens: Sequence[object]) -> None:
        """Add fresh pages to a table and write tokens at the end of the request."""
        first = self.length(request)
        table = self.tables[request]
        for page in fresh:
            self.pages[page] = Page(owners={request})
            table.append(page)
        for position, token in enumerate(tokens, start=first):
            self.pages[table[position // self.block_size]].tokens.append(token)

    def _redirect_tail(self, request: str, source: int, copy: int) -> None:
        self.pages[copy] = Page(tokens=list(self.pages[source].tokens), owners={request})
        self.pages[source].owners.remove(request)
        self.tables[request][-1] = copy
        self.copied.append((source, copy))

    def _free_unheld(self, pages: Sequence[int]) -> None:
        for page in [page for page in pages if not self.is_held(page)]:
            del self.pages[page]
            self.free.append(page)
