"""Steps in flight: nothing is written before a step ends, and all that it touches is held until then."""

import itertools

import pytest
from reference_helpers import (
    assert_drained,
    everything,
    fill,
    hit_depth,
    holders,
    oracle,
    published,
    rejects,
    told_pool,
)

from kvoracle.reference import Oracle


def held_by(kv, step):
    return [page for page in sorted(kv.pages) if step in holders(kv, page)[2]]


def flight(kv, request):
    """Tokens written, in flight, and reserved."""
    return kv.length(request), kv.lives[request].in_flight, kv.lives[request].reserved


END = {
    "ended": lambda kv: kv.end_step("s"),
    "failed": lambda kv: kv.fail_step("s"),
}
ends_or_fails = pytest.mark.parametrize("end", END.values(), ids=END)


# Room now, tokens later


def test_a_step_has_its_room_and_writes_nothing_before_it_ends():
    kv = oracle(4, 2, a=[1, 2], b=[5])

    assert kv.begin_step("s", ["a", "b"], [3, 6]) == []

    assert kv.tables == {"a": [0, 2], "b": [1]}
    assert [flight(kv, request) for request in "ab"] == [(2, 1, 1), (1, 1, 1)]
    assert (kv.read("a"), kv.read("b")) == ([1, 2], [5])
    assert published(kv) == {0: (1, 2)}
    kv.check()

    kv.end_step("s")

    assert (kv.read("a"), kv.read("b")) == ([1, 2, 3], [5, 6])
    assert [flight(kv, request) for request in "ab"] == [(3, 0, 0), (2, 0, 0)]
    assert published(kv) == {0: (1, 2), 1: (5, 6)}
    kv.check()


