"""A pool of token slots as SGLang keeps it: allocation is a slice, and requests are the caller's.

The free list is a stack, so a call costs what it takes or gives back, whatever the size of the pool;
only a sorted merge and a backup look at all of it.  Per page: int32 slots handed out, int64 of the
stack, int32 to find what a call names twice.  After SGLang 0.5.23, srt/mem_cache/allocator.
"""

import operator
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvoracle.impl.errors import BadCall, OutOfBlocks
from kvoracle.impl.ids import ONE, Slots

Pages = NDArray[np.int64]
Used = NDArray[np.int32]

COUNTED = np.arange(1 << 16)
"""Kept, since numbers of so many slots take longer to make than to add."""

FREE = 0
NOT_HELD = -1
"""Padding, the guard behind the last page, and pages that wait for the end of a free group."""


class OutOfSlots(OutOfBlocks):
    """Too few slots are free; all three numbers are slots of whole pages.

    A large `evictable` means that the cache on top was to give slots back before the call, not that
    the pool is too small.
    """

    def __init__(self, asked: int, available: int, evictable: int) -> None:
        super().__init__(asked, available)
        self.evictable = evictable
        enough = asked <= available + evictable
        advice = "evict before allocating" if enough else "retract a request"
        self.args = (
            f"{asked} slots asked, {available} available, {evictable} evictable: {advice}",
        )


@dataclass(frozen=True, slots=True)
class FreeState:
    """What is free, as `TokenPool.backup` found it."""

    pool: "TokenPool"
    used: Used
    stack: Pages
    released: int


def _nothing() -> int:
    return 0


def _whole(count: int) -> int:
    try:
        whole = operator.index(count)
    except TypeError:
        raise BadCall("not whole numbers", str(count)) from None
    if whole < 0:
        raise BadCall("negative count", str(whole))
    return whole


def _row(values: ArrayLike) -> Slots:
    row = np.asarray(values)
    if row.ndim != 1 or (row.dtype.kind not in "iu" and len(row) > 0):
        raise BadCall("not whole numbers", f"{row.dtype} {row.shape}")
    return row.astype(np.int64, copy=False)


def _counted(count: int) -> Slots:
    return COUNTED[:count] if count <= len(COUNTED) else np.arange(count)


def _all(flags: NDArray[np.bool_]) -> bool:
    """As `flags.all()`, which takes several times as long for few flags."""
    return bool(np.count_nonzero(flags) == len(flags))


