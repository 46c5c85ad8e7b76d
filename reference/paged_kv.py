"""PagedKV: one pool of pages, one table a request, owners and transfer pins as two separate sets.

A page is retained by the requests whose tables name it (its owners) and by the transfers that may
still read it (its pins).  It is free exactly when both sets are empty.  A page that is shared or
pinned is never written in place: the writer copies it first.

Used alone it takes the smallest free page.  Given `choose`, it is told which pages an allocator
took and judges them.  Each operation is written in the same parts: check, take, record, result.
No append, and no other operation but a batch of them, changes anything before its last check has
passed.
"""

from collections.abc import Callable, Iterator, Sequence

from kvoracle.reference.invariants import INVARIANTS, BrokenInvariant, describe
from kvoracle.reference.records import Hold, Life, Page, Rejected, Transfer, WrongChoice

Choose = Callable[[str, list[int]], Sequence[int]]


def last_mentions(pages: Sequence[int]) -> list[int]:
    """Each page once, where it is named last."""
    return list(dict.fromkeys(reversed(pages)))[::-1]


class PagedKV:
    """A pool of `capacity` pages of `block_size` token slots each.

    Pages are named `first_page`, `first_page + 1`, ...: engines that reserve page 0 say 1.
    `choose(request, positions)` returns the pages taken for those positions of the request's
    table; without it the smallest free pages are taken.  With `in_order` they must be, and are,
    those that `reuse_order` names first.  A request has at most `max_length` tokens.  Out of pages is a
    MemoryError.
    """

    def __init__(
        self,
        capacity: int,
        block_size: int,
        *,
        first_page: int = 0,
        choose: Choose | None = None,
        in_order: bool = False,
        max_length: int | None = None,
    ) -> None:
        if capacity < 1 or block_size < 1:
            raise ValueError("capacity and block_size must be at least 1")
        self.capacity = capacity
        self.block_size = block_size
        self.usable = range(first_page, first_page + capacity)
        self.free: list[int] = list(reversed(self.usable))
        """The free pages, the one freed last at the end."""
        self.pages: dict[int, Page] = {}
        self.tables: dict[str, list[int]] = {}
        self.lives: dict[str, Life] = {}
        self.transfers: dict[str, Transfer] = {}
        self.taken = dict.fromkeys(self.usable, 0)
        """How often each page was taken: the generation of its address."""
        self.copied: list[tuple[int, int]] = []
        """Every copy (source, destination) that had to be made, in order."""
        self.written: list[tuple[str, int, tuple[object, ...]]] = []
        """Every write, in order: the request, its first position, the tokens."""
        self.demand = (0, 0)
        """The pages that the call under way takes, and those that it may take them from."""
        self.in_order = in_order
        self.max_length = max_length
        self._choose = choose

    def create(self, request: str) -> None:
        """Begin a request with an empty table."""
        # check
        self._check_new(request)
        # record
        self._begin(request, [], Life())

    def append(self, request: str, *tokens: object) -> None:
        """Write tokens at the end of a request: all of them, or MemoryError and none."""
        # check
        self._check_settled(request)
        if not tokens:
            raise Rejected("no tokens", request)
        self._check_length(request, self.length(request) + len(tokens))
        # take
        self._make_room(request, len(tokens))
        # record
        self._write(request, tokens)

    def append_each(self, requests: Sequence[str], tokens: Sequence[object]) -> list[str]:
        """Write one token to each request, in order; the result names those that found no page."""
        # check
        self._check_batch(requests)
        for request in requests:
            self._check_settled(request)
        if len(requests) != len(tokens):
            raise Rejected("one token for each request", ", ".join(requests))
        for request in requests:
            self._check_length(request, self.length(request) + 1)
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
        self._check_unreserved(parent)
        self._check_new(child)
        # record
        life = self.lives[parent]
        self._begin(child, list(self.tables[parent]), Life(life.extra_keys, life.epoch))

    def pin(self, request: str, transfer: str) -> list[int]:
        """Begin a transfer that may read every page of the request; the result is those pages."""
        # check
        self._check_unreserved(request)
        self._check_new_transfer(transfer)
        if not self.tables[request]:
            raise Rejected("nothing to pin", request)
        # record
        self._begin_transfer(transfer, self.tables[request])
        # result
        return list(self.tables[request])

    def unpin(self, transfer: str) -> None:
        """End a transfer.  It never ends an ownership."""
        # check
        if transfer not in self.transfers:
            raise Rejected("unknown transfer", transfer)
        if not self.transfers[transfer].is_pin:
            raise Rejected("wrong kind of transfer", transfer)
        # record
        self._end_transfer(transfer)

    def release(self, request: str) -> None:
        """End a request: finished, cancelled or preempted.  It never ends a transfer."""
        # check
        self._table(request)
        # record
        self._give_back(self._end(request))

    def release_each(self, requests: Sequence[str]) -> None:
        """End several requests in one call."""
        # check
        self._check_batch(requests)
        # record
        self._give_back([page for request in requests for page in self._end(request)])

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

    def takeable(self) -> list[int]:
        """The pages that may be taken: those that nothing holds."""
        return self.free

    def reuse_order(self) -> list[int]:
        """The pages that may be taken, in the order of a stack: the one freed last first."""
        return self.free[::-1]

    def is_held(self, page: int) -> bool:
        """Whether an allocated page has a holder."""
        return self.pages[page].is_in_use

    def holds(self) -> Iterator[tuple[Hold, Sequence[int]]]:
        """Every reason to hold pages beside owners, pins and the prefix index, with those pages."""
        yield from ()

    def tail_to_copy(self, request: str) -> int | None:
        """The tail page that must not be written in place: partial, and shared or pinned."""
        length = self.length(request)
        if length % self.block_size == 0:
            return None
        tail = self.tables[request][length // self.block_size]
        held_by_others = len(self.pages[tail].owners) > 1 or self.pages[tail].pins
        return tail if held_by_others else None

    def _table(self, request: str) -> list[int]:
        if request not in self.tables:
            raise Rejected("unknown request", request)
        return self.tables[request]

    def _check_settled(self, request: str) -> None:
        """Where a request ends must be known before anything is written there."""
        self._table(request)
        if self.lives[request].waiting:
            raise Rejected("tokens on their way", request)
        if self.lives[request].in_flight:
            raise Rejected("step in flight", request)

    def _check_unreserved(self, request: str) -> None:
        """Room that is reserved cannot be shared."""
        self._check_settled(request)
        if self.lives[request].reserved:
            raise Rejected("tokens reserved", request)

    def _check_length(self, request: str, length: int) -> None:
        if self.max_length is not None and length > self.max_length:
            raise Rejected("longer than max_model_len", request)

    def _check_new(self, request: str) -> None:
        if request in self.tables:
            raise Rejected("duplicate request", request)

    def _check_new_transfer(self, transfer: str) -> None:
        if transfer in self.transfers:
            raise Rejected("duplicate transfer", transfer)

    def _check_batch(self, requests: Sequence[str]) -> None:
        if not requests:
            raise Rejected("no requests", "")
        for request in requests:
            self._table(request)
        if len(set(requests)) < len(requests):
            raise Rejected("repeated request", ", ".join(requests))

    def _check_capacity(self, need: int, copied: int | None) -> None:
        self.demand = (need, len(self.takeable()))
        if need > len(self.takeable()):
            copy = f" (one to copy block {copied})" if copied is not None else ""
            raise MemoryError(f"{need} blocks needed{copy}, {len(self.takeable())} free")

    def _make_room(self, request: str, count: int) -> None:
        """Room for `count` tokens beyond those written, a copy of a shared tail included."""
        # check
        table, length = self._table(request), self.length(request)
        copied = self.tail_to_copy(request)
        positions = list(range(len(table), -(-(length + count) // self.block_size)))
        if copied is not None:
            positions.insert(0, length // self.block_size)
        self._check_capacity(len(positions), copied)
        # take
        fresh = self._take(request, positions)
        # record
        if copied is not None:
            self._redirect_tail(request, copied, fresh.pop(0))
        self._extend(table, request, fresh)
        self.lives[request].reserved = max(self.lives[request].reserved, count)

    def _own_choice(self, _request: str, positions: list[int]) -> list[int]:
        takeable = self.reuse_order() if self.in_order else sorted(self.takeable())
        return takeable[: len(positions)]

    def _take(self, request: str, positions: list[int]) -> list[int]:
        choose = self._choose or self._own_choice
        taken = list(choose(request, positions)) if positions else []
        if len(taken) != len(positions):
            raise WrongChoice(f"{len(positions)} blocks were needed and {len(taken)} taken")
        takeable = set(self.takeable())
        for index, page in enumerate(taken):
            if page in taken[:index]:
                raise WrongChoice(f"block {page} was taken twice in one call", page)
            if page not in takeable:
                said = f"{describe(self, page)} was taken for {request!r} but is not free"
                raise WrongChoice(said, page)
        self._check_order(request, taken)
        for page in taken:
            self._claim(page)
        return taken

    def _check_order(self, request: str, taken: Sequence[int]) -> None:
        if not self.in_order:
            return
        for page, promised in zip(taken, self.reuse_order(), strict=False):
            if page != promised:
                said = f"block {page} was taken for {request!r} before block {promised}"
                raise WrongChoice(f"{said}, which is to be reused first", page, "reuse order")

    def _claim(self, page: int) -> None:
        self.free.remove(page)
        self.taken[page] += 1

    def _begin(self, request: str, table: list[int], life: Life) -> None:
        self.tables[request] = table
        self.lives[request] = life
        for page in table:
            self.pages[page].owners.add(request)

    def _extend(self, table: list[int], request: str, fresh: Sequence[int]) -> None:
        for page in fresh:
            self.pages[page] = Page(owners={request})
            table.append(page)

    def _end(self, request: str) -> list[int]:
        del self.lives[request]
        table = self.tables.pop(request)
        for page in table:
            self.pages[page].owners.remove(request)
        return table

    def _begin_transfer(self, transfer: str, pages: Sequence[int]) -> Transfer:
        contents = [list(self.pages[page].tokens) for page in pages]
        self.transfers[transfer] = Transfer(list(pages), contents)
        for page in pages:
            self.pages[page].pins.add(transfer)
        return self.transfers[transfer]

    def _end_transfer(self, transfer: str) -> None:
        pages = self.transfers.pop(transfer).pages
        for page in pages:
            self.pages[page].pins.remove(transfer)
        self._give_back(pages)

    def _write(self, request: str, tokens: Sequence[object]) -> None:
        """Write tokens into the room of a request."""
        first, table, life = self.length(request), self.tables[request], self.lives[request]
        for position, token in enumerate(tokens, start=first):
            self.pages[table[position // self.block_size]].tokens.append(token)
        life.reserved -= len(tokens)
        self.written.append((request, first, tuple(tokens)))

    def _redirect_tail(self, request: str, source: int, copy: int) -> None:
        table = self.tables[request]
        self.pages[copy] = Page(tokens=list(self.pages[source].tokens), owners={request})
        self.pages[source].owners.remove(request)
        table[table.index(source)] = copy
        self.copied.append((source, copy))

    def _give_back(self, pages: Sequence[int]) -> None:
        """Free the pages that nothing holds any more.

        Of those given back together the last is reused first; a page that is named twice counts at
        its last mention.
        """
        for page in last_mentions(pages):
            if not self.is_held(page):
                del self.pages[page]
                self.free.append(page)
