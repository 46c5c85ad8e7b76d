"""Reserved room: what `reserve` promises, `commit` writes, `append` uses and `trim` gives back."""

import numpy as np
import pytest
from impl_states import allocator_with, assert_is_whole, caching, numbers, of_request, state

from kvoracle.impl import BadCall, OutOfBlocks


def test_reserve_gives_the_slots_of_all_reserved_positions():
    allocator = allocator_with(8, 2, a=3)

    growth = allocator.reserve("a", 4)

    assert growth.slots.tolist() == [3, 4, 5, 6]
    assert growth.copies == []
    assert allocator.table("a").tolist() == [0, 1, 2, 3]
    assert_is_whole(allocator)


def test_reserving_less_than_there_is_changes_nothing_and_more_adds_the_difference():
    allocator = allocator_with(8, 2, a=1)
    allocator.reserve("a", 4)
    before = state(allocator)

    assert allocator.reserve("a", 2).slots.tolist() == [1, 2, 3, 4]
    assert state(allocator) == before

    allocator.reserve("a", 6)
    assert of_request(allocator, "a")["reserved"] == 6
    assert len(allocator.table("a")) == 4


@pytest.mark.parametrize("hold", ["fork", "pin"])
def test_reserve_copies_a_tail_that_another_holds_so_that_commit_need_not(hold):
    allocator = allocator_with(8, 4, a=2)
    getattr(allocator, hold)("a", "x")

    assert allocator.reserve("a", 1).copies == [(0, 1)]
    growth = allocator.commit("a", [7])

    assert growth.copies == []
    assert growth.slots.tolist() == [6]
    assert_is_whole(allocator)


def test_commit_writes_into_the_room_and_leaves_the_rest_of_it():
    allocator = caching(8, 2, a=[1, 2, 3])
    allocator.reserve("a", 4)

    assert allocator.commit("a", [4, 5]).slots.tolist() == [3, 4]

    now = of_request(allocator, "a")
    assert (now["length"], now["reserved"], now["written"]) == (5, 2, [1, 2, 3, 4, 5])
    assert allocator.pool.published.tolist() == [True, True] + [False] * 6
    assert allocator.admit("b", [1, 2, 3, 4, 5]).hit == 4


def test_append_uses_the_room_first_and_reserves_less():
    allocator = allocator_with(8, 2, a=1)
    allocator.reserve("a", 3)
    free = allocator.num_free

    allocator.append("a", numbers(2))
    assert (allocator.num_free, of_request(allocator, "a")["reserved"]) == (free, 1)

    allocator.append("a", numbers(3))
    assert (allocator.num_free, of_request(allocator, "a")["reserved"]) == (free - 1, 0)
    assert_is_whole(allocator)


@pytest.mark.parametrize("length", range(1, 6))
@pytest.mark.parametrize("reserved", range(1, 6))
def test_trim_leaves_the_blocks_that_the_tokens_need(length, reserved):
    allocator, fresh = allocator_with(8, 2, a=length), allocator_with(8, 2, a=length)
    allocator.reserve("a", reserved)

    allocator.trim("a")

    order = {"generations": None, "free": None}
    assert state(allocator) | order == state(fresh) | order
    assert_is_whole(allocator)


def test_trim_without_room_changes_nothing():
    allocator = allocator_with(8, 2, a=3, empty=0)
    before = state(allocator)

    allocator.trim("a")
    allocator.trim("empty")

    assert state(allocator) == before


def test_blocks_given_back_by_trim_are_taken_again_the_last_first():
    allocator = allocator_with(8, 1, a=1, b=0)
    allocator.reserve("a", 3)
    allocator.trim("a")

    allocator.append("b", numbers(4))

    assert allocator.table("b").tolist() == [3, 2, 1, 4]


def test_reserve_that_finds_too_few_blocks_changes_nothing():
    allocator = allocator_with(4, 2, a=1)
    allocator.fork("a", "b")
    before = state(allocator)

    with pytest.raises(OutOfBlocks, match="4 blocks needed, 3 free"):
        allocator.reserve("a", 6)

    assert state(allocator) == before


@pytest.mark.parametrize("count", [0, -1, -(10**30)])
def test_reserving_none_is_no_tokens(count):
    allocator = allocator_with(4, 2, a=1)
    before = state(allocator)

    with pytest.raises(BadCall, match="no tokens"):
        allocator.reserve("a", count)

    assert state(allocator) == before


@pytest.mark.parametrize("count", [1.0, 0.5, "1", None, [1]], ids=repr)
def test_a_count_that_is_no_whole_number_changes_nothing(count):
    allocator = allocator_with(4, 2, a=1)
    before = state(allocator)

    with pytest.raises(ValueError, match="is a whole number"):
        allocator.reserve("a", count)

    assert state(allocator) == before


def test_a_huge_count_is_out_of_blocks():
    allocator = allocator_with(4, 2, a=1)

    with pytest.raises(OutOfBlocks):
        allocator.reserve("a", 10**30)

    assert allocator.reserve("a", np.int64(2)).slots.tolist() == [1, 2]


def test_commit_of_more_than_was_reserved_changes_nothing():
    allocator = allocator_with(4, 2, a=1)
    allocator.reserve("a", 2)
    before = state(allocator)

    with pytest.raises(BadCall, match="more than reserved"):
        allocator.commit("a", numbers(3))

    assert state(allocator) == before
