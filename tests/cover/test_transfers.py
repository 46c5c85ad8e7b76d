"""Transfers that workers acknowledge, out of the pool and into it; leases; lives of a name."""

import itertools

import pytest
from reference_helpers import (
    assert_drained,
    changes_nothing,
    fill,
    hit_depth,
    holders,
    oracle,
    published,
    rejects,
    told_pool,
)

from kvoracle.reference import Oracle, WrongChoice


def acknowledge(kv, transfer="t", workers=(0, 1), life=0):
    """Every worker acknowledges; the result is what the last was told."""
    return [kv.acknowledge(transfer, worker, life) for worker in workers][-1]


def ticks(kv, count):
    """The transfers that end at each tick."""
    return [kv.tick() for _ in range(count)]


def pinned_by(kv, transfer="t"):
    return [page for page in sorted(kv.pages) if transfer in holders(kv, page)[1]]


def receiving(capacity=6, *, lease=0, workers=2, **options):
    """w, whose prompt 1 2 3 4 5 was hit in page 0 of a, waits for t to write pages 1 and 2."""
    kv = oracle(capacity, 2, a=[1, 2], **options)
    assert kv.receive("w", 1, 2, 3, 4, 5, transfer="t", workers=workers, lease=lease) == 2
    return kv


# Out


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_transfer_out_ends_with_the_acknowledgement_of_its_last_worker(order):
    kv = oracle(4, 2, a=[1, 2, 3])
    assert kv.send("a", "t", 3, 0) == [0, 1]
    kv.release("a")

    for worker in order:
        assert pinned_by(kv) == [0, 1]
        assert len(kv.takeable()) == 2
        kv.check()
        assert kv.acknowledge("t", worker, 0) is False

    assert (kv.idle(), sorted(kv.free)) == ([0], [1, 2, 3])
    assert_drained(kv)


def test_the_end_of_a_transfer_out_is_not_the_end_of_its_request():
    kv = oracle(4, 2, a=[1, 2, 3])
    kv.send("a", "t", 1, 0)

    acknowledge(kv, workers=[0])

    assert (kv.read("a"), kv.transfers) == ([1, 2, 3], {})
    kv.check()


def test_a_partial_page_that_is_sent_is_copied_before_it_is_written():
    kv = oracle(4, 2, a=[1])
    kv.send("a", "t", 1, 0)

    kv.append("a", 2)

    assert (kv.copied, kv.tables["a"], kv.pages[0].tokens) == ([(0, 1)], [1], [1])
    kv.check()


def test_a_page_may_be_sent_and_pinned_by_several_transfers_at_once():
    kv = oracle(4, 2, a=[1])
    kv.send("a", "t", 1, 0)
    kv.send("a", "u", 2, 0)
    kv.pin("a", "p")
    kv.release("a")

    acknowledge(kv, "u")
    kv.unpin("p")
    assert holders(kv, 0) == ([], ["t"], [])

    acknowledge(kv, "t", [0])
    assert_drained(kv)


# In


def test_a_request_that_waits_reads_its_hit_and_has_room_for_the_rest():
    kv = receiving()

    assert kv.tables["w"] == [0, 1, 2]
    assert kv.read("w") == [1, 2]
    assert (kv.lives["w"].waiting, kv.lives["w"].reserved) == (True, 3)
    assert (pinned_by(kv), kv.transfers["t"].contents) == ([1, 2], [[], []])
    assert hit_depth(kv, [1, 2, 3, 4, 5]) == 1
    kv.check()


def test_a_load_is_written_and_published_when_the_last_worker_has_acknowledged():
    kv = receiving()

    assert kv.acknowledge("t", 1, 0) is False
    assert (kv.read("w"), kv.lives["w"].waiting) == ([1, 2], True)
    assert kv.acknowledge("t", 0, 0) is True

    assert kv.read("w") == [1, 2, 3, 4, 5]
    assert (kv.lives["w"].waiting, kv.lives["w"].reserved, pinned_by(kv)) == (False, 0, [])
    assert hit_depth(kv, [1, 2, 3, 4, 5]) == 2
    kv.append("w", 6)
    kv.check()


