"""The list oracle: what every request must read, life by life."""

import pytest

from kvoracle.reference import ListOracle


def lists_of(**sequences):
    lists = ListOracle()
    for request, tokens in sequences.items():
        lists.create(request)
        lists.append(request, *tokens)
    return lists


def test_the_list_oracle_says_what_every_request_reads():
    lists = lists_of(a=[1, 2])
    lists.fork("a", "b")
    lists.append("b", 3)
    lists.pin("a", "t")
    lists.append("a", 4)
    lists.unpin("t")

    assert lists.read("a") == [1, 2, 4]
    assert lists.read("b") == [1, 2, 3]

    lists.release_each(["b"])
    lists.release("a")
    assert lists.sequences == {}


def test_what_moves_no_token_changes_nothing():
    lists = lists_of(a=[1, 2])

    lists.reserve("a", 3)
    lists.trim("a")
    lists.evict("a", 0)
    lists.send("a", "t", 2, 1)
    lists.tick()
    lists.reset()
    lists.change_weights()

    assert lists.sequences == {"a": [1, 2]}


def test_what_was_looked_up_is_read_once_it_is_used():
    lists = ListOracle()
    lists.look_up("a", 1, 2)
    lists.look_up("b", 3)
    assert lists.sequences == {}

    lists.use("a")
    lists.cancel("b")

    assert (lists.sequences, lists.aside) == ({"a": [1, 2]}, {})


def test_what_is_committed_is_written():
    lists = lists_of(a=[1])

    lists.commit("a", 2, 3)

    assert lists.read("a") == [1, 2, 3]


def test_a_step_writes_when_it_ends():
    lists = lists_of(a=[1], b=[2])
    lists.begin_step("s", ["b", "a"], [3, 4])
    lists.begin_step("t", ["a"], [5])
    assert lists.sequences == {"a": [1], "b": [2]}

    lists.end_step("s")
    assert lists.sequences == {"a": [1, 4], "b": [2, 3]}

    lists.end_step("t")
    assert (lists.sequences, lists.steps) == ({"a": [1, 4, 5], "b": [2, 3]}, {})


@pytest.mark.parametrize("failed", range(3))
def test_a_step_that_fails_takes_those_begun_after_it_with_it(failed):
    lists = lists_of(a=[1])
    for step in "stu":
        lists.begin_step(step, ["a"], [step])

    lists.fail_step("stu"[failed])

    assert list(lists.steps) == list("stu"[:failed])
    for step in "stu"[:failed]:
        lists.end_step(step)
    assert lists.read("a") == [1, *"stu"[:failed]]


def test_a_load_is_read_as_far_as_it_was_found_and_whole_once_it_has_arrived():
    lists = ListOracle()
    lists.receive("a", 1, 2, 3, transfer="t", workers=2, lease=1)
    lists.receive("b", 4, transfer="u")
    assert lists.sequences == {"a": [], "b": []}

    lists.find("t", 2)
    assert lists.read("a") == [1, 2]

    lists.arrive("u")
    lists.arrive("t")
    assert lists.sequences == {"a": [1, 2, 3], "b": [4]}


def test_a_preempted_request_reads_the_same_once_it_is_resumed():
    lists = lists_of(a=[1, 2])

    lists.preempt("a")
    assert lists.sequences == {}

    lists.resume("a")
    assert (lists.sequences, lists.aside) == ({"a": [1, 2]}, {})


@pytest.mark.parametrize("aside", [True, False])
def test_a_preempted_request_that_is_released_is_forgotten(aside):
    lists = lists_of(a=[1])
    if aside:
        lists.preempt("a")

    lists.release("a")

    assert (lists.sequences, lists.aside) == ({}, {})


AGAIN = {
    "created": lambda lists: (lists.release("a"), lists.create("a"), lists.append("a", 1, 2)),
    "admitted": lambda lists: (lists.release("a"), lists.admit("a", 1, 2)),
    "looked up and used": lambda lists: (
        lists.release("a"),
        lists.look_up("a", 1, 2),
        lists.use("a"),
    ),
    "forked": lambda lists: (lists.release("a"), lists.fork("b", "a")),
    "received": lambda lists: (
        lists.release("a"),
        lists.receive("a", 1, 2, transfer="u"),
        lists.find("u", 2),
    ),
    "preempted and resumed": lambda lists: (lists.preempt("a"), lists.resume("a")),
}


@pytest.mark.parametrize("again", AGAIN.values(), ids=AGAIN)
@pytest.mark.parametrize("end", [ListOracle.end_step, ListOracle.fail_step])
def test_a_step_writes_to_the_life_in_which_it_began(again, end):
    lists = lists_of(a=[1, 2], b=[1, 2])
    lists.begin_step("s", ["a", "b"], [3, 4])
    again(lists)

    end(lists, "s")

    assert lists.read("a") == [1, 2]
    assert lists.read("b") == ([1, 2, 4] if end is ListOracle.end_step else [1, 2])


def test_a_load_arrives_in_the_life_in_which_it_began():
    lists = ListOracle()
    lists.receive("a", 1, 2, transfer="t")
    lists.release("a")
    lists.receive("a", 3, 4, transfer="u")

    lists.arrive("t")
    assert lists.read("a") == []

    lists.arrive("u")
    assert lists.read("a") == [3, 4]


def test_a_step_of_the_life_before_a_preemption_and_one_of_the_life_after_it():
    lists = lists_of(a=[1])
    lists.begin_step("s", ["a"], [2])
    lists.preempt("a")
    lists.resume("a")
    lists.begin_step("t", ["a"], [3])

    lists.end_step("s")
    lists.end_step("t")

    assert lists.read("a") == [1, 3]
