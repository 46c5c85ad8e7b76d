"""Preemption: what was committed is remembered, and resumed on what is still there of it."""

from functools import partial

import pytest
from reference_helpers import (
    assert_drained,
    changes_nothing,
    everything,
    fill,
    holders,
    holding,
    oracle,
    published,
    rejects,
    state,
    told_pool,
)

from kvoracle.reference import Oracle, WrongChoice

told = partial(told_pool, Oracle)


def test_a_preempted_request_gives_its_pages_back_and_is_remembered():
    kv = oracle(4, 2, a=[1, 2, 3])

    kv.preempt("a")

    assert kv.preempted == {"a": ((1, 2, 3), ())}
    assert (kv.tables, kv.lives) == ({}, {})
    assert (kv.idle(), sorted(kv.free)) == ([0], [1, 2, 3])
    kv.check()


def test_a_preempted_request_resumes_on_all_that_is_still_there():
    kv = oracle(4, 2, a=[1, 2, 3, 4, 5])
    kv.preempt("a")

    assert kv.resume("a") == 4

    assert kv.tables["a"] == [0, 1, 2]
    assert kv.read("a") == [1, 2, 3, 4, 5]
    assert (kv.preempted, kv.lives["a"].reserved) == ({}, 0)
    kv.append("a", 6)
    kv.check()


@pytest.mark.parametrize("length", range(1, 8))
def test_resuming_is_admitting_what_was_written(length):
    tokens = list(range(length))
    resumed, admitted = oracle(8, 2, a=tokens), oracle(8, 2, a=tokens)
    resumed.preempt("a")
    admitted.release("a")

    assert resumed.resume("a") == admitted.admit("a", *tokens)

    resumed_state, admitted_state = state(resumed), state(admitted)
    assert resumed_state.pop("counted") != admitted_state.pop("counted")
    assert resumed_state == admitted_state


@pytest.mark.parametrize("recycled", range(3))
def test_a_request_resumes_up_to_the_first_page_that_was_recycled(recycled):
    hits = [list(range(recycled))] if recycled else []
    kv = fill(told(8, 1, [0, 1, 2], [recycled], *hits, [4, 5, 6][recycled:]), {"a": [1, 2, 3]})
    kv.preempt("a")
    kv.admit("b", 9)

    assert kv.resume("a") == recycled

    assert kv.tables["a"] == [*range(recycled), *[4, 5, 6][recycled:]]
    assert kv.read("a") == [1, 2, 3]
    kv.check()


def test_a_resumed_request_publishes_anew_what_was_recycled():
    kv = fill(told(8, 1, [0, 1, 2], [0], [3, 4, 5]), {"a": [1, 2, 3]})
    kv.preempt("a")
    kv.admit("b", 9)

    kv.resume("a")

    assert [holding(kv, *[1, 2, 3][:end]) for end in (1, 2, 3)] == [[3], [1, 4], [2, 5]]


@pytest.mark.parametrize(
    ("grow", "remembered"),
    [
        (lambda kv: kv.reserve("a", 5), (1, 2, 3)),
        (lambda kv: (kv.reserve("a", 5), kv.commit("a", 4)), (1, 2, 3, 4)),
        (lambda kv: kv.begin_step("s", ["a"], [4]), (1, 2, 3)),
        (
            lambda kv: (
                kv.begin_step("s", ["a"], [4]),
                kv.begin_step("t", ["a"], [5]),
                kv.end_step("s"),
            ),
            (1, 2, 3, 4),
        ),
    ],
)
def test_only_what_was_committed_is_remembered(grow, remembered):
    kv = oracle(8, 2, a=[1, 2, 3])
    grow(kv)

    kv.preempt("a")

    assert kv.preempted["a"][0] == remembered
    kv.check()
    kv.resume("a")
    assert tuple(kv.read("a")) == remembered
    kv.check()


def test_a_transfer_keeps_what_a_preempted_request_had():
    kv = oracle(4, 2, a=[1, 2, 3])
    kv.send("a", "t", 1, 0)

    kv.preempt("a")
    assert [holders(kv, page) for page in (0, 1)] == [([], ["t"], [])] * 2
    assert kv.resume("a") == 2
    assert kv.tables["a"] == [0, 2]

    kv.acknowledge("t", 0, 0)
    kv.release("a")
    assert_drained(kv)


