"""What is never hit: other extra keys, what was evicted, and what older weights computed."""

import pytest
from reference_helpers import (
    assert_drained,
    everything,
    fill,
    hit_depth,
    holding,
    oracle,
    published,
    rejects,
    told_pool,
)

from kvoracle.reference import Oracle

# Extra keys


KEYS = [
    {},
    {"adapter": "x"},
    {"salt": "x"},
    {"image": "x"},
    {"adapter": "y"},
    {"adapter": "ab"},
    {"adapter": "a", "salt": "b"},
    {"adapter": "b", "salt": "a"},
    {"adapter": "a", "image": "b"},
    {"adapter": "a", "salt": "b", "image": "c"},
    {"adapter": "a,salt=b"},
    {"adapter": " "},
]


@pytest.mark.parametrize("second", KEYS, ids=str)
@pytest.mark.parametrize("first", KEYS, ids=str)
def test_a_page_is_hit_under_the_same_extra_keys_and_no_others(first, second):
    kv = oracle(8, 2)
    kv.admit("a", 1, 2, 3, 4, extra_keys=first)

    assert kv.admit("b", 1, 2, 3, 4, 5, extra_keys=second) == (4 if first == second else 0)
    kv.check()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"adapter": ""}),
        ({"adapter": "", "salt": "", "image": ""}, {}),
        ({"salt": "s", "adapter": "a"}, {"adapter": "a", "salt": "s"}),
        ({"salt": "s", "image": ""}, {"salt": "s"}),
    ],
)
def test_an_empty_key_is_as_absent_and_the_order_of_keys_is_of_no_matter(first, second):
    kv = oracle(8, 2)
    kv.admit("a", 1, 2, 3, extra_keys=first)

    assert kv.admit("b", 1, 2, 3, extra_keys=second) == 2


def test_no_extra_keys_are_those_of_a_request_that_was_created():
    kv = oracle(8, 2, a=[1, 2])

    assert kv.admit("b", 1, 2, 3) == 2
    assert kv.admit("c", 1, 2, 3, extra_keys={"salt": "s"}) == 0


X = {"adapter": "x"}
BEGIN = {
    "admit": lambda kv: kv.admit("a", 1, 2, 3, extra_keys=X),
    "look up and use": lambda kv: (kv.look_up("a", 1, 2, 3, extra_keys=X), kv.use("a")),
    "receive": lambda kv: (
        kv.receive("a", 1, 2, 3, transfer="t", workers=1, lease=0, extra_keys=X),
        kv.acknowledge("t", 0, 0),
    ),
    "fork": lambda kv: (kv.admit("p", 1, 2, 3, extra_keys=X), kv.fork("p", "a"), kv.release("p")),
    "resume": lambda kv: (
        kv.admit("a", 1, 2, 3, extra_keys=X),
        kv.preempt("a"),
        kv.resume("a"),
    ),
}
GROW = {
    "append": lambda kv: kv.append("a", 4),
    "append each": lambda kv: kv.append_each(["a"], [4]),
    "commit": lambda kv: (kv.reserve("a", 1), kv.commit("a", 4)),
    "step": lambda kv: (kv.begin_step("s", ["a"], [4]), kv.end_step("s")),
}
begins = pytest.mark.parametrize("begin", BEGIN.values(), ids=BEGIN)
grows = pytest.mark.parametrize("grow", GROW.values(), ids=GROW)


@begins
@grows
def test_whatever_begins_and_grows_a_request_publishes_under_its_extra_keys(begin, grow):
    kv = oracle(8, 2)
    begin(kv)
    grow(kv)

    assert {keys for keys, _ in kv.index.values()} == {(("adapter", "x"),)}
    assert kv.admit("same", 1, 2, 3, 4, 5, extra_keys=X) == 4
    assert kv.admit("none", 1, 2, 3, 4, 5) == 0
    kv.check()


@pytest.mark.parametrize(("extra_keys", "hit"), [(X, 2), ({}, 0), ({"salt": "x"}, 0)])
@pytest.mark.parametrize(
    "begin",
    [
        lambda kv, keys: kv.admit("b", 1, 2, 9, extra_keys=keys),
        lambda kv, keys: kv.look_up("b", 1, 2, 9, extra_keys=keys),
        lambda kv, keys: kv.receive(
            "b", 1, 2, 9, transfer="t", workers=1, lease=0, extra_keys=keys
        ),
    ],
    ids=["admit", "look_up", "receive"],
)
def test_whatever_begins_with_a_prompt_hits_under_its_extra_keys(begin, extra_keys, hit):
    kv = oracle(8, 2)
    kv.admit("a", 1, 2, 3, extra_keys=X)

    assert begin(kv, extra_keys) == hit
    kv.check()


