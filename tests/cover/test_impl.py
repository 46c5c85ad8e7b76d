"""The optimized allocator by itself: its promised order of reuse, its batches, its refusals."""

import contextlib
import random
import re

import numpy as np
import pytest
from impl_states import allocator_with, assert_is_whole, ids, numbers, state

from kvoracle.impl import BadCall, OutOfBlocks, PagedAllocator
from kvoracle.impl.pool import BlockPool
from kvoracle.impl.tables import BlockTables


def pool_of(blocks):
    """A pool of which nothing is published, so that there is nothing to forget."""
    return BlockPool(blocks, lambda forgotten: pytest.fail(f"{forgotten} were not published"))


# The pool


def test_blocks_are_taken_from_the_first_up_in_the_order_of_taking():
    pool = pool_of(6)

    assert pool.take(2).tolist() == [0, 1]
    assert pool.take(3).tolist() == [2, 3, 4]
    assert pool.num_free == 1


def test_blocks_given_back_are_reused_last_in_first_out():
    pool = pool_of(4)
    pool.take(4)
    pool.drop_owner(ids(2))
    pool.drop_owner(ids(0))
    pool.drop_owner(ids(3))

    assert pool.take(3).tolist() == [3, 0, 2]


def test_of_a_batch_given_back_the_last_is_reused_first():
    pool = pool_of(5)
    pool.take(4)
    pool.drop_owner(ids(1, 3, 0))

    assert pool.take(4).tolist() == [0, 3, 1, 4]


def test_taking_none_is_nothing():
    pool = pool_of(1)

    assert pool.take(0).tolist() == []
    assert pool.take(0).dtype == np.int32
    assert pool.num_free == 1


def test_taking_more_than_there_are_takes_none():
    pool = pool_of(3)
    pool.take(1)

    with pytest.raises(OutOfBlocks, match="3 blocks needed, 2 free") as caught:
        pool.take(3)

    assert (caught.value.need, caught.value.free) == (3, 2)
    assert pool.num_free == 2
    assert pool.owners.tolist() == [1, 0, 0]
    assert pool.take(2).tolist() == [1, 2]


def test_a_block_is_given_back_when_its_last_holder_goes_whichever_that_is():
    pool = pool_of(1)
    block = pool.take(1)
    pool.add_owner(block)
    pool.add_pin(block)

    pool.drop_owner(block)
    pool.drop_owner(block)
    assert pool.num_free == 0

    pool.drop_pin(block)
    assert pool.num_free == 1


def test_repeated_blocks_drop_one_owner_each_and_come_back_once():
    pool = pool_of(3)
    blocks = pool.take(3)
    pool.add_owner(blocks[:2])

    pool.drop_owners(ids(0, 1, 0, 2))

    assert pool.owners.tolist() == [0, 1, 0]
    assert pool.num_free == 2
    assert pool.take(2).tolist() == [2, 0]


def test_one_block_without_an_array_is_taken_and_given_back_as_with_one():
    scalar, array = pool_of(5), pool_of(5)
    for pool in (scalar, array):
        pool.take(2)

    assert scalar.take_one() == array.take(1).tolist()[0] == 2
    for block in (0, 2):
        scalar.drop_owner_of(block)
        array.drop_owner(ids(block, block)[:1])

    for pool in (scalar, array):
        assert pool.takeable().tolist() == [2, 0, 3, 4]
        assert pool.generations.tolist() == [1, 1, 1, 0, 0]
        assert pool.owners.tolist() == [0, 1, 0, 0, 0]


@pytest.mark.parametrize("hold", ["add_pin", "hold", "add_owner"])
def test_one_block_that_something_holds_is_not_given_back(hold):
    pool = pool_of(2)
    getattr(pool, hold)(pool.take(1))

    pool.drop_owner_of(0)

    assert pool.takeable().tolist() == [1]


def test_one_block_is_idle_when_it_is_published_and_is_taken_last():
    forgotten = []
    pool = BlockPool(2, lambda blocks: forgotten.extend(blocks.tolist()))
    assert pool.take_one() == 0
    pool.publish(0)
    pool.drop_owner_of(0)

    assert (pool.take_one(), forgotten) == (1, [])
    assert (pool.take_one(), forgotten) == (0, [0])
    assert (pool.evictions, pool.published.tolist()) == (1, [False, False])
    with pytest.raises(OutOfBlocks, match="1 blocks needed, 0 free"):
        pool.take_one()


