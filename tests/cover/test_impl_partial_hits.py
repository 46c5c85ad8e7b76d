"""Partial hits: a unit of matching that is smaller than a block, and the copy that a hit begins on."""

import random

import pytest
from impl_states import assert_is_whole, entries, numbers, of_request, order_of_reuse, state

from kvoracle.impl import BadCall, OutOfBlocks, PagedAllocator


def matching(blocks, size, unit, **prompts):
    """An allocator that matches prompts in units, and each prompt written by create and append."""
    it = PagedAllocator(blocks, size, prefix_cache=True, match_unit=unit)
    for request, prompt in prompts.items():
        it.create(request)
        it.append(request, prompt)
    return it


def keys_of(it, request):
    """How many keys each block of a request has."""
    known = entries(it.index)
    return [len(known.get(block, ())) for block in it.table(request).tolist()]


# What is hit


def test_a_request_that_hits_a_part_of_a_block_begins_on_a_copy_of_it():
    it = matching(8, 4, 2, a=[1, 2, 3, 4, 5, 6, 7])

    growth = it.admit("b", [1, 2, 3, 4, 5, 6, 9, 9, 9])

    assert (growth.hit, growth.copies) == (6, [(1, 2)])
    assert growth.slots.tolist() == [10, 11, 12]
    assert it.table("b").tolist() == [0, 2, 3]
    assert it.pool.owners.tolist() == [2, 1, 1, 1, 0, 0, 0, 0]
    assert of_request(it, "b")["written"] == [1, 2, 3, 4, 5, 6, 9, 9, 9]
    assert_is_whole(it)