# Eviction


@pytest.mark.parametrize("first", range(5))
def test_what_is_evicted_is_no_longer_hit_and_reads_as_before(first):
    kv = oracle(8, 2, a=[1, 2, 3, 4, 5, 6, 7])

    kv.evict("a", first)

    assert hit_depth(kv, [1, 2, 3, 4, 5, 6, 7]) == min(first, 3)
    assert kv.read("a") == [1, 2, 3, 4, 5, 6, 7]
    kv.check()


@grows
@pytest.mark.parametrize("first", range(3))
def test_what_is_evicted_before_it_is_full_is_not_published_when_it_is(grow, first):
    kv = oracle(8, 2)
    kv.admit("a", 1, 2, 3)
    kv.evict("a", first)

    grow(kv)
    kv.append("a", 5, 6)

    assert hit_depth(kv, [1, 2, 3, 4, 5, 6, 7]) == {0: 0, 1: 1, 2: 3}[first]
    assert holding(kv, 1, 2, 3, 4, 5, 6) == [2]
    kv.check()


def test_room_is_evicted_as_well_and_what_is_written_there_is_not_published():
    kv = oracle(8, 2)
    kv.receive("a", 1, 2, 3, 4, transfer="t", workers=1, lease=0)
    kv.evict("a", 1)

    kv.acknowledge("t", 0, 0)

    assert published(kv) == {0: (1, 2)}
    kv.check()


def test_an_evicted_page_is_free_once_nobody_uses_it_and_is_published_when_taken_again():
    kv = oracle(2, 2, a=[1, 2])
    kv.fork("a", "b")
    kv.evict("b", 0)
    kv.release("b")
    assert (published(kv), kv.withdrawn) == ({}, {0})
    kv.check()

    kv.release("a")
    assert (kv.idle(), sorted(kv.free), kv.withdrawn) == ([], [0, 1], set())

    fill(kv, {"c": [1, 2]})
    assert published(kv) == {0: (1, 2)}
    kv.check()


@pytest.mark.parametrize(
    "keep",
    [
        lambda kv: kv.look_up("l", 1, 2, 9),
        lambda kv: kv.pin("a", "t"),
        lambda kv: kv.begin_step("s", ["a"], [3]),
        lambda kv: kv.fork("a", "b"),
    ],
    ids=["lookup", "pin", "step", "owner"],
)
def test_an_evicted_page_stays_evicted_as_long_as_anything_holds_it(keep):
    kv = oracle(4, 2, a=[1, 2])
    keep(kv)
    kv.evict("a", 0)
    kv.release("a")

    assert hit_depth(kv, [1, 2, 3]) == 0
    assert 0 not in kv.takeable()
    assert 0 in kv.withdrawn
    kv.check()


def test_the_use_of_evicted_pages_does_not_publish_them():
    kv = oracle(4, 2, a=[1, 2])
    kv.look_up("l", 1, 2, 3, 4, 5)
    kv.evict("a", 0)
    kv.release("a")

    assert kv.use("l") == 2

    assert published(kv) == {kv.tables["l"][1]: (1, 2, 3, 4)}
    kv.check()


def test_the_copy_of_an_evicted_page_is_published_by_who_writes_it():
    kv = oracle(4, 2, a=[1])
    kv.fork("a", "b")
    kv.evict("a", 0)

    kv.append("b", 2)
    kv.append("a", 2)

    assert published(kv) == {1: (1, 2)}
    kv.check()


def test_a_duplicate_of_what_was_evicted_is_still_hit():
    kv = oracle(4, 2, a=[1, 2], b=[1, 2])

    kv.evict("a", 0)

    assert kv.admit("c", 1, 2, 3) == 2
    assert kv.tables["c"][0] == 1


def test_eviction_of_a_request_without_pages_is_nothing_and_of_an_unknown_one_is_refused():
    kv = oracle(4, 2, a=[])
    before = everything(kv)

    kv.evict("a", 0)

    assert everything(kv) == before
    rejects(kv, lambda kv: kv.evict("ghost", 0), "unknown request: 'ghost'")


