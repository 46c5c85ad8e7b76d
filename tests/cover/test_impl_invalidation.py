"""Content that must not be found again: evicted blocks, and everything written before new weights."""

import pytest
from impl_states import assert_is_whole, caching, order_of_reuse, state

from kvoracle.impl import BadCall, PagedAllocator

# Evict


def test_evicted_blocks_are_not_hit_and_free_when_their_request_ends():
    allocator = caching(8, 2, a=[1, 2, 3, 4, 5, 6])

    allocator.evict("a", 1)

    assert allocator.admit("b", [1, 2, 3, 4, 5, 6, 7]).hit == 2
    assert allocator.pool.published.tolist()[:3] == [True, False, False]
    allocator.release_batch(["a", "b"])
    assert allocator.statistics().idle == allocator.pool.published.sum() == 3
    assert_is_whole(allocator)


@pytest.mark.parametrize("first", [3, 4, 10**30])
def test_evicting_beyond_the_table_changes_nothing(first):
    allocator = caching(8, 2, a=[1, 2, 3, 4, 5, 6])
    before = state(allocator)

    allocator.evict("a", first)

    assert state(allocator) == before


def test_an_evicted_partial_block_is_not_published_when_it_fills():
    allocator = caching(8, 2, a=[1, 2, 3])
    allocator.evict("a", 1)

    allocator.append("a", [4, 5, 6])

    assert allocator.pool.published.tolist()[:3] == [True, False, True]
    assert allocator.admit("b", [1, 2, 3, 4, 5, 6, 7]).hit == 2


def test_evicted_reserved_room_is_not_published_when_it_is_written():
    allocator = caching(8, 2, a=[1, 2])
    allocator.reserve("a", 2)
    allocator.evict("a", 1)

    allocator.commit("a", [3, 4])

    assert allocator.pool.published.tolist()[:2] == [True, False]


def test_an_evicted_block_is_published_again_in_its_next_life():
    allocator = caching(2, 2, a=[1, 2, 3, 4])
    allocator.evict("a", 0)
    allocator.release("a")

    allocator.admit("b", [1, 2, 3, 4])

    assert allocator.pool.published.tolist() == [True, True]
    assert allocator.pool.barred == set()


def test_evicting_a_shared_block_forgets_it_for_all_and_keeps_its_twin():
    allocator = caching(8, 2, a=[1, 2], b=[1, 2])
    allocator.fork("a", "c")

    allocator.evict("c", 0)

    assert allocator.admit("d", [1, 2, 3]).hit == 2
    assert allocator.table("d").tolist()[0] == 1
    assert_is_whole(allocator)


def test_evict_changes_no_place_in_the_order_of_reuse():
    allocator = caching(8, 1, a=[1], b=[2], c=[3])
    allocator.release_batch(["a", "b"])
    before = order_of_reuse(allocator)

    allocator.evict("c", 0)

    assert order_of_reuse(allocator) == before


@pytest.mark.parametrize("first", [-1, 0.5, "0", None])
def test_a_position_that_is_no_whole_number_changes_nothing(first):
    allocator = caching(8, 2, a=[1, 2])
    before = state(allocator)

    with pytest.raises(ValueError, match="the first position to evict is"):
        allocator.evict("a", first)

    assert state(allocator) == before


# New weights


def test_nothing_written_before_new_weights_is_hit():
    allocator = caching(8, 2, a=[1, 2, 3, 4], b=[5, 6])
    allocator.release("b")

    allocator.change_weights()

    assert (allocator.index._blocks, allocator.index._keys) == ({}, {})
    assert not allocator.pool.published.any()
    assert allocator.admit("c", [1, 2, 3]).hit == 0
    assert allocator.admit("d", [5, 6, 7]).hit == 0
    assert_is_whole(allocator)


def test_idle_blocks_become_free_the_youngest_first():
    allocator = caching(5, 1, a=[1], b=[2], c=[3])
    allocator.release("b")
    allocator.release("a")

    allocator.change_weights()

    assert order_of_reuse(allocator) == [0, 1, 3, 4]


def test_requests_begun_before_never_publish_again_and_forks_of_them_neither():
    allocator = caching(16, 2, a=[1, 2, 3])
    allocator.change_weights()
    allocator.fork("a", "b")

    allocator.append("a", [4, 5, 6])
    allocator.append_batch(["b"], [7])
    allocator.begin_step("s", ["a", "b"], [8, 8])
    allocator.end_step("s")

    assert not allocator.pool.published.any()
    allocator.release_batch(["a", "b"])
    assert allocator.statistics().idle == 0


def test_requests_begun_after_share_their_blocks_again():
    allocator = caching(16, 2, a=[1, 2, 3, 4])
    allocator.change_weights()
    allocator.admit("b", [1, 2, 3, 4, 5])

    assert allocator.admit("c", [1, 2, 3, 4, 5]).hit == 4


def test_new_weights_wait_for_every_lookup():
    allocator = caching(8, 2, a=[1, 2])
    allocator.look_up("b", [9])
    before = state(allocator)

    with pytest.raises(BadCall, match="lookup outstanding: 'b'"):
        allocator.change_weights()

    assert state(allocator) == before
    allocator.cancel("b")
    allocator.change_weights()


def test_new_weights_without_a_prefix_cache_change_no_block():
    allocator = PagedAllocator(8, 2)
    allocator.admit("a", [1, 2, 3])
    before = state(allocator)

    allocator.change_weights()

    assert state(allocator) | {"epoch": 0} == before