def test_hits_and_fresh_blocks_are_taken_in_one_call_or_not_at_all():
    pool = BlockPool(4, lambda _: None)
    for block in pool.take(2).tolist():
        pool.publish(block)
        pool.drop_owner_of(block)

    for count, spare in ((4, 0), (3, 1), (0, 4)):
        with pytest.raises(OutOfBlocks, match=f"{count + spare} blocks needed, 3 free"):
            pool.use_and_take(ids(1), count, spare)
        assert (pool.num_free, pool.owners.tolist()) == (4, [0, 0, 0, 0])

    assert pool.use_and_take(ids(1), 2, 1).tolist() == [1, 2, 3]
    assert pool.takeable().tolist() == [0]


@pytest.mark.parametrize("seed", range(20))
def test_repeated_ids_count_at_their_last_mention(seed):
    draw = random.Random(seed)
    blocks = [draw.randrange(6) for _ in range(draw.randint(0, 12))]

    mentions = pool_of(6).last_mentions(ids(*blocks)).tolist()

    expected = [b for place, b in enumerate(blocks) if b not in blocks[place + 1 :]]
    assert mentions == expected


def test_a_block_is_exclusive_with_one_owner_and_no_pin():
    pool = pool_of(4)
    pool.take(3)
    pool.add_owner(ids(1))
    pool.add_pin(ids(2))

    assert [pool.is_exclusive(block) for block in range(4)] == [True, False, False, False]
    assert pool.are_exclusive(ids(0, 1, 2, 0, 3)).tolist() == [True, False, False, True, False]


# The order of reuse, as the document of the house promises it


def test_the_tail_of_a_freed_request_is_reused_before_its_head():
    allocator = allocator_with(8, 2, a=6)
    assert allocator.table("a").tolist() == [0, 1, 2]
    allocator.release("a")
    allocator.create("b")

    allocator.append("b", numbers(8))

    assert allocator.table("b").tolist() == [2, 1, 0, 3]


def test_the_request_that_was_freed_last_is_reused_first():
    allocator = allocator_with(8, 2, a=4, b=4)
    allocator.release("b")
    allocator.release("a")
    allocator.create("c")

    allocator.append("c", numbers(8))

    assert allocator.table("c").tolist() == [1, 0, 3, 2]


@pytest.mark.parametrize("together", [False, True])
def test_a_batch_release_gives_back_as_one_release_after_the_other(together):
    allocator = allocator_with(8, 2, a=4, b=4, c=2)
    if together:
        allocator.release_batch(["c", "a", "b"])
    else:
        for request in ("c", "a", "b"):
            allocator.release(request)
    allocator.create("d")

    allocator.append("d", numbers(10))

    assert allocator.table("d").tolist() == [3, 2, 1, 0, 4]


def test_blocks_that_a_transfer_held_are_reused_tail_first_too():
    allocator = allocator_with(4, 1, a=3)
    allocator.pin("a", "t")
    allocator.release("a")
    allocator.unpin("t")
    allocator.create("b")

    allocator.append("b", numbers(3))

    assert allocator.table("b").tolist() == [2, 1, 0]


# Requests


def test_append_gives_the_slots_of_the_new_tokens():
    allocator = allocator_with(8, 2, a=0)

    assert allocator.append("a", numbers(3)).slots.tolist() == [0, 1, 2]
    assert allocator.append("a", numbers(2)).slots.tolist() == [3, 4]
    assert allocator.append("a", numbers(1)).slots.dtype == np.int64


