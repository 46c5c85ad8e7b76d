"""The reference prefix cache: each of its rules and its refusals."""

import random
from functools import partial

import pytest
from reference_helpers import (
    changes_nothing,
    hit_depth,
    holding,
    pool,
    published,
    state,
    told_pool,
)

from kvoracle.reference import PagedKV, PrefixCachedKV, Rejected

pool_of = partial(pool, PrefixCachedKV)
told = partial(told_pool, PrefixCachedKV)


# What is published


def test_a_freed_full_page_is_idle_and_is_hit():
    kv = pool_of(4, 2, a=[1, 2, 3, 4])
    kv.release("a")
    assert sorted(kv.idle()) == [0, 1]
    assert kv.free == [3, 2]

    assert kv.admit("b", 1, 2, 3, 4, 5) == 4

    assert kv.tables["b"][:2] == [0, 1]
    assert kv.read("b") == [1, 2, 3, 4, 5]
    assert kv.idle() == []
    kv.check()


def test_a_page_in_use_is_hit_and_then_has_two_owners():
    kv = pool_of(4, 2, a=[1, 2])

    assert kv.admit("b", 1, 2, 3) == 2

    assert kv.pages[0].owners == {"a", "b"}
    kv.check()


def test_partial_pages_are_never_published():
    kv = pool_of(4, 4, a=[1, 2, 3])

    assert published(kv) == {}
    assert kv.admit("b", 1, 2, 3, 4) == 0
    kv.release("a")
    assert kv.idle() == []
    assert published(kv) == {1: (1, 2, 3, 4)}


def test_a_page_is_published_by_the_append_that_fills_it():
    kv = pool_of(4, 2, a=[1])
    assert published(kv) == {}

    kv.append("a", 2)
    assert published(kv) == {0: (1, 2)}

    kv.append("a", 3, 4, 5, 6, 7)
    assert published(kv) == {0: (1, 2), 1: (1, 2, 3, 4), 2: (1, 2, 3, 4, 5, 6)}


def test_a_page_is_published_by_the_batch_that_fills_it():
    kv = pool_of(4, 2, a=[1], b=[5, 6])

    kv.append_each(["a", "b"], [2, 7])

    assert published(kv) == {0: (1, 2), 1: (5, 6)}


def test_an_admission_publishes_its_own_full_pages():
    kv = pool_of(4, 2)

    kv.admit("a", 1, 2, 3, 4, 5)

    assert published(kv) == {0: (1, 2), 1: (1, 2, 3, 4)}


@pytest.mark.parametrize("block_size", [1, 2, 3, 4])
@pytest.mark.parametrize("first", range(9))
@pytest.mark.parametrize("second", range(1, 9))
def test_exactly_the_full_pages_are_published_around_every_edge(block_size, first, second):
    kv = pool_of(20, block_size, a=range(first))

    kv.append("a", *range(first, first + second))

    full = (first + second) // block_size
    assert sorted(kv.index) == kv.tables["a"][:full]
    assert published(kv) == {
        page: tuple(range((depth + 1) * block_size))
        for depth, page in enumerate(kv.tables["a"][:full])
    }


def test_what_identifies_a_token_is_its_value():
    kv = PrefixCachedKV(4, 1, value_of=lambda token: token[1])
    kv.admit("a", ("a", 1), ("a", 2))

    assert kv.admit("b", ("b", 1), ("b", 9)) == 1
    assert kv.read("b") == [("a", 1), ("b", 9)]
    kv.check()


# What is hit


@pytest.mark.parametrize(
    ("length", "hit"), [(1, 0), (2, 0), (3, 2), (4, 2), (5, 4), (6, 4), (7, 4)]
)
def test_a_prompt_is_hit_up_to_the_token_before_its_last(length, hit):
    kv = pool_of(8, 2, a=[1, 2, 3, 4])
    kv.release("a")

    assert kv.admit("b", *range(1, length + 1)) == hit

    assert kv.read("b") == list(range(1, length + 1))
    kv.check()


