"""SGLang's token pool, fast and naive, moved together; each rule by itself; planted bugs noticed."""

import contextlib
import random

import numpy as np
import pytest

from kvoracle.impl.errors import BadCall
from kvoracle.impl.token_pool import OutOfSlots, TokenPool
from kvoracle.model.adapters.impl_token import ImplSortedTokenAdapter, ImplTokenAdapter
from kvoracle.model.check import as_target
from kvoracle.model.engines import hunt
from kvoracle.reference import BrokenInvariant, Rejected, WrongChoice
from kvoracle.reference.token_pool import TokenPool as NaivePool

POOLS = (TokenPool, NaivePool)


def slots_of(*pages, size=4):
    return [page * size + offset for page in pages for offset in range(size)]


def everything(pool):
    """All that a later call depends on, as copies."""
    if isinstance(pool, NaivePool):
        return repr(pool.state), pool.group_is_open
    group = None if pool._group is None else [pages.tolist() for pages in pool._group]
    stack = pool._stack[: pool._stacked].tolist()
    return pool.used.tolist(), stack, pool._released, group


@contextlib.contextmanager
def refused(pool, reason, named=None):
    before = everything(pool)
    with pytest.raises((BadCall, Rejected), match=named) as error:
        yield
    assert error.value.reason == reason
    assert everything(pool) == before


def listed(slots):
    return [int(slot) for slot in slots]


# The two moved together


