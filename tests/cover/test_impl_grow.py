"""The whole-batch face: row handles, and growth of all rows in one call."""

import random

import numpy as np
import pytest
from impl_states import allocator_with, assert_is_whole, caching, numbers, state

from kvoracle.impl import BadCall, OutOfBlocks, PagedAllocator


def ones(count):
    return np.ones(count, np.int64)


def random_pair(draw, prefix_cache):
    """Two equal allocators with requests, some of them forked, pinned or with reserved room."""
    blocks, size = draw.randint(6, 30), draw.randint(1, 4)
    pair = [PagedAllocator(blocks, size, prefix_cache=prefix_cache) for _ in range(2)]
    calls = []
    for number in range(draw.randint(1, 6)):
        request = f"r{number}"
        prompt = [draw.randint(0, 1) for _ in range(draw.randint(1, 5))]
        calls.append(("admit", request, prompt))
        extra = draw.choice(["fork", "pin", "reserve", "none", "none"])
        calls += [("fork", request, f"f{number}")] * (extra == "fork")
        calls += [("pin", request, f"t{number}")] * (extra == "pin")
        calls += [("reserve", request, draw.randint(1, 4))] * (extra == "reserve")
    for verb, *arguments in calls:
        try:
            for allocator in pair:
                getattr(allocator, verb)(*arguments)
        except (BadCall, OutOfBlocks):
            continue
    return pair


@pytest.mark.parametrize("most", [1, 5])
@pytest.mark.parametrize("prefix_cache", [False, True])
@pytest.mark.parametrize("seed", range(80))
def test_grow_is_the_same_as_one_append_after_the_other(seed, prefix_cache, most):
    draw = random.Random(seed)
    batch, single = random_pair(draw, prefix_cache)
    for _ in range(5):
        requests = sorted(batch.requests.by_name)
        draw.shuffle(requests)
        requests = requests[: draw.randint(1, max(1, len(requests)))]
        if not requests:
            return
        counts = [draw.randint(1, most) for _ in requests]
        tokens = [draw.randint(0, 1) for _ in range(sum(counts))]
        told = tokens if prefix_cache or draw.random() < 0.5 else None
        taken = batch.pool.generations.copy()

        growth = batch.grow(batch.rows(requests), np.array(counts), told)

        slots, copies, granted = [], [], []
        for request, count in zip(requests, counts, strict=True):
            try:
                one = single.append(request, tokens[len(slots) : len(slots) + count])
            except OutOfBlocks:
                slots += [-1] * count
                granted.append(False)
            else:
                slots += one.slots.tolist()
                copies += one.copies
                granted.append(True)
        assert growth.slots.tolist() == slots
        assert growth.granted.tolist() == granted
        assert growth.copies == copies
        assert state(batch) == state(single)
        assert sorted(growth.fresh.tolist()) == (batch.generations > taken).nonzero()[0].tolist()
        assert_is_whole(batch)


def test_grow_gives_slots_row_after_row_and_the_new_blocks_in_the_order_of_taking():
    allocator = allocator_with(16, 2, a=1, b=2, c=0)

    growth = allocator.grow(allocator.rows(["b", "c", "a"]), np.array([3, 2, 1]))

    assert growth.slots.tolist() == [4, 5, 6, 8, 9, 1]
    assert growth.slots.dtype == np.int64
    assert growth.granted.tolist() == [True, True, True]
    assert growth.fresh.tolist() == [2, 3, 4]
    assert growth.fresh.dtype == np.int32
    assert growth.copies == []


def test_each_row_of_a_batch_is_granted_all_of_its_tokens_or_none():
    allocator = allocator_with(4, 2, a=2, b=2, c=1)

    growth = allocator.grow(allocator.rows(["a", "b", "c"]), np.array([3, 1, 2]))

    assert growth.granted.tolist() == [False, True, False]
    assert growth.slots.tolist() == [-1, -1, -1, 6, -1, -1]
    assert [len(allocator.table(request)) for request in "abc"] == [1, 2, 1]
    assert_is_whole(allocator)