@pytest.mark.parametrize("block_size", [1, 2, 3])
@pytest.mark.parametrize("length", range(5))
def test_three_steps_on_one_request_write_three_tokens_in_order(block_size, length):
    kv = oracle(9, block_size, a=list(range(length)))

    for count, step in enumerate("stu", start=1):
        kv.begin_step(step, ["a"], [step])
        assert flight(kv, "a") == (length, count, count)
        assert len(kv.tables["a"]) == -(-(length + count) // block_size)
        kv.check()
    for step in "stu":
        kv.end_step(step)
        kv.check()

    assert kv.read("a") == [*range(length), "s", "t", "u"]
    assert len(published(kv)) == (length + 3) // block_size


def test_a_page_filled_by_a_step_is_hit_once_the_step_has_ended():
    kv = oracle(4, 2, a=[1])
    kv.begin_step("s", ["a"], [2])
    assert hit_depth(kv, [1, 2, 3]) == 0

    kv.end_step("s")

    assert hit_depth(kv, [1, 2, 3]) == 1


def test_a_step_goes_on_where_no_page_is_free_and_names_the_refused():
    kv = oracle(4, 1, a=[1], b=[2], c=[3])

    assert kv.begin_step("s", ["a", "b", "c"], [7, 8, 9]) == ["b", "c"]

    assert [flight(kv, request) for request in "abc"] == [(1, 1, 1), (1, 0, 0), (1, 0, 0)]
    assert held_by(kv, "s") == [0, 3]
    kv.end_step("s")
    assert [kv.read(request) for request in "abc"] == [[1, 7], [2], [3]]
    kv.check()


def test_a_step_in_which_every_request_is_refused_holds_nothing_and_still_ends():
    kv = oracle(1, 1, a=[1])

    assert kv.begin_step("s", ["a"], [2]) == ["a"]

    assert flight(kv, "a") == (1, 0, 0)
    assert (held_by(kv, "s"), list(kv.steps)) == ([], ["s"])
    kv.append_each(["a"], [3])
    kv.end_step("s")
    kv.release("a")
    assert_drained(kv)


def test_room_that_was_reserved_is_used_first():
    asked = []
    kv = fill(told_pool(Oracle, 4, 1, [0], [1, 2], [3], asked=asked), {"a": [1]})
    kv.reserve("a", 2)

    for count, step in enumerate("stu", start=1):
        kv.begin_step(step, ["a"], [step])
        assert flight(kv, "a") == (1, count, max(2, count))

    assert [positions for _, positions in asked] == [[0], [1, 2], [3]]
    kv.check()


# Copies


@pytest.mark.parametrize("share", [lambda kv: kv.fork("a", "b"), lambda kv: kv.pin("a", "t")])
@ends_or_fails
def test_a_shared_or_pinned_tail_is_copied_and_its_source_held_until_the_step_ends(share, end):
    kv = oracle(4, 4, a=[1])
    share(kv)

    kv.begin_step("s", ["a"], [2])

    assert (kv.copied, kv.tables["a"]) == ([(0, 1)], [1])
    assert held_by(kv, "s") == [0, 1]
    kv.check()
    end(kv)
    assert held_by(kv, "s") == []
    assert kv.pages[0].tokens == [1]
    kv.check()


@ends_or_fails
def test_the_source_of_a_copy_outlives_all_its_owners_until_the_step_ends(end):
    kv = oracle(4, 4, a=[1])
    kv.fork("a", "b")
    kv.begin_step("s", ["a"], [2])

    kv.release("b")
    assert holders(kv, 0) == ([], [], ["s"])
    assert 0 not in kv.takeable()

    end(kv)
    assert 0 in kv.takeable()
    kv.check()


def test_the_last_of_the_sharers_in_one_step_writes_in_place():
    kv = oracle(4, 4, a=[1])
    kv.fork("a", "b")

    kv.begin_step("s", ["b", "a"], [2, 3])

    assert (kv.copied, kv.tables) == ([(0, 1)], {"a": [0], "b": [1]})
    kv.end_step("s")
    assert (kv.read("a"), kv.read("b")) == ([1, 3], [1, 2])
    kv.check()


def test_a_step_holds_the_tables_as_they_are_after_the_whole_call():
    """b's tail is copied after a, which shares it, was given its room."""
    kv = oracle(8, 2, a=[1, 2, 3])
    kv.fork("a", "b")
    kv.begin_step("s", ["a"], [4])

    kv.begin_step("t", ["b", "a"], [5, 6])

    assert kv.tables == {"a": [0, 2, 3], "b": [0, 1]}
    assert kv.steps["s"].pages == [0, 2, 1]
    assert kv.steps["t"].pages == [0, 1, 0, 2, 3]
    assert (held_by(kv, "s"), held_by(kv, "t")) == ([0, 1, 2], [0, 1, 2, 3])
    kv.check()


# Requests that end while a step is in flight


@ends_or_fails
@pytest.mark.parametrize("leave", [Oracle.release, Oracle.preempt])
def test_what_a_step_touches_stays_held_when_its_request_ends(end, leave):
    kv = oracle(4, 2, a=[1, 2, 3])
    kv.begin_step("s", ["a"], [4])

    leave(kv, "a")
    assert held_by(kv, "s") == [0, 1]
    assert (kv.idle(), sorted(kv.takeable())) == ([], [2, 3])
    kv.check()

    end(kv)
    assert (kv.idle(), sorted(kv.free)) == ([0], [1, 2, 3])
    assert published(kv) == {0: (1, 2)}
    if leave is Oracle.preempt:
        kv.release("a")
    assert_drained(kv)


AGAIN = {
    "created": lambda kv: (kv.release("a"), kv.create("a"), kv.append("a", 9)),
    "admitted": lambda kv: (kv.release("a"), kv.admit("a", 1, 2, 9)),
    "looked up and used": lambda kv: (
        kv.release("a"),
        kv.look_up("a", 1, 2, 9),
        kv.use("a"),
    ),
    "forked": lambda kv: (kv.release("a"), kv.fork("b", "a")),
    "received": lambda kv: (
        kv.release("a"),
        kv.receive("a", 1, 2, 9, transfer="t", workers=1, lease=0),
    ),
    "preempted and resumed": lambda kv: (kv.preempt("a"), kv.resume("a")),
}


@pytest.mark.parametrize("again", AGAIN.values(), ids=AGAIN)
@ends_or_fails
def test_a_step_of_an_earlier_life_of_a_name_leaves_the_present_one_alone(again, end):
    kv = oracle(12, 2, a=[1, 2, 3], b=[7])
    kv.begin_step("s", ["a"], [4])
    again(kv)
    before = kv.read("a"), flight(kv, "a")

    end(kv)

    assert (kv.read("a"), flight(kv, "a")) == before
    kv.check()


@ends_or_fails
def test_both_lives_of_a_name_may_be_in_flight(end):
    kv = oracle(8, 2, a=[1, 2, 3])
    kv.begin_step("s", ["a"], [4])
    kv.preempt("a")
    kv.resume("a")
    kv.begin_step("t", ["a"], [5])
    assert flight(kv, "a") == (3, 1, 1)

    if end is END["failed"]:
        end(kv)
        assert (kv.read("a"), flight(kv, "a")) == ([1, 2, 3], (3, 0, 1))
    else:
        end(kv)
        kv.end_step("t")
        assert (kv.read("a"), flight(kv, "a")) == ([1, 2, 3, 5], (4, 0, 0))
    kv.check()


# Order, and failure


def test_steps_end_in_the_order_of_their_beginning():
    kv = oracle(8, 1, a=[1])
    for step in "uts":
        kv.begin_step(step, ["a"], [step])

    for later in "ts":
        rejects(
            kv,
            lambda kv, later=later: kv.end_step(later),
            f"an earlier step is in flight: '{later}'",
        )
    for step in "uts":
        kv.end_step(step)

    assert kv.read("a") == [1, *"uts"]


@pytest.mark.parametrize("failed", range(3))
def test_a_step_that_fails_takes_those_begun_after_it_with_it_and_leaves_those_before(failed):
    kv = oracle(8, 1, a=[1], b=[2])
    for step in "stu":
        kv.begin_step(step, ["a", "b"], [step, step])
    pages = dict(kv.tables)

    kv.fail_step("stu"[failed])

    assert list(kv.steps) == list("stu"[:failed])
    assert [flight(kv, request) for request in "ab"] == [(1, failed, 3)] * 2
    assert kv.tables == pages
    kv.check()
    for step in "stu"[:failed]:
        kv.end_step(step)
    assert kv.read("a") == [1, *"stu"[:failed]]
    assert flight(kv, "a") == (1 + failed, 0, 3 - failed)
    kv.check()


def test_what_failed_can_begin_again_in_the_room_that_stayed():
    kv = oracle(3, 1, a=[1])
    kv.begin_step("s", ["a"], [2])
    kv.begin_step("t", ["a"], [3])
    kv.fail_step("s")

    assert kv.begin_step("s", ["a"], [4]) == []
    assert kv.begin_step("t", ["a"], [5]) == []
    kv.end_step("s")
    kv.end_step("t")

    assert kv.read("a") == [1, 4, 5]


def test_the_room_of_a_failed_step_can_be_trimmed():
    kv = oracle(3, 1, a=[1])
    kv.begin_step("s", ["a"], [2])
    kv.fail_step("s")
    assert published(kv) == {0: (1,)}

    kv.trim("a")

    assert (kv.tables["a"], sorted(kv.free)) == ([0], [1, 2])
    kv.release("a")
    assert_drained(kv)


def test_a_page_held_by_two_steps_is_held_until_both_have_ended():
    kv = oracle(4, 2, a=[1])
    kv.begin_step("s", ["a"], [2])
    kv.begin_step("t", ["a"], [3])
    kv.release("a")

    kv.end_step("s")
    assert held_by(kv, "t") == [0, 1]
    assert sorted(kv.takeable()) == [2, 3]

    kv.end_step("t")
    assert_drained(kv)


@pytest.mark.parametrize("order", list(itertools.permutations("abs")))
@ends_or_fails
def test_every_order_of_ending_leaves_the_pool_empty(order, end):
    kv = oracle(8, 2, a=[1, 2, 3])
    kv.fork("a", "b")
    kv.begin_step("s", ["a", "b"], [4, 5])

    for name in order:
        end(kv) if name == "s" else kv.release(name)
        kv.check()

    assert_drained(kv)


# What a request in flight may do, and refusals in the order in which they are checked


def test_a_request_in_flight_may_be_read_evicted_and_hit():
    kv = oracle(8, 2, a=[1, 2, 3])
    kv.begin_step("s", ["a"], [4])

    assert kv.read("a") == [1, 2, 3]
    assert kv.admit("b", 1, 2, 9) == 2
    kv.evict("a", 0)
    kv.end_step("s")

    assert kv.read("a") == [1, 2, 3, 4]
    assert hit_depth(kv, [1, 2, 3, 4, 5]) == 0
    kv.check()


def in_flight():
    """Steps s and t on a; w waits for its load; b and c are settled."""
    kv = oracle(16, 2, a=[1, 2, 3], b=[5], c=[6])
    kv.receive("w", 7, 8, transfer="in", workers=1, lease=0)
    kv.begin_step("s", ["a"], [4])
    kv.begin_step("t", ["a", "b"], [4, 5])
    kv.append_each(["c"], [7])
    return kv


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda kv: kv.append("a", 1), "step in flight: 'a'"),
        (lambda kv: kv.append("a"), "step in flight: 'a'"),
        (lambda kv: kv.append_each(["c", "a"], [1, 2]), "step in flight: 'a'"),
        (lambda kv: kv.append_each(["b", "w"], [1]), "step in flight: 'b'"),
        (lambda kv: kv.append_each(["w", "b"], [1]), "tokens on their way: 'w'"),
        (lambda kv: kv.append_each(["b", "b"], [1]), "repeated request: 'b, b'"),
        (lambda kv: kv.reserve("a", 1), "step in flight: 'a'"),
        (lambda kv: kv.commit("a", 1), "step in flight: 'a'"),
        (lambda kv: kv.trim("a"), "step in flight: 'a'"),
        (lambda kv: kv.fork("a", "new"), "step in flight: 'a'"),
        (lambda kv: kv.fork("a", "b"), "step in flight: 'a'"),
        (lambda kv: kv.pin("a", "new"), "step in flight: 'a'"),
        (lambda kv: kv.send("a", "in", 1, 0), "step in flight: 'a'"),
        (lambda kv: kv.begin_step("s", [], []), "duplicate step: 's'"),
        (lambda kv: kv.begin_step("new", [], []), "no requests: ''"),
        (lambda kv: kv.begin_step("new", [], [1]), "no requests: ''"),
        (lambda kv: kv.begin_step("new", ["c", "c", "ghost"], [1]), "unknown request: 'ghost'"),
        (lambda kv: kv.begin_step("new", ["w", "w"], [1]), "repeated request: 'w, w'"),
        (lambda kv: kv.begin_step("new", ["c", "w"], [1]), "tokens on their way: 'w'"),
        (lambda kv: kv.begin_step("new", ["c", "a"], [1]), "one token for each request: 'c, a'"),
        (lambda kv: kv.begin_step("new", ["c"], [1, 2]), "one token for each request: 'c'"),
        (lambda kv: kv.end_step("ghost"), "unknown step: 'ghost'"),
        (lambda kv: kv.end_step("t"), "an earlier step is in flight: 't'"),
        (lambda kv: kv.fail_step("ghost"), "unknown step: 'ghost'"),
        (lambda kv: kv.reset(), "blocks in use: 'reset'"),
    ],
)
def test_a_wrong_call_is_refused_and_changes_nothing(call, said):
    rejects(in_flight(), call, said)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda kv: kv.begin_step("s", [], []), "duplicate step: 's'"),
        (lambda kv: kv.begin_step("v", [], []), "too many steps in flight: 'v'"),
        (lambda kv: kv.begin_step("v", ["ghost"], [1]), "too many steps in flight: 'v'"),
        (lambda kv: kv.begin_step("v", ["c"], [1]), "too many steps in flight: 'v'"),
    ],
)
def test_a_fourth_step_is_refused(call, said):
    kv = in_flight()
    kv.begin_step("u", ["c"], [8])

    rejects(kv, call, said)

    kv.end_step("s")
    assert kv.begin_step("v", ["c"], [9]) == []


@ends_or_fails
def test_a_step_that_is_over_is_unknown_and_its_name_may_be_used_again(end):
    kv = oracle(4, 1, a=[1])
    kv.begin_step("s", ["a"], [2])
    end(kv)

    rejects(kv, lambda kv: kv.end_step("s"), "unknown step: 's'")
    rejects(kv, lambda kv: kv.fail_step("s"), "unknown step: 's'")
    kv.begin_step("s", ["a"], [3])
    kv.end_step("s")
    assert kv.read("a")[-1] == 3


def test_reset_is_refused_while_only_a_step_holds_pages():
    kv = oracle(4, 2, a=[1, 2])
    kv.begin_step("s", ["a"], [3])
    kv.release("a")

    rejects(kv, Oracle.reset, "blocks in use: 'reset'")

    kv.end_step("s")
    kv.reset()
    assert kv.index == {}


def test_a_request_and_a_step_may_have_the_same_name():
    kv = oracle(4, 2, s=[1])
    before = everything(kv)["tables"]

    kv.begin_step("s", ["s"], [2])
    assert kv.tables == before
    kv.release("s")
    kv.end_step("s")

    assert_drained(kv)
