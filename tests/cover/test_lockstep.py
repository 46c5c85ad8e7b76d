"""Lockstep: each rule it can raise, by an allocator broken in a few lines; and what it leaves alone."""

import copy
import inspect
import re
import sys

import pytest

from kvoracle.model import lockstep as lockstep_module
from kvoracle.model.adapters.base import Adapter
from kvoracle.model.adapters.impl import ImplAdapter
from kvoracle.model.found import describe
from kvoracle.model.history import explain
from kvoracle.model.lockstep import Lockstep, Violation
from kvoracle.model.memory import ListMemory
from kvoracle.model.operations import (
    OPERATIONS,
    Admit,
    Append,
    AppendEach,
    Create,
    Done,
    Fork,
    OutOfBlocks,
    Pin,
    Rejected,
    Release,
    ReleaseEach,
    Reset,
    Unpin,
)
from kvoracle.model.registry import target_of
from kvoracle.model.run import SETTING_UP, Tally, run
from kvoracle.model.trace import Configuration, Expected, Trace
from kvoracle.model.witnesses import REJECTIONS

CONFIG = Configuration(4, 2)
CREATE, APPEND = Create("a"), Append("a", (1,))
TWO_REQUESTS = [CREATE, APPEND, Create("b"), Append("b", (2,))]
SHARED_TAIL = [CREATE, APPEND, Fork("a", "b"), Append("b", (2,))]
PINNED_TAIL = [CREATE, APPEND, Pin("a", "t"), Append("a", (2,))]


def failure_of(adapter, operations, config=CONFIG):
    return run(Trace(config, list(operations)), adapter)


def without_place(message):
    """A message without the place where an exception was raised."""
    return re.sub(r" \(test_lockstep\.py, line \d+\)", "", message)


def steps(adapter, *operations, config=CONFIG):
    both = Lockstep(adapter(config))
    return both, [both.step(operation) for operation in operations]


def spoils_append(spoil):
    """An adapter whose append of each request is changed by `spoil(adapter, request, done)`."""

    class Spoiled(ImplAdapter):
        def append(self, request, tokens):
            done = super().append(request, tokens)
            return spoil(self, request, done) or done

    return Spoiled


def shows_table(show):
    """An adapter whose tables are what `show(adapter, request, table)` makes of the real ones."""

    class Shown(ImplAdapter):
        def table(self, request):
            return show(self, request, list(super().table(request)))

    return Shown


def answers(verb, answer):
    """An adapter that does nothing for a verb and answers this."""

    class Answers(ImplAdapter):
        pass

    setattr(Answers, verb, lambda self, *arguments: answer)
    return Answers


def raises(verb, error):
    """An adapter that raises this for a verb."""

    def fail(self, *arguments):
        raise error

    fail.__name__ = verb
    return type("Raises", (ImplAdapter,), {verb: fail})


class WritesTailsInPlace(ImplAdapter):
    """Copy-on-write is never done."""

    def __init__(self, config):
        super().__init__(config)
        pool = self.allocator.pool
        pool.is_exclusive = lambda block: True


class CopiesOverAPinnedBlock(ImplAdapter):
    """The append of b orders a copy of its own block over block 0."""

    def append(self, request, tokens):
        done = super().append(request, tokens)
        if request == "b":
            done.copies.append((self.table("b")[0], 0))
        return done


class CopiesItsNewBlockOverAnother(ImplAdapter):
    """The append of b orders a copy of its own, still empty block over that of a."""

    def append(self, request, tokens):
        done = super().append(request, tokens)
        if request == "b":
            done.copies.append((self.table("b")[0], self.table("a")[0]))
        return done


class CountsOneFreeBlockMore(ImplAdapter):
    def free_blocks(self):
        return super().free_blocks() + 1


class ForgetsTheForkAsAHolder(ImplAdapter):
    def holders(self):
        return dict.fromkeys(super().holders(), 1)


class CountsInFractions(ImplAdapter):
    def free_blocks(self):
        return 3.5


class SaysOneMoreIsHit(ImplAdapter):
    def admit(self, *arguments):
        done = super().admit(*arguments)
        done.hit += 1
        return done