@pytest.mark.parametrize("length", range(1, 6))
def test_a_load_is_as_long_as_its_prompt_around_every_block_edge(length):
    kv = oracle(6, 2, a=[1, 2])
    prompt = list(range(1, length + 1))

    hit = kv.receive("w", *prompt, transfer="t", workers=1, lease=0)

    assert hit == (2 if length > 2 else 0)
    assert len(kv.tables["w"]) == -(-length // 2)
    assert pinned_by(kv) == kv.tables["w"][hit // 2 :]
    acknowledge(kv, workers=[0])
    assert kv.read("w") == prompt
    kv.check()


def test_a_load_that_finds_no_page_changes_nothing():
    kv = oracle(3, 2, a=[1, 2], b=[7])

    with changes_nothing(kv, MemoryError, "2 blocks needed, 1 free beside the hits"):
        kv.receive("w", 1, 2, 3, 4, 5, transfer="t", workers=1, lease=1)


@pytest.mark.parametrize(("watermark", "fits"), [(0, True), (1, True), (2, False)])
def test_a_load_leaves_the_watermark_free(watermark, fits):
    """Two pages are needed and three are free."""
    if fits:
        receiving(4, watermark=watermark)
    else:
        kv = oracle(4, 2, watermark=watermark, a=[1, 2])
        with changes_nothing(kv, MemoryError, r"4 blocks needed \(2 kept free\), 3 free"):
            kv.receive("w", 1, 2, 3, 4, 5, transfer="t", workers=1, lease=0)


@pytest.mark.parametrize(
    ("choices", "said"),
    [([[1]], "does not hold its prefix"), ([[0], [1]], "was taken for 'w' but is not free")],
)
def test_a_load_onto_pages_that_were_not_to_be_taken_changes_nothing(choices, said):
    kv = fill(told_pool(Oracle, 4, 1, [0, 1], *choices), {"a": [1, 2]})

    with changes_nothing(kv, WrongChoice, said):
        kv.receive("w", 1, 9, transfer="t", workers=1, lease=0)


# A request that is gone before its load has arrived


AGAIN = {
    "not at all": lambda kv: None,
    "created": lambda kv: kv.create("w"),
    "admitted": lambda kv: kv.admit("w", 1, 2, 3),
    "looked up": lambda kv: kv.look_up("w", 1, 2, 3),
    "received": lambda kv: kv.receive("w", 1, 2, 3, transfer="u", workers=1, lease=0),
}
again = pytest.mark.parametrize("again", AGAIN.values(), ids=AGAIN)


@again
def test_a_load_for_a_request_that_is_gone_is_held_until_it_ends_and_written_nowhere(again):
    kv = receiving(8)
    kv.release("w")
    again(kv)
    tables, lives = dict(kv.tables), {name: vars(life).copy() for name, life in kv.lives.items()}
    entries = published(kv)
    assert pinned_by(kv) == [1, 2]
    assert not {1, 2} & set(kv.takeable())
    kv.check()

    assert acknowledge(kv) is False

    assert (kv.tables, published(kv)) == (tables, entries)
    assert {name: vars(life) for name, life in kv.lives.items()} == lives
    assert {1, 2} <= set(kv.takeable())
    kv.check()


@again
def test_a_lost_load_for_a_request_that_is_gone_gives_its_pages_back_and_no_more(again):
    kv = receiving(8, lease=1)
    kv.release("w")
    again(kv)
    waiting = {name: life.waiting for name, life in kv.lives.items()}

    assert kv.tick() == ["t"]

    assert {name: life.waiting for name, life in kv.lives.items()} == waiting
    assert {1, 2} <= set(kv.takeable())
    kv.check()


def test_two_lives_of_a_name_may_wait_at_once_and_each_load_finds_its_own():
    kv = receiving(8)
    kv.release("w")
    kv.receive("w", 1, 2, 8, transfer="u", workers=1, lease=0)

    assert acknowledge(kv, "u", [0]) is True
    assert kv.read("w") == [1, 2, 8]
    assert acknowledge(kv) is False
    assert kv.read("w") == [1, 2, 8]
    kv.release_each(["w", "a"])
    assert_drained(kv)


# Leases


@pytest.mark.parametrize("elapsed", [0, 3])
@pytest.mark.parametrize("lease", [1, 2, 3])
def test_a_transfer_ends_by_itself_at_the_last_tick_of_its_lease(elapsed, lease):
    kv = oracle(4, 2, a=[1])
    ticks(kv, elapsed)
    kv.send("a", "t", 2, lease)
    kv.release("a")
    kv.acknowledge("t", 1, 0)

    assert ticks(kv, lease - 1) == [[]] * (lease - 1)
    assert pinned_by(kv) == [0]
    assert kv.tick() == ["t"]

    rejects(kv, lambda kv: kv.acknowledge("t", 0, 0), "unknown transfer: 't'")
    assert ticks(kv, 2) == [[], []]
    assert_drained(kv)


def test_a_transfer_without_a_lease_and_a_pin_never_end_by_themselves():
    kv = oracle(4, 2, a=[1])
    kv.send("a", "t", 1, 0)
    kv.pin("a", "p")

    assert ticks(kv, 9) == [[]] * 9

    assert holders(kv, 0)[1] == ["p", "t"]


def test_transfers_whose_time_is_up_at_once_end_in_the_order_of_their_beginning():
    kv = oracle(8, 2, a=[1])
    kv.send("a", "u", 1, 3)
    kv.tick()
    kv.send("a", "t", 1, 1)
    kv.receive("w", 5, transfer="s", workers=1, lease=2)
    kv.send("a", "r", 1, 2)

    assert ticks(kv, 3) == [["t"], ["u", "s", "r"], []]


def test_a_lease_is_not_prolonged_by_an_acknowledgement_and_counts_no_more_once_it_ended():
    kv = oracle(4, 2, a=[1])
    kv.send("a", "t", 1, 2)
    acknowledge(kv, workers=[0])
    kv.tick()
    kv.send("a", "t", 1, 2)

    assert ticks(kv, 2) == [[], ["t"]]


def test_a_request_whose_load_was_lost_keeps_its_room_and_waits_no_more():
    kv = receiving(lease=1)
    kv.acknowledge("t", 0, 0)

    assert kv.tick() == ["t"]

    assert kv.read("w") == [1, 2]
    assert kv.tables["w"] == [0, 1, 2]
    assert (kv.lives["w"].waiting, kv.lives["w"].reserved, pinned_by(kv)) == (False, 3, [])
    assert hit_depth(kv, [1, 2, 3, 4, 5]) == 1
    kv.check()


@pytest.mark.parametrize(
    "use",
    [
        lambda kv: kv.append("w", 7, 8, 9),
        lambda kv: kv.commit("w", 7, 8, 9),
        lambda kv: (kv.trim("w"), kv.append("w", 7, 8, 9)),
        lambda kv: (
            kv.begin_step("s", ["w"], [7]),
            kv.begin_step("r", ["w"], [8]),
            kv.begin_step("q", ["w"], [9]),
            kv.end_step("s"),
            kv.end_step("r"),
            kv.end_step("q"),
        ),
    ],
)
def test_the_room_of_a_lost_load_is_used_as_any_other(use):
    kv = receiving(3, lease=1)
    kv.tick()

    use(kv)

    assert kv.read("w") == [1, 2, 7, 8, 9]
    assert hit_depth(kv, [1, 2, 7, 8, 9]) == 2
    kv.check()


def test_a_request_whose_load_was_lost_can_be_preempted_with_what_it_has():
    kv = receiving(lease=1)
    kv.tick()

    kv.preempt("w")

    assert kv.preempted["w"][0] == (1, 2)
    assert len(kv.takeable()) == 5


# Acknowledgements that do not count, in the order in which they are checked


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ghost", 0, 0), "unknown transfer: 'ghost'"),
        (("ghost", 0, 1), "unknown transfer: 'ghost'"),
        (("t", 0, 1), "unknown transfer: 't'"),
        (("t", 9, 1), "unknown transfer: 't'"),
        (("over", 0, 0), "unknown transfer: 'over'"),
        (("over", 9, 0), "unknown transfer: 'over'"),
        (("unpinned", 0, 0), "unknown transfer: 'unpinned'"),
        (("again", 0, 1), "stale handle: 'again'"),
        (("again", 9, 1), "stale handle: 'again'"),
        (("again", 0, 2), "unknown transfer: 'again'"),
        (("twice over", 0, 1), "stale handle: 'twice over'"),
        (("was a pin", 0, 1), "stale handle: 'was a pin'"),
        (("is a pin", 0, 1), "stale handle: 'is a pin'"),
        (("is a pin", 0, 0), "wrong kind of transfer: 'is a pin'"),
        (("pin", 0, 0), "wrong kind of transfer: 'pin'"),
        (("pin", 9, 0), "wrong kind of transfer: 'pin'"),
        (("t", 2, 0), "unknown worker: 't'"),
        (("t", -1, 0), "unknown worker: 't'"),
        (("in", 1, 0), "unknown worker: 'in'"),
        (("t", 1, 0), "already acknowledged: 't'"),
    ],
)
def test_an_acknowledgement_that_is_not_awaited_changes_nothing(arguments, said):
    kv = oracle(8, 2, a=[1, 2, 3])

    def send(transfer):
        kv.send("a", transfer, 1, 0)
        acknowledge(kv, transfer, [0])

    def pin(transfer):
        kv.pin("a", transfer)
        kv.unpin(transfer)

    send("over")
    pin("unpinned")
    send("again")
    kv.send("a", "again", 1, 0)
    send("twice over")
    send("twice over")
    pin("was a pin")
    kv.send("a", "was a pin", 1, 0)
    send("is a pin")
    kv.pin("a", "is a pin")
    kv.pin("a", "pin")
    kv.send("a", "t", 2, 0)
    kv.acknowledge("t", 1, 0)
    kv.receive("w", 5, transfer="in", workers=1, lease=0)

    rejects(kv, lambda kv: kv.acknowledge(*arguments), said)


