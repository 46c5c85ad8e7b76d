"""Statistics: blocks by state, tokens looked up and hit, evictions, preemptions, tail waste."""

import pytest
from reference_helpers import changes_nothing, everything, fill, oracle, told_pool

from kvoracle.reference import Oracle, Rejected


def statistics(kv, *names):
    counted = kv.statistics()
    return tuple(counted[name] for name in names)


def blocks(kv):
    return statistics(kv, "free", "idle", "held")


def hits(kv):
    return statistics(kv, "queried_tokens", "hit_tokens")


def test_a_new_pool_has_everything_free_and_nothing_counted():
    assert oracle(4, 2).statistics() == {
        "free": 4,
        "idle": 0,
        "held": 0,
        "queried_tokens": 0,
        "hit_tokens": 0,
        "evictions": 0,
        "preemptions": 0,
        "tail_waste": 0,
    }


def test_statistics_change_nothing():
    kv = oracle(4, 2, a=[1, 2, 3])
    kv.preempt("a")
    before = everything(kv)

    kv.statistics()

    assert everything(kv) == before


# Blocks by state


def test_a_block_is_held_by_any_holder_but_the_index_and_idle_blocks_are_free_too():
    kv = oracle(8, 1, a=[1, 2], b=[3], c=[4], d=[5])
    assert blocks(kv) == (3, 0, 5)

    kv.release("a")
    assert blocks(kv) == (5, 2, 3)
    kv.look_up("l", 1, 9)
    assert blocks(kv) == (4, 1, 4)
    kv.pin("b", "t")
    kv.release("b")
    assert blocks(kv) == (4, 1, 4)
    kv.begin_step("s", ["c"], [6])
    kv.release("c")
    assert blocks(kv) == (3, 0, 5)
    kv.evict("d", 0)
    kv.release("d")
    assert blocks(kv) == (4, 0, 4)


# Tokens queried and hit


ASKS = {
    "admit": lambda kv: kv.admit("b", 1, 2, 3, 4, 5),
    "look up": lambda kv: kv.look_up("b", 1, 2, 3, 4, 5),
    "look up and use": lambda kv: (kv.look_up("b", 1, 2, 3, 4, 5), kv.use("b")),
    "look up and cancel": lambda kv: (kv.look_up("b", 1, 2, 3, 4, 5), kv.cancel("b")),
    "receive": lambda kv: kv.receive("b", 1, 2, 3, 4, 5, transfer="t", workers=1, lease=0),
    "a load that arrives": lambda kv: (
        kv.receive("b", 1, 2, 3, 4, 5, transfer="t", workers=1, lease=0),
        kv.acknowledge("t", 0, 0),
    ),
    "resume": lambda kv: kv.resume("p"),
}


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_whoever_asks_for_a_prefix_is_counted_once(ask):
    kv = oracle(12, 2, a=[1, 2, 3, 4], p=[1, 2, 3, 4, 5])
    kv.preempt("p")

    ask(kv)

    assert hits(kv) == (5, 4)


def test_neither_what_asks_for_no_prefix_nor_what_is_written_is_counted():
    kv = oracle(8, 2, a=[1, 2, 3])
    kv.fork("a", "b")
    kv.append("b", 4)
    kv.preempt("b")
    kv.release("b")

    assert hits(kv) == (0, 0)


def test_hits_add_up_and_misses_are_queried():
    kv = oracle(12, 2, a=[1, 2])

    kv.admit("b", 1, 2, 3)
    kv.admit("c", 1, 2)
    kv.admit("d", 8)

    assert hits(kv) == (6, 2)


def test_who_finds_no_room_and_who_is_wrong_is_not_counted():
    kv = oracle(2, 1, a=[1])

    for call in (
        lambda: kv.admit("b", 1, 2, 3),
        lambda: kv.receive("b", 1, 2, 3, transfer="t", workers=1, lease=0),
    ):
        with changes_nothing(kv, MemoryError, "2 blocks needed"):
            call()
    with changes_nothing(kv, Rejected, "duplicate request"):
        kv.look_up("a", 1, 2)

    assert hits(kv) == (0, 0)