@pytest.mark.parametrize("block_size", [1, 2, 3, 4])
@pytest.mark.parametrize("length", range(1, 10))
def test_the_table_is_as_long_as_the_tokens_need_around_every_block_edge(block_size, length):
    at_once = allocator_with(9, block_size, a=length)
    one_by_one = allocator_with(9, block_size, a=0)
    for _ in range(length):
        one_by_one.append("a", numbers(1))

    assert len(at_once.table("a")) == -(-length // block_size)
    assert state(at_once) == state(one_by_one)
    assert_is_whole(at_once)


def test_append_to_a_shared_tail_orders_its_copy_and_writes_there():
    allocator = allocator_with(4, 4, a=2)
    allocator.fork("a", "b")

    growth = allocator.append("b", numbers(3))

    assert growth.copies == [(0, 1)]
    assert growth.slots.tolist() == [6, 7, 8]
    assert allocator.table("a").tolist() == [0]
    assert allocator.table("b").tolist() == [1, 2]
    assert_is_whole(allocator)


def test_append_to_a_pinned_tail_of_its_only_owner_orders_its_copy():
    allocator = allocator_with(4, 4, a=2)
    allocator.pin("a", "t")

    growth = allocator.append("a", numbers(1))

    assert growth.copies == [(0, 1)]
    assert growth.slots.tolist() == [6]
    assert allocator.pool.owners.tolist() == [0, 1, 0, 0]
    assert allocator.pool.pins.tolist() == [1, 0, 0, 0]
    assert_is_whole(allocator)


def test_append_to_a_shared_full_tail_orders_no_copy():
    allocator = allocator_with(4, 2, a=2)
    allocator.fork("a", "b")

    assert allocator.append("b", numbers(1)).copies == []
    assert_is_whole(allocator)


def test_what_table_returns_is_a_copy():
    allocator = allocator_with(4, 2, a=4)

    allocator.table("a")[:] = 3

    assert allocator.table("a").tolist() == [0, 1]


def test_what_pin_returns_is_not_what_the_allocator_keeps():
    allocator = allocator_with(4, 2, a=4)

    allocator.pin("a", "t")[:] = 3
    allocator.unpin("t")

    assert allocator.pool.pins.tolist() == [0, 0, 0, 0]


def test_one_of_two_transfers_that_ends_leaves_the_other():
    allocator = allocator_with(2, 2, a=1)
    allocator.pin("a", "t")
    allocator.pin("a", "u")
    allocator.release("a")

    allocator.unpin("u")
    assert allocator.num_free == 1
    assert_is_whole(allocator)

    allocator.unpin("t")
    assert allocator.num_free == 2
    assert_is_whole(allocator)


# Growth of the tables


def test_tables_grow_beyond_their_first_rows_and_keep_what_they_hold():
    allocator = PagedAllocator(64, 2)
    for index in range(40):
        allocator.create(f"r{index}")
        allocator.append(f"r{index}", numbers(1))

    assert [allocator.table(f"r{index}").tolist() for index in range(40)] == [
        [i] for i in range(40)
    ]
    assert_is_whole(allocator)
    allocator.release_batch([f"r{index}" for index in range(40)])
    assert allocator.num_free == 64
    assert_is_whole(allocator)


def test_tables_grow_beyond_their_first_width_and_keep_what_they_hold():
    allocator = allocator_with(64, 1, a=3, b=50, c=2)

    assert allocator.table("a").tolist() == [0, 1, 2]
    assert allocator.table("b").tolist() == list(range(3, 53))
    assert allocator.table("c").tolist() == [53, 54]
    assert_is_whole(allocator)


def test_a_fork_that_opens_the_ninth_row_has_the_table_of_its_parent():
    allocator = allocator_with(64, 1, a=20)
    for index in range(7):
        allocator.create(f"r{index}")

    allocator.fork("a", "b")

    assert allocator.table("b").tolist() == allocator.table("a").tolist() == list(range(20))
    assert_is_whole(allocator)


def test_one_token_at_a_time_grows_beyond_the_first_width():
    alone, in_batches = allocator_with(64, 1, a=0), allocator_with(64, 1, a=0)

    for _ in range(40):
        alone.append("a", numbers(1))
        in_batches.append_batch(["a"], [0])

    assert state(alone) == state(in_batches)
    assert alone.table("a").tolist() == list(range(40))


def test_rows_are_used_again_empty():
    tables = BlockTables(2)
    first = tables.open_row()
    tables.lengths[first] = 5
    tables.close_row(first)

    again = tables.open_row()

    assert again == first
    assert tables.table(again).tolist() == []
    assert len({again, *(tables.open_row() for _ in range(30))}) == 31


def test_every_row_is_used_before_there_are_more():
    tables = BlockTables(2)

    assert sorted(tables.open_row() for _ in range(16)) == list(range(16))
    assert len(tables.ids) == len(tables.lengths) == 16


def test_a_table_that_fits_leaves_the_width_and_one_that_does_not_doubles_it():
    tables = BlockTables(2)
    row = tables.open_row()

    tables.extend(row, numbers(8))
    assert tables.ids.shape == (8, 8)

    tables.extend(row, ids(8))
    assert tables.ids.shape == (8, 16)
    assert tables.table(row).tolist() == list(range(9))


# Batches


def random_state(seed, blocks=24):
    """Two equal allocators in a random state of requests, forks and pins; half of them cache."""
    draw = random.Random(seed)
    block_size = draw.randint(1, 4)
    caching = seed % 2 == 1
    pair = tuple(PagedAllocator(blocks, block_size, prefix_cache=caching) for _ in range(2))
    for step in range(draw.randint(1, 12)):
        live = sorted(pair[0].requests.by_name)
        if live and draw.random() < 0.4:
            calls = [("fork", draw.choice(live), f"r{step}")]
        else:
            calls = [("create", f"r{step}"), ("append", f"r{step}", numbers(draw.randint(1, 6)))]
        if live and draw.random() < 0.3:
            calls.append(("pin", draw.choice(live), f"t{step}"))
        if live and draw.random() < 0.2:
            calls.append(("release", draw.choice(live)))
        for verb, *arguments in calls:
            for allocator in pair:
                with contextlib.suppress(OutOfBlocks, BadCall):
                    getattr(allocator, verb)(*arguments)
    return draw, *pair


@pytest.mark.parametrize("seed", range(150))
def test_a_batch_append_is_the_same_as_one_append_after_the_other(seed):
    draw, batch, single = random_state(seed, blocks=6 + seed % 20)
    assert state(batch) == state(single)

    for _ in range(6):
        requests = sorted(batch.requests.by_name)
        draw.shuffle(requests)
        requests = requests[: draw.randint(1, max(len(requests), 1))]
        if not requests:
            return
        tokens = [draw.randint(0, 2) for _ in requests]
        growth = batch.append_batch(requests, tokens)
        slots, copies = [], []
        for request, token in zip(requests, tokens, strict=True):
            try:
                one = single.append(request, [token])
            except OutOfBlocks:
                slots.append(-1)
            else:
                slots.append(int(one.slots[0]))
                copies += one.copies

        assert growth.slots.tolist() == slots
        assert growth.copies == copies
        assert state(batch) == state(single)
        assert_is_whole(batch)


@pytest.mark.parametrize("seed", range(50))
def test_a_batch_release_is_the_same_as_one_release_after_the_other_but_for_the_order_of_reuse(
    seed,
):
    draw, batch, single = random_state(seed)
    requests = sorted(batch.requests.by_name)
    draw.shuffle(requests)

    if requests:
        batch.release_batch(requests)
    for request in requests:
        single.release(request)

    together, apart = state(batch), state(single)
    for now in (together, apart):
        now["free"].sort()
        now["idle"].sort()
    assert together == apart
    assert_is_whole(batch)


def test_both_ways_of_a_batch_append_were_compared():
    ways = set()
    for seed in range(150):
        _, batch, _ = random_state(seed, blocks=6 + seed % 20)
        if batch.requests.by_name:
            rows = batch.rows(sorted(batch.requests.by_name))
            ways.add(batch.growing._any_tail_is_copied(rows, batch.tables.lengths[rows]))

    assert ways == {True, False}


def test_refused_entries_of_a_batch_are_minus_one_and_the_others_grow():
    allocator = allocator_with(4, 2, a=2, b=1, c=2, d=2)

    growth = allocator.append_batch(["a", "b", "c", "d"], numbers(4))

    assert growth.slots.tolist() == [-1, 3, -1, -1]
    assert growth.slots.dtype == np.int64
    assert [len(allocator.table(request)) for request in "abcd"] == [1, 1, 1, 1]
    assert_is_whole(allocator)


def test_the_first_of_a_batch_get_the_blocks_that_there_are():
    allocator = allocator_with(5, 1, a=1, b=1, c=1)

    assert allocator.append_batch(["c", "a", "b"], numbers(3)).slots.tolist() == [3, 4, -1]
    assert_is_whole(allocator)


def test_refused_entries_of_a_batch_with_copies_are_minus_one():
    allocator = allocator_with(2, 4, a=1)
    allocator.fork("a", "b")
    allocator.fork("a", "c")

    growth = allocator.append_batch(["b", "a", "c"], numbers(3))

    assert growth.slots.tolist() == [5, -1, -1]
    assert growth.copies == [(0, 1)]
    assert_is_whole(allocator)


def test_a_request_and_its_fork_in_one_batch_copy_once():
    allocator = allocator_with(4, 4, a=1)
    allocator.fork("a", "b")

    growth = allocator.append_batch(["a", "b"], numbers(2))

    assert growth.copies == [(0, 1)]
    assert growth.slots.tolist() == [5, 1]


def test_a_batch_release_of_requests_that_share_blocks_frees_each_once():
    allocator = allocator_with(8, 2, a=5)
    allocator.fork("a", "b")
    allocator.fork("b", "c")
    allocator.append("c", numbers(1))

    allocator.release_batch(["b", "a"])
    assert allocator.num_free == 5
    allocator.release_batch(["c"])
    assert allocator.num_free == 8
    assert_is_whole(allocator)


# Refusals


@pytest.mark.parametrize(
    ("call", "reason", "name"),
    [
        (lambda it: it.create("a"), "duplicate request", "a"),
        (lambda it: it.create("empty"), "duplicate request", "empty"),
        (lambda it: it.append("ghost", [1]), "unknown request", "ghost"),
        (lambda it: it.append("released", [1]), "unknown request", "released"),
        (lambda it: it.append("a", []), "no tokens", "a"),
        (lambda it: it.append("a", numbers(0)), "no tokens", "a"),
        (lambda it: it.admit("a", [1]), "duplicate request", "a"),
        (lambda it: it.admit("a", []), "duplicate request", "a"),
        (lambda it: it.admit("new", []), "no tokens", "new"),
        (lambda it: it.admit("new", numbers(0)), "no tokens", "new"),
        (lambda it: it.reset_prefix_cache(), "blocks in use", "reset"),
        (lambda it: it.append_batch([], []), "no requests", ""),
        (lambda it: it.append_batch(["a", "ghost"], [1, 2]), "unknown request", "ghost"),
        (lambda it: it.append_batch(["a", "b", "a"], [1, 2, 3]), "repeated request", "a, b, a"),
        (lambda it: it.append_batch(["a", "b"], [1]), "one token for each request", "a, b"),
        (lambda it: it.append_batch(["a", "b"], [1, 2, 3]), "one token for each request", "a, b"),
        (lambda it: it.append_batch(["a"], []), "one token for each request", "a"),
        (lambda it: it.fork("ghost", "c"), "unknown request", "ghost"),
        (lambda it: it.fork("a", "b"), "duplicate request", "b"),
        (lambda it: it.fork("a", "a"), "duplicate request", "a"),
        (lambda it: it.pin("ghost", "u"), "unknown request", "ghost"),
        (lambda it: it.pin("a", "t"), "duplicate transfer", "t"),
        (lambda it: it.pin("empty", "u"), "nothing to pin", "empty"),
        (lambda it: it.unpin("ghost"), "unknown transfer", "ghost"),
        (lambda it: it.unpin("completed"), "unknown transfer", "completed"),
        (lambda it: it.release("ghost"), "unknown request", "ghost"),
        (lambda it: it.release("released"), "unknown request", "released"),
        (lambda it: it.release_batch([]), "no requests", ""),
        (lambda it: it.release_batch(["a", "ghost"]), "unknown request", "ghost"),
        (lambda it: it.release_batch(["b", "b"]), "repeated request", "b, b"),
        (lambda it: it.table("ghost"), "unknown request", "ghost"),
    ],
)
def test_a_bad_call_says_why_and_changes_nothing(call, reason, name):
    allocator = allocator_with(8, 2, a=3, empty=0, released=2)
    allocator.fork("a", "b")
    allocator.pin("a", "t")
    allocator.pin("a", "completed")
    allocator.unpin("completed")
    allocator.release("released")
    before = state(allocator)

    with pytest.raises(BadCall) as caught:
        call(allocator)

    assert caught.value.reason == reason
    assert str(caught.value) == f"{reason}: {name!r}"
    assert state(allocator) == before
    assert_is_whole(allocator)


WRITES = {
    "append": lambda it, tokens: it.append("a", tokens),
    "append_batch": lambda it, tokens: it.append_batch(["a", "b", "c"], tokens),
    "admit": lambda it, tokens: it.admit("new", tokens),
}
NOT_A_ROW = "tokens are one row of whole numbers, not "


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        ([1.0, 2.0, 3.0], NOT_A_ROW + "float64 (3,)"),
        ([1, 2.5, 3], NOT_A_ROW + "float64 (3,)"),
        (np.array([1, np.nan, 3], np.float32), NOT_A_ROW + "float32 (3,)"),
        ([True, False, True], NOT_A_ROW + "bool (3,)"),
        (["1", "2", "3"], NOT_A_ROW + "<U1 (3,)"),
        ([1, None, 3], NOT_A_ROW + "object (3,)"),
        ([1, 2**64, 3], NOT_A_ROW + "object (3,)"),
        ([[1, 2, 3]], NOT_A_ROW + "int64 (1, 3)"),
        ([[1], [2], [3]], NOT_A_ROW + "int64 (3, 1)"),
        (np.zeros((3, 0), int), NOT_A_ROW + "int64 (3, 0)"),
        (7, NOT_A_ROW + "int64 ()"),
        (np.array([1, 2**63, 3], np.uint64), "a token id does not fit into int64"),
        (np.array([2**64 - 1] * 3, np.uint64), "a token id does not fit into int64"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("prefix_cache", [False, True])
def test_tokens_that_are_not_one_row_of_whole_numbers_change_nothing(
    write, tokens, said, prefix_cache
):
    allocator = PagedAllocator(8, 2, prefix_cache=prefix_cache)
    for request in "abc":
        allocator.admit(request, [5])
    before = state(allocator)

    with pytest.raises(ValueError, match=f"^{re.escape(said)}$") as caught:
        write(allocator, tokens)

    assert caught.type is ValueError
    assert state(allocator) == before
    assert_is_whole(allocator)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64])