# Weights


def test_when_the_weights_change_every_entry_is_dropped_and_idle_pages_become_free():
    kv = oracle(4, 2, a=[1, 2], b=[3, 4, 5])
    kv.release("a")

    kv.change_weights()

    assert (kv.index, kv.idle(), sorted(kv.free)) == ({}, [], [0, 3])
    assert kv.read("b") == [3, 4, 5]
    assert hit_depth(kv, [3, 4, 5]) == 0
    kv.check()


@begins
@grows
def test_a_request_of_older_weights_never_publishes_again(begin, grow):
    kv = oracle(12, 2)
    begin(kv)
    kv.change_weights()

    grow(kv)
    kv.fork("a", "child")
    kv.append_each(["a", "child"], [5, 6])
    kv.append_each(["a", "child"], [7, 8])

    assert kv.index == {}
    kv.release_each(["a", "child"])
    assert_drained(kv)


@begins
@grows
def test_a_request_of_the_weights_of_today_publishes(begin, grow):
    kv = oracle(8, 2)
    kv.change_weights()
    begin(kv)
    grow(kv)

    assert kv.admit("b", 1, 2, 3, 4, 5, extra_keys=X) == 4
    kv.check()


def test_a_request_of_newer_weights_publishes_what_an_older_one_holds_too():
    kv = oracle(8, 2, old=[1, 2])
    kv.change_weights()

    assert kv.admit("new", 1, 2, 3) == 0
    assert published(kv) == {1: (1, 2)}
    kv.append("old", 3, 4)

    assert kv.admit("other", 1, 2, 3, 4, 5) == 2
    assert kv.tables["other"][0] == 1
    kv.check()


def test_what_is_under_way_while_the_weights_change_is_written_and_never_hit():
    kv = oracle(8, 2, a=[1])
    kv.receive("w", 5, 6, 7, transfer="t", workers=1, lease=0)
    kv.begin_step("s", ["a"], [2])

    kv.change_weights()
    kv.end_step("s")
    assert kv.acknowledge("t", 0, 0) is True

    assert (kv.read("a"), kv.read("w")) == ([1, 2], [5, 6, 7])
    assert kv.index == {}
    assert (hit_depth(kv, [1, 2, 3]), hit_depth(kv, [5, 6, 7])) == (0, 0)
    kv.check()


@pytest.mark.parametrize("change_first", [True, False])
def test_a_preempted_request_resumes_with_the_weights_of_today(change_first):
    kv = oracle(8, 2)
    kv.admit("a", 1, 2, 3, extra_keys=X)
    if change_first:
        kv.change_weights()
        kv.preempt("a")
    else:
        kv.preempt("a")
        kv.change_weights()

    assert kv.resume("a") == 0

    assert kv.lives["a"].epoch == 1
    assert kv.admit("b", 1, 2, 9, extra_keys=X) == 2
    kv.check()


def test_each_change_of_weights_is_one_more_epoch():
    kv = oracle(8, 2)
    for epoch in range(3):
        kv.create(f"r{epoch}")
        kv.append(f"r{epoch}", 1, 2)
        assert kv.admit(f"hit {epoch}", 1, 2, 3) == 2
        assert kv.tables[f"hit {epoch}"][0] == kv.tables[f"r{epoch}"][0]
        kv.release(f"hit {epoch}")
        kv.change_weights()

    assert [kv.lives[f"r{epoch}"].epoch for epoch in range(3)] == [0, 1, 2]
    assert kv.epoch == 3
    kv.check()


@pytest.mark.parametrize("forget", [Oracle.reset, Oracle.change_weights])
def test_what_was_evicted_is_no_eviction_when_everything_is_forgotten(forget):
    kv = oracle(4, 2, a=[1, 2, 3, 4])
    kv.release("a")

    forget(kv)

    assert kv.index == {}
    assert kv.statistics()["evictions"] == 0
    assert_drained(kv)


def test_a_told_hit_of_older_weights_is_refused():
    kv = fill(told_pool(Oracle, 4, 1, [0], [1], [0]), {"old": [1]})
    kv.change_weights()
    fill(kv, {"new": [1]})

    with pytest.raises(AssertionError, match=r"block 0 .* does not hold its prefix"):
        kv.admit("b", 1, 2)