class TokenPool:
    """Pages 1 .. `pages` of `page_size` slots; page 0 is padding and is never handed out.

    What was given back last is taken first.  With `need_sort` pages given back wait until an
    allocation runs short; then they are merged in and all are taken in ascending order.
    `evictable()` says how many slots a cache on top could give back.  A call that finds too few
    slots raises OutOfSlots, a wrong one BadCall, and neither changes anything.
    """

    def __init__(
        self,
        pages: int,
        page_size: int = 1,
        *,
        need_sort: bool = False,
        evictable: Callable[[], int] = _nothing,
    ) -> None:
        if pages < 1 or page_size < 1:
            raise ValueError("pages and page_size must be at least 1")
        self.pages = pages
        self.page_size = page_size
        self._size = np.array(page_size)  # as `ONE` is
        self.need_sort = need_sort
        self.used: Used = np.full(pages + 2, FREE, np.int32)
        """int32 [1 + pages + 1]: how many slots of a page are handed out."""
        self.used[[0, -1]] = NOT_HELD
        self._evictable = evictable
        self._stack: Pages = np.arange(pages, 0, -1)
        self._stacked = pages
        self._released = 0
        self._group: list[Pages] | None = None
        self._seen = np.empty(pages + 2, np.int32)

    @property
    def available(self) -> int:
        """How many slots can be handed out, whole pages; those in an open free group cannot."""
        return (self._stacked + self._released) * self.page_size

    def alloc(self, count: int) -> Slots:
        """Take `count` slots, whole pages of them: int64 [count], page by page."""
        pages, part = divmod(_whole(count), self.page_size)
        if part:
            raise BadCall("part of a page", f"{count} slots")
        taken = self._take(pages)
        if self.page_size == 1:
            return taken
        slots: Slots = (taken[:, None] * self.page_size + np.arange(self.page_size)).ravel()
        return slots

    def alloc_extend(self, before: ArrayLike, after: ArrayLike, last: ArrayLike) -> Slots:
        """Grow each request from `before` to `after` tokens (int [requests]).

        `last` (int [requests]) is the slot of its last token, and matters where that leaves a page
        partly filled.  Returns int64 [sum(after - before)], one request after the other: first the
        rest of the old partial page, then whole new pages, then a new partial page.
        """
        lengths, ends, partial = self._checked(before, last)
        count = self._growth(lengths, after)
        if self.page_size == 1:
            return self._take(int(count.sum()))
        size = self._size
        fill = np.minimum(count, -lengths % size)
        rest = count - fill
        fresh = -(-rest // size)
        pages = self._take(int(fresh.sum()))
        tail = rest - (fresh - ONE) * size
        begins = fresh > 0
        self.used[ends[partial] // size] += fill[partial].astype(np.int32)
        self.used[pages[np.cumsum(fresh)[begins] - 1]] = tail[begins]
        return self._laid_out(ends + ONE, fill, pages, fresh, tail)

    def alloc_decode(self, lengths: ArrayLike, last: ArrayLike) -> Slots:
        """Grow each request of `lengths` tokens (int [requests]) by one: int64 [requests].

        `last` as in `alloc_extend`.
        """
        held, ends, partial = self._checked(lengths, last)
        if self.page_size == 1:
            return self._take(len(held))
        pages = self._take(len(held) - int(np.count_nonzero(partial)))
        slots: Slots = ends + ONE
        slots[~partial] = pages * self._size
        at = slots // self._size
        self.used[at] = slots - at * self._size + ONE
        return slots

    def free(self, slots: ArrayLike) -> None:
        """Give slots back (int [slots]), of each page all that were handed out.

        Fastest page by page, as requests hold them; any order is taken.
        """
        given = _row(slots)
        pages, counts = self._by_page(given)
        are_whole = _all(self.used.take(pages, mode="clip") == counts)
        if not are_whole or not self._are_distinct(pages):
            raise self._refusal(given.tolist())
        if self._group is None:
            self._give_back(pages)
        else:
            self.used[pages] = NOT_HELD
            self._group.append(pages.copy())

    def begin_group(self) -> None:
        """From here on what is freed waits for `end_group`."""
        if self._group is not None:
            raise BadCall("a group is open", "begin_group")
        self._group = []

    def end_group(self) -> None:
        """What was freed since `begin_group` can be handed out again."""
        if self._group is None:
            raise BadCall("no group is open", "end_group")
        pending, self._group = self._group, None
        for pages in pending:
            self._give_back(pages)

    def backup(self) -> FreeState:
        """What is free, to come back to: a copy, O(pages)."""
        if self._group is not None:
            raise BadCall("a group is open", "backup")
        return FreeState(
            self, self.used.copy(), self._stack[: self._stacked].copy(), self._released
        )

    def restore(self, state: FreeState) -> None:
        """Undo every allocation and free since a backup of this pool."""
        if self._group is not None:
            raise BadCall("a group is open", "restore")
        if state.pool is not self:
            raise BadCall("state of another pool", "restore")
        self.used[:] = state.used
        self._stacked = len(state.stack)
        self._stack[: self._stacked] = state.stack
        self._released = state.released

    def _take(self, count: int) -> Pages:
        """`count` free pages, each counted as handed out whole."""
        if count > self._stacked:
            self._merge_for(count)
        top = self._stacked
        self._stacked = top - count
        taken = self._stack[top - count : top][::-1].copy()
        self.used[taken] = self.page_size
        return taken

    def _merge_for(self, count: int) -> None:
        if count > self._stacked + self._released:
            raise OutOfSlots(count * self.page_size, self.available, self._evictable())
        free = np.flatnonzero(self.used == FREE)
        self._stack[: len(free)] = free[::-1]
        self._stacked = len(free)
        self._released = 0

    def _give_back(self, pages: Pages) -> None:
        self.used[pages] = FREE
        if self.need_sort:
            self._released += len(pages)
            return
        top = self._stacked + len(pages)
        self._stack[self._stacked : top] = pages[::-1]
        self._stacked = top

    def _checked(
        self, lengths: ArrayLike, last: ArrayLike
    ) -> tuple[Slots, Slots, NDArray[np.bool_]]:
        """Lengths, last slots, and which requests end inside a page."""
        held, ends = _row(lengths), _row(last)
        if len(held) != len(ends):
            raise BadCall("one last slot for each request", f"{len(ends)} for {len(held)}")
        if np.count_nonzero(held < 0):
            raise BadCall("negative count", str(held.min()))
        offsets = held % self._size
        partial = offsets > 0
        tails, filled = ends[partial], offsets[partial]
        pages = tails // self._size
        right = self.used.take(pages, mode="clip") == filled
        right &= tails - pages * self._size + ONE == filled
        if not _all(right):
            raise BadCall("not the last slot of a request", f"slot {tails[~right][0]}")
        if not self._are_distinct(pages):
            raise BadCall("two requests end in one page", f"slots {tails.tolist()}")
        return held, ends, partial

    def _growth(self, before: Slots, after: ArrayLike) -> Slots:
        lengths = _row(after)
        if len(lengths) != len(before):
            raise BadCall("one length for each request", f"{len(lengths)} for {len(before)}")
        count = lengths - before
        if np.count_nonzero(count < 0):
            raise BadCall("negative count", str(count.min()))
        return count

    def _laid_out(
        self, next_slot: Slots, fill: Slots, pages: Pages, fresh: Slots, tail: Slots
    ) -> Slots:
        """Slots as runs: of each request the rest of its old page, then its new pages."""
        first = fresh.cumsum() - fresh + _counted(len(fresh))
        is_new = np.ones(len(fill) + len(pages), np.bool_)
        is_new[first] = False
        origin = np.empty(len(is_new), np.int64)
        origin[first] = next_slot
        origin[is_new] = pages * self._size
        length = np.full(len(is_new), self.page_size)
        length[first + fresh] = tail
        length[first] = fill
        slots: Slots = (origin - length.cumsum() + length).repeat(length)
        slots += _counted(len(slots))
        return slots

    def _by_page(self, slots: Slots) -> tuple[Pages, Slots | int]:
        """The pages that slots are of, and how many of its slots each gives back."""
        if self.page_size == 1:
            return slots, 1
        ordered = slots if self._is_by_page(slots) else np.sort(slots)
        if ordered is not slots and not self._is_by_page(ordered):
            raise self._refusal(slots.tolist())
        starts = np.flatnonzero(ordered % self.page_size == 0)
        counts = np.empty_like(starts)
        counts[:-1] = starts[1:] - starts[:-1]
        counts[-1:] = len(slots) - starts[-1:]
        return ordered[starts] // self.page_size, counts

    def _is_by_page(self, slots: Slots) -> bool:
        """Whether every slot begins a page or comes right after the one before it."""
        in_order = slots % self.page_size == 0
        in_order[1:] |= slots[1:] == slots[:-1] + 1
        return _all(in_order)

    def _are_distinct(self, pages: Pages) -> bool:
        order = np.arange(len(pages), dtype=np.int32)
        self._seen[pages] = order
        return _all(self._seen[pages] == order)

    def _refusal(self, slots: list[int]) -> BadCall:
        """Why slots cannot be given back."""
        times = Counter(slots)
        given = Counter(slot // self.page_size for slot in times)
        for slot in slots:
            page, offset = divmod(slot, self.page_size)
            name = f"slot {slot}"
            if not 0 <= page <= self.pages:
                return BadCall("outside the pool", name)
            if page == 0:
                return BadCall("padding", name)
            if self.used[page] <= 0 or times[slot] > 1:
                return BadCall("double free", name if self.page_size == 1 else f"page {page}")
            if offset >= self.used[page]:
                return BadCall("not handed out", name)
        partial = next(page for page, count in given.items() if count < self.used[page])
        return BadCall("part of a page", f"page {partial}")
