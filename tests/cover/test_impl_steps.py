"""Steps under way: what they hold, when their tokens count, and what happens when they fail."""

import numpy as np
import pytest
from impl_states import allocator_with, assert_is_whole, caching, numbers, of_request, state

from kvoracle.impl import BadCall


def counts(allocator, request):
    now = of_request(allocator, request)
    return now["length"], now["reserved"], now["in flight"]


def test_a_step_gives_slots_and_writes_nothing_before_it_ends():
    allocator = caching(8, 2, a=[1], b=[5, 6])

    growth = allocator.begin_step("s", ["a", "b"], [2, 7])

    assert growth.slots.tolist() == [1, 4]
    assert growth.granted.tolist() == [True, True]
    assert growth.fresh.tolist() == [2]
    assert (counts(allocator, "a"), counts(allocator, "b")) == ((1, 1, 1), (2, 1, 1))
    assert allocator.pool.published.tolist() == [False, True] + [False] * 6
    assert_is_whole(allocator)

    allocator.end_step("s")

    assert (counts(allocator, "a"), counts(allocator, "b")) == ((2, 0, 0), (3, 0, 0))
    assert allocator.pool.published.tolist() == [True, True] + [False] * 6
    assert allocator.admit("c", [1, 2, 3]).hit == 2
    assert_is_whole(allocator)


def test_three_steps_are_under_way_each_one_token_further():
    allocator = caching(8, 2, a=[1])

    slots = [allocator.begin_step(f"s{i}", ["a"], [2 + i]).slots.tolist() for i in range(3)]

    assert slots == [[1], [2], [3]]
    assert counts(allocator, "a") == (1, 3, 3)
    for i in range(3):
        allocator.end_step(f"s{i}")
    assert of_request(allocator, "a")["written"] == [1, 2, 3, 4]
    assert_is_whole(allocator)


def test_a_step_uses_reserved_room():
    allocator = allocator_with(8, 2, a=1)
    allocator.reserve("a", 3)

    assert allocator.begin_step("s", ["a"], [1]).fresh.tolist() == []
    assert counts(allocator, "a") == (1, 3, 1)
    allocator.end_step("s")
    assert counts(allocator, "a") == (2, 2, 0)


@pytest.mark.parametrize("hold", ["fork", "pin"])
def test_a_step_copies_a_tail_that_another_holds_and_holds_its_source(hold):
    allocator = allocator_with(8, 4, a=6)
    getattr(allocator, hold)("a", "x")

    growth = allocator.begin_step("s", ["a"], [9])

    assert growth.copies == [(1, 2)]
    assert allocator.pool.holds.tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    assert_is_whole(allocator)


def test_of_a_request_and_its_fork_in_one_step_one_is_copied():
    allocator = allocator_with(8, 4, a=2)
    allocator.fork("a", "b")

    growth = allocator.begin_step("s", ["a", "b"], [1, 2])

    assert growth.copies == [(0, 1)]
    assert growth.slots.tolist() == [6, 2]
    assert allocator.pool.holds.tolist()[:3] == [1, 1, 0]


def test_a_hold_leaves_a_block_to_its_owner_to_write():
    allocator = allocator_with(8, 4, a=1)
    allocator.begin_step("s", ["a"], [1])

    assert allocator.begin_step("t", ["a"], [1]).copies == []


def test_a_step_holds_a_block_of_many_tables_once():
    allocator = allocator_with(8, 2, a=4)
    allocator.fork("a", "b")
    allocator.fork("a", "c")

    allocator.begin_step("s", ["a", "b", "c"], numbers(3))

    assert allocator.pool.holds.tolist() == [1, 1, 1, 1, 1, 0, 0, 0]


def test_the_refused_of_a_step_get_minus_one_and_hold_nothing():
    allocator = allocator_with(3, 2, a=2, b=2)

    growth = allocator.begin_step("s", ["b", "a"], [1, 2])

    assert growth.slots.tolist() == [4, -1]
    assert growth.granted.tolist() == [True, False]
    assert counts(allocator, "a") == (2, 0, 0)
    assert allocator.pool.holds.tolist() == [0, 1, 1]
    allocator.end_step("s")
    assert (counts(allocator, "a"), counts(allocator, "b")) == ((2, 0, 0), (3, 0, 0))


