"""The order of reuse: pages without an entry as a stack, then idle ones as a queue."""

from functools import partial

import pytest
from reference_helpers import changes_nothing, everything, fill, oracle, published, told_pool

from kvoracle.reference import Oracle, PagedKV, WrongChoice


def order(kv):
    return kv.reuse_order()


# A whole order


def test_a_new_pool_is_taken_from_its_smallest_page_up():
    assert order(PagedKV(3, 1, first_page=1)) == [1, 2, 3]
    assert order(oracle(3, 1)) == [0, 1, 2]


def test_pages_without_an_entry_come_first_the_one_freed_last_first():
    kv = oracle(5, 2, a=[1], b=[2], c=[3])

    for request in "bca":
        kv.release(request)

    assert order(kv) == [0, 2, 1, 3, 4]


def test_idle_pages_come_last_the_one_that_became_idle_first_first():
    kv = oracle(5, 1, a=[1], b=[2], c=[3])

    for request in "bca":
        kv.release(request)

    assert order(kv) == [3, 4, 1, 2, 0]


def test_a_page_that_was_hit_becomes_idle_anew():
    kv = oracle(4, 1, a=[1], b=[2])
    kv.release("a")
    kv.release("b")
    assert order(kv) == [2, 3, 0, 1]

    kv.look_up("c", 1, 9)
    kv.cancel("c")

    assert order(kv) == [2, 3, 1, 0]


def test_an_admission_that_is_refused_changes_no_place():
    kv = oracle(3, 1, a=[1], b=[2])
    kv.release("a")
    kv.release("b")

    with changes_nothing(kv, MemoryError, "blocks needed"):
        kv.admit("c", 1, 5, 6, 7)

    assert order(kv) == [2, 0, 1]


# What is given back in one call: the last named goes first


def full(kv):
    """a holds the full pages 0, 1, 2 and the partial page 3."""
    return fill(kv, {"a": [1, 2, 3, 4, 5, 6, 7]})


GIVE_BACK = {
    "release": (lambda kv: kv.release("a"), [3, 4, 5, 2, 1, 0]),
    "release each": (lambda kv: kv.release_each(["a"]), [3, 4, 5, 2, 1, 0]),
    "preempt": (lambda kv: kv.preempt("a"), [3, 4, 5, 2, 1, 0]),
    "unpin": (
        lambda kv: (kv.pin("a", "t"), kv.release("a"), kv.unpin("t")),
        [3, 4, 5, 2, 1, 0],
    ),
    "the last acknowledgement": (
        lambda kv: (kv.send("a", "t", 1, 0), kv.release("a"), kv.acknowledge("t", 0, 0)),
        [3, 4, 5, 2, 1, 0],
    ),
    "the end of a lease": (
        lambda kv: (kv.send("a", "t", 1, 1), kv.release("a"), kv.tick()),
        [3, 4, 5, 2, 1, 0],
    ),
    "the end of a step": (
        lambda kv: (kv.begin_step("s", ["a"], [8]), kv.release("a"), kv.end_step("s")),
        [3, 4, 5, 2, 1, 0],
    ),
    "a step that failed": (
        lambda kv: (kv.begin_step("s", ["a"], [8]), kv.release("a"), kv.fail_step("s")),
        [3, 4, 5, 2, 1, 0],
    ),
    "cancel": (
        lambda kv: (kv.look_up("l", 1, 2, 3, 4, 9), kv.release("a"), kv.cancel("l")),
        [3, 4, 5, 2, 1, 0],
    ),
    "trim": (lambda kv: (kv.reserve("a", 5), kv.trim("a")), [5, 4]),
    "reset": (lambda kv: (kv.release("a"), kv.reset()), [0, 1, 2, 3, 4, 5]),
    "change of weights": (
        lambda kv: (kv.release("a"), kv.change_weights()),
        [0, 1, 2, 3, 4, 5],
    ),
    "after eviction": (
        lambda kv: (kv.evict("a", 1), kv.release("a")),
        [3, 2, 1, 4, 5, 0],
    ),
}