@pytest.mark.parametrize("lives", [2, 3])
def test_a_late_acknowledgement_of_any_earlier_life_does_not_end_the_present_one(lives):
    kv = oracle(4, 2, a=[1])
    for _ in range(lives - 1):
        kv.send("a", "t", 1, 1)
        kv.tick()
    kv.send("a", "t", 1, 0)

    for life in range(1, lives):
        rejects(kv, lambda kv, life=life: kv.acknowledge("t", 0, life), "stale handle: 't'")
    rejects(kv, lambda kv: kv.acknowledge("t", 0, lives), "unknown transfer: 't'")

    assert pinned_by(kv) == [0]
    acknowledge(kv, workers=[0])
    assert pinned_by(kv) == []


@pytest.mark.parametrize("begin", ["pin", "send", "receive"])
def test_every_kind_of_transfer_is_a_life_of_its_name(begin):
    kv = oracle(4, 2, a=[1])
    if begin == "pin":
        kv.pin("a", "t")
        kv.unpin("t")
    elif begin == "send":
        kv.send("a", "t", 1, 0)
        acknowledge(kv, workers=[0])
    else:
        kv.receive("w", 5, transfer="t", workers=1, lease=0)
        acknowledge(kv, workers=[0])

    assert kv.begun == {"t": 1}
    rejects(kv, lambda kv: kv.acknowledge("t", 0, 0), "unknown transfer: 't'")
    kv.send("a", "t", 1, 0)
    assert kv.begun == {"t": 2}
    rejects(kv, lambda kv: kv.acknowledge("t", 0, 1), "stale handle: 't'")