def test_a_row_that_is_refused_leaves_blocks_to_a_later_one_that_needs_fewer():
    allocator = allocator_with(3, 1, a=1, b=1)

    growth = allocator.grow(allocator.rows(["a", "b"]), np.array([2, 1]))

    assert growth.granted.tolist() == [False, True]


def test_handles_stay_valid_while_other_requests_come_and_go():
    allocator = allocator_with(64, 1, a=1, b=1, c=1)
    rows = allocator.rows(["a", "c"])
    allocator.release("b")
    for number in range(30):
        allocator.create(f"r{number}")

    allocator.grow(rows, ones(2))

    assert [len(allocator.table(request)) for request in "ac"] == [2, 2]
    assert rows.tolist() == allocator.rows(["a", "c"]).tolist()


def test_many_rows_grow_beyond_the_first_width():
    allocator = PagedAllocator(400, 1)
    names = [f"r{number}" for number in range(20)]
    for name in names:
        allocator.create(name)
    rows = allocator.rows(names)

    for _ in range(18):
        allocator.grow(rows, ones(20))

    assert [len(allocator.table(name)) for name in names] == [18] * 20
    assert_is_whole(allocator)


@pytest.mark.parametrize("end", ["release", "preempt"])
def test_the_handle_of_a_request_that_has_ended_is_refused(end):
    allocator = allocator_with(8, 2, a=1, b=1)
    rows = allocator.rows(["a", "b"])
    allocator.grow(rows, ones(2))
    getattr(allocator, end)("b")
    before = state(allocator)

    with pytest.raises(BadCall, match="unknown request"):
        allocator.grow(rows, ones(2))

    assert state(allocator) == before


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([], "no requests"),
        ([0, 1, 0], "repeated request"),
        ([0, 2], "unknown request"),
        ([0, -1], "unknown request"),
        ([0, 10**6], "unknown request"),
        ([-8, 0], "unknown request"),
    ],
)
def test_rows_that_are_no_distinct_handles_are_refused_and_change_nothing(rows, reason):
    allocator = allocator_with(8, 2, a=1, b=1)
    assert allocator.rows(["a", "b"]).tolist() == [0, 1]
    allocator.grow(np.array([0, 1]), ones(2))
    before = state(allocator)

    with pytest.raises(BadCall) as caught:
        allocator.grow(np.array(rows, np.intp), ones(len(rows)))

    assert caught.value.reason == reason
    assert state(allocator) == before


@pytest.mark.parametrize("rows", [[0.0, 1.0], [[0, 1]], ["a", "b"], [True, False]], ids=repr)
def test_rows_of_another_kind_are_refused_and_change_nothing(rows):
    allocator = allocator_with(8, 2, a=1, b=1)
    before = state(allocator)

    with pytest.raises(ValueError, match="rows are what `rows` gave"):
        allocator.grow(np.array(rows), ones(2))

    assert state(allocator) == before


def test_rows_that_were_right_are_looked_at_again_when_the_caller_changed_them():
    allocator = allocator_with(8, 2, a=1, b=1)
    rows = allocator.rows(["a", "b"])
    allocator.grow(rows, ones(2))
    rows[1] = rows[0]

    with pytest.raises(BadCall, match="repeated request"):
        allocator.grow(rows, ones(2))


@pytest.mark.parametrize(
    "counts", [[1], [1, 1, 1], [1.0, 1.0], [0.5, 1], [[1, 1]], [True, True], ["1", "1"], [1, 2**31]]
)
def test_counts_that_are_not_one_whole_number_a_row_change_nothing(counts):
    allocator = allocator_with(8, 2, a=1, b=1)
    before = state(allocator)

    with pytest.raises(ValueError, match="count"):
        allocator.grow(allocator.rows(["a", "b"]), np.array(counts))

    assert state(allocator) == before


