"""What moves through the KV memory: at once, or at the end of the step or transfer that moves it."""

import pytest

from kvoracle.model.adapters.impl import ImplAdapter
from kvoracle.model.lockstep import Lockstep
from kvoracle.model.memory import ListMemory, Stamp
from kvoracle.model.movement import Movement, Plan, Write
from kvoracle.model.operations import (
    Acknowledge,
    Append,
    BeginStep,
    Create,
    EndStep,
    FailStep,
    Fork,
    Receive,
    Release,
    Tick,
)
from kvoracle.model.trace import Configuration

S1, S2, T = ("step", "s1"), ("step", "s2"), ("transfer", "t")


def stamps(*tokens, request="a"):
    return [Stamp(request, position, token, 1) for position, token in enumerate(tokens)]


def movement(*blocks):
    """A memory of blocks of two slots that hold these tokens."""
    memory = ListMemory(len(blocks), 2)
    for block, tokens in enumerate(blocks):
        memory.write([2 * block + offset for offset in range(len(tokens))], stamps(*tokens))
    return Movement(memory)


def tokens_in(moved):
    return [[slot and slot.token for slot in block] for block in moved.memory.blocks]


def write(slots, *tokens):
    return Write(slots, stamps(*tokens))


def test_copies_come_before_writes():
    moved = movement([1], [])

    moved.carry_out(Plan([(0, 1)], [write([0, 3], 8, 9)]))

    assert tokens_in(moved) == [[8, None], [1, 9]]


def test_every_source_is_read_before_any_block_is_written():
    moved = movement([1, 2], [3, 4])

    moved.carry_out(Plan([(0, 1), (1, 0)], []))

    assert tokens_in(moved) == [[3, 4], [1, 2]]


def test_a_plan_waits_until_what_moves_it_has_ended():
    moved = movement([])
    moved.plans[S1] = Plan([], [write([0], 7)])

    moved.settle({S1}, is_complete=True)
    assert (tokens_in(moved), list(moved.plans)) == ([[None, None]], [S1])

    moved.settle({T}, is_complete=True)
    assert (tokens_in(moved), moved.plans) == ([[7, None]], {})


def test_a_plan_is_carried_out_once():
    moved = movement([])
    moved.plans[S1] = Plan([], [write([0], 7)])
    moved.settle((), is_complete=True)
    moved.memory.write([0], stamps(8))

    moved.settle((), is_complete=True)

    assert tokens_in(moved) == [[8, None]]


def test_a_step_and_a_transfer_of_one_name_are_two():
    moved = movement([], [])
    moved.plans["step", "x"] = Plan([], [write([0], 1)])
    moved.plans["transfer", "x"] = Plan([], [write([2], 2)])

    moved.settle({("transfer", "x")}, is_complete=True)

    assert tokens_in(moved) == [[1, None], [None, None]]


def test_what_failed_leaves_spoilt_tokens_where_it_might_have_written_and_its_copies_ran():
    moved = movement([1], [5])
    moved.plans[S1] = Plan([(0, 1)], [write([3], 7)])

    moved.settle((), is_complete=False)

    assert tokens_in(moved) == [[1, None], [1, -1]]
    assert moved.memory.read(1)[1] == Stamp("a", 0, -1, -1)


def test_what_ends_together_is_carried_out_in_the_order_of_its_beginning():
    moved = movement([])
    moved.plans[S1] = Plan([], [write([0, 1], 1, 2)])
    moved.plans[S2] = Plan([], [write([0], 3)])

    moved.settle((), is_complete=True)

    assert tokens_in(moved) == [[3, 2]]


def test_the_blocks_that_a_copy_is_still_to_fill_are_known():
    moved = movement([1], [], [])
    moved.plans[S1] = Plan([(0, 1)], [write([4], 7)])
    assert moved.unwritten() == {1}

    moved.settle((), is_complete=False)
    assert moved.unwritten() == set()


# In lockstep


LOAD = Receive("a", (1, 2, 3), "t", 2, 1)
STEP = [Create("a"), BeginStep("s", ("a",), (1,))]
COPY = [*(Create("a"), Append("a", (1,)), Fork("a", "b")), BeginStep("s", ("b",), (2,))]


def memory_after(*operations):
    both = Lockstep(ImplAdapter(Configuration(4, 2)))
    for operation in operations:
        both.step(operation)
    return tokens_in(both.movement)[:2]


NOTHING = [[None, None], [None, None]]


@pytest.mark.parametrize(
    ("operations", "held"),
    [
        (STEP, NOTHING),
        ([*STEP, EndStep("s")], [[1, None], [None, None]]),
        ([*STEP, FailStep("s")], [[-1, None], [None, None]]),
        ([*STEP, Release("a")], NOTHING),
        ([*STEP, Release("a"), EndStep("s")], [[1, None], [None, None]]),
        ([*STEP, Release("a"), Create("a"), EndStep("s")], [[1, None], [None, None]]),
        (COPY, [[1, None], [None, None]]),
        ([*COPY, EndStep("s")], [[1, None], [1, 2]]),
        ([*COPY, FailStep("s")], [[1, None], [1, -1]]),
        ([*COPY, Append("a", (9,)), EndStep("s")], [[1, 9], [1, 2]]),
        ([*COPY, Release("a"), Release("b"), EndStep("s")], [[1, None], [1, 2]]),
        ([LOAD, Acknowledge("t", 0, 0)], NOTHING),
        ([LOAD, Acknowledge("t", 1, 0), Acknowledge("t", 0, 0)], [[1, 2], [3, None]]),
        ([LOAD, Acknowledge("t", 0, 0), Tick()], [[-1, -1], [-1, None]]),
        ([LOAD, Release("a"), Acknowledge("t", 0, 0)], NOTHING),
        ([LOAD, Release("a"), *(Acknowledge("t", w, 0) for w in (0, 1))], [[1, 2], [3, None]]),
        ([LOAD, Release("a"), Tick()], [[-1, -1], [-1, None]]),
    ],
    ids=str,
)
def test_tokens_move_when_what_moves_them_ends_even_for_a_request_that_is_gone(operations, held):
    assert memory_after(*operations) == held