def test_with_caching_off_nothing_is_counted():
    kv = fill(Oracle(8, 2, caching=False), {"a": [1, 2, 3]})
    kv.admit("b", 1, 2, 3)
    kv.look_up("c", 1, 2, 3)
    kv.preempt("a")
    kv.resume("a")

    assert statistics(kv, "queried_tokens", "hit_tokens", "idle") == (0, 0, 0)
    assert statistics(kv, "evictions", "preemptions") == (0, 1)


# Evictions and preemptions


def test_an_eviction_is_an_entry_that_was_lost_because_its_block_was_taken():
    kv = oracle(4, 1, a=[1, 2, 3])
    kv.release("a")

    kv.admit("b", 9)
    assert statistics(kv, "evictions") == (1,)
    kv.admit("c", 8, 7)
    assert statistics(kv, "evictions") == (3,)
    kv.evict("b", 0)
    kv.release("c")
    kv.change_weights()
    kv.release("b")
    kv.reset()

    assert statistics(kv, "evictions") == (3,)


def test_a_copy_and_room_evict_as_well():
    kv = oracle(4, 2, a=[1, 2, 3, 4], b=[5])
    kv.release("a")
    kv.fork("b", "c")

    kv.append("c", 6)
    assert statistics(kv, "evictions") == (1,)
    kv.reserve("c", 3)
    assert statistics(kv, "evictions") == (2,)


def test_an_eviction_that_failed_is_none():
    kv = oracle(2, 1, a=[1], b=[2])
    kv.release("a")

    with changes_nothing(kv, MemoryError, "2 blocks needed"):
        kv.append("b", 3, 4)

    assert statistics(kv, "evictions") == (0,)


def test_preemptions_are_counted_and_resumptions_and_refusals_are_not():
    kv = oracle(4, 2, a=[1], b=[])
    for _ in range(2):
        kv.preempt("a")
        kv.resume("a")
    with changes_nothing(kv, Rejected, "no tokens"):
        kv.preempt("b")

    assert statistics(kv, "preemptions") == (2,)


# Tail waste


@pytest.mark.parametrize("length", range(7))
def test_the_waste_is_what_the_last_block_has_left(length):
    kv = oracle(4, 3, a=list(range(length)))

    assert statistics(kv, "tail_waste") == (-length % 3,)


def test_waste_adds_up_over_blocks_each_counted_once():
    kv = oracle(12, 4, a=[1], b=[2, 3])
    assert statistics(kv, "tail_waste") == (5,)

    kv.fork("a", "c")
    assert statistics(kv, "tail_waste") == (5,)
    kv.append("c", 9)
    assert statistics(kv, "tail_waste") == (7,)
    kv.reserve("b", 4)
    assert statistics(kv, "tail_waste") == (11,)


def test_blocks_that_no_request_owns_waste_nothing():
    kv = oracle(12, 4, a=[1], b=[2])
    kv.pin("a", "t")
    kv.begin_step("s", ["b"], [3])

    kv.release_each(["a", "b"])

    assert statistics(kv, "tail_waste", "held") == (0, 2)


# Generations


def test_the_generation_of_a_block_is_how_often_it_was_taken():
    kv = fill(told_pool(Oracle, 3, 1, [0, 2], [0], [0], [2]), {"a": [1, 2]})
    assert kv.taken == {0: 1, 1: 0, 2: 1}

    kv.release("a")
    kv.admit("b", 9)
    assert kv.taken == {0: 2, 1: 0, 2: 1}
    kv.fork("b", "c")
    kv.release_each(["b", "c"])
    kv.admit("d", 9, 8)

    assert kv.taken == {0: 2, 1: 0, 2: 2}
    kv.check()