@pytest.mark.parametrize("in_use", [False, True])
@pytest.mark.parametrize("unit", [1, 2, 3, 6])
@pytest.mark.parametrize("length", range(1, 20))
def test_a_hit_is_the_longest_multiple_of_the_unit_before_the_last_token(length, unit, in_use):
    it = matching(16, 6, unit, a=numbers(16))
    if not in_use:
        it.release("a")

    growth = it.admit("b", numbers(length))

    assert growth.hit == min(length - 1, 16) // unit * unit
    assert [source for source, _ in growth.copies] == [growth.hit // 6][: growth.hit % 6]
    assert_is_whole(it)


def test_a_part_is_only_hit_behind_the_whole_blocks_before_it():
    it = matching(8, 2, 1, a=[1, 2, 3])

    assert it.admit("b", [3, 9]).hit == 0
    assert it.admit("c", [9, 9, 3, 9]).hit == 0


def test_extra_keys_keep_parts_apart():
    it = matching(8, 4, 1)
    it.admit("a", [1, 2, 3], {"salt": "x"})

    assert it.admit("b", [1, 2, 3]).hit == 0
    assert it.admit("c", [1, 2, 3], {"salt": "x"}).hit == 2


def test_the_tokens_of_a_part_are_counted_as_hit():
    it = matching(8, 4, 2, a=[1, 2, 3, 4, 5, 6])
    it.admit("b", [1, 2, 3, 4, 5, 6, 7])

    assert (it.statistics().queried_tokens, it.statistics().hit_tokens) == (7, 6)


def test_a_lookup_holds_whole_blocks_only():
    it = matching(8, 2, 1, a=[1, 2, 3])

    assert it.look_up("b", [1, 2, 3, 4]) == 2

    growth = it.use("b")
    assert (growth.hit, growth.copies) == (2, [])
    assert_is_whole(it)


def test_a_resumed_request_begins_on_a_copy_of_its_own_tail():
    it = matching(8, 4, 1, a=[1, 2, 3])
    it.preempt("a")

    growth = it.resume("a")

    assert (growth.hit, growth.copies) == (2, [(0, 1)])
    assert of_request(it, "a")["written"] == [1, 2, 3]
    assert_is_whole(it)


# Room


@pytest.mark.parametrize("in_use", [False, True])
@pytest.mark.parametrize(("length", "fits"), [(4, True), (8, True), (9, False)])
def test_the_source_is_no_room_for_the_copy(length, fits, in_use):
    """Three blocks, two of them free beside the source."""
    it = matching(3, 4, 1, a=[0, 1])
    if not in_use:
        it.release("a")
    before = state(it)

    if fits:
        assert it.admit("b", numbers(length)).copies == [(0, 1)]
    else:
        with pytest.raises(OutOfBlocks, match="3 blocks needed, 2 free"):
            it.admit("b", numbers(length))
        assert state(it) == before
    assert_is_whole(it)


def test_an_idle_source_becomes_the_youngest_idle_block():
    it = matching(4, 2, 1, a=[1], b=[5], c=[7])
    for request in "abc":
        it.release(request)
    assert order_of_reuse(it) == [3, 0, 1, 2]

    it.admit("d", [1, 9])

    assert order_of_reuse(it) == [1, 2, 0]


def test_a_source_in_use_is_not_given_back():
    it = matching(4, 2, 1, a=[1], b=[5])
    it.release("b")

    it.admit("c", [1, 9])

    assert order_of_reuse(it) == [3, 1]


@pytest.mark.parametrize("idle", ["a", "b"])
@pytest.mark.parametrize("tokens", [[1, 2], [1, 2, 3, 4]], ids=["part", "whole"])
def test_of_equal_blocks_one_in_use_is_hit_since_an_idle_one_is_room(tokens, idle):
    it = matching(3, 4, 1, a=tokens, b=tokens)
    it.release(idle)

    growth = it.admit("c", [*tokens, *[9] * (12 - len(tokens))][: 8 + 4 * (len(tokens) == 4)])

    assert growth.hit == len(tokens)
    assert_is_whole(it)


def test_a_partial_block_that_is_taken_loses_all_its_entries_and_is_one_eviction():
    it = matching(1, 4, 1, a=[1, 2, 3])
    it.release("a")

    it.admit("b", [7])

    assert it.statistics().evictions == 1
    assert keys_of(it, "b") == [1]
    assert len(it.index._blocks) == 1


# What is published, and when


@pytest.mark.parametrize("face", ["append", "append_batch", "grow", "step", "commit"])
def test_a_block_that_grows_is_known_by_its_longer_prefixes_too(face):
    it, seen = matching(8, 4, 2, a=[0]), []
    for token in range(1, 9):
        write(it, face, "a", token)
        seen.append(keys_of(it, "a"))

    assert seen == [[1], [1], [2], [2, 0], [2, 1], [2, 1], [2, 2], [2, 2, 0]]
    assert it.admit("b", numbers(9)).hit == 8
    assert_is_whole(it)


def write(it, face, request, token):
    """One more token, by one of the ways to write it."""
    if face == "append":
        it.append(request, [token])
    elif face == "append_batch":
        it.append_batch([request], [token])
    elif face == "grow":
        it.grow(it.rows([request]), numbers(1) + 1, [token])
    elif face == "step":
        it.begin_step("s", [request], [token])
        it.end_step("s")
    else:
        it.reserve(request, 1)
        it.commit(request, [token])


@pytest.mark.parametrize("face", ["append", "append_batch", "grow", "step", "commit"])
def test_a_copied_tail_is_published_at_the_next_write_whatever_that_fills(face):
    it = matching(8, 4, 2, a=[1, 2])
    it.fork("a", "b")

    write(it, face, "b", 7)

    assert it.table("b").tolist() == [1]
    assert keys_of(it, "b") == [1]
    it.release("a")
    it.evict("b", 0)
    assert keys_of(it, "b") == [0]
    assert_is_whole(it)


def test_a_copied_tail_is_not_published_before_it_is_written():
    it = matching(8, 4, 2, a=[1, 2])
    it.fork("a", "b")
    it.reserve("b", 1)
    it.fork("a", "c")
    it.begin_step("s", ["c"], [3])
    assert [keys_of(it, request) for request in "bc"] == [[0], [0]]

    it.fail_step("s")
    it.trim("b")
    assert [keys_of(it, request) for request in "bc"] == [[0], [0]]

    it.fork("b", "d")
    it.append("d", [5])
    assert [keys_of(it, request) for request in "bd"] == [[0], [1]]
    it.append("b", [5])
    assert keys_of(it, "b") == [1]
    assert_is_whole(it)


def test_what_was_evicted_is_not_published_again_but_its_copy_is():
    it = matching(8, 4, 1, a=[1, 2])
    it.evict("a", 0)
    it.fork("a", "b")
    it.append("b", [3])
    it.append("a", [3])

    assert (keys_of(it, "a"), keys_of(it, "b")) == ([0], [3])


def test_no_part_of_other_weights_is_hit_or_published():
    it = matching(8, 4, 1, a=[1, 2])
    it.fork("a", "b")

    it.change_weights()
    for request in "ab":
        it.append(request, [3])

    assert it.index._blocks == it.index._earlier == {}
    assert it.admit("c", [1, 2, 3]).hit == 0


def test_a_part_that_a_transfer_begins_on_is_pinned_and_published_when_it_is_written():
    it = matching(8, 4, 2, a=[1, 2])

    growth = it.receive("b", [1, 2, 3, 4, 5], "t", 1)

    assert (growth.hit, growth.copies, growth.slots.tolist()) == (2, [(0, 1)], [6, 7, 8])
    assert it.pool.pins.tolist() == [0, 1, 1] + [0] * 5
    assert keys_of(it, "b") == [0, 0]
    it.acknowledge("t", 0, it.generation_of("t"))
    assert keys_of(it, "b") == [2, 0]
    assert_is_whole(it)


def test_a_part_whose_transfer_was_lost_is_published_at_the_next_write():
    it = matching(8, 4, 2, a=[1, 2])
    it.receive("b", [1, 2, 3, 4, 5], "t", 1, 1)
    it.tick()
    assert keys_of(it, "b") == [0, 0]

    it.append("b", [7])

    assert keys_of(it, "b") == [1, 0]
    assert of_request(it, "b")["written"] == [1, 2, 7]
    assert_is_whole(it)


# The unit


@pytest.mark.parametrize("unit", [-1, 3, 8, 1.5, "2", None])
def test_a_unit_that_does_not_divide_the_block_size_is_refused(unit):
    with pytest.raises(ValueError, match=r"^(a|the) match unit") as raised:
        PagedAllocator(8, 4, match_unit=unit)
    assert not isinstance(raised.value, BadCall)


def test_a_unit_without_a_prefix_cache_matches_nothing():
    it = PagedAllocator(8, 4, match_unit=1)
    it.admit("a", [1, 2, 3])
    it.fork("a", "b")
    it.append("b", [4])

    assert it.admit("c", [1, 2, 3]).hit == 0
    assert it.chains.behind == {}


def is_published_as_promised(it):
    """Whether each block of a request has a key for each unit that it holds."""
    size, unit, known = it.block_size, it.chains.unit, entries(it.index)
    for row in it.requests.by_name.values():
        if it.chains.of_row[row].epoch < it.chains.epoch:
            continue
        length = int(it.tables.lengths[row])
        for place, block in enumerate(it.tables.table(row).tolist()):
            units = min(max(length - place * size, 0), size) // unit
            hidden = block in it.pool.barred or block == it.chains.behind.get(row)
            if len(known.get(block, ())) != (0 if hidden else units):
                return False
    return True


@pytest.mark.parametrize("seed", range(40))
def test_every_block_is_published_as_far_as_it_is_written_whatever_happens(seed):
    draw = random.Random(seed)
    size = draw.choice([2, 4, 6])
    unit = draw.choice([u for u in range(1, size + 1) if size % u == 0])
    it, parts = matching(draw.randint(4, 16), size, unit), 0
    for step in range(250):
        name, live = f"r{step}", [*it.requests.by_name] or ["none"]
        request = draw.choice(live)
        prompt = [int(draw.random() < 0.2) for _ in range(draw.randint(1, 9))]
        verb, *arguments = draw.choice(
            [
                *[("admit", name, prompt)] * 2,
                ("receive", name, prompt, name, 1, draw.randint(0, 2)),
                ("append", request, prompt),
                ("append_batch", live, [1] * len(live)),
                ("reserve", request, draw.randint(1, 5)),
                ("commit", request, prompt[:2]),
                ("trim", request),
                ("fork", request, name),
                ("begin_step", name, live, [0] * len(live)),
                ("end_step", next(iter(it.steps.in_flight), "none")),
                ("fail_step", next(iter(it.steps.in_flight), "none")),
                ("tick",),
                *[("release", request)] * 2,
                ("preempt", request),
                ("resume", draw.choice([*it.requests.preempted] or ["none"])),
                ("evict", request, draw.randint(0, 3)),
            ]
        )
        try:
            growth = getattr(it, verb)(*arguments)
        except (BadCall, OutOfBlocks):
            continue
        parts += getattr(growth, "hit", 0) % size > 0
        assert is_published_as_promised(it)
        assert_is_whole(it)
    assert parts or unit == size
