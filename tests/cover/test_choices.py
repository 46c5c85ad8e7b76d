"""Told choices: which pages may be taken and hit, and what is said of those that may not."""

import itertools
from functools import partial

import pytest
from reference_helpers import changes_nothing, pool, told_pool

from kvoracle.reference import PagedKV, PrefixCachedKV, WrongChoice

pool_of = partial(pool, PagedKV)
told = partial(told_pool, PagedKV)
told_cache = partial(told_pool, PrefixCachedKV)


# Which page is taken


def test_pages_are_taken_from_the_smallest_up():
    kv = pool_of(4, 2, a=[1, 2, 3], b=[4])

    assert kv.tables == {"a": [0, 1], "b": [2]}
    assert kv.free == [3]


def test_the_smallest_free_page_is_taken_whatever_order_pages_came_back_in():
    for order in itertools.permutations("abcd"):
        kv = pool_of(5, 1, a=[1], b=[2], c=[3], d=[4])
        for request in order:
            kv.release(request)
        kv.create("e")
        kv.append("e", 1, 2, 3, 4, 5)
        assert kv.tables["e"] == [0, 1, 2, 3, 4]


def test_the_smallest_of_the_returned_pages_comes_before_a_larger_one_never_used():
    kv = pool_of(4, 1, a=[1], b=[2], c=[3])
    kv.release("b")
    kv.create("d")

    kv.append("d", 4, 5)

    assert kv.tables["d"] == [1, 3]


def test_page_names_begin_at_first_page():
    kv = PagedKV(2, 1, first_page=1)
    kv.create("a")
    kv.append("a", 1, 2)

    assert kv.tables["a"] == [1, 2]
    kv.check()


def test_a_told_choice_is_used():
    kv = told(4, 2, [3, 1])
    kv.create("a")

    kv.append("a", 1, 2, 3)

    assert kv.tables["a"] == [3, 1]
    assert sorted(kv.free) == [0, 2]
    kv.check()


def test_choose_is_asked_for_the_positions_that_need_a_page_the_copied_tail_first():
    asked = []
    kv = told(6, 2, [5, 4], [3], [2, 1, 0], asked=asked)
    kv.create("a")
    kv.append("a", 1, 2, 3)
    kv.fork("a", "b")

    kv.append("b", 4)
    kv.append("b", 5, 6, 7, 8, 9, 10)

    assert asked == [("a", [0, 1]), ("b", [1]), ("b", [2, 3, 4])]
    assert kv.tables == {"a": [5, 4], "b": [5, 3, 2, 1, 0]}
    kv.check()


def test_the_first_told_page_is_the_copy_when_a_call_copies_and_grows():
    asked = []
    kv = told(6, 2, [0], [5, 4, 3], asked=asked)
    kv.create("a")
    kv.append("a", 1)
    kv.fork("a", "b")

    kv.append("b", 2, 3, 4, 5)

    assert asked[-1] == ("b", [0, 1, 2])
    assert kv.tables["b"] == [5, 4, 3]
    assert kv.read("b") == [1, 2, 3, 4, 5]
    assert kv.read("a") == [1]
    kv.check()


def test_choose_is_not_asked_when_no_page_is_needed():
    asked = []
    kv = told(4, 4, [0], asked=asked)
    kv.create("a")
    kv.append("a", 1)

    kv.append("a", 2, 3)
    kv.fork("a", "b")
    kv.release("a")

    assert asked == [("a", [0])]


def test_choose_is_not_asked_when_the_pool_is_too_full():
    asked = []
    kv = told(1, 1, asked=asked)
    kv.create("a")

    with changes_nothing(kv, MemoryError, "2 blocks needed, 1 free"):
        kv.append("a", 1, 2)

    assert asked == []


def test_a_told_page_that_is_held_is_refused_and_nothing_changes():
    kv = told(4, 2, [0], [0])
    kv.create("a")
    kv.append("a", 1)
    kv.create("b")

    said = r"block 0 \(owners: a; pins: none\) was taken for 'b' but is not free"
    with changes_nothing(kv, WrongChoice, said):
        kv.append("b", 2)


def test_a_told_page_that_only_a_transfer_holds_is_refused_and_nothing_changes():
    kv = told(4, 2, [2], [2])
    kv.create("a")
    kv.append("a", 1)
    kv.pin("a", "t")
    kv.release("a")
    kv.create("b")

    said = r"block 2 \(owners: none; pins: t\) was taken for 'b' but is not free"
    with changes_nothing(kv, WrongChoice, said):
        kv.append("b", 2)


@pytest.mark.parametrize("page", [-1, 4, 99])
def test_a_told_page_outside_the_pool_is_refused_and_nothing_changes(page):
    kv = told(4, 2, [page])
    kv.create("a")

    with changes_nothing(kv, WrongChoice, rf"block {page} \(outside the pool\) was taken for 'a'"):
        kv.append("a", 1)


def test_a_page_told_twice_is_refused_and_nothing_changes():
    kv = told(4, 2, [1, 1])
    kv.create("a")

    with changes_nothing(kv, WrongChoice, "block 1 was taken twice in one call"):
        kv.append("a", 1, 2, 3)


@pytest.mark.parametrize("taken", [[], [0], [0, 1, 2]])
def test_another_number_of_told_pages_is_refused_and_nothing_changes(taken):
    kv = told(4, 2, taken)
    kv.create("a")

    with changes_nothing(kv, WrongChoice, f"2 blocks were needed and {len(taken)} taken"):
        kv.append("a", 1, 2, 3)


