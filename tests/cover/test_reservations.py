"""Reservations: room that is allocated before it is written; committed, appended to, or trimmed."""

import pytest
from reference_helpers import (
    assert_drained,
    changes_nothing,
    everything,
    fill,
    hit_depth,
    oracle,
    published,
    rejects,
    state,
    told_pool,
)

from kvoracle.reference import Oracle


def room(kv, request):
    """Pages, tokens written, tokens reserved."""
    return len(kv.tables[request]), kv.length(request), kv.lives[request].reserved


def pages_for(tokens, block_size):
    return -(-tokens // block_size)


# Reserve


@pytest.mark.parametrize("block_size", [1, 2, 3])
@pytest.mark.parametrize("length", range(5))
@pytest.mark.parametrize("count", range(1, 6))
def test_reserved_room_is_there_and_empty_around_every_block_edge(block_size, length, count):
    kv = oracle(10, block_size, a=list(range(length)))

    kv.reserve("a", count)

    assert room(kv, "a") == (pages_for(length + count, block_size), length, count)
    assert kv.read("a") == list(range(length))
    assert len(published(kv)) == length // block_size
    kv.check()


@pytest.mark.parametrize(("first", "second"), [(3, 3), (3, 2), (3, 1), (3, 4), (1, 5)])
def test_a_second_reservation_adds_only_what_is_missing(first, second):
    kv = oracle(8, 2, a=[1])
    kv.reserve("a", first)
    before = everything(kv)

    kv.reserve("a", second)

    assert room(kv, "a") == (pages_for(1 + max(first, second), 2), 1, max(first, second))
    assert (everything(kv) == before) == (second <= first)


@pytest.mark.parametrize("share", [lambda kv: kv.fork("a", "b"), lambda kv: kv.pin("a", "t")])
def test_a_partial_tail_that_is_shared_or_pinned_is_copied_when_room_is_reserved(share):
    kv = oracle(4, 4, a=[1])
    share(kv)

    kv.reserve("a", 1)

    assert kv.tables["a"] == [1]
    assert kv.copied == [(0, 1)]
    kv.commit("a", 2)
    assert (kv.read("a"), kv.tables["a"], kv.pages[0].tokens) == ([1, 2], [1], [1])
    kv.check()


def test_a_shared_full_tail_is_not_copied_for_room():
    kv = oracle(4, 2, a=[1, 2])
    kv.fork("a", "b")

    kv.reserve("a", 1)

    assert kv.tables == {"a": [0, 1], "b": [0]}
    assert kv.copied == []


@pytest.mark.parametrize(
    ("capacity", "forked", "said"),
    [
        (2, False, "2 blocks needed, 1 free"),
        (2, True, r"3 blocks needed \(one to copy block 0\), 1 free"),
        (3, True, r"3 blocks needed \(one to copy block 0\), 2 free"),
    ],
)
def test_a_reservation_that_finds_no_page_changes_nothing(capacity, forked, said):
    kv = oracle(capacity, 2, a=[1])
    if forked:
        kv.fork("a", "b")

    with changes_nothing(kv, MemoryError, said):
        kv.reserve("a", 5)


def test_an_idle_page_is_taken_for_room():
    kv = oracle(2, 1, a=[1], b=[2])
    kv.release("a")

    kv.reserve("b", 1)

    assert published(kv) == {1: (2,)}
    assert kv.statistics()["evictions"] == 1
    kv.check()


# Commit and append


@pytest.mark.parametrize("count", [1, 2, 3])
def test_commit_writes_into_the_room_and_leaves_the_rest_of_it(count):
    asked = []
    kv = told_pool(Oracle, 4, 2, [0], [1], asked=asked)
    fill(kv, {"a": [1]})
    kv.reserve("a", 3)

    kv.commit("a", *range(2, 2 + count))

    assert room(kv, "a") == (2, 1 + count, 3 - count)
    assert kv.read("a") == list(range(1, 2 + count))
    assert [positions for _, positions in asked] == [[0], [1]]
    assert len(published(kv)) == (1 + count) // 2
    kv.check()


@pytest.mark.parametrize("reserved", [0, 1, 2])
def test_commit_of_more_than_is_reserved_is_refused(reserved):
    kv = oracle(4, 2, a=[1])
    if reserved:
        kv.reserve("a", reserved)

    rejects(kv, lambda kv: kv.commit("a", *range(reserved + 1)), "more than reserved: 'a'")


@pytest.mark.parametrize("reserved", range(5))
@pytest.mark.parametrize("count", range(1, 6))
def test_append_uses_the_room_first(reserved, count):
    kv = oracle(8, 2, a=[1])
    if reserved:
        kv.reserve("a", reserved)
    pages = len(kv.tables["a"])

    kv.append("a", *range(count))

    left = max(reserved - count, 0)
    assert room(kv, "a") == (max(pages, pages_for(1 + count, 2)), 1 + count, left)
    kv.check()


def test_an_append_beyond_the_room_that_finds_no_page_leaves_the_room():
    kv = oracle(2, 2, a=[1])
    kv.reserve("a", 2)

    with changes_nothing(kv, MemoryError, "1 blocks needed, 0 free"):
        kv.append("a", 2, 3, 4, 5)

    kv.append("a", 2, 3)
    assert room(kv, "a") == (2, 3, 0)


def test_append_each_writes_into_the_room_when_the_pool_is_full():
    kv = oracle(3, 1, a=[1], b=[2])
    kv.reserve("a", 1)

    assert kv.append_each(["b", "a"], [3, 4]) == ["b"]

    assert (kv.read("a"), kv.read("b")) == ([1, 4], [2])
    kv.check()


# Trim


@pytest.mark.parametrize("length", range(5))
@pytest.mark.parametrize("reserved", range(1, 6))
def test_trim_gives_back_the_pages_that_no_token_needs(length, reserved):
    kv = oracle(8, 2, a=list(range(length)))
    before = state(kv)
    kv.reserve("a", reserved)

    kv.trim("a")

    assert room(kv, "a") == (pages_for(length, 2), length, 0)
    assert sorted(kv.pages) == sorted(kv.tables["a"])
    assert kv.lives == before["lives"]
    kv.check()


def test_trim_without_room_is_nothing():
    kv = oracle(4, 2, a=[1, 2, 3], b=[])
    before = everything(kv)

    kv.trim("a")
    kv.trim("b")

    assert everything(kv) == before


def test_what_was_committed_stays_when_the_rest_is_trimmed():
    kv = oracle(8, 2, a=[1])
    kv.reserve("a", 6)
    kv.commit("a", 2, 3)

    kv.trim("a")

    assert kv.read("a") == [1, 2, 3]
    assert room(kv, "a") == (2, 3, 0)
    kv.check()


# What room allows


SHARING = {
    "fork": lambda kv: kv.fork("a", "new"),
    "pin": lambda kv: kv.pin("a", "t"),
    "send": lambda kv: kv.send("a", "t", 1, 0),
}


@pytest.mark.parametrize("share", SHARING.values(), ids=SHARING)
@pytest.mark.parametrize(
    "settle", [lambda kv: kv.trim("a"), lambda kv: kv.commit("a", 2), lambda kv: kv.append("a", 2)]
)
def test_nothing_is_shared_until_the_room_is_gone(share, settle):
    kv = oracle(8, 2, a=[1])
    kv.reserve("a", 1)
    rejects(kv, share, "tokens reserved: 'a'")

    settle(kv)

    share(kv)
    kv.check()


@pytest.mark.parametrize("ends", [[Oracle.release], [Oracle.preempt, Oracle.release]])
def test_a_request_that_ends_gives_its_room_back(ends):
    kv = oracle(4, 2, a=[1])
    kv.reserve("a", 6)

    for end in ends:
        end(kv, "a")
        assert len(kv.takeable()) == 4

    assert_drained(kv)


def test_reserved_room_is_never_hit_nor_idle():
    kv = oracle(4, 1, a=[1])
    kv.reserve("a", 2)

    assert published(kv) == {0: (1,)}
    assert hit_depth(kv, [1, 2, 3, 4]) == 1
    kv.trim("a")
    assert kv.idle() == []
    assert sorted(kv.free) == [1, 2, 3]


# Refusals, in the order in which they are checked


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda kv: kv.reserve("ghost", 0), "unknown request: 'ghost'"),
        (lambda kv: kv.reserve("waits", 0), "tokens on their way: 'waits'"),
        (lambda kv: kv.reserve("flies", 0), "step in flight: 'flies'"),
        (lambda kv: kv.reserve("a", 0), "no tokens: 'a'"),
        (lambda kv: kv.reserve("a", -1), "no tokens: 'a'"),
        (lambda kv: kv.commit("ghost"), "unknown request: 'ghost'"),
        (lambda kv: kv.commit("waits"), "tokens on their way: 'waits'"),
        (lambda kv: kv.commit("flies"), "step in flight: 'flies'"),
        (lambda kv: kv.commit("a"), "no tokens: 'a'"),
        (lambda kv: kv.commit("a", 1), "more than reserved: 'a'"),
        (lambda kv: kv.trim("ghost"), "unknown request: 'ghost'"),
        (lambda kv: kv.trim("waits"), "tokens on their way: 'waits'"),
        (lambda kv: kv.trim("flies"), "step in flight: 'flies'"),
        (lambda kv: kv.fork("ghost", "a"), "unknown request: 'ghost'"),
        (lambda kv: kv.fork("room", "a"), "tokens reserved: 'room'"),
        (lambda kv: kv.pin("room", "in"), "tokens reserved: 'room'"),
        (lambda kv: kv.pin("bare", "in"), "tokens reserved: 'bare'"),
        (lambda kv: kv.send("room", "in", 1, 0), "tokens reserved: 'room'"),
        (lambda kv: kv.fork("waits", "a"), "tokens on their way: 'waits'"),
        (lambda kv: kv.fork("flies", "a"), "step in flight: 'flies'"),
    ],
)
def test_a_wrong_call_is_refused_and_changes_nothing(call, said):
    kv = oracle(12, 2, a=[1, 2, 3], room=[1], bare=[], flies=[1])
    kv.reserve("room", 1)
    kv.reserve("bare", 1)
    kv.receive("waits", 7, 8, transfer="in", workers=1, lease=0)
    kv.begin_step("s", ["flies"], [2])

    rejects(kv, call, said)