# Other refusals, in the order in which they are checked


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda kv: kv.send("ghost", "t", 1, 0), "unknown request: 'ghost'"),
        (lambda kv: kv.send("w", "t", 1, 0), "tokens on their way: 'w'"),
        (lambda kv: kv.send("a", "t", 1, 0), "duplicate transfer: 't'"),
        (lambda kv: kv.send("a", "p", 1, 0), "duplicate transfer: 'p'"),
        (lambda kv: kv.send("empty", "t", 1, 0), "duplicate transfer: 't'"),
        (lambda kv: kv.send("empty", "new", 1, 0), "nothing to pin: 'empty'"),
        (lambda kv: kv.pin("a", "t"), "duplicate transfer: 't'"),
        (lambda kv: kv.receive("a", transfer="t", workers=1, lease=0), "duplicate request: 'a'"),
        (lambda kv: kv.receive("new", transfer="t", workers=1, lease=0), "duplicate transfer: 't'"),
        (lambda kv: kv.receive("new", transfer="v", workers=1, lease=0), "no tokens: 'new'"),
        (lambda kv: kv.unpin("t"), "wrong kind of transfer: 't'"),
        (lambda kv: kv.unpin("out"), "wrong kind of transfer: 'out'"),
        (lambda kv: kv.append("w"), "tokens on their way: 'w'"),
        (lambda kv: kv.append_each(["a", "w"], [1]), "tokens on their way: 'w'"),
        (lambda kv: kv.reserve("w", 0), "tokens on their way: 'w'"),
        (lambda kv: kv.commit("w", 3), "tokens on their way: 'w'"),
        (lambda kv: kv.trim("w"), "tokens on their way: 'w'"),
        (lambda kv: kv.fork("w", "a"), "tokens on their way: 'w'"),
        (lambda kv: kv.pin("w", "p"), "tokens on their way: 'w'"),
        (lambda kv: kv.begin_step("s", ["a", "w"], [3, 4]), "tokens on their way: 'w'"),
        (lambda kv: kv.preempt("w"), "tokens on their way: 'w'"),
        (lambda kv: kv.reset(), "blocks in use: 'reset'"),
    ],
)
def test_a_wrong_call_is_refused_and_changes_nothing(call, said):
    kv = fill(receiving(), {"empty": []})
    kv.pin("a", "p")
    kv.send("a", "out", 1, 0)

    rejects(kv, call, said)


def test_a_request_that_waits_may_be_read_evicted_hit_and_released():
    kv = receiving()

    assert kv.read("w") == [1, 2]
    kv.evict("w", 1)
    assert acknowledge(kv) is True
    assert published(kv) == {0: (1, 2)}
    kv.check()


@pytest.mark.parametrize("order", list(itertools.permutations(["a", "w", "t", "out"])))
@pytest.mark.parametrize("lost", [False, True])
def test_every_order_of_ending_leaves_the_pool_empty(order, lost):
    kv = receiving(lease=1)
    kv.send("a", "out", 2, 1)

    for name in order:
        if name in ("a", "w"):
            kv.release(name)
        elif not lost:
            acknowledge(kv, name)
        elif kv.time == 0:
            kv.tick()
        kv.check()

    assert_drained(kv)
