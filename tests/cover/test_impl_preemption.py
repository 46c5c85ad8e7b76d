"""Preemption: a request ends, is remembered, and begins again with all that it had written."""

import pytest
from impl_states import assert_is_whole, caching, of_request, order_of_reuse, state

from kvoracle.impl import BadCall, OutOfBlocks, PagedAllocator


def test_a_preempted_request_gives_its_blocks_back_as_a_release_does():
    preempted, released = (caching(8, 2, a=[1, 2, 3, 4, 5]) for _ in range(2))

    preempted.preempt("a")
    released.release("a")

    assert order_of_reuse(preempted) == order_of_reuse(released)
    assert preempted.statistics().preemptions == 1
    assert_is_whole(preempted)


@pytest.mark.parametrize("block_size", [1, 2, 3, 8])
def test_resume_hits_what_is_still_there_and_writes_the_rest_again(block_size):
    tokens = [3, 1, 2**40, 1, 5, 9, -2]
    allocator = PagedAllocator(16, block_size, prefix_cache=True)
    allocator.admit("a", tokens[:3])
    for token in tokens[3:]:
        allocator.append_batch(["a"], [token])
    allocator.preempt("a")

    growth = allocator.resume("a")

    assert growth.hit == (len(tokens) - 1) // block_size * block_size
    assert len(growth.slots) == len(tokens) - growth.hit
    assert of_request(allocator, "a")["written"] == tokens
    assert_is_whole(allocator)


def test_resume_of_what_was_recycled_writes_everything():
    allocator = caching(2, 2, a=[1, 2, 3])
    allocator.preempt("a")
    allocator.admit("b", [7, 8, 9])
    allocator.release("b")

    growth = allocator.resume("a")

    assert (growth.hit, len(growth.slots)) == (0, 3)
    assert of_request(allocator, "a")["written"] == [1, 2, 3]


def test_resume_that_finds_too_few_blocks_leaves_it_preempted():
    allocator = caching(4, 2, a=[1, 2, 3])
    allocator.preempt("a")
    allocator.admit("b", range(10, 18))
    before = state(allocator)

    with pytest.raises(OutOfBlocks, match="2 blocks needed, 0 free"):
        allocator.resume("a")

    assert state(allocator) == before
    allocator.release("b")
    allocator.resume("a")


def test_without_a_prefix_cache_the_length_is_remembered():
    allocator = PagedAllocator(8, 2)
    allocator.admit("a", [1, 2, 3])
    allocator.append("a", [4])
    allocator.preempt("a")

    assert len(allocator.resume("a").slots) == 4
    assert len(allocator.table("a")) == 2


def test_tokens_that_were_only_reserved_or_in_flight_are_not_remembered():
    allocator = caching(8, 2, a=[1, 2, 3])
    allocator.reserve("a", 4)
    allocator.begin_step("s", ["a"], [4])
    allocator.preempt("a")

    assert len(allocator.resume("a").slots) + 2 == 3
    now = of_request(allocator, "a")
    assert (now["length"], now["reserved"], now["in flight"]) == (3, 0, 0)
    allocator.end_step("s")
    assert_is_whole(allocator)


def test_extra_keys_are_remembered():
    allocator = caching(8, 2)
    allocator.admit("a", [1, 2, 3], {"salt": "s"})
    allocator.preempt("a")

    assert allocator.resume("a").hit == 2
    assert allocator.admit("b", [1, 2, 3], {"salt": "s"}).hit == 2
    assert allocator.admit("c", [1, 2, 3]).hit == 0


def test_a_request_resumes_in_the_present_weights():
    allocator = caching(8, 2, a=[1, 2, 3])
    allocator.preempt("a")
    allocator.change_weights()

    assert allocator.resume("a").hit == 0
    assert allocator.admit("b", [1, 2, 3]).hit == 2


def test_a_fork_is_preempted_and_resumed_with_its_own_tokens():
    allocator = caching(16, 2, a=[1, 2, 3])
    allocator.fork("a", "b")
    allocator.append("a", [4])
    allocator.append("b", [9, 8])
    allocator.preempt("b")
    allocator.preempt("a")

    allocator.resume("b")
    allocator.resume("a")

    assert of_request(allocator, "a")["written"] == [1, 2, 3, 4]
    assert of_request(allocator, "b")["written"] == [1, 2, 3, 9, 8]


def test_a_preempted_request_is_forgotten_by_its_release():
    allocator = caching(8, 2, a=[1, 2, 3])
    allocator.preempt("a")

    allocator.release("a")

    with pytest.raises(BadCall, match="not preempted: 'a'"):
        allocator.resume("a")
    allocator.create("a")


def test_a_preempted_name_is_no_live_request_and_no_other_may_have_it():
    allocator = caching(8, 2, a=[1, 2, 3], b=[1])
    allocator.preempt("a")

    for call in (
        lambda: allocator.create("a"),
        lambda: allocator.look_up("a", [1]),
        lambda: allocator.fork("b", "a"),
    ):
        with pytest.raises(BadCall, match="duplicate request: 'a'"):
            call()
    for call in (
        lambda: allocator.append("a", [1]),
        lambda: allocator.preempt("a"),
        lambda: allocator.table("a"),
        lambda: allocator.release_batch(["a"]),
    ):
        with pytest.raises(BadCall, match="unknown request: 'a'"):
            call()


def test_a_request_that_has_written_nothing_is_not_preempted():
    allocator = caching(8, 2, a=[], b=[1])
    allocator.reserve("a", 3)
    before = state(allocator)

    with pytest.raises(BadCall, match="no tokens: 'a'"):
        allocator.preempt("a")

    assert state(allocator) == before


def test_a_request_that_waits_is_not_preempted():
    allocator = caching(8, 2, a=[1, 2])
    allocator.receive("b", [1, 2, 3], "t", 1)
    before = state(allocator)

    with pytest.raises(BadCall, match="tokens on their way: 'b'"):
        allocator.preempt("b")

    assert state(allocator) == before