def test_the_last_page_of_a_whole_hit_is_written_again_to_a_page_of_its_own():
    kv = pool_of(4, 2, a=[1, 2, 3, 4])

    assert kv.admit("b", 1, 2, 3, 4) == 2

    assert kv.tables["b"] == [0, 2]
    assert published(kv) == {0: (1, 2), 1: (1, 2, 3, 4), 2: (1, 2, 3, 4)}


@pytest.mark.parametrize("depth", range(5))
def test_the_longest_published_prefix_is_hit(depth):
    kv = pool_of(20, 2, a=range(8))

    prompt = [*range(2 * depth), 90, 91, 92, 93]

    assert hit_depth(kv, prompt) == depth
    assert kv.admit("b", *prompt) == 2 * depth
    assert kv.tables["b"][:depth] == kv.tables["a"][:depth]


def test_the_same_block_under_another_prefix_is_not_hit():
    kv = pool_of(16, 2, a=[1, 2, 3, 4])

    assert kv.admit("b", 3, 4, 9) == 0
    assert kv.admit("c", 9, 9, 3, 4, 9) == 0
    assert kv.admit("d", 1, 2, 9, 9, 3, 4, 9) == 2
    kv.check()


def test_a_page_is_hit_only_for_the_whole_content_before_it():
    kv = pool_of(8, 1, a=[1, 2, 3], b=[2, 3])

    assert kv.admit("c", 2, 3, 4) == 2
    assert kv.tables["c"][:2] == kv.tables["b"]


def test_a_fork_publishes_its_own_chain_and_leaves_that_of_its_parent():
    kv = pool_of(8, 2, a=[1, 2, 3])
    kv.fork("a", "b")
    kv.append("b", 4)
    kv.append("a", 5)
    kv.release_each(["a", "b"])

    assert hit_depth(kv, (1, 2, 3, 4, 0)) == 2
    assert hit_depth(kv, (1, 2, 3, 5, 0)) == 2
    assert hit_depth(kv, (1, 2, 3, 6, 0)) == 1
    assert hit_depth(kv, (1, 2, 3, 4, 5, 0)) == 2
    kv.check()


def test_after_a_fork_and_one_release_a_page_is_in_use_and_after_the_other_it_is_idle():
    kv = pool_of(4, 2, a=[1, 2])
    kv.fork("a", "b")

    kv.release("a")
    assert kv.idle() == []

    kv.release("b")
    assert kv.idle() == [0]
    kv.check()


def test_a_pin_keeps_a_page_from_being_idle():
    kv = pool_of(2, 2, a=[1, 2])
    kv.pin("a", "t")
    kv.release("a")

    assert kv.idle() == []
    assert kv.takeable() == [1]
    assert kv.admit("b", 1, 2, 3) == 2
    kv.release("b")
    assert kv.idle() == []

    kv.unpin("t")
    assert kv.idle() == [0]
    kv.check()


# Duplicates


def test_duplicates_keep_both_pages():
    kv = pool_of(4, 2, a=[1, 2], b=[1, 2])

    assert kv.tables == {"a": [0], "b": [1]}
    assert holding(kv, 1, 2) == [0, 1]
    kv.release_each(["a", "b"])
    assert sorted(kv.idle()) == [0, 1]


@pytest.mark.parametrize("page", [0, 1])
def test_either_of_two_duplicates_may_be_told(page):
    asked = []
    kv = told(4, 2, [0], [1], [page], [3], asked=asked)
    for request in "ab":
        kv.create(request)
        kv.append(request, 1, 2)

    assert kv.admit("c", 1, 2, 3) == 2

    assert kv.tables["c"] == [page, 3]
    assert asked[2:] == [("c", [0]), ("c", [1])]
    kv.check()


@pytest.mark.parametrize(("taken", "left"), [(0, 1), (1, 0)])
def test_a_content_is_hit_as_long_as_one_of_its_duplicates_is_published(taken, left):
    kv = told(3, 2, [0], [1], [2], [taken], [left], [2])
    for request in "ab":
        kv.create(request)
        kv.append(request, 1, 2)
    kv.release_each(["a", "b"])
    kv.admit("x", 7)
    kv.admit("y", 8)
    assert holding(kv, 1, 2) == [left]
    kv.release("x")

    assert kv.admit("c", 1, 2, 3) == 2
    kv.check()


