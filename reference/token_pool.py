"""TokenPool: what a pool of token slots must do, in lists, one request after the other.

Slots are handed out and given back; whose they are is the caller's account.  A page is held as long
as any of its slots is handed out, and it is given back whole: exactly those slots that were.
Page 0 is padding.  After SGLang 0.5.23, srt/mem_cache/allocator, and alloc_extend_naive there.

Used alone it takes the page that was freed last.  Given `choose`, it is told which pages an
allocator took and judges them; only with `need_sort` is the order a law: the first of the merged,
ascending list.  Each operation is written in the same parts: check, take, record, result.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from kvoracle.reference.invariants import BrokenInvariant
from kvoracle.reference.records import Rejected, WrongChoice

Choose = Callable[[int], Sequence[int]]


@dataclass
class FreeState:
    """Which pages are free, in the order of being taken, and how many slots of each held page are out.

    `released` are free and wait for a merge; `pending` wait for the end of the free group.
    """

    free: list[int]
    released: list[int] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    out: dict[int, int] = field(default_factory=dict)


class TokenPool:
    """Pages 1 .. `pages` of `page_size` slots each.  Too few slots is a MemoryError."""

    def __init__(
        self, pages: int, page_size: int, *, need_sort: bool = False, choose: Choose | None = None
    ) -> None:
        if pages < 1 or page_size < 1:
            raise ValueError("pages and page_size must be at least 1")
        self.usable = range(1, pages + 1)
        self.page_size = page_size
        self.need_sort = need_sort
        self.state = FreeState(free=list(self.usable))
        self.group_is_open = False
        self._choose = choose or self._first

    @property
    def available(self) -> int:
        """How many slots can be handed out, in whole pages."""
        return (len(self.state.free) + len(self.state.released)) * self.page_size

    def alloc(self, count: int) -> list[int]:
        """`count` slots of whole pages."""
        # check
        _check_count(count)
        if count % self.page_size != 0:
            raise Rejected("part of a page", f"{count} slots")
        # take
        pages = self._take(count // self.page_size)
        # record and result
        return [slot for page in pages for slot in self._hand_out(page, self.page_size)]

    def alloc_extend(
        self, before: Sequence[int], after: Sequence[int], last: Sequence[int]
    ) -> list[int]:
        """Slots for the tokens before .. after - 1 of each request, one request after the other.

        `last` is the slot of a request's last token; it matters where that leaves a partial page.
        """
        # check
        self._check_requests(before, last)
        if len(after) != len(before):
            raise Rejected("one length for each request", f"{len(after)} for {len(before)}")
        for old, new in zip(before, after, strict=True):
            _check_count(new - old)
        # take
        needed = sum(
            self._pages(new) - self._pages(old) for old, new in zip(before, after, strict=True)
        )
        fresh = iter(self._take(needed))
        # record and result
        slots = []
        for old, new, slot in zip(before, after, last, strict=True):
            slots += self._extend(old, new, slot, fresh)
        return slots

    def alloc_decode(self, lengths: Sequence[int], last: Sequence[int]) -> list[int]:
        """A slot for the next token of each request."""
        self._check_requests(lengths, last)
        return self.alloc_extend(lengths, [length + 1 for length in lengths], last)

    def free(self, slots: Sequence[int]) -> None:
        """Give slots back: of each page all that were handed out."""
        # check
        for slot in slots:
            self._check_freed(slot, slots)
        pages = list(dict.fromkeys(slot // self.page_size for slot in slots))
        for page in pages:
            if sum(slot // self.page_size == page for slot in slots) < self.state.out[page]:
                raise Rejected("part of a page", f"page {page}")
        # record
        for page in pages:
            del self.state.out[page]
        if self.group_is_open:
            self.state.pending += pages
        else:
            self._give_back(pages)

    def begin_group(self) -> None:
        """From here on what is freed waits for `end_group`."""
        self._check_group(is_open=False)
        self.group_is_open = True

    def end_group(self) -> None:
        """What was freed in the group can be handed out again."""
        self._check_group(is_open=True)
        self.group_is_open = False
        pages, self.state.pending = self.state.pending, []
        self._give_back(pages)

    def backup(self) -> FreeState:
        """What is free and what is out, to come back to."""
        self._check_group(is_open=False)
        return copy.deepcopy(self.state)

    def restore(self, state: FreeState) -> None:
        """Undo every allocation and free since a backup."""
        self._check_group(is_open=False)
        self.state = copy.deepcopy(state)

    def check(self) -> None:
        """Every page is in one place exactly, and no held page is without a slot handed out."""
        state = self.state
        places = [*state.free, *state.released, *state.pending, *state.out]
        if sorted(places) != list(self.usable):
            raise BrokenInvariant("every_page_is_in_one_place", f"the pages are {sorted(places)}")
        for page, count in state.out.items():
            if not 1 <= count <= self.page_size:
                said = f"{count} slots of page {page} are handed out"
                raise BrokenInvariant("a_held_page_has_slots_handed_out", said)

    def _extend(self, before: int, after: int, last: int, fresh: Iterator[int]) -> list[int]:
        slots: list[int] = []
        # 1. the rest of the old partial page
        if before % self.page_size != 0:
            room = self.page_size - before % self.page_size
            slots += self._hand_out(last // self.page_size, min(room, after - before))
        # 2. whole new pages
        while after - before - len(slots) >= self.page_size:
            slots += self._hand_out(next(fresh), self.page_size)
        # 3. a new partial page
        if len(slots) < after - before:
            slots += self._hand_out(next(fresh), after - before - len(slots))
        return slots

    def _hand_out(self, page: int, count: int) -> list[int]:
        """The next `count` slots of a page."""
        first = page * self.page_size + self.state.out.get(page, 0)
        self.state.out[page] = self.state.out.get(page, 0) + count
        return list(range(first, first + count))

    def _take(self, count: int) -> list[int]:
        if count * self.page_size > self.available:
            raise MemoryError(f"{count * self.page_size} slots asked, {self.available} available")
        if count > len(self.state.free):
            self.state.free = sorted(self.state.free + self.state.released)
            self.state.released = []
        taken = list(self._choose(count)) if count else []
        if len(taken) != count:
            raise WrongChoice(f"{count} pages were needed and {len(taken)} taken")
        if self.need_sort and taken != self.state.free[:count]:
            raise WrongChoice(f"pages {taken} were taken, and {self.state.free[:count]} come first")
        for page in taken:
            if page not in self.state.free:
                raise WrongChoice(f"page {page} was taken but is not free", page)
            self.state.free.remove(page)
        return taken

    def _first(self, count: int) -> list[int]:
        return self.state.free[:count]

    def _give_back(self, pages: list[int]) -> None:
        if self.need_sort:
            self.state.released += pages
        else:
            self.state.free = pages + self.state.free

    def _pages(self, tokens: int) -> int:
        return -(-tokens // self.page_size)

    def _check_requests(self, lengths: Sequence[int], last: Sequence[int]) -> None:
        """Each request that ends inside a page ends where its page was handed out to, and alone."""
        if len(lengths) != len(last):
            raise Rejected("one last slot for each request", f"{len(last)} for {len(lengths)}")
        for length in lengths:
            _check_count(length)
        tails = []
        for length, slot in zip(lengths, last, strict=True):
            filled = length % self.page_size
            if filled != 0:
                page, offset = divmod(slot, self.page_size)
                if self.state.out.get(page) != filled or offset + 1 != filled:
                    raise Rejected("not the last slot of a request", f"slot {slot}")
                tails.append(page)
        if len(set(tails)) < len(tails):
            raise Rejected("two requests end in one page", f"pages {tails}")

    def _check_freed(self, slot: int, slots: Sequence[int]) -> None:
        page, offset = divmod(slot, self.page_size)
        if page != 0 and page not in self.usable:
            raise Rejected("outside the pool", f"slot {slot}")
        if page == 0:
            raise Rejected("padding", f"slot {slot}")
        if page not in self.state.out or slots.count(slot) > 1:
            raise Rejected("double free", f"slot {slot} of page {page}")
        if offset >= self.state.out[page]:
            raise Rejected("not handed out", f"slot {slot}")

    def _check_group(self, *, is_open: bool) -> None:
        if self.group_is_open != is_open:
            raise Rejected("no group is open" if is_open else "a group is open", "free group")


def _check_count(count: int) -> None:
    if not isinstance(count, int):
        raise Rejected("not whole numbers", str(count))
    if count < 0:
        raise Rejected("negative count", str(count))