@pytest.mark.parametrize("count", [0, -1, -(2**62)])
def test_a_count_below_one_is_no_tokens(count):
    allocator = allocator_with(8, 2, a=1, b=1)
    before = state(allocator)

    with pytest.raises(BadCall, match="no tokens"):
        allocator.grow(allocator.rows(["a", "b"]), np.array([1, count]))

    assert state(allocator) == before


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64])
def test_counts_of_any_width_are_the_same(dtype):
    allocator = allocator_with(8, 2, a=1, b=1)

    growth = allocator.grow(allocator.rows(["a", "b"]), np.array([2, 1], dtype))

    assert growth.slots.tolist() == [1, 4, 3]


def test_a_prefix_cache_has_to_be_told_the_tokens():
    allocator = caching(8, 2, a=[1])
    before = state(allocator)

    with pytest.raises(ValueError, match="told the tokens"):
        allocator.grow(allocator.rows(["a"]), ones(1))

    assert state(allocator) == before


@pytest.mark.parametrize("prefix_cache", [False, True])
@pytest.mark.parametrize("tokens", [[], [1], [1, 2, 3, 4]])
@pytest.mark.parametrize("counts", [[1, 1], [1, 2]])
def test_as_many_tokens_are_told_as_the_counts_say(prefix_cache, tokens, counts):
    allocator = PagedAllocator(8, 2, prefix_cache=prefix_cache)
    for request in "ab":
        allocator.admit(request, [5])
    before = state(allocator)

    with pytest.raises(ValueError, match=f"{len(tokens)} tokens were given"):
        allocator.grow(allocator.rows(["a", "b"]), np.array(counts), tokens)

    assert state(allocator) == before


@pytest.mark.parametrize(
    ("busy", "reason"), [("receive", "tokens on their way"), ("begin_step", "step in flight")]
)
def test_a_busy_row_refuses_the_whole_batch(busy, reason):
    allocator = allocator_with(8, 2, a=1, b=1)
    if busy == "receive":
        allocator.receive("c", numbers(3), "t", 1)
    else:
        allocator.fork("a", "c")
        allocator.begin_step("s", ["c"], [1])
    before = state(allocator)

    with pytest.raises(BadCall, match=f"{reason}: 'c'"):
        allocator.grow(allocator.rows(["a", "c", "b"]), ones(3))

    assert state(allocator) == before


def test_a_batch_uses_reserved_room_first():
    allocator = allocator_with(8, 2, a=1, b=2)
    allocator.reserve("a", 4)
    allocator.reserve("b", 1)

    growth = allocator.grow(allocator.rows(["a", "b"]), np.array([3, 3]))

    assert growth.slots.tolist() == [1, 4, 5, 8, 9, 10]
    assert growth.fresh.tolist() == [5]
    assert (allocator.tables.reserved[:2]).tolist() == [1, 0]
    assert_is_whole(allocator)


def test_a_tail_that_is_no_longer_shared_is_written_in_place():
    allocator = allocator_with(8, 4, a=1)
    allocator.fork("a", "b")
    rows = allocator.rows(["a", "b"])

    assert allocator.grow(rows, ones(2)).copies == [(0, 1)]
    growth = allocator.grow(rows, ones(2))

    assert growth.copies == []
    assert growth.slots.tolist() == [6, 2]
    allocator.pin("b", "t")
    assert allocator.grow(rows, ones(2)).copies == [(0, 2)]


@pytest.mark.parametrize("phase", ["all at once", "in turns"])
def test_rows_publish_each_block_when_it_becomes_full(phase):
    prompts = {f"r{i}": [i] * (1 if phase == "all at once" else 1 + i % 4) for i in range(12)}
    batch, single = caching(200, 4, **prompts), caching(200, 4, **prompts)
    rows = batch.rows(list(prompts))
    for step in range(9):
        tokens = np.arange(12) * 100 + step
        tokens[5] = 2**40 if step == 6 else step

        batch.grow(rows, ones(12), tokens)
        for request, token in zip(prompts, tokens.tolist(), strict=True):
            single.append(request, [token])

        assert state(batch) == state(single)
    assert len(batch.index._keys) == sum((len(prompt) + 9) // 4 for prompt in prompts.values())