class Both:
    """The fast pool and the naive one, which is told what the fast one took and judges it."""

    def __init__(self, pool_class, pages, page_size, need_sort):
        self.page_size = page_size
        self.fast = pool_class(pages, page_size, need_sort=need_sort)
        self.naive = NaivePool(pages, page_size, need_sort=need_sort, choose=self.chosen)
        self.slots = []

    def chosen(self, count):
        pages = dict.fromkeys(slot // self.page_size for slot in self.slots)
        return [page for page in pages if page not in self.naive.state.out]

    def call(self, method, *arguments):
        """Carry out one call on both and compare everything; the slots, or None when refused."""
        actual = self.outcome(self.fast, method, arguments)
        self.slots = actual if isinstance(actual, list) else []
        plain = [a.tolist() if isinstance(a, np.ndarray) else a for a in arguments]
        expected = self.outcome(self.naive, method, plain)
        assert actual == expected
        self.check()
        return actual if isinstance(actual, list) else None

    def outcome(self, pool, method, arguments):
        try:
            result = getattr(pool, method)(*arguments)
        except MemoryError:
            return "out of slots"
        except (BadCall, Rejected) as error:
            return error.reason
        return [] if result is None else listed(result)

    def check(self):
        self.naive.check()
        assert self.fast.available == self.naive.available
        out = {page: int(self.fast.used[page]) for page in np.flatnonzero(self.fast.used > 0)}
        assert out == self.naive.state.out


class Walk:
    """Random calls on both pools, by requests that keep their slots as a scheduler does."""

    def __init__(self, pool_class, seed, page_size, need_sort):
        self.random = random.Random(seed)
        self.size = page_size
        self.pages = self.random.randint(2, 12)
        self.both = Both(pool_class, self.pages, page_size, need_sort)
        self.requests = {}
        self.saved = None
        self.given_back = []

    def run(self, steps):
        moves = (
            [self.extend] * 6
            + [self.decode] * 4
            + [self.finish] * 5
            + [self.group, self.backup, self.restore, self.misuse, self.whole_pages]
        )
        for _ in range(steps):
            self.random.choice(moves)()
            self.check_relations()
        self.drain()

    def some(self):
        names = [*self.requests, *(f"new {self.random.random()}" for _ in range(2))]
        return self.random.sample(names, self.random.randint(1, len(names)))

    def state_of(self, names):
        held = [self.requests.get(name, []) for name in names]
        return [len(slots) for slots in held], [slots[-1] if slots else -1 for slots in held]

    def extend(self):
        names = self.some()
        before, last = self.state_of(names)
        after = [length + self.random.randint(0, 2 * self.size + 1) for length in before]
        slots = self.both.call("alloc_extend", before, after, last)
        if slots is not None:
            grown = iter(slots)
            for name, old, new in zip(names, before, after, strict=True):
                more = [next(grown) for _ in range(new - old)]
                self.requests[name] = [*self.requests.get(name, []), *more]

    def decode(self):
        names = self.some()
        slots = self.both.call("alloc_decode", *self.state_of(names))
        for name, slot in zip(names, slots or [], strict=False):
            self.requests[name] = [*self.requests.get(name, []), slot]

    def whole_pages(self):
        slots = self.both.call("alloc", self.size * self.random.randint(0, 2))
        if slots:
            self.requests[f"raw {self.random.random()}"] = slots

    def finish(self):
        """Some requests end: their slots come back in one call, in any order."""
        names = [name for name in self.requests if self.random.random() < 0.4]
        slots = [slot for name in names for slot in self.requests.pop(name)]
        if self.random.random() < 0.3:
            self.random.shuffle(slots)
        given = np.array(slots, np.int64)
        assert self.both.call("free", given) is not None
        given[:] = 0  # the caller's array is the caller's again
        self.given_back = slots or self.given_back

    def group(self):
        is_open = self.both.naive.group_is_open
        sensible = "end_group" if is_open else "begin_group"
        self.both.call(sensible if self.random.random() < 0.9 else "end_group")

    def backup(self):
        if not self.both.naive.group_is_open:
            states = self.both.fast.backup(), self.both.naive.backup()
            self.saved = states, dict(self.requests)

    def restore(self):
        if self.saved is not None and not self.both.naive.group_is_open:
            (fast, naive), requests = self.saved
            self.both.fast.restore(fast)
            self.both.naive.restore(naive)
            self.both.check()
            self.requests = dict(requests)

    def misuse(self):
        """Frees that are mostly wrong; both pools must say the same of them."""
        held = [slot for slots in self.requests.values() for slot in slots]
        candidates = [
            self.given_back,
            held[:1],
            held[1:2] * 2,
            [0],
            [-1],
            [(self.pages + 1) * self.size],
        ]
        slots = self.random.choice(candidates)
        if self.both.call("free", slots) is not None:
            for name in [name for name, held in self.requests.items() if set(slots) & set(held)]:
                rest = [slot for slot in self.requests.pop(name) if slot not in slots]
                assert self.both.call("free", rest) is not None

    def check_relations(self):
        """In range, never padding, each slot of one request only, one page after the other."""
        held = [slot for slots in self.requests.values() for slot in slots]
        assert len(set(held)) == len(held)
        assert all(self.size <= slot < (self.pages + 1) * self.size for slot in held)
        for slots in self.requests.values():
            assert [slot % self.size for slot in slots] == [
                position % self.size for position in range(len(slots))
            ]

    def drain(self):
        """Once everything is given back, the whole pool can be handed out."""
        slots = [slot for held in self.requests.values() for slot in held]
        self.both.call("free", slots)
        if self.both.naive.group_is_open:
            self.both.call("end_group")
        assert len(self.both.call("alloc", self.pages * self.size)) == self.pages * self.size


@pytest.mark.parametrize("need_sort", [False, True])
@pytest.mark.parametrize("page_size", [1, 2, 3, 16])
@pytest.mark.parametrize("seed", range(12))
def test_fast_and_naive_agree(seed, page_size, need_sort):
    Walk(TokenPool, seed, page_size, need_sort).run(steps=150)


@pytest.mark.parametrize("adapter", [ImplTokenAdapter, ImplSortedTokenAdapter])
@pytest.mark.parametrize("engine", ["walk", "hypothesis"])
def test_both_adapters_keep_every_rule(adapter, engine):
    operations = 4_000 if engine == "walk" else 1_000
    failure, tally = hunt(engine, as_target(adapter), seed=2, operations_max=operations)

    assert failure is None
    assert tally.outcomes["append", "ok"] > operations // 50
    assert tally.outcomes["append", "out of blocks"] > operations // 50


# What is handed out


@pytest.mark.parametrize("pool_class", POOLS)
def test_whole_pages_are_handed_out_ascending_and_padding_never(pool_class):
    pool = pool_class(3, 4)
    assert listed(pool.alloc(8)) == slots_of(1, 2)
    assert listed(pool.alloc(4)) == slots_of(3)
    assert pool.available == 0


@pytest.mark.parametrize("pool_class", POOLS)
@pytest.mark.parametrize("page_size", [1, 4])
def test_nothing_is_handed_out_for_nothing(pool_class, page_size):
    pool = pool_class(2, page_size)
    before = everything(pool)
    assert listed(pool.alloc(0)) == []
    assert listed(pool.alloc_extend([], [], [])) == []
    assert listed(pool.alloc_extend([0, 0], [0, 0], [-1, -1])) == []
    assert listed(pool.alloc_decode([], [])) == []
    pool.free([])
    assert everything(pool) == before


@pytest.mark.parametrize("pool_class", POOLS)
@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (6, 7, [10]),
        (6, 8, [10, 11]),
        (6, 9, [10, 11, 12]),
        (6, 12, [10, 11, *slots_of(3)]),
        (6, 18, [10, 11, *slots_of(3, 4), 20, 21]),
        (6, 6, []),
    ],
    ids=["1", "1 to the edge", "1 and 3", "1 and 2", "1, 2 and 3", "none"],
)
def test_the_three_cases_of_an_extend(pool_class, before, after, expected):
    pool = pool_class(6, 4)
    assert listed(pool.alloc_extend([0], [before], [-1])) == [*slots_of(1), 8, 9]
    assert listed(pool.alloc_extend([before], [after], [9])) == expected