@pytest.mark.parametrize(("give_back", "expected"), GIVE_BACK.values(), ids=GIVE_BACK)
def test_of_what_is_given_back_in_one_call_the_last_goes_first(give_back, expected):
    kv = full(oracle(6, 2))

    give_back(kv)

    assert order(kv) == expected
    kv.check()


def test_tables_are_given_back_one_after_the_other():
    kv = oracle(8, 2, a=[1, 2, 3, 4, 5], b=[6, 7, 8])

    kv.release_each(["b", "a"])

    assert order(kv) == [2, 4, 5, 6, 7, 1, 0, 3]


@pytest.mark.parametrize(
    ("requests", "expected"),
    [(["a", "b"], [3, 2, 4, 5, 1, 0]), (["b", "a"], [2, 3, 4, 5, 1, 0])],
)
def test_a_page_that_is_named_twice_counts_at_its_last_mention(requests, expected):
    """a and b share pages 0 and 1; a's tail is 2, b's is 3."""
    kv = oracle(6, 2, a=[1, 2, 3, 4])
    kv.fork("a", "b")
    kv.append_each(["a", "b"], [5, 6])

    kv.release_each(requests)

    assert order(kv) == expected


def test_an_idle_page_that_is_named_twice_becomes_idle_once_at_its_last_mention():
    """a is 0 1 2, b is 0 3: the list 0 1 2 0 3 is 1 2 0 3, from its end 3 0 2 1."""
    kv = oracle(6, 1, a=[1, 2, 3])
    kv.admit("b", 1, 9)

    kv.release_each(["a", "b"])

    assert order(kv) == [4, 5, 3, 0, 2, 1]


@pytest.mark.parametrize("end", [Oracle.end_step, Oracle.fail_step])
def test_a_step_gives_back_its_tables_in_order_then_the_sources_of_its_copies(end):
    """b's tail 1 is copied to 2; the list is b: 0 2, a: 0 1 3, then the source 1."""
    kv = oracle(6, 2, a=[1, 2, 3])
    kv.fork("a", "b")
    kv.begin_step("s", ["b"], [8])
    kv.begin_step("t", ["a"], [9])
    kv.release_each(["a", "b"])
    assert order(kv) == [3, 4, 5]

    kv.end_step("s")
    assert order(kv) == [2, 3, 4, 5]

    end(kv, "t")
    assert order(kv) == [1, 2, 3, 4, 5, 0]


def test_the_sources_of_a_steps_copies_are_given_back_last():
    """Request a leaves its tail 1, whose content b keeps until it ends."""
    kv = oracle(6, 2, a=[1, 2, 3])
    kv.fork("a", "b")
    kv.begin_step("s", ["a"], [4])
    kv.release_each(["b", "a"])
    assert order(kv) == [3, 4, 5]

    kv.end_step("s")

    assert order(kv) == [1, 2, 3, 4, 5, 0]


def test_steps_that_fail_together_give_back_one_after_the_other_the_youngest_first():
    kv = oracle(6, 2, a=[1], b=[2])
    kv.begin_step("s", ["a"], [3])
    kv.begin_step("t", ["b"], [4])
    kv.release_each(["a", "b"])

    kv.fail_step("s")

    assert order(kv) == [0, 1, 2, 3, 4, 5]


def test_transfers_whose_leases_end_together_give_back_one_after_the_other_the_oldest_first():
    kv = oracle(6, 1, a=[1, 2], b=[3, 4])
    kv.send("b", "u", 1, 2)
    kv.tick()
    kv.send("a", "t", 1, 1)
    kv.release_each(["a", "b"])

    assert kv.tick() == ["u", "t"]

    assert order(kv) == [4, 5, 3, 2, 1, 0]


def test_a_lost_load_of_a_request_that_is_gone_is_given_back_the_last_page_first():
    kv = oracle(5, 2)
    kv.receive("w", 1, 2, 3, 4, 5, transfer="t", workers=1, lease=1)
    kv.release("w")
    assert order(kv) == [3, 4]

    kv.tick()

    assert order(kv) == [2, 1, 0, 3, 4]