class HoldsABlockOfNobody(ImplAdapter):
    def holders(self):
        return {**super().holders(), 3: 1}


class CountsNoTaking(ImplAdapter):
    def generations(self):
        return {0: 0}


class CountsNoWaste(ImplAdapter):
    def statistics(self):
        return {"idle": 0, "tail_waste": 0}


class ForetellsNoRoom(ImplAdapter):
    def can_append(self, request, count):
        return False


class TakesTheLastBlockFirst(ImplAdapter):
    def __init__(self, config):
        super().__init__(config)
        self.allocator.pool._stack[:] = self.allocator.pool._stack[::-1].copy()


class NeverUnpins(ImplAdapter):
    """A transfer that ends keeps its blocks."""

    def unpin(self, transfer):
        pass


def misplaces(request, slot):
    return spoils_append(lambda _, r, __: Done(slots={r: [slot]}) if r == request else None)


CASES = {
    "takes a held block": (
        shows_table(lambda _, __, table: [0] * len(table)),
        TWO_REQUESTS,
        ("choice", 0),
        "block 0 (owners: a; pins: none) was taken for 'b' but is not free",
    ),
    "takes a block that only a transfer holds": (
        shows_table(lambda _, __, table: [0] * len(table)),
        [CREATE, APPEND, Pin("a", "t"), Release("a"), Create("b"), Append("b", (2,))],
        ("choice", 0),
        "block 0 (owners: none; pins: t) was taken for 'b' but is not free",
    ),
    "takes a block twice": (
        shows_table(lambda _, __, table: [2] * len(table)),
        [CREATE, Append("a", (1, 2, 3))],
        ("choice", 2),
        "block 2 was taken twice in one call",
    ),
    "takes a block outside the pool": (
        shows_table(lambda _, __, table: [4] * len(table)),
        [CREATE, APPEND],
        ("choice", 4),
        "block 4 (outside the pool) was taken for 'a' but is not free",
    ),
    "writes a shared tail in place": (
        WritesTailsInPlace,
        SHARED_TAIL,
        ("copy", 0),
        "'b' is about to write block 0 (owners: a, b; pins: none) in place: it must be copied",
    ),
    "writes a pinned tail of its only owner in place": (
        WritesTailsInPlace,
        PINNED_TAIL,
        ("copy", 0),
        "'a' is about to write block 0 (owners: a; pins: t) in place: it must be copied first",
    ),
    "is full with room": (
        answers("append", OutOfBlocks()),
        [CREATE, APPEND],
        ("outcome", None),
        "1 of 4 free blocks needed, yet: out of blocks",
    ),
    "is full where no block is needed": (
        spoils_append(lambda s, *_: OutOfBlocks() if s.allocator.tables.lengths[0] == 2 else None),
        [CREATE, APPEND, Append("a", (2,))],
        ("outcome", None),
        "answered 'out of blocks', and must answer 'ok'",
    ),
    "refuses one of a batch with room": (
        answers("append_each", Done(refused=["a"])),
        [CREATE, AppendEach(("a",), (1,))],
        ("outcome", None),
        "1 of 4 free blocks needed, yet: ok, refused a",
    ),
    "refuses one of a batch that is not in it": (
        answers("append_each", Done(refused=["b"])),
        [CREATE, APPEND, Create("b"), AppendEach(("a",), (1,))],
        ("outcome", None),
        "answered 'ok, refused b', and must answer 'ok'",
    ),
    "finds more room than there is": (
        answers("append", Done()),
        [CREATE, Append("a", tuple(range(9)))],
        ("outcome", None),
        "answered 'ok', and must answer 'out of blocks'",
    ),
    "rejects a right call": (
        answers("create", Rejected("bad weather")),
        [CREATE],
        ("outcome", None),
        "answered 'rejected: bad weather', and must answer 'ok'",
    ),
    "rejects a right append": (
        answers("append", Rejected("bad weather")),
        [CREATE, APPEND],
        ("outcome", None),
        "1 of 4 free blocks needed, yet: rejected: bad weather",
    ),
    "accepts a second release": (
        answers("release", None),
        [Release("a")],
        ("outcome", None),
        "answered 'ok', and must answer 'rejected: unknown request'",
    ),
    "rejects a wrong call for another reason": (
        answers("release", Rejected("bad weather")),
        [Release("a")],
        ("outcome", None),
        "answered 'rejected: bad weather', and must answer 'rejected: unknown request'",
    ),
    "rejects a wrong append for another reason": (
        answers("append", Rejected("no tokens")),
        [Append("a", (1,))],
        ("outcome", None),
        "answered 'rejected: no tokens', and must answer 'rejected: unknown request'",
    ),
    "has too short a table": (
        shows_table(lambda _, __, table: table[:1]),
        [CREATE, Append("a", (1, 2, 3))],
        ("table", None),
        "the table of 'a' is [0]: 2 blocks are needed",
    ),
    "has too long a table": (
        shows_table(lambda _, __, table: [*table, 3] if table else []),
        [CREATE, APPEND],
        ("table", 3),
        "the table of 'a' is [0, 3]: [0] is right",
    ),
    "changes the table of another request": (
        shows_table(lambda s, r, t: [3] if r == "a" and s.allocator.num_free == 2 else t),
        TWO_REQUESTS,
        ("table", 3),
        "the table of 'a' is [3]: [0] is right",
    ),
    "has no table for a live request": (
        raises("table", KeyError("a")),
        [CREATE],
        ("exception", None),
        "the allocator raised KeyError: 'a' when asked for the table of 'a'",
    ),
    "gives too few slots": (
        spoils_append(lambda *_: Done(slots={"a": [0]})),
        [CREATE, Append("a", (1, 2))],
        ("slots", None),
        "1 slots for the 2 new tokens of 'a'",
    ),
    "gives slots to another request": (
        spoils_append(lambda _, r, done: Done(slots={**done.slots, "z": [1]})),
        [CREATE, APPEND],
        ("slots", None),
        "gave slots to ['z'], which the call does not grow",
    ),
    "gives slots where nothing grows": (
        answers("pin", Done(slots={"a": [1]})),
        [CREATE, APPEND, Pin("a", "t")],
        ("slots", None),
        "gave slots to ['a'], which the call does not grow",
    ),
    "gives a slot above the pool": (
        misplaces("a", 8),
        [CREATE, APPEND],
        ("slots", None),
        "slot 8 of 'a' is outside the pool",
    ),
    "gives a slot below the pool": (
        misplaces("a", -1),
        [CREATE, APPEND],
        ("slots", None),
        "slot -1 of 'a' is outside the pool",
    ),
    "copies from outside the pool": (
        spoils_append(lambda _, __, done: done.copies.append((4, 0))),
        [CREATE, APPEND],
        ("copy", 0),
        "orders the copy (4, 0) (source, destination): none is needed",
    ),
    "gives the wrong offset": (
        misplaces("a", 1),
        [CREATE, APPEND],
        ("contents", 0),
        "'a' reads a slot that was never written at position 0 (block 0, offset 0): "
        "token 1 that 'a' wrote as its position 0 is right",
    ),
    "writes into the block of another request": (
        misplaces("b", 0),
        TWO_REQUESTS,
        ("contents", 0),
        "'a' reads token 2 that 'b' wrote as its position 0 at position 0 (block 0, offset 0): "
        "token 1 that 'a' wrote as its position 0 is right",
    ),
    "orders no copy": (
        spoils_append(lambda _, __, done: done.copies.clear()),
        SHARED_TAIL,
        ("contents", 1),
        "'b' reads a slot that was never written at position 0 (block 1, offset 0): "
        "token 1 that 'a' wrote as its position 0 is right",
    ),
    "copies over the block of another request": (
        CopiesItsNewBlockOverAnother,
        TWO_REQUESTS,
        ("copy", 0),
        "orders the copy (1, 0) (source, destination): none is needed",
    ),
    "copies over a block that a transfer reads": (
        CopiesOverAPinnedBlock,
        [CREATE, APPEND, Pin("a", "t"), Release("a"), Create("b"), Append("b", (2,))],
        ("copy", 0),
        "orders the copy (1, 0) (source, destination): none is needed",
    ),
    "counts a free block too many": (
        CountsOneFreeBlockMore,
        [CREATE],
        ("free count", None),
        "the allocator counts 5 free blocks: 4 are free",
    ),
    "leaks": (
        NeverUnpins,
        [CREATE, APPEND, Pin("a", "t"), Release("a"), Unpin("t")],
        ("free count", None),
        "the allocator counts 3 free blocks: 4 are free",
    ),
    "counts too few holders": (
        ForgetsTheForkAsAHolder,
        [CREATE, APPEND, Fork("a", "b")],
        ("holder count", 0),
        "the allocator counts 1 holders of block 0: it has 2",
    ),
    "counts holders of a free block": (
        HoldsABlockOfNobody,
        [CREATE],
        ("holder count", 3),
        "the allocator counts 1 holders of block 3: it has 0",
    ),
    "counts no holder of a held block": (
        type("CountsNone", (ImplAdapter,), {"holders": lambda _: {}}),
        [CREATE, APPEND],
        ("holder count", 0),
        "the allocator counts 0 holders of block 0: it has 1",
    ),
    "says that more of a prompt is written than is": (
        SaysOneMoreIsHit,
        [Admit("a", (1, 2, 3))],
        ("hit", None),
        "says that 1 tokens of the prompt are written: 0 are",
    ),
    "counts too few takings": (
        CountsNoTaking,
        [CREATE, APPEND],
        ("generation", 0),
        "the allocator counts 0 takings of block 0: it has 1",
    ),
    "counts too little waste": (
        CountsNoWaste,
        [CREATE, APPEND],
        ("statistics", None),
        "the allocator says tail_waste 0: 1 is right",
    ),
    "foretells that there is no room": (
        ForetellsNoRoom,
        [CREATE, APPEND],
        ("predicate", None),
        "asked whether there is room it said no, yet: ok",
    ),
    "takes blocks in another order than it promises": (
        TakesTheLastBlockFirst,
        [CREATE, APPEND],
        ("reuse order", 3),
        "block 3 was taken for 'a' before block 0, which is to be reused first",
    ),
    "reports a fraction": (
        CountsInFractions,
        [CREATE],
        ("report", None),
        "asked for its free blocks, the allocator says 3.5: that is not a whole number or None",
    ),
    "raises": (
        raises("append", ZeroDivisionError("division by zero")),
        [CREATE, APPEND],
        ("exception", None),
        "the allocator raised ZeroDivisionError: division by zero",
    ),
    "exits": (
        raises("append", SystemExit(3)),
        [CREATE, APPEND],
        ("exception", None),
        "the allocator raised SystemExit: 3",
    ),
    "raises when asked for its free blocks": (
        raises("free_blocks", RuntimeError("boom")),
        [CREATE],
        ("exception", None),
        "the allocator raised RuntimeError: boom when asked for its free blocks",
    ),
    "exits when asked for its free blocks": (
        raises("free_blocks", SystemExit("enough")),
        [CREATE],
        ("exception", None),
        "the allocator raised SystemExit: enough when asked for its free blocks",
    ),
    "raises when asked for its holders": (
        raises("holders", RuntimeError("boom")),
        [CREATE],
        ("exception", None),
        "the allocator raised RuntimeError: boom when asked for its holders",
    ),
    "raises without a word": (
        raises("create", AssertionError()),
        [CREATE],
        ("exception", None),
        "the allocator raised AssertionError",
    ),
    "raises where it must be full": (
        raises("append", IndexError("pop from empty list")),
        [CREATE, Append("a", tuple(range(9)))],
        ("exception", None),
        "the allocator raised IndexError: pop from empty list",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_broken_allocator_fails_by_its_rule_in_one_sentence_with_its_block(name):
    adapter, operations, (rule, block), message = CASES[name]

    failure = failure_of(adapter, operations)

    assert failure is not None
    assert (failure.rule, failure.block) == (rule, block)
    assert message in without_place(failure.message)
    assert failure.index == len(operations) - 1
    assert len(failure.message.splitlines()) == 1
    assert "page" not in failure.message


@pytest.mark.parametrize("name", CASES)
def test_the_operations_of_a_broken_allocator_pass_on_a_right_one(name):
    assert failure_of(ImplAdapter, CASES[name][1]) is None


def test_every_rule_of_lockstep_is_broken_here():
    source = inspect.getsource(lockstep_module)
    rules = set(re.findall(r'_(?:violation|compare_blocks)\(\s*"([a-z ]+)"', source))

    broken_here = {rule for _, _, (rule, _), _ in CASES.values()} | {"pinned contents"}
    assert broken_here == (rules | {"choice", "reuse order"}) - {"reference"}


class SmearsOverTheFirstSlot(ListMemory):
    """Every write goes to slot 0 as well."""

    def write(self, slots, stamps):
        super().write(slots, stamps)
        super().write([0], stamps[:1])


def test_a_memory_that_changes_what_a_transfer_reads_fails_by_pinned_contents():
    both = Lockstep(ImplAdapter(CONFIG), SmearsOverTheFirstSlot)
    for operation in (CREATE, APPEND, Pin("a", "t"), Release("a"), Create("b")):
        both.step(operation)

    with pytest.raises(Violation, match="block 0 changed while transfer 't' reads it") as caught:
        both.step(Append("b", (2,)))

    assert (caught.value.rule, caught.value.block) == ("pinned contents", 0)


@pytest.mark.parametrize("name", CASES)
def test_the_failure_of_a_broken_allocator_comes_back_when_it_is_explained(name):
    adapter, operations, _, _ = CASES[name]

    explanation = explain(failure_of(adapter, operations), adapter)

    assert explanation.reproduced


VERBS = tuple(operation.verb for operation in OPERATIONS)


def test_an_exit_while_an_allocator_is_made_is_a_verdict():
    failure = failure_of(raises("__init__", SystemExit(3)), [CREATE])

    assert (failure.rule, failure.index) == ("exception", SETTING_UP)


def test_an_exit_when_asked_for_a_table_is_explained():
    adapter = raises("table", SystemExit(3))
    failure = failure_of(adapter, [CREATE])

    explanation = explain(failure, adapter)

    assert (explanation.reproduced, explanation.tables_after) == (True, {})


def test_an_allocator_that_cannot_be_made_for_many_lines_is_one_sentence():
    failure = failure_of(raises("__init__", RuntimeError("first\nsecond")), [CREATE])

    assert len(failure.message.splitlines()) == 1


def test_an_allocator_that_cannot_be_made_is_a_verdict():
    def factory(config):
        raise RuntimeError(f"no pool of {config.blocks}")

    failure = failure_of(factory, [CREATE])

    assert (failure.rule, failure.index) == ("exception", SETTING_UP)
    assert "RuntimeError: no pool of 4" in failure.message


# What lockstep must survive: answers and errors that no adapter should give


def spoils_slots(make):
    return spoils_append(lambda _, request, done: Done(slots={request: make(done.slots[request])}))


class ShrinksItsTable(ImplAdapter):
    """After a second append the table is empty; slots are left to the table."""

    appends = 0

    def append(self, request, tokens):
        super().append(request, tokens)
        self.appends += 1

    def table(self, request):
        return super().table(request) if self.appends < 2 else []


def test_a_table_that_shrinks_when_no_block_is_needed_is_a_verdict():
    failure = failure_of(ShrinksItsTable, [CREATE, APPEND, Append("a", (2,))])

    assert (failure.rule, failure.index) == ("table", 2)
    assert failure.message == "the table of 'a' is []: it has no room for 2 tokens"


MALFORMED = {
    "fractional slots": spoils_slots(lambda slots: [float(slot) for slot in slots]),
    "slots of text": spoils_slots(lambda slots: [str(slot) for slot in slots]),
    "slots that are no list": spoils_slots(lambda slots: slots[0]),
    "no slots": spoils_slots(lambda _: None),
    "slots of a number": spoils_append(lambda _, __, done: Done(slots={7: done.slots["a"]})),
    "copy of one block": spoils_append(lambda _, __, done: done.copies.append((0,))),
    "copy that is no pair": spoils_append(lambda _, __, done: done.copies.append(0)),
    "copy of half a block": spoils_append(lambda _, __, done: done.copies.append((0.5, 0))),
    "refused as text": spoils_append(lambda *_: Done(refused="a")),
    "refused a list": spoils_append(lambda *_: Done(refused=[["a"]])),
    "refused None": spoils_append(lambda *_: Done(refused=None)),
    "slots None": spoils_append(lambda *_: Done(slots=None)),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_outcome_is_a_verdict(name):
    failure = failure_of(MALFORMED[name], [CREATE, APPEND])

    assert (failure.rule, failure.index) == ("outcome", 1)
    assert re.match(r"answered Done\(.*\), whose shape is wrong: ", failure.message)
    assert len(failure.message.splitlines()) == 1


@pytest.mark.parametrize("count", [1, 8])
def test_names_refused_in_a_tuple_are_not_said_to_be_what_they_must_be(count):
    class RefusesInTuples(ImplAdapter):
        def append_each(self, requests, tokens):
            done = super().append_each(requests, tokens)
            return Done(done.copies, done.slots, tuple(done.refused))

    operations = [CREATE, Append("a", tuple(range(count))), AppendEach(("a",), (9,))]

    failure = failure_of(RefusesInTuples, operations)

    assert failure is None or "shape" in failure.message


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("holders", [0]),
        ("holders", 7),
        ("holders", {0: 1, "x": 1}),
        ("generations", [1, 0, 0, 0]),
        ("generations", {0: 1.0}),
        ("statistics", {"held": 1.0}),
        ("statistics", {0: 1}),
        ("statistics", 7),
    ],
    ids=repr,
)
def test_a_malformed_report_is_a_verdict(method, answer):
    assert failure_of(answers(method, answer), [CREATE, APPEND]).rule == "report"


def test_a_table_of_fractions_is_a_verdict():
    adapter = shows_table(lambda _, __, table: [float(block) for block in table])

    assert failure_of(adapter, [CREATE, APPEND]) is not None


def test_a_table_of_lists_is_explained():
    adapter = shows_table(lambda _, __, table: [[block] for block in table])
    failure = failure_of(adapter, [CREATE, APPEND])
    assert failure.rule == "report"

    assert explain(failure, adapter).reproduced


@pytest.mark.parametrize("answer", [True, "yes", 7, False, (), {}])
def test_an_answer_that_is_no_outcome_is_quoted_as_it_is(answer):
    failure = failure_of(answers("create", answer), [CREATE])

    assert failure.rule == "outcome"
    assert failure.message == f"answered {answer!r}, which is no outcome"


def test_an_exception_of_many_lines_is_still_one_sentence():
    failure = failure_of(raises("create", RuntimeError("first\nsecond")), [CREATE])

    assert without_place(failure.message) == "the allocator raised RuntimeError: first second"


def test_what_an_allocator_raised_says_in_which_file_and_line():
    failure = failure_of(raises("create", RuntimeError("boom")), [CREATE])

    line = inspect.getsource(sys.modules[__name__]).splitlines().index("        raise error") + 1
    place = f"(test_lockstep.py, line {line})"
    assert failure.message == f"the allocator raised RuntimeError: boom {place}"


def test_the_text_of_an_exception_is_quoted_as_it_is():
    failure = failure_of(raises("create", RuntimeError("page 3 is gone")), [CREATE])

    assert "page 3 is gone" in failure.message


# What is not tried


class PromisesNothing(ImplAdapter):
    refuses = frozenset()

    def __init__(self, config):
        super().__init__(config)
        self.calls = []

    def outcome_of(self, error):
        return OutOfBlocks() if isinstance(error, MemoryError) else None


for _verb in VERBS:

    def _recorded(self, *arguments, _verb=_verb):
        self.calls.append(_verb)
        return getattr(ImplAdapter, _verb)(self, *arguments)

    setattr(PromisesNothing, _verb, _recorded)


MISUSE = [
    Create("a"),
    Admit("a", (1,)),
    Admit("new", ()),
    Append("ghost", (1,)),
    Append("a", ()),
    AppendEach(("a", "a"), (1, 2)),
    AppendEach(("a", "ghost"), (1, 2)),
    AppendEach(("a",), (1, 2)),
    AppendEach(("a",), ()),
    AppendEach((), ()),
    Fork("a", "a"),
    Fork("ghost", "b"),
    Pin("a", "t"),
    Pin("empty", "u"),
    Unpin("ghost"),
    Release("ghost"),
    ReleaseEach(("a", "a")),
    ReleaseEach(("a", "ghost")),
    ReleaseEach(()),
    Reset(),
]


@pytest.mark.parametrize("misuse", MISUSE, ids=repr)
def test_misuse_that_is_not_promised_to_be_rejected_is_not_tried_and_changes_nothing(misuse):
    both, outcomes = steps(PromisesNothing, CREATE, APPEND, Pin("a", "t"), Create("empty"))
    assert None not in outcomes
    kv = both.reference
    before = copy.deepcopy(
        (kv.free, kv.pages, kv.tables, kv.transfers, both.lists.sequences, both.memory.blocks)
    )
    calls = list(both.adapter.calls)

    assert both.step(misuse) is None

    assert both.adapter.calls == calls
    after = (kv.free, kv.pages, kv.tables, kv.transfers, both.lists.sequences, both.memory.blocks)
    assert after == before
    assert both.step(Append("a", (2,))) is not None


@pytest.mark.parametrize("misuse", MISUSE, ids=repr)
def test_misuse_that_is_not_tried_is_not_witnessed(misuse):
    both, _ = steps(PromisesNothing, CREATE, APPEND, Pin("a", "t"), Create("empty"))
    witnessed = dict(both.witnessed)

    assert both.step(misuse) is None

    assert both.witnessed == witnessed


@pytest.mark.parametrize("misuse", MISUSE, ids=repr)
def test_misuse_that_is_rejected_is_witnessed_only_as_a_rejection(misuse):
    both, _ = steps(ImplAdapter, CREATE, APPEND, Pin("a", "t"), Create("empty"))
    witnessed = both.witnessed.copy()

    assert isinstance(both.step(misuse), Rejected)

    assert set(both.witnessed - witnessed) <= REJECTIONS.keys()


def test_misuse_that_is_promised_to_be_rejected_is_tried():
    _, outcomes = steps(ImplAdapter, CREATE, CREATE, Append("b", (1,)), Unpin("t"))

    assert outcomes[1:] == [
        Rejected("duplicate request"),
        Rejected("unknown request"),
        Rejected("unknown transfer"),
    ]


def test_an_empty_batch_is_rejected_by_both():
    _, outcomes = steps(ImplAdapter, AppendEach((), ()), ReleaseEach(()))

    assert outcomes == [Rejected("no requests")] * 2


class OnlyTheNecessary(Adapter):
    """create, append and release alone, on another adapter; no counts, no slots, no promise."""

    def __init__(self, config):
        super().__init__(config)
        self.impl = ImplAdapter(config)

    def outcome_of(self, error):
        return self.impl.outcome_of(error)

    def create(self, request):
        self.impl.create(request)

    def append(self, request, tokens):
        self.impl.append(request, tokens)

    def release(self, request):
        self.impl.release(request)

    def table(self, request):
        return self.impl.table(request)


def test_operations_that_the_adapter_lacks_are_not_tried():
    lacking = [
        AppendEach(("a",), (3,)),
        Fork("a", "b"),
        Pin("a", "t"),
        Unpin("t"),
        ReleaseEach(("a",)),
    ]

    both, outcomes = steps(OnlyTheNecessary, CREATE, Append("a", (1, 2)), *lacking)

    assert outcomes == [Done(), Done(), None, None, None, None, None]
    assert both.reference.read("a") == both.reference.pages[0].tokens
    assert (list(both.reference.tables), both.reference.transfers) == (["a"], {})


def test_what_was_not_tried_is_tallied_apart():
    tally = Tally()

    run(Trace(CONFIG, [CREATE, Fork("a", "b"), Release("ghost")]), OnlyTheNecessary, tally)

    assert tally.outcomes == {
        ("create", "ok"): 1,
        ("fork", "not tried"): 1,
        ("release", "not tried"): 1,
    }
    assert tally.operations == 1


def test_an_allocator_without_counts_and_slots_is_checked_through_its_tables():
    assert failure_of(OnlyTheNecessary, [*TWO_REQUESTS, Append("a", (3, 4)), Release("a")]) is None

    class NamesOneBlock(OnlyTheNecessary):
        def table(self, request):
            return [0] * len(super().table(request))

    assert failure_of(NamesOneBlock, TWO_REQUESTS).rule == "choice"


def test_block_names_begin_where_the_adapter_says():
    class FromOne(OnlyTheNecessary):
        first_block = 1

        def table(self, request):
            return [block + 1 for block in super().table(request)]

    both, outcomes = steps(FromOne, CREATE, Append("a", tuple(range(8))))

    assert None not in outcomes
    assert sorted(both.reference.pages) == [1, 2, 3, 4]
    assert (
        failure_of(shows_table(lambda _, __, t: [b + 4 for b in t]), [CREATE, APPEND]) is not None
    )


def test_expected_outcomes_of_a_file_are_compared():
    trace = Trace(CONFIG, [CREATE, APPEND], expected=[Expected("ok", 4), Expected("ok", 2)])

    failure = run(trace, ImplAdapter)

    assert (failure.rule, failure.index) == ("expected outcome", 1)
    assert failure.message == "gave ok, 3 blocks free, and the file says ok, 2 blocks free"
    assert len(failure.trace.expected) == 2


def test_expected_outcomes_are_compared_until_the_first_operation_that_was_not_tried():
    trace = Trace(
        CONFIG,
        [CREATE, APPEND, Fork("a", "b"), Release("a")],
        expected=[Expected("ok", 4), Expected("ok", 2), Expected("ok", 2), Expected("ok", 2)],
    )

    failure = run(trace, OnlyTheNecessary)

    assert (failure.rule, failure.index) == ("expected outcome", 1)


def test_the_reason_of_a_rejection_is_compared_with_the_file():
    trace = Trace(CONFIG, [Release("a")], expected=[Expected("rejected", 4, reason="no tokens")])

    failure = run(trace, ImplAdapter)

    assert failure.rule == "expected outcome"
    assert failure.message == (
        "gave rejected (unknown request), 4 blocks free,"
        " and the file says rejected (no tokens), 4 blocks free"
    )


def test_expected_outcomes_are_not_due_after_an_operation_that_the_adapter_lacks():
    trace = Trace(
        Configuration(1, 1),
        [CREATE, APPEND, Fork("a", "b"), Release("a")],
        expected=[Expected("ok", 1), Expected("ok", 0), Expected("ok", 0), Expected("ok", 0)],
    )
    assert run(trace, ImplAdapter) is None

    assert run(trace, OnlyTheNecessary) is None


# The history of a failure


def test_a_failure_that_does_not_come_back_is_said_so():
    failure = failure_of(CountsOneFreeBlockMore, [CREATE])

    assert not explain(failure, ImplAdapter).reproduced


def test_another_failure_at_an_earlier_operation_is_not_the_same_one():
    failure = failure_of(raises("append", RuntimeError("boom")), [CREATE, APPEND])

    assert not explain(failure, CountsOneFreeBlockMore).reproduced


def test_another_failure_at_an_earlier_operation_is_survived():
    """What follows a violation has no meaning: the two sides went apart."""
    operations = [CREATE, APPEND, Append("a", (2,)), Fork("a", "b"), Release("a")]
    failure = failure_of(raises("release", RuntimeError("boom")), operations)

    for name, (adapter, _, _, _) in CASES.items():
        assert explain(failure, adapter) is not None, name


def test_a_difference_from_the_file_is_not_called_indeterminism():
    trace = Trace(CONFIG, [CREATE, APPEND], expected=[Expected("ok", 4), Expected("ok", 2)])
    failure = run(trace, ImplAdapter)

    assert explain(failure, ImplAdapter).reproduced
    assert "not deterministic" not in describe(failure, target_of("impl", ImplAdapter))