def test_whole_numbers_of_any_width_are_the_same_tokens(write, dtype):
    wide, narrow = (PagedAllocator(8, 2, prefix_cache=True) for _ in range(2))
    for allocator, tokens in ((wide, [1, 2, 127]), (narrow, np.array([1, 2, 127], dtype))):
        for request in "abc":
            allocator.admit(request, [5])
        write(allocator, tokens)

    assert state(narrow) == state(wide)
    assert_is_whole(narrow)


def test_the_largest_token_id_fits_whichever_its_type():
    allocator = PagedAllocator(4, 1, prefix_cache=True)
    allocator.admit("a", np.array([2**63 - 1], np.uint64))

    assert allocator.admit("b", [2**63 - 1, 0]).hit == 1


@pytest.mark.parametrize("count", [3, 4, 100, 10**6])
def test_an_append_that_finds_too_few_blocks_changes_nothing(count):
    allocator = allocator_with(3, 2, a=3)
    before = state(allocator)
    width = allocator.tables.ids.shape
    if count == 3:
        allocator.append("a", numbers(3))
        return

    with pytest.raises(OutOfBlocks):
        allocator.append("a", numbers(count))

    assert state(allocator) == before
    assert allocator.tables.ids.shape == width


@pytest.mark.parametrize("hold", ["fork", "pin"])
def test_an_append_that_finds_no_block_for_its_copy_changes_nothing(hold):
    allocator = allocator_with(1, 4, a=1)
    getattr(allocator, hold)("a", "x")
    before = state(allocator)

    with pytest.raises(OutOfBlocks, match="1 blocks needed, 0 free"):
        allocator.append("a", numbers(1))

    assert state(allocator) == before


def test_out_of_blocks_is_a_memory_error_and_a_bad_call_a_value_error():
    assert issubclass(OutOfBlocks, MemoryError)
    assert issubclass(BadCall, ValueError)


@pytest.mark.parametrize(("blocks", "block_size"), [(0, 1), (1, 0), (-1, 4), (4, -1)])
def test_a_pool_without_blocks_or_slots_is_refused(blocks, block_size):
    with pytest.raises(ValueError, match="blocks and block_size must be at least 1"):
        PagedAllocator(blocks, block_size)
