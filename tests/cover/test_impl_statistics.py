"""What the allocator counts, and the watermark that it keeps."""

import dataclasses

import numpy as np
import pytest
from impl_states import allocator_with, caching, numbers, state

from kvoracle.impl import OutOfBlocks, PagedAllocator


def test_free_idle_and_held_blocks_are_counted_and_usage_is_the_share_of_the_held():
    allocator = caching(8, 2, a=[1, 2, 3], b=[7])
    allocator.release("a")

    now = allocator.statistics()

    assert (now.free, now.idle, now.held, now.usage) == (7, 1, 1, 1 / 8)
    with pytest.raises(dataclasses.FrozenInstanceError):
        now.free = 3


def test_tokens_that_are_looked_for_and_found_are_counted():
    allocator = caching(32, 2, a=[1, 2, 3, 4, 5])
    counted = []

    def count():
        now = allocator.statistics()
        counted.append((now.queried_tokens, now.hit_tokens))

    allocator.admit("b", [1, 2, 3])
    count()
    allocator.look_up("c", [1, 2, 3, 4, 5])
    count()
    allocator.use("c")
    count()
    allocator.receive("d", [1, 2, 9], "t", 1)
    count()
    allocator.preempt("a")
    allocator.resume("a")
    count()

    assert counted == [(3, 2), (8, 6), (8, 6), (11, 8), (16, 12)]


def test_refused_calls_are_not_counted():
    allocator = caching(2, 2, a=[1, 2])
    before = allocator.statistics()

    for call in (
        lambda: allocator.admit("b", [1, 2, 3, 4, 5, 6]),
        lambda: allocator.receive("b", [1, 2, 3, 4, 5, 6], "t", 1),
        lambda: allocator.admit("a", [1, 2, 3]),
    ):
        with pytest.raises((OutOfBlocks, ValueError)):
            call()

    assert allocator.statistics() == before


def test_without_a_prefix_cache_nothing_is_looked_for():
    allocator = allocator_with(8, 2)
    allocator.admit("a", [1, 2, 3])

    assert allocator.statistics().queried_tokens == 0


def test_evictions_are_entries_lost_because_their_block_was_taken():
    allocator = caching(4, 1, a=[1, 2, 3])
    allocator.release("a")
    allocator.admit("b", [7, 8])
    assert allocator.statistics().evictions == 1

    allocator.evict("b", 0)
    allocator.release("b")
    allocator.change_weights()
    allocator.reset_prefix_cache()

    assert allocator.statistics().evictions == 1


@pytest.mark.parametrize("block_size", [1, 2, 3, 4])
def test_tail_waste_is_the_slots_of_owned_blocks_without_a_token_each_block_once(block_size):
    allocator = PagedAllocator(32, block_size)
    for request, length in (("a", 5), ("b", 3), ("empty", 0), ("exact", 4 * block_size)):
        allocator.create(request)
        if length:
            allocator.append(request, numbers(length))
    for child in "cd":
        allocator.fork("a", child)
    allocator.append("d", [1])
    allocator.reserve("b", 4)
    allocator.begin_step("s", ["exact"], [1])
    allocator.receive("e", numbers(3), "t", 1)
    allocator.pin("a", "pin")
    allocator.preempt("c")

    filled = {}
    for row in allocator.requests.by_name.values():
        length = int(allocator.tables.lengths[row])
        for logical, block in enumerate(allocator.tables.table(row).tolist()):
            filled[block] = min(max(length - logical * block_size, 0), block_size)
    expected = len(filled) * block_size - sum(filled.values())

    assert allocator.statistics().tail_waste == expected
    assert sorted(filled) == np.flatnonzero(allocator.pool.owners).tolist()


def test_a_generation_counts_how_often_a_block_was_taken_however_it_was():
    allocator = caching(4, 2, a=[1, 2, 3])
    allocator.fork("a", "b")
    allocator.append("b", [4, 5])
    assert allocator.generations.tolist() == [1, 1, 1, 1]

    allocator.release_batch(["a", "b"])
    allocator.admit("c", [1, 2, 3])
    assert sorted(allocator.generations.tolist()) == [1, 1, 1, 2]

    allocator.generations[:] = 0
    assert allocator.generations.sum() == 5


def test_the_latest_generation_of_a_transfer_can_be_asked_for():
    allocator = allocator_with(4, 2, a=1)
    assert allocator.generation_of("t") == 0

    allocator.pin("a", "t")
    first = allocator.generation_of("t")
    allocator.unpin("t")
    assert allocator.generation_of("t") == first > 0
    assert allocator.send("a", "t", 1) == allocator.generation_of("t") > first


# The watermark


BEGINNINGS = {
    "admit": lambda it: it.admit("b", numbers(5)),
    "receive": lambda it: it.receive("b", numbers(5), "t", 1),
    "use": lambda it: (it.look_up("b", numbers(5)), it.use("b")),
    "resume": lambda it: it.resume("preempted"),
}


@pytest.mark.parametrize("begin", BEGINNINGS.values(), ids=BEGINNINGS)
@pytest.mark.parametrize("prefix_cache", [False, True])
@pytest.mark.parametrize("spare", range(4))
def test_requests_begin_only_where_the_watermark_stays_free(begin, prefix_cache, spare):
    allocator = PagedAllocator(8, 2, prefix_cache=prefix_cache, watermark=2)
    allocator.admit("preempted", numbers(5) + 10)
    allocator.preempt("preempted")
    allocator.reset_prefix_cache()
    allocator.create("a")
    allocator.append("a", numbers(2 * (8 - 3 - spare)) + 50)

    if spare >= 2:
        begin(allocator)
        return
    with pytest.raises(OutOfBlocks, match=f"5 blocks needed, {3 + spare} free"):
        begin(allocator)


def test_requests_grow_into_the_watermark():
    allocator = PagedAllocator(4, 2, watermark=3)
    allocator.admit("a", [1])
    allocator.append("a", numbers(5))
    allocator.fork("a", "b")

    assert allocator.begin_step("s", ["a"], [1]).granted.tolist() == [True]


@pytest.mark.parametrize("watermark", [-1, 0.5, "1", None])
def test_a_watermark_is_a_whole_number(watermark):
    with pytest.raises(ValueError, match="the watermark is"):
        PagedAllocator(4, 2, watermark=watermark)


def test_a_watermark_as_large_as_the_pool_keeps_everything_out():
    allocator = PagedAllocator(4, 2, watermark=4)
    before = state(allocator)

    with pytest.raises(OutOfBlocks):
        allocator.admit("a", [1])

    assert state(allocator) == before