def test_a_fork_of_a_preempted_request_goes_on():
    kv = oracle(4, 2, a=[1, 2, 3])
    kv.fork("a", "b")

    kv.preempt("a")

    assert kv.read("b") == [1, 2, 3]
    assert kv.resume("a") == 2
    assert kv.tables == {"b": [0, 1], "a": [0, 2]}
    kv.check()


# Out of room


def test_a_request_that_finds_no_page_stays_preempted():
    kv = fill(told(3, 2, [0, 1], [1, 2], [0], [1]), {"a": [1, 2, 3]})
    kv.preempt("a")
    fill(kv, {"b": [7, 8, 9]})

    with changes_nothing(kv, MemoryError, "1 blocks needed, 0 free beside the hits"):
        kv.resume("a")

    kv.release("b")
    assert kv.resume("a") == 2
    assert kv.read("a") == [1, 2, 3]


@pytest.mark.parametrize(
    ("choices", "said"),
    [([[1], [0]], "does not hold its prefix"), ([[0], [0]], "was taken for 'a' but is not free")],
)
def test_a_request_that_is_resumed_on_pages_that_do_not_fit_stays_preempted(choices, said):
    kv = fill(told(4, 1, [0, 1], *choices), {"a": [1, 2]})
    kv.preempt("a")

    with changes_nothing(kv, WrongChoice, said):
        kv.resume("a")


BEGINNINGS = {
    "resume": (lambda kv: kv.preempt("a"), lambda kv: kv.resume("a")),
    "admit": (lambda kv: kv.release("a"), lambda kv: kv.admit("a", 1, 2, 3)),
    "receive": (
        lambda kv: kv.release("a"),
        lambda kv: kv.receive("a", 1, 2, 3, transfer="t", workers=1, lease=0),
    ),
    "use": (
        lambda kv: (kv.release("a"), kv.look_up("a", 1, 2, 3)),
        lambda kv: kv.use("a"),
    ),
}


@pytest.mark.parametrize(("prepare", "begin"), BEGINNINGS.values(), ids=BEGINNINGS)
@pytest.mark.parametrize(("free", "fits"), [(2, False), (3, True), (4, True)])
def test_whatever_begins_leaves_the_watermark_free(prepare, begin, free, fits):
    """One page is needed beside the hit and two are to be kept, out of need - 1, need, need + 1."""
    kv = oracle(1 + free, 2, watermark=2, a=[1, 2, 3])
    prepare(kv)
    assert len(set(kv.takeable()) - {0}) == free

    if fits:
        assert begin(kv) == 2
        kv.check()
    else:
        with changes_nothing(kv, MemoryError, r"3 blocks needed \(2 kept free\), 2 free"):
            begin(kv)


@pytest.mark.parametrize(
    "grow",
    [
        lambda kv: kv.append("a", 4, 5),
        lambda kv: kv.append_each(["a", "b"], [4, 5]),
        lambda kv: kv.reserve("a", 2),
        lambda kv: kv.begin_step("s", ["a", "b"], [4, 5]),
    ],
)
def test_what_has_begun_grows_into_the_watermark(grow):
    kv = oracle(4, 1, watermark=4, a=[1], b=[2])

    grow(kv)

    assert kv.takeable() == []
    kv.check()


# Names


@pytest.mark.parametrize("name", ["live", "looked", "preempted"])
@pytest.mark.parametrize(
    "begin",
    [
        lambda kv, name: kv.create(name),
        lambda kv, name: kv.admit(name, 1),
        lambda kv, name: kv.admit(name),
        lambda kv, name: kv.fork("live", name),
        lambda kv, name: kv.look_up(name, 1),
        lambda kv, name: kv.receive(name, 1, transfer="new", workers=1, lease=0),
        lambda kv, name: kv.receive(name, transfer="t", workers=1, lease=0),
    ],
    ids=["create", "admit", "admit nothing", "fork", "look_up", "receive", "receive again"],
)
def test_a_name_that_stands_for_a_request_is_not_new(begin, name):
    kv = oracle(8, 2, live=[1], preempted=[2])
    kv.preempt("preempted")
    kv.look_up("looked", 3)
    kv.pin("live", "t")

    rejects(kv, lambda kv: begin(kv, name), f"duplicate request: '{name}'")


