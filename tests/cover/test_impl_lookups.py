"""Lookups: a prefix that is held between the question for it and its use."""

import pytest
from impl_states import assert_is_whole, caching, numbers, of_request, order_of_reuse, state

from kvoracle.impl import BadCall, OutOfBlocks, PagedAllocator


def test_a_lookup_says_how_many_tokens_are_written_and_holds_their_blocks():
    allocator = caching(8, 2, a=[1, 2, 3, 4, 5])
    allocator.release("a")

    assert allocator.look_up("b", [1, 2, 3, 4, 9]) == 4

    assert allocator.table("b").tolist() == [0, 1]
    assert allocator.pool.holds.tolist() == [1, 1] + [0] * 6
    assert allocator.num_free == 6
    assert set(order_of_reuse(allocator)) == set(range(2, 8))
    assert_is_whole(allocator)


def test_a_lookup_that_finds_nothing_is_a_lookup():
    allocator = caching(4, 2)

    assert allocator.look_up("a", [1, 2, 3]) == 0

    assert allocator.table("a").tolist() == []
    allocator.reset_prefix_cache()
    assert allocator.use("a").slots.tolist() == [0, 1, 2]


def test_a_lookup_without_a_prefix_cache_finds_nothing():
    allocator = PagedAllocator(4, 2)
    allocator.admit("a", [1, 2, 3])

    assert allocator.look_up("b", [1, 2, 3]) == 0
    assert allocator.use("b").slots.tolist() == [4, 5, 6]


@pytest.mark.parametrize("in_use", [False, True])
def test_use_begins_as_an_admission_would(in_use):
    at_once, in_two = (caching(8, 2, a=[1, 2, 3, 4]) for _ in range(2))
    for allocator in (at_once, in_two):
        if not in_use:
            allocator.release("a")

    expected = at_once.admit("b", [1, 2, 3, 4, 5])
    assert in_two.look_up("b", [1, 2, 3, 4, 5]) == expected.hit
    growth = in_two.use("b")

    assert growth.slots.tolist() == expected.slots.tolist()
    assert (growth.hit, growth.copies) == (expected.hit, expected.copies)
    assert state(in_two) == state(at_once)
    assert_is_whole(in_two)


def test_blocks_that_were_looked_up_stay_when_their_writer_goes():
    allocator = caching(4, 2, a=[1, 2, 3])
    allocator.look_up("b", [1, 2, 3])
    allocator.release("a")
    allocator.admit("c", numbers(5) + 10)
    allocator.release("c")

    assert allocator.use("b").hit == 2
    assert allocator.table("b").tolist()[0] == 0
    assert_is_whole(allocator)


def test_use_that_finds_too_few_blocks_leaves_the_lookup():
    allocator = caching(4, 2, a=[1, 2], b=[5, 6, 7, 8, 9])
    allocator.look_up("c", [1, 2, 3])
    before = state(allocator)

    with pytest.raises(OutOfBlocks, match="1 blocks needed, 0 free"):
        allocator.use("c")

    assert state(allocator) == before
    allocator.release("b")
    assert allocator.use("c").hit == 2


def test_cancel_lets_go_of_the_blocks():
    allocator = caching(4, 2, a=[1, 2, 3, 4])
    allocator.look_up("b", [1, 2, 3, 4, 5])
    allocator.release("a")

    allocator.cancel("b")

    assert order_of_reuse(allocator) == [2, 3, 1, 0]
    allocator.create("b")
    assert_is_whole(allocator)


def test_two_lookups_hold_a_block_twice():
    allocator = caching(4, 2, a=[1, 2])
    for name in "bc":
        allocator.look_up(name, [1, 2, 3])
    allocator.release("a")

    allocator.cancel("b")
    assert allocator.num_free == 3
    allocator.cancel("c")
    assert allocator.num_free == 4


def test_a_looked_up_prompt_is_copied_before_the_caller_changes_it():
    allocator, prompt = caching(8, 2), numbers(5)
    allocator.look_up("a", prompt)
    prompt[:] = 9

    allocator.use("a")

    assert of_request(allocator, "a")["written"] == [0, 1, 2, 3, 4]


def test_a_looked_up_name_is_no_request_yet_and_no_other_may_have_it():
    allocator = caching(8, 2, a=[1, 2, 3])
    allocator.look_up("b", [1, 2, 3])

    for call in (
        lambda: allocator.create("b"),
        lambda: allocator.admit("b", [1]),
        lambda: allocator.look_up("b", [1]),
        lambda: allocator.fork("a", "b"),
        lambda: allocator.receive("b", [1], "t", 1),
    ):
        with pytest.raises(BadCall, match="duplicate request: 'b'"):
            call()
    for call in (
        lambda: allocator.append("b", [1]),
        lambda: allocator.release("b"),
        lambda: allocator.preempt("b"),
    ):
        with pytest.raises(BadCall, match="unknown request: 'b'"):
            call()