def test_standalone_the_smallest_page_of_a_content_is_hit_and_the_smallest_free_ones_taken():
    kv = pool_of(8, 1, a=[9], b=[1], c=[1], d=[9])
    kv.release_each(["a", "d"])

    kv.admit("e", 1, 5, 6)

    assert kv.tables["e"] == [1, 0, 3]


# Taking idle pages


def test_taking_an_idle_page_drops_its_entry_and_then_it_misses():
    kv = pool_of(1, 2, a=[1, 2])
    kv.release("a")

    kv.admit("b", 9)
    assert published(kv) == {}
    kv.release("b")

    assert hit_depth(kv, (1, 2, 3)) == 0
    kv.check()


def test_a_longer_chain_behind_a_page_that_was_taken_is_not_hit():
    kv = told(4, 1, [0, 1, 2], [0], [3])
    kv.create("a")
    kv.append("a", 1, 2, 3)
    kv.release("a")
    kv.admit("b", 9)
    assert published(kv) == {0: (9,), 1: (1, 2), 2: (1, 2, 3)}
    kv.release("b")

    assert hit_depth(kv, (1, 2, 3, 4)) == 0
    kv.check()


def test_a_chain_is_hit_up_to_the_page_that_was_taken():
    kv = told(4, 1, [0, 1, 2], [1], [0], [1, 3])
    kv.create("a")
    kv.append("a", 1, 2, 3)
    kv.release("a")
    kv.admit("b", 9)
    kv.release("b")

    assert kv.admit("c", 1, 2, 3) == 1
    assert kv.tables["c"] == [0, 1, 3]
    assert holding(kv, 1, 2, 3) == [2, 3]
    kv.check()


def test_an_idle_page_is_taken_by_an_append_and_by_a_copy():
    kv = pool_of(3, 2, a=[1, 2], b=[5], c=[6, 7])
    kv.release("a")

    kv.fork("b", "d")
    kv.append("d", 8)
    assert kv.tables["d"] == [0]
    assert published(kv) == {2: (6, 7), 0: (5, 8)}

    kv.release("c")
    kv.append("d", 9)
    assert kv.tables["d"] == [0, 2]
    assert published(kv) == {0: (5, 8)}
    kv.check()


def test_idle_pages_that_are_taken_lose_what_they_held():
    kv = pool_of(1, 4, a=[1, 2, 3, 4])
    kv.release("a")

    kv.admit("b", 9)

    assert kv.pages[0].tokens == [9]
    assert kv.pages[0].owners == {"b"}


# Refusals


def test_admitting_a_live_request_or_nothing_is_rejected_and_changes_nothing():
    kv = pool_of(4, 2, a=[1, 2])

    for arguments, match in [
        (("a", 1), "duplicate request: 'a'"),
        (("a",), "duplicate request: 'a'"),
        (("b",), "no tokens: 'b'"),
    ]:
        with changes_nothing(kv, Rejected, match):
            kv.admit(*arguments)


def test_an_admission_that_finds_too_few_pages_changes_nothing():
    kv = pool_of(4, 2, a=[1, 2], b=[3, 4])
    kv.release("a")

    with changes_nothing(kv, MemoryError, "4 blocks needed, 2 free beside the hits"):
        kv.admit("c", 1, 2, *range(10, 18))
    assert kv.may_refuse is False


def test_an_admission_that_has_room_only_if_its_own_hits_were_taken_changes_nothing():
    """EV02 and AT01: two pages are needed and two are takeable, one of them the hit itself."""
    kv = pool_of(3, 2, a=[1, 2], b=[3, 4])
    kv.release("a")
    assert len(kv.takeable()) == 2

    with changes_nothing(kv, MemoryError, "2 blocks needed, 1 free beside the hits"):
        kv.admit("c", 1, 2, 5, 6, 7, 8)

    assert kv.admit("c", 1, 2, 5, 6) == 2