def test_a_preempted_request_that_is_released_is_forgotten_and_changes_no_page():
    kv = oracle(4, 2, a=[1, 2, 3])
    kv.preempt("a")
    before = everything(kv)

    kv.release("a")

    assert everything(kv) == {**before, "preempted": {}}
    rejects(kv, lambda kv: kv.resume("a"), "not preempted: 'a'")
    rejects(kv, lambda kv: kv.release("a"), "unknown request: 'a'")
    kv.create("a")
    assert kv.read("a") == []


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda kv: kv.preempt("ghost"), "unknown request: 'ghost'"),
        (lambda kv: kv.preempt("preempted"), "unknown request: 'preempted'"),
        (lambda kv: kv.preempt("looked"), "unknown request: 'looked'"),
        (lambda kv: kv.preempt("waits"), "tokens on their way: 'waits'"),
        (lambda kv: kv.preempt("waits for all"), "tokens on their way: 'waits for all'"),
        (lambda kv: kv.preempt("empty"), "no tokens: 'empty'"),
        (lambda kv: kv.preempt("has room"), "no tokens: 'has room'"),
        (lambda kv: kv.resume("ghost"), "not preempted: 'ghost'"),
        (lambda kv: kv.resume("live"), "not preempted: 'live'"),
        (lambda kv: kv.resume("looked"), "not preempted: 'looked'"),
        (lambda kv: kv.resume("resumed"), "not preempted: 'resumed'"),
        (lambda kv: kv.append("preempted", 1), "unknown request: 'preempted'"),
        (lambda kv: kv.read("preempted"), "unknown request: 'preempted'"),
        (lambda kv: kv.fork("preempted", "new"), "unknown request: 'preempted'"),
        (lambda kv: kv.pin("preempted", "new"), "unknown request: 'preempted'"),
        (lambda kv: kv.begin_step("s", ["preempted"], [1]), "unknown request: 'preempted'"),
        (lambda kv: kv.evict("preempted", 0), "unknown request: 'preempted'"),
        (lambda kv: kv.use("preempted"), "unknown lookup: 'preempted'"),
        (lambda kv: kv.cancel("preempted"), "unknown lookup: 'preempted'"),
    ],
)
def test_a_wrong_call_is_refused_and_changes_nothing(call, said):
    kv = oracle(16, 2, live=[1, 2, 3], preempted=[4], resumed=[5], empty=[])
    kv.preempt("preempted")
    kv.preempt("resumed")
    kv.resume("resumed")
    kv.look_up("looked", 1, 2, 3)
    kv.receive("waits", 1, 2, 8, transfer="t", workers=1, lease=0)
    kv.receive("waits for all", 8, transfer="u", workers=1, lease=0)
    kv.create("has room")
    kv.reserve("has room", 1)

    rejects(kv, call, said)


# In flight


@pytest.mark.parametrize("end", [Oracle.end_step, Oracle.fail_step])
def test_a_step_of_the_life_before_holds_its_pages_and_leaves_the_resumed_life_alone(end):
    kv = oracle(8, 2, a=[1, 2, 3])
    kv.begin_step("s", ["a"], [4])
    kv.preempt("a")

    assert kv.resume("a") == 2

    assert kv.tables["a"] == [0, 2]
    assert holders(kv, 1) == ([], [], ["s"])
    end(kv, "s")
    assert kv.read("a") == [1, 2, 3]
    assert 1 in kv.free
    kv.check()


def test_a_request_may_be_preempted_again_and_again():
    kv = oracle(4, 2, a=[1])
    for token in range(2, 6):
        kv.preempt("a")
        kv.resume("a")
        kv.append("a", token)

    assert kv.read("a") == [1, 2, 3, 4, 5]
    assert kv.counted["preemptions"] == 4
    kv.check()


def test_a_preempted_request_holds_nothing():
    kv = oracle(4, 2, a=[1, 2, 3])
    kv.preempt("a")

    kv.reset()
    assert published(kv) == {}
    assert_drained(kv)
    kv.release("last")

    assert kv.resume("a") == 0
    assert kv.read("a") == [1, 2, 3]
