"""Lookup and use: what was found is held, whatever happens, until it is used or cancelled."""

from functools import partial

import pytest
from reference_helpers import (
    assert_drained,
    changes_nothing,
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


def looked_up(**options):
    """a wrote 1 2 3 4 to pages 0 and 1 and has ended; b looked them up, with 5; 2 and 3 are free."""
    kv = oracle(4, 2, a=[1, 2, 3, 4], **options)
    kv.release("a")
    assert kv.look_up("b", 1, 2, 3, 4, 5) == 4
    return kv


# What a lookup finds and holds


def test_what_is_found_is_held_and_can_no_longer_be_taken():
    kv = looked_up()

    assert kv.lookups["b"].pages == [0, 1]
    assert [holders(kv, page) for page in (0, 1)] == [([], [], ["b"])] * 2
    assert (kv.idle(), sorted(kv.takeable()), kv.tables) == ([], [2, 3], {})
    kv.create("c")
    with changes_nothing(kv, MemoryError, "3 blocks needed, 2 free"):
        kv.append("c", 6, 7, 8, 9, 10)
    kv.append("c", 6, 7, 8, 9)
    assert kv.tables["c"] == [2, 3]


@pytest.mark.parametrize("length", range(1, 8))
def test_a_lookup_finds_what_an_admission_hits(length):
    prompt = range(1, length + 1)
    looking, admitting = oracle(8, 2, a=[1, 2, 3, 4, 5]), oracle(8, 2, a=[1, 2, 3, 4, 5])

    hit = admitting.admit("b", *prompt)
    assert looking.look_up("b", *prompt) == hit
    assert looking.use("b") == hit

    assert looking.tables == admitting.tables
    assert looking.lives == admitting.lives
    assert published(looking) == published(admitting)


def test_a_lookup_that_finds_nothing_holds_nothing():
    kv = oracle(4, 2, a=[1, 2])

    assert kv.look_up("b", 2, 1, 3) == 0

    assert kv.lookups["b"].pages == []
    assert len(kv.takeable()) == 3
    kv.check()


def test_a_page_is_held_by_each_lookup_of_it_alone():
    kv = looked_up()
    kv.look_up("c", 1, 2, 9)

    kv.cancel("b")
    assert holders(kv, 0) == ([], [], ["c"])
    assert kv.idle() == [1]
    kv.check()

    kv.cancel("c")
    assert sorted(kv.idle()) == [0, 1]
    assert_drained(kv)


def test_a_told_hit_that_does_not_hold_the_prefix_is_refused_and_nothing_changes():
    kv = fill(told(4, 1, [0, 1], [1]), {"a": [1, 2]})

    with changes_nothing(kv, WrongChoice, "block 1 .* was hit for 'b' and does not hold its pre"):
        kv.look_up("b", 1, 9)


def test_a_told_page_that_only_a_lookup_holds_is_refused_and_nothing_changes():
    kv = fill(told(4, 1, [0], [0], [0]), {"a": [1]})
    kv.release("a")
    kv.look_up("b", 1, 2)

    said = r"block 0 \(owners: none; pins: none; lookup: b\) was taken for 'c' but is not free"
    with changes_nothing(kv, WrongChoice, said):
        kv.admit("c", 9)


# Use


BETWEEN = {
    "nothing": lambda kv: None,
    "all that is free is taken and given back": lambda kv: (
        kv.admit("x", 6, 7, 8, 9),
        kv.release("x"),
    ),
    "another hits the same": lambda kv: kv.admit("x", 1, 2, 3),
    "another looks the same up": lambda kv: kv.look_up("x", 1, 2, 3, 4, 5),
    "another is pinned, sent and released": lambda kv: (
        kv.admit("x", 1, 2, 3),
        kv.pin("x", "t"),
        kv.send("x", "u", 1, 0),
        kv.release("x"),
        kv.unpin("t"),
        kv.acknowledge("u", 0, 0),
    ),
    "its pages are evicted": lambda kv: (
        kv.admit("x", 1, 2, 3, 4, 5),
        kv.evict("x", 0),
        kv.release("x"),
    ),
}


@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
def test_use_begins_on_what_was_found_whatever_happened_in_between(between):
    kv = looked_up()
    between(kv)

    assert kv.use("b") == 4

    assert kv.tables["b"][:2] == [0, 1]
    assert kv.read("b") == [1, 2, 3, 4, 5]
    assert "b" not in kv.lookups
    kv.check()


def test_use_publishes_the_full_pages_that_it_wrote():
    kv = oracle(4, 2, a=[1, 2])
    kv.look_up("b", 1, 2, 3, 4, 5)

    kv.use("b")

    assert holding(kv, 1, 2, 3, 4) == [kv.tables["b"][1]]
    assert kv.lives["b"].reserved == 0


def test_use_finds_nothing_that_was_published_after_the_lookup():
    kv = oracle(6, 2)
    kv.look_up("b", 1, 2, 3)
    fill(kv, {"a": [1, 2]})

    assert kv.use("b") == 0

    assert kv.tables["b"] == [1, 2]


def test_use_that_finds_no_page_leaves_the_lookup():
    kv = looked_up()
    fill(kv, {"c": [6, 7, 8, 9]})

    with changes_nothing(kv, MemoryError, "1 blocks needed, 0 free"):
        kv.use("b")

    kv.release("c")
    assert kv.use("b") == 4


@pytest.mark.parametrize("page", [0, 2])
def test_use_that_takes_a_page_in_use_leaves_the_lookup(page):
    kv = fill(told(4, 1, [0, 1], [2], [0], [page]), {"a": [1, 2], "c": [7]})
    kv.release("a")
    kv.look_up("b", 1, 9)

    with changes_nothing(kv, WrongChoice, f"block {page} .* was taken for 'b' but is not free"):
        kv.use("b")


@pytest.mark.parametrize(("watermark", "fits"), [(0, True), (1, True), (2, False)])
def test_use_leaves_the_watermark_free(watermark, fits):
    """One page is needed and two are free."""
    kv = looked_up(watermark=watermark)

    if fits:
        assert kv.use("b") == 4
    else:
        with changes_nothing(kv, MemoryError, r"3 blocks needed \(2 kept free\), 2 free"):
            kv.use("b")


def test_a_lookup_itself_needs_no_room():
    kv = oracle(1, 1, watermark=1, a=[1])

    assert kv.look_up("b", 1, 2) == 1
    kv.check()


def test_a_name_may_be_looked_up_again_after_its_end():
    kv = looked_up()
    kv.cancel("b")
    kv.look_up("b", 1, 2, 9)
    kv.use("b")
    kv.release("b")

    assert kv.look_up("b", 1, 2, 3) == 2
    kv.cancel("b")
    assert_drained(kv)


def test_cancel_leaves_nothing_of_a_lookup():
    kv = looked_up()
    before = state(kv)
    kv.look_up("c", 1, 2, 3, 4, 5)

    kv.cancel("c")

    after = state(kv)
    assert after.pop("counted") != before.pop("counted")
    assert after == before


# Refusals


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda kv: kv.look_up("live", 1), "duplicate request: 'live'"),
        (lambda kv: kv.look_up("live"), "duplicate request: 'live'"),
        (lambda kv: kv.look_up("b", 1, 2), "duplicate request: 'b'"),
        (lambda kv: kv.look_up("b"), "duplicate request: 'b'"),
        (lambda kv: kv.look_up("new"), "no tokens: 'new'"),
        (lambda kv: kv.use("ghost"), "unknown lookup: 'ghost'"),
        (lambda kv: kv.use("live"), "unknown lookup: 'live'"),
        (lambda kv: kv.use("cancelled"), "unknown lookup: 'cancelled'"),
        (lambda kv: kv.use("used"), "unknown lookup: 'used'"),
        (lambda kv: kv.cancel("ghost"), "unknown lookup: 'ghost'"),
        (lambda kv: kv.cancel("live"), "unknown lookup: 'live'"),
        (lambda kv: kv.cancel("cancelled"), "unknown lookup: 'cancelled'"),
        (lambda kv: kv.cancel("used"), "unknown lookup: 'used'"),
        (lambda kv: kv.append("b", 1), "unknown request: 'b'"),
        (lambda kv: kv.read("b"), "unknown request: 'b'"),
        (lambda kv: kv.fork("b", "new"), "unknown request: 'b'"),
        (lambda kv: kv.release("b"), "unknown request: 'b'"),
        (lambda kv: kv.release_each(["live", "b"]), "unknown request: 'b'"),
        (lambda kv: kv.evict("b", 0), "unknown request: 'b'"),
        (lambda kv: kv.preempt("b"), "unknown request: 'b'"),
        (lambda kv: kv.resume("b"), "not preempted: 'b'"),
        (lambda kv: kv.change_weights(), "lookup outstanding: 'b'"),
        (lambda kv: kv.reset(), "blocks in use: 'reset'"),
    ],
)
def test_a_wrong_call_is_refused_and_changes_nothing(call, said):
    kv = oracle(8, 2, live=[1, 2, 3])
    for request in ("b", "cancelled", "used"):
        kv.look_up(request, 1, 2, 4)
    kv.cancel("cancelled")
    kv.use("used")

    rejects(kv, call, said)