@pytest.mark.parametrize("idle", [False, True])
def test_a_hit_in_use_takes_no_room(idle):
    kv = pool_of(2, 1, a=[1])
    if idle:
        kv.release("a")

    with changes_nothing(kv, MemoryError, "2 blocks needed, 1 free"):
        kv.admit("b", 1, 2, 3)
    assert kv.admit("b", 1, 2) == 1


def test_standalone_a_duplicate_in_use_is_hit_before_an_idle_one_which_leaves_room():
    kv = pool_of(3, 1, a=[1], b=[1])
    kv.release("a")

    assert kv.admit("c", 1, 2, 3) == 1

    assert kv.tables["c"] == [1, 0, 2]
    assert kv.read("c") == [1, 2, 3]
    kv.check()


@pytest.mark.parametrize("released", ["", "abc"])
def test_standalone_the_smallest_of_duplicates_that_are_all_idle_or_all_in_use_is_hit(released):
    kv = pool_of(5, 1, a=[1], b=[1], c=[1])
    for request in reversed(released):
        kv.release(request)

    kv.admit("d", 1, 2)

    assert kv.tables["d"][0] == 0


def test_what_an_admission_demands_is_its_fresh_pages_of_those_beside_its_hits():
    kv = pool_of(5, 1, a=[1], b=[7])
    kv.release("a")
    asked = []
    kv._choose = lambda request, positions: asked.append(kv.demand) or [[0], [2, 3]][len(asked) - 1]

    kv.admit("c", 1, 2, 3)

    assert asked == [(2, 3), (2, 3)]


# Reset


def test_reset_is_refused_while_a_page_is_owned():
    kv = pool_of(4, 2, a=[1, 2], b=[3, 4])
    kv.release("a")

    with changes_nothing(kv, Rejected, "blocks in use: 'reset'"):
        kv.reset()


def test_reset_is_refused_while_a_page_is_pinned():
    kv = pool_of(4, 2, a=[1, 2])
    kv.pin("a", "t")
    kv.release("a")

    with changes_nothing(kv, Rejected, "blocks in use: 'reset'"):
        kv.reset()


def test_reset_forgets_every_entry():
    kv = pool_of(4, 2, a=[1, 2, 3, 4], empty=[])
    kv.release("a")

    kv.reset()

    assert (kv.index, kv.pages, sorted(kv.free)) == ({}, {}, [0, 1, 2, 3])
    assert kv.tables == {"empty": []}
    assert kv.admit("b", 1, 2, 3) == 0
    kv.check()


def test_reset_of_a_pool_that_holds_nothing_is_nothing():
    kv = pool_of(4, 2)
    before = state(kv)

    kv.reset()

    assert state(kv) == before


# Caching off


def test_with_caching_off_nothing_is_published_and_admit_is_create_and_append():
    cached_off, plain = PrefixCachedKV(9, 2, caching=False), PagedKV(9, 2)
    draw = random.Random(5)
    for step in range(200):
        tokens = [draw.randint(0, 1) for _ in range(draw.randint(1, 6))]
        request = f"r{step}"
        outcomes = []
        try:
            outcomes.append(cached_off.admit(request, *tokens))
        except MemoryError:
            outcomes.append(None)
        plain.create(request)
        try:
            plain.append(request, *tokens)
            outcomes.append(0)
        except MemoryError:
            plain.release(request)
            outcomes.append(None)

        assert outcomes[0] == outcomes[1]
        assert cached_off.tables == plain.tables
        assert sorted(cached_off.takeable()) == sorted(plain.takeable())
        for live in list(plain.tables):
            if draw.random() < 0.3:
                cached_off.release(live)
                plain.release(live)
        cached_off.check()
    assert cached_off.index == {}


def test_with_caching_off_reset_is_still_refused_while_a_page_is_in_use():
    kv = PrefixCachedKV(2, 1, caching=False)
    kv.reset()
    kv.admit("a", 1)

    with changes_nothing(kv, Rejected, "blocks in use"):
        kv.reset()