def test_a_step_whose_requests_are_all_refused_is_a_step():
    allocator = allocator_with(1, 1, a=1)

    assert allocator.begin_step("s", ["a"], [1]).granted.tolist() == [False]
    allocator.end_step("s")
    assert allocator.pool.holds.tolist() == [0]


@pytest.mark.parametrize("end", ["release", "preempt"])
def test_blocks_of_a_request_that_ends_are_held_until_its_steps_end(end):
    allocator = allocator_with(8, 2, a=3)
    allocator.begin_step("s", ["a"], [1])
    allocator.begin_step("t", ["a"], [2])
    getattr(allocator, end)("a")

    assert allocator.num_free == 5
    allocator.end_step("s")
    assert allocator.num_free == 5
    allocator.end_step("t")
    assert allocator.num_free == 8
    assert_is_whole(allocator)


@pytest.mark.parametrize("end", ["end_step", "fail_step"])
@pytest.mark.parametrize("again", ["create", "resume"])
def test_a_step_writes_nothing_into_a_later_life_of_its_request(end, again):
    allocator = caching(8, 2, a=[1])
    allocator.begin_step("s", ["a"], [2])
    allocator.preempt("a")
    if again == "create":
        allocator.release("a")
    getattr(allocator, again)("a")
    before = of_request(allocator, "a")
    assert before["row"] == 0

    getattr(allocator, end)("s")

    assert of_request(allocator, "a") == before
    assert_is_whole(allocator)


def test_a_step_that_fails_writes_nothing_and_leaves_the_room():
    allocator = caching(8, 2, a=[1, 2])
    allocator.begin_step("s", ["a"], [3])

    allocator.fail_step("s")

    assert counts(allocator, "a") == (2, 1, 0)
    assert allocator.pool.holds.tolist() == [0] * 8
    assert allocator.append("a", [4]).slots.tolist() == [2]
    assert of_request(allocator, "a")["written"] == [1, 2, 4]


def test_all_steps_after_one_that_fails_fail_too():
    allocator = caching(8, 2, a=[1, 2])
    for step, token in (("s", 3), ("t", 4), ("u", 5)):
        allocator.begin_step(step, ["a"], [token])

    allocator.fail_step("t")

    assert list(allocator.steps.in_flight) == ["s"]
    assert counts(allocator, "a") == (2, 3, 1)
    allocator.end_step("s")
    assert of_request(allocator, "a")["written"] == [1, 2, 3]
    assert_is_whole(allocator)


def test_a_step_name_is_free_again_when_its_step_is_over():
    allocator = allocator_with(8, 2, a=1)
    for end in ("end_step", "fail_step", "end_step"):
        allocator.begin_step("s", ["a"], [1])
        getattr(allocator, end)("s")

    assert counts(allocator, "a") == (3, 0, 0)


def test_what_a_step_was_told_is_not_what_the_caller_changes():
    allocator = caching(8, 2, a=[1])
    tokens = np.array([2], np.int64)
    allocator.begin_step("s", ["a"], tokens)
    tokens[:] = 7

    allocator.end_step("s")

    assert of_request(allocator, "a")["written"] == [1, 2]


def test_steps_end_in_the_order_in_which_they_began():
    allocator = allocator_with(8, 2, a=1)
    allocator.begin_step("s", ["a"], [1])
    allocator.begin_step("t", ["a"], [1])
    before = state(allocator)

    with pytest.raises(BadCall, match="an earlier step is in flight: 't'"):
        allocator.end_step("t")

    assert state(allocator) == before


def test_a_fourth_step_is_refused():
    allocator = allocator_with(8, 2, a=1)
    for step in "stu":
        allocator.begin_step(step, ["a"], [1])
    before = state(allocator)

    with pytest.raises(BadCall, match="too many steps in flight: 'v'"):
        allocator.begin_step("v", ["a"], [1])

    assert state(allocator) == before