@pytest.mark.parametrize("pool_class", POOLS)
def test_a_batch_is_laid_out_one_request_after_the_other(pool_class):
    pool = pool_class(9, 4)
    pool.alloc_extend([0, 0, 0], [2, 4, 1], [-1, -1, -1])

    slots = pool.alloc_extend([2, 4, 1, 0], [5, 4, 2, 5], [5, 11, 12, -1])

    assert listed(slots) == [6, 7, 16, 13, *slots_of(5), 24]


@pytest.mark.parametrize("pool_class", POOLS)
def test_a_decode_fills_partial_pages_and_begins_pages_at_an_exact_multiple(pool_class):
    pool = pool_class(9, 4)
    pool.alloc_extend([0, 0, 0], [3, 4, 0], [-1, -1, -1])

    assert listed(pool.alloc_decode([3, 4, 0], [6, 11, -1])) == [7, 12, 16]
    assert listed(pool.alloc_decode([4, 5, 1], [7, 12, 16])) == [20, 13, 17]


@pytest.mark.parametrize("pool_class", POOLS)
def test_pages_of_one_slot_are_never_partial(pool_class):
    pool = pool_class(9, 1)
    assert listed(pool.alloc_extend([0, 0], [2, 1], [-1, -1])) == [1, 2, 3]
    assert listed(pool.alloc_decode([2, 1], [2, 3])) == [4, 5]


