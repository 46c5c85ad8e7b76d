"""The proof, that it is about something, and that it fails for whatever is broken."""

import subprocess
import sys

import pytest

from kvoracle.model.proof import slots
from kvoracle.model.proof.invariants import INVARIANTS
from kvoracle.model.proof.relations import RELATIONS
from kvoracle.model.proof.witnesses import witness

pytest.importorskip("z3")

from kvoracle.model.proof import prove
from kvoracle.model.proof.broken import MUTANTS, counterexample, relation_without

BROKEN = {
    "free_blocks_have_no_holder": "release: pinned blocks stay",
    "allocated_blocks_have_a_holder": "unpin: its blocks are given back",
    "owned_blocks_are_in_the_table": "create: the name is new",
    "blocks_in_a_table_are_owned": "fork: the child owns every block",
    "tables_name_no_block_twice": "append_fresh: the block is free",
    "pins_and_records_agree": "pin: the transfer is new",
    "transfers_pin_something": "pin: there is something to pin",
    "ends_are_in_order": "commit: there is room",
    "tables_are_as_long_as_needed": "append_in_place: the tail is partial",
    "only_the_tail_is_partial": "append_in_place: no other request owns the tail",
    "reserved_room_is_exclusive": "reserve_in_tail: no transfer pins it",
    "requests_read_what_was_appended": "append_copy: the data is copied and the token written",
    "blocks_were_computed_in_this_context": "hit: the tokens before it are the prompt's",
    "blocks_were_computed_with_these_keys": "hit: its key is the same",
    "pinned_blocks_never_change": "append_in_place: no transfer pins the tail",
    "published_blocks_are_full": "publish: it is full",
    "published_blocks_hold_what_they_say": "publish: the request owns it",
    "entries_say_in_which_context": "publish: its entry says what it holds",
    "entries_are_of_todays_weights": "publish: today's weights computed it",
    "steps_are_numbered": "begin_step: it is the youngest",
    "holds_are_of_steps_in_flight": "end_step: its own holds go",
    "writes_were_promised": "join: the request is live",
    "promises_have_a_writer": "join: it writes here",
    "first_and_last_promise_have_a_writer": "join: the step writes to it",
    "older_steps_write_first": "begin_step: the step is new",
    "steps_hold_what_they_touch": "join: the step holds what it touches",
    "pending_copies_are_held": "join_copy: the step holds what it touches",
    "pending_copies_come_before_the_write": "join_copy: the step writes to it",
    "strays_hit_nobody": "release: its ownership goes",
    "readers_are_awaited": "acknowledge_last: it speaks of this generation",
    "what_was_said_is_so": "finish: it reads no more",
}
"""For an invariant, a part of an operation without which it does not hold."""

NEVER_BROKEN = {"blocks_have_a_slot", "strays_miss_what_is_copied"}
"""Nothing changes the block size; and no short trace without a part of an operation breaks the other."""


def test_the_empty_pool_satisfies_every_invariant():
    assert prove.empty_pool().is_proof


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.name)
def test_every_operation_keeps_every_invariant(relation):
    assert prove.operation(relation).is_proof


def test_the_invariants_imply_what_users_care_about():
    assert [row.name for row in prove.properties() if not row.is_proof] == []


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.name)
def test_every_operation_happens(relation):
    assert witness(relation) is not None


def test_every_invariant_has_a_broken_variant():
    assert BROKEN.keys() | NEVER_BROKEN == {invariant.__name__ for invariant in INVARIANTS}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_operation_breaks_an_invariant(name):
    relation = relation_without(BROKEN[name])
    number = next(i for i, invariant in enumerate(INVARIANTS) if invariant.__name__ == name)

    example = counterexample(relation, INVARIANTS[number])

    assert not prove.operation(relation, seconds=1).answers[number].is_proof
    assert example is not None
    assert example.broken == [name]


@pytest.mark.parametrize("part", MUTANTS)
def test_a_mutant_fails_on_the_trace_of_what_it_lacks(part):
    example = counterexample(relation_without(part))

    assert example is not None
    assert example.failure is not None, example.trace.operations


@pytest.mark.parametrize("claim", slots.CLAIMS, ids=lambda claim: claim.__name__)
def test_an_off_by_one_in_the_slot_arithmetic_is_found(claim):
    assert claim().is_proof
    assert not claim(lambda index, offset, size: index * (size - 1) + offset).is_proof


def kvoracle(*arguments):
    command = [sys.executable, "-m", "kvoracle", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_the_command_shows_a_trace_for_a_guard_that_is_left_out(tmp_path):
    part = "append_in_place: no transfer pins the tail"

    done = kvoracle("prove", "--without", part, "--save", str(tmp_path))

    assert done.returncode == 1
    assert "breaks what holds otherwise: pinned blocks never change" in done.stdout
    assert "mutant:copy-skipped-on-pinned-tail is broken in this way" in done.stdout
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("part", ["nonsense", "fork: nonsense"])
def test_the_command_refuses_a_part_that_is_not_there(part):
    done = kvoracle("prove", "--without", part)

    assert done.returncode == 2
    assert "write '" in done.stderr


def test_without_a_solver_the_command_says_how_to_get_one():
    program = (
        "import sys; sys.modules['z3'] = None; from kvoracle.model.cli import main; main(['prove'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 2
    assert "pip install 'kvoracle[formal]'" in done.stderr