def test_the_weights_may_change_once_no_lookup_is_outstanding():
    kv = oracle(4, 2)
    kv.look_up("b", 1)
    kv.look_up("c", 2)
    rejects(kv, Oracle.change_weights, "lookup outstanding: 'b, c'")

    kv.cancel("b")
    rejects(kv, Oracle.change_weights, "lookup outstanding: 'c'")
    kv.use("c")

    kv.change_weights()
    assert kv.epoch == 1


@pytest.mark.parametrize("holds_pages", [True, False])
def test_reset_is_refused_while_a_lookup_holds_a_page(holds_pages):
    kv = oracle(4, 2, a=[1, 2])
    kv.release("a")
    kv.look_up("b", *([1, 2, 3] if holds_pages else [7]))

    if holds_pages:
        rejects(kv, Oracle.reset, "blocks in use: 'reset'")
    else:
        kv.reset()
        assert kv.index == {}
        assert kv.use("b") == 0


def test_with_caching_off_a_lookup_finds_nothing():
    kv = Oracle(4, 2, caching=False)
    fill(kv, {"a": [1, 2, 3, 4]})

    assert kv.look_up("b", 1, 2, 3) == 0
    assert kv.use("b") == 0

    assert kv.read("b") == [1, 2, 3]
    kv.check()