def test_the_walkthrough_of_4097_tokens_begins_page_257():
    pool = TokenPool(300, 16)
    slots = pool.alloc_extend([0], [4096], [-1])

    (slot,) = pool.alloc_decode([4096], slots[-1:])

    assert (slot % 16, len(set(slots // 16)), pool.available // 16) == (0, 256, 300 - 257)


# The order of reuse


@pytest.mark.parametrize("pool_class", POOLS)
def test_what_was_freed_last_is_taken_first(pool_class):
    pool = pool_class(4, 4)
    pool.alloc(12)
    pool.free(slots_of(1))
    pool.free(slots_of(3))
    assert listed(pool.alloc(12)) == slots_of(3, 1, 4)


@pytest.mark.parametrize("pool_class", POOLS)
def test_with_need_sort_freed_pages_wait_until_an_allocation_runs_short(pool_class):
    pool = pool_class(5, 4, need_sort=True)
    pool.alloc(12)
    pool.free(slots_of(3))
    pool.free(slots_of(1))
    assert pool.available == 16
    assert listed(pool.alloc(8)) == slots_of(4, 5)
    pool.free(slots_of(5))
    assert listed(pool.alloc(8)) == slots_of(1, 3)
    assert listed(pool.alloc(4)) == slots_of(5)


@pytest.mark.parametrize("pool_class", POOLS)
def test_a_refused_allocation_merges_nothing(pool_class):
    pool = pool_class(4, 4, need_sort=True)
    pool.alloc(8)
    pool.free(slots_of(1))
    before = everything(pool)
    with pytest.raises(MemoryError):
        pool.alloc(16)
    assert everything(pool) == before


def test_the_naive_pool_says_which_page_comes_first():
    pool = NaivePool(4, 4, need_sort=True, choose=lambda count: [2])
    with pytest.raises(WrongChoice, match=r"pages \[2\] were taken, and \[1\] come first"):
        pool.alloc(4)


@pytest.mark.parametrize(
    ("choice", "said"), [([5], "page 5 was taken but is not free"), ([], "1 pages were needed")]
)
def test_the_naive_pool_judges_what_was_taken(choice, said):
    pool = NaivePool(4, 4, choose=lambda count: choice)
    with pytest.raises(WrongChoice, match=said):
        pool.alloc(4)


def test_the_naive_pool_checks_itself():
    lost, empty = NaivePool(4, 4), NaivePool(4, 4)
    lost.state.free.remove(3)
    empty.state.free.remove(3)
    empty.state.out[3] = 0
    for broken in (lost, empty):
        with pytest.raises(BrokenInvariant):
            broken.check()


# Free groups, backup and restore


@pytest.mark.parametrize("pool_class", POOLS)
@pytest.mark.parametrize("need_sort", [False, True])
def test_what_is_freed_in_a_group_joins_at_its_end(pool_class, need_sort):
    pool = pool_class(2, 4, need_sort=need_sort)
    pool.alloc(8)
    pool.begin_group()
    pool.free(slots_of(1))
    assert pool.available == 0
    with pytest.raises(MemoryError):
        pool.alloc(4)
    pool.free(slots_of(2))
    pool.end_group()
    assert sorted(listed(pool.alloc(8))) == slots_of(1, 2)


@pytest.mark.parametrize("pool_class", POOLS)
def test_a_merge_leaves_an_open_group_alone(pool_class):
    pool = pool_class(3, 4, need_sort=True)
    pool.alloc(12)
    pool.free(slots_of(3))
    pool.begin_group()
    pool.free(slots_of(1))
    assert listed(pool.alloc(4)) == slots_of(3)
    pool.end_group()
    assert listed(pool.alloc(4)) == slots_of(1)


@pytest.mark.parametrize("size", [1, 4])
def test_a_group_keeps_copies_of_what_it_was_given(size):
    pool = TokenPool(4, size)
    slots = pool.alloc(4 * size)
    given = slots[: 2 * size].copy()
    pool.begin_group()
    pool.free(given)
    given[:] = slots[2 * size :]
    pool.end_group()
    assert sorted(listed(pool.alloc(2 * size))) == listed(slots[: 2 * size])


def test_handed_out_slots_are_the_callers_own():
    pool = TokenPool(4)
    pool.alloc(2)[:] = 0
    pool.free([1, 2])
    assert listed(pool.alloc(4)) == [1, 2, 3, 4]


@pytest.mark.parametrize("pool_class", POOLS)
@pytest.mark.parametrize("need_sort", [False, True])
def test_restore_undoes_allocations_and_frees_as_often_as_asked(pool_class, need_sort):
    pool = pool_class(6, 4, need_sort=need_sort)
    pool.alloc_extend([0], [6], [-1])
    pool.alloc(8)
    pool.free(slots_of(3))
    before = everything(pool)
    state = pool.backup()
    for _ in range(2):
        pool.alloc_decode([6, 0], [9, -1])
        pool.free(slots_of(4))
        pool.alloc(pool.available)
        pool.restore(state)
        assert everything(pool) == before


@pytest.mark.parametrize("pool_class", POOLS)
def test_groups_end_once_and_hold_no_backup(pool_class):
    pool = pool_class(4, 4)
    state = pool.backup()
    with refused(pool, "no group is open"):
        pool.end_group()
    pool.begin_group()
    with refused(pool, "a group is open"):
        pool.begin_group()
    with refused(pool, "a group is open"):
        pool.backup()
    with refused(pool, "a group is open"):
        pool.restore(state)


def test_a_backup_of_another_pool_is_refused():
    pool = TokenPool(4, 4)
    with refused(pool, "state of another pool"):
        pool.restore(TokenPool(4, 4).backup())


# Refusals


@pytest.mark.parametrize("pool_class", POOLS)
@pytest.mark.parametrize(
    ("slots", "reason", "named"),
    [
        ([0], "padding", "slot 0"),
        ([3], "padding", "slot 3"),
        ([-1], "outside the pool", "slot -1"),
        ([-(2**60)], "outside the pool", "slot -"),
        ([20], "outside the pool", "slot 20"),
        ([2**60], "outside the pool", "slot 1"),
        ([4, 5, 6], "part of a page", "page 1"),
        ([5, 6, 7], "part of a page", "page 1"),
        ([*slots_of(1), 8], "part of a page", "page 2"),
        ([*slots_of(1), 8, 9, 10], "not handed out", "slot 10"),
        ([16], "double free", "page 4"),
        ([*slots_of(1), *slots_of(1)], "double free", "page 1"),
        ([8, 9, 9], "double free", "page 2"),
    ],
)
def test_wrong_frees_are_named_and_change_nothing(pool_class, slots, reason, named):
    pool = pool_class(4, 4)
    pool.alloc_extend([0], [6], [-1])
    with refused(pool, reason, named):
        pool.free(slots)
    pool.free([*slots_of(1), 8, 9])
    assert pool.available == 16


@pytest.mark.parametrize("pool_class", POOLS)
@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("in_group", [False, True])
def test_a_double_free_is_refused_with_pages_of_any_size(pool_class, page_size, in_group):
    pool = pool_class(4, page_size)
    slots = pool.alloc(2 * page_size)
    if in_group:
        pool.begin_group()
    pool.free(slots)
    with refused(pool, "double free", r"slot 1\b" if page_size == 1 else r"page 1\b"):
        pool.free(slots[:page_size])


@pytest.mark.parametrize("pool_class", POOLS)
def test_one_page_in_two_pieces_is_refused_at_its_seam(pool_class):
    """sglang#38941: ranges [0, 12) and [12, 16) on pages of 8."""
    pool = pool_class(4, 8)
    slots = pool.alloc(16)
    with refused(pool, "part of a page", "page 2"):
        pool.free(slots[:12])
    pool.free(slots)


def test_slots_may_come_back_in_any_order():
    pool = TokenPool(4, 4)
    slots = listed(pool.alloc(12))
    random.Random(1).shuffle(slots)
    pool.free(slots)
    assert pool.available == 16


@pytest.mark.parametrize("pool_class", POOLS)
def test_counts_are_whole_and_not_negative(pool_class):
    pool = pool_class(4, 4)
    with refused(pool, "negative count", "-4"):
        pool.alloc(-4)
    with refused(pool, "not whole numbers", r"1\.5"):
        pool.alloc(1.5)
    with refused(pool, "part of a page", "3 slots"):
        pool.alloc(3)
    with refused(pool, "negative count"):
        pool.alloc_extend([0, 4], [0, 3], [-1, 7])
    with refused(pool, "negative count"):
        pool.alloc_extend([-4], [3], [-1])
    with refused(pool, "negative count"):
        pool.alloc_decode([-4], [-1])


def test_arrays_are_one_row_of_whole_numbers():
    pool = TokenPool(4, 4)
    for wrong in ([1.5], [[4]], ["4"], 4, [True]):
        with refused(pool, "not whole numbers"):
            pool.free(wrong)
        with refused(pool, "not whole numbers"):
            pool.alloc_decode(wrong, [-1])


@pytest.mark.parametrize("pool_class", POOLS)
def test_a_batch_has_one_length_and_one_last_slot_a_request(pool_class):
    pool = pool_class(4, 4)
    with refused(pool, "one last slot for each request"):
        pool.alloc_decode([0, 0], [-1])
    with refused(pool, "one length for each request"):
        pool.alloc_extend([0, 0], [1], [-1, -1])


@pytest.mark.parametrize("pool_class", POOLS)
def test_a_partial_page_is_continued_at_its_end_by_one_request(pool_class):
    pool = pool_class(4, 4)
    pool.alloc_extend([0, 0], [2, 3], [-1, -1])
    for length, last in ((2, 4), (2, 6), (1, 4), (2, 13), (2, -3), (2, 999)):
        with refused(pool, "not the last slot of a request", f"slot {last}"):
            pool.alloc_decode([length], [last])
    with refused(pool, "two requests end in one page"):
        pool.alloc_decode([2, 2], [5, 5])


@pytest.mark.parametrize("pool_class", POOLS)
def test_a_pool_has_at_least_one_slot(pool_class):
    for wrong in ((0, 4), (4, 0)):
        with pytest.raises(ValueError, match="at least 1"):
            pool_class(*wrong)


# Out of slots


@pytest.mark.parametrize("pool_class", POOLS)
def test_a_batch_is_extended_whole_or_not_at_all(pool_class):
    pool = pool_class(2, 4)
    pool.alloc_extend([0], [3], [-1])
    before = everything(pool)
    with pytest.raises(MemoryError):
        pool.alloc_extend([3, 0], [5, 1], [6, -1])
    with pytest.raises(MemoryError):
        pool.alloc_decode([3, 0, 0], [6, -1, -1])
    assert everything(pool) == before


def test_out_of_slots_tells_a_late_eviction_from_a_small_pool():
    evictable = 0
    pool = TokenPool(4, 4, evictable=lambda: evictable)
    pool.alloc(12)
    with pytest.raises(
        OutOfSlots, match="8 slots asked, 4 available, 0 evictable: retract a request"
    ):
        pool.alloc(8)
    evictable = 4
    with pytest.raises(
        OutOfSlots, match="8 slots asked, 4 available, 4 evictable: evict before allocating"
    ) as error:
        pool.alloc_extend([0], [5], [-1])
    assert (error.value.need, error.value.free, error.value.evictable) == (8, 4, 4)


# Planted bugs


class HandsOutPadding(TokenPool):
    def __init__(self, pages, page_size, **options):
        super().__init__(pages, page_size, **options)
        self._stack = np.arange(pages - 1, -1, -1)


class HandsOutMoreThanItHas(TokenPool):
    def __init__(self, pages, page_size, **options):
        super().__init__(pages, page_size, **options)
        self._stack = np.arange(pages + 1, 0, -1)
        self._stacked = pages + 1


class LeavesThePartialPage(TokenPool):
    def alloc_extend(self, before, after, last):
        grown = [new - old for old, new in zip(before, after, strict=True)]
        return super().alloc_extend([0] * len(grown), grown, [-1] * len(grown))


class BeginsAPageOneTokenLate(TokenPool):
    def alloc_decode(self, lengths, last):
        if self.page_size > 1:
            lengths = [max(length - 1, 0) for length in lengths]
        return super().alloc_decode(lengths, last)


class LaysPagesOutBackwards(TokenPool):
    def _laid_out(self, next_slot, fill, pages, fresh, tail):
        return super()._laid_out(next_slot, fill, pages[::-1], fresh, tail)


class FillsPastThePage(TokenPool):
    def _laid_out(self, next_slot, fill, pages, fresh, tail):
        return super()._laid_out(next_slot, fill + (fresh > 0), pages, fresh, tail - (fresh > 0))


class AcceptsADoubleFree(TokenPool):
    def free(self, slots):
        try:
            super().free(slots)
        except BadCall as error:
            if error.reason != "double free":
                raise
            self._give_back(np.unique(np.asarray(slots) // self.page_size))


class FreesThePageOfOneSlot(TokenPool):
    def free(self, slots):
        try:
            super().free(slots)
        except BadCall as error:
            if error.reason != "part of a page":
                raise
            self._give_back(np.unique(np.asarray(slots) // self.page_size))


class FreesAtOnceInAGroup(TokenPool):
    def free(self, slots):
        group, self._group = self._group, None
        try:
            super().free(slots)
        finally:
            self._group = group


class ForgetsItsGroup(TokenPool):
    def end_group(self):
        if self._group:
            self._group = self._group[:-1]
        super().end_group()


class EndsAGroupThatWasNotBegun(TokenPool):
    def end_group(self):
        self._group = self._group or []
        super().end_group()


class KeepsTheCallersArray(TokenPool):
    def free(self, slots):
        super().free(slots)
        if self._group is not None and self.page_size == 1:
            self._group[-1] = slots


class MergesUnsorted(TokenPool):
    def _merge_for(self, count):
        super()._merge_for(count)
        self._stack[: self._stacked] = self._stack[: self._stacked][::-1].copy()


class MergesAGroupToo(TokenPool):
    def _merge_for(self, count):
        if self._group:
            self.used[np.concatenate(self._group)] = 0
        super()._merge_for(count)


class MergesEarly(TokenPool):
    def _give_back(self, pages):
        super()._give_back(pages)
        if self._released:
            self._merge_for(0)


class ForgetsTheReleasedInABackup(TokenPool):
    def restore(self, state):
        super().restore(state)
        self._released = 0


class BacksUpAView(TokenPool):
    def backup(self):
        state = super().backup()
        object.__setattr__(state, "used", self.used)
        return state


class TakesBeforeItRefuses(TokenPool):
    def _merge_for(self, count):
        try:
            super()._merge_for(count)
        except OutOfSlots:
            self._stacked = 0
            raise


class TakesWhatThereIs(TokenPool):
    def _take(self, count):
        return super()._take(min(count, self.available // self.page_size))


class CountsAGroupAsAvailable(TokenPool):
    @property
    def available(self):
        waiting = sum(map(len, self._group or []))
        return super().available + waiting * self.page_size


class HandsOutOnePageTwice(TokenPool):
    def _take(self, count):
        taken = super()._take(count)
        return np.repeat(taken[:1], len(taken))


class ForgetsPartialPages(TokenPool):
    def alloc_extend(self, before, after, last):
        slots = super().alloc_extend(before, after, last)
        self.used[self.used > 0] = self.page_size
        return slots


PLANTED = TokenPool.__subclasses__()


def notices(bug, seed):
    try:
        Walk(bug, seed, page_size=(1, 2, 3)[seed % 3], need_sort=seed % 2 == 0).run(steps=150)
    except Exception:
        return True
    return False


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_noticed(bug):
    assert any(notices(bug, seed) for seed in range(24))


def test_no_bug_is_seen_where_none_is_planted():
    assert not any(notices(TokenPool, seed) for seed in range(24))