def test_only_what_nothing_holds_any_more_takes_a_place():
    kv = full(oracle(6, 2))
    kv.fork("a", "b")
    kv.pin("a", "t")
    kv.look_up("l", 1, 2, 3)
    before = order(kv)

    kv.release("a")
    kv.release("b")
    assert order(kv) == before
    kv.unpin("t")
    assert order(kv) == [3, *before, 2, 1]
    kv.cancel("l")

    assert order(kv) == [3, *before, 2, 1, 0]


def test_idle_pages_become_free_oldest_first_in_one_list():
    kv = oracle(5, 1, a=[1, 2], b=[3])
    kv.release("b")
    kv.release("a")
    assert order(kv) == [3, 4, 2, 1, 0]

    kv.reset()

    assert order(kv) == [0, 1, 2, 3, 4]


def test_eviction_changes_no_place():
    kv = oracle(6, 1, a=[1, 2, 3], b=[4], c=[5])
    kv.release("b")
    kv.release("c")
    before = order(kv)

    kv.evict("a", 0)

    assert order(kv) == before == [5, 3, 4]


# The promise


def in_order(capacity, block_size, *choices):
    return told_pool(partial(Oracle, in_order=True), capacity, block_size, *choices)


def test_pages_taken_in_the_promised_order_are_right():
    kv = fill(in_order(5, 1, [0, 1], [2], [3, 4, 2], [1, 0]), {"a": [1, 2], "b": [3]})
    kv.release_each(["a", "b"])
    assert order(kv) == [3, 4, 2, 1, 0]

    kv.admit("c", 7, 8, 9)
    kv.append("c", 10, 11)

    assert kv.tables["c"] == [3, 4, 2, 1, 0]
    assert published(kv)[2] == (7, 8, 9)
    kv.check()


@pytest.mark.parametrize(
    ("taken", "said"),
    [
        ([1], "block 1 was taken for 'b' before block 2, which is to be reused first"),
        ([3], "block 3 was taken for 'b' before block 2"),
        ([2, 1], "block 1 was taken for 'b' before block 3"),
        ([3, 2], "block 3 was taken for 'b' before block 2"),
    ],
)
def test_pages_taken_in_another_order_are_a_wrong_choice_and_change_nothing(taken, said):
    kv = fill(in_order(4, 1, [0, 1], taken), {"a": [1, 2]})
    kv.release("a")
    assert order(kv) == [2, 3, 1, 0]

    with changes_nothing(kv, WrongChoice, said):
        kv.admit("b", *range(7, 7 + len(taken)))


def test_a_page_out_of_order_is_named_with_the_rule():
    kv = fill(in_order(4, 1, [3]), {"a": []})

    with pytest.raises(WrongChoice) as caught:
        kv.append("a", 1)

    assert (caught.value.page, caught.value.rule) == (3, "reuse order")


def test_a_page_in_use_is_said_before_the_order():
    kv = fill(in_order(4, 1, [0], [0]), {"a": [1], "b": []})

    with pytest.raises(WrongChoice, match="is not free") as caught:
        kv.append("b", 1)

    assert caught.value.rule == "choice"


def test_a_hit_page_is_taken_out_of_the_order_before_the_rest_is_taken():
    kv = fill(in_order(3, 1, [0, 1, 2], [0], [2, 1]), {"a": [1, 2, 3]})
    kv.release("a")
    assert order(kv) == [2, 1, 0]

    assert kv.admit("b", 1, 8, 9) == 1

    assert kv.tables["b"] == [0, 2, 1]
    kv.check()


def test_without_the_promise_any_order_is_right():
    kv = fill(told_pool(Oracle, 4, 1, [3, 0]), {"a": [1, 2]})

    assert kv.tables["a"] == [3, 0]


def test_asking_for_the_order_changes_nothing():
    kv = full(oracle(6, 2))
    kv.preempt("a")
    before = everything(kv)

    assert order(kv) == order(kv)
    assert sorted(order(kv)) == sorted(kv.takeable())
    assert everything(kv) == before