def test_the_source_of_a_copy_told_as_its_destination_is_refused_and_nothing_changes():
    kv = told(4, 2, [0], [0])
    kv.create("a")
    kv.append("a", 1)
    kv.fork("a", "b")

    with changes_nothing(kv, WrongChoice, r"block 0 \(owners: a, b; pins: none\)"):
        kv.append("b", 2)


def test_a_wrong_choice_names_its_page():
    kv = told(4, 2, [7])
    kv.create("a")

    with pytest.raises(WrongChoice) as caught:
        kv.append("a", 1)

    assert caught.value.page == 7


def test_the_append_of_a_wrong_choice_changes_nothing_in_a_batch_either():
    kv = told(4, 1, [0], [0])
    kv.create("a")
    kv.create("b")

    with pytest.raises(WrongChoice, match=r"block 0 \(owners: a; pins: none\)"):
        kv.append_each(["a", "b"], [1, 2])

    assert kv.tables == {"a": [0], "b": []}
    assert kv.read("a") == [1]
    kv.check()


# A told hit


@pytest.mark.parametrize("page", [1, 2, 3, 7, -1])
def test_a_told_hit_that_does_not_hold_the_prefix_is_a_wrong_choice(page):
    kv = told_cache(4, 2, [0, 1], [2], [page])
    kv.create("a")
    kv.append("a", 1, 2, 3, 4)
    kv.create("b")
    kv.append("b", 3, 4)

    with changes_nothing(kv, WrongChoice, r"was hit for 'c' and does not hold its prefix"):
        kv.admit("c", 1, 2, 9)


def test_a_wrong_hit_names_its_page_and_holders():
    kv = told_cache(4, 2, [0], [1], [1])
    for request, tokens in (("a", [1, 2]), ("b", [3, 4])):
        kv.create(request)
        kv.append(request, *tokens)

    with pytest.raises(WrongChoice, match=r"block 1 \(owners: b; pins: none\) was hit") as caught:
        kv.admit("c", 1, 2, 9)

    assert caught.value.page == 1


def test_hits_told_in_another_order_are_a_wrong_choice():
    kv = told_cache(4, 1, [0, 1], [1, 0])
    kv.create("a")
    kv.append("a", 1, 2)

    with changes_nothing(kv, WrongChoice, "does not hold its prefix"):
        kv.admit("b", 1, 2, 3)


def test_one_told_hit_for_two_is_no_answer():
    kv = told_cache(4, 1, [0, 1], [0])
    kv.create("a")
    kv.append("a", 1, 2)

    with pytest.raises(ValueError):  # noqa: PT011
        kv.admit("b", 1, 2, 3)


def test_an_admission_whose_fresh_pages_were_not_free_changes_nothing():
    kv = told_cache(4, 2, [0], [0])
    kv.admit("a", 1)

    with changes_nothing(kv, WrongChoice, "was taken for 'b' but is not free"):
        kv.admit("b", 9)


def test_a_hit_page_cannot_be_taken_as_a_fresh_one_as_well():
    kv = told_cache(4, 1, [0], [0], [0, 1])
    kv.create("a")
    kv.append("a", 1)
    kv.release("a")

    with changes_nothing(kv, WrongChoice, r"block 0 .* was taken for 'b' but is not free"):
        kv.admit("b", 1, 2, 3)


@pytest.mark.parametrize("released", [False, True])
def test_an_admission_that_is_refused_after_its_hits_were_told_changes_nothing(released):
    choices = [[0], [0], MemoryError("full")]

    def choose(request, positions):
        choice = choices.pop(0)
        if isinstance(choice, Exception):
            raise choice
        return choice

    kv = PrefixCachedKV(4, 1, choose=choose)
    kv.admit("a", 1)
    if released:
        kv.release("a")

    with changes_nothing(kv, MemoryError, "full"):
        kv.admit("b", 1, 2, 3)
    assert choices == []


# Duplicates


def with_one_idle_and_one_in_use(*choices):
    """Pages 0 (idle) and 1 (in use) hold the same, page 2 is free; `kv.asked` notes `may_refuse`."""
    remaining = [[0], [1], *choices]

    def choose(request, positions):
        kv.asked.append(kv.may_refuse)
        choice = remaining.pop(0)
        if isinstance(choice, Exception):
            raise choice
        return choice

    kv = PrefixCachedKV(3, 1, choose=choose)
    kv.asked = []
    for request in "ab":
        kv.create(request)
        kv.append(request, 1)
    kv.release("a")
    assert kv.asked == [False, False]
    kv.asked.clear()
    assert (kv.idle(), kv.free) == ([0], [2])
    return kv


def test_with_duplicates_one_idle_and_one_in_use_a_full_allocator_may_refuse():
    kv = with_one_idle_and_one_in_use(MemoryError("full"))

    with changes_nothing(kv, MemoryError, "full"):
        kv.admit("c", 1, 2, 3)
    assert kv.asked == [True]


def test_with_duplicates_one_idle_and_one_in_use_the_one_in_use_leaves_room():
    kv = with_one_idle_and_one_in_use([1], [2, 0])

    assert kv.admit("c", 1, 2, 3) == 1

    assert kv.tables["c"] == [1, 2, 0]
    assert kv.asked == [True, True]
    kv.check()


def test_with_room_for_either_choice_an_allocator_may_not_refuse():
    kv = with_one_idle_and_one_in_use(MemoryError("full"))

    with changes_nothing(kv, MemoryError, "full"):
        kv.admit("c", 1, 2)
    assert kv.asked == [False]


def test_what_an_admission_may_refuse_no_append_after_it_may():
    kv = with_one_idle_and_one_in_use(MemoryError("full"), [2])
    with pytest.raises(MemoryError):
        kv.admit("c", 1, 2, 3)

    kv.append("b", 7)

    assert kv.asked == [True, False]
