"""Lockstep and what takes time: steps, transfers, lookups, preemption, each broken in a few lines."""

from dataclasses import asdict

import pytest

from kvoracle.impl import PagedAllocator
from kvoracle.impl.steps import Steps
from kvoracle.impl.transfers import Transfers
from kvoracle.model.adapters.impl import ImplAdapter
from kvoracle.model.history import explain
from kvoracle.model.operations import (
    OPERATIONS,
    Acknowledge,
    Admit,
    Append,
    AppendEach,
    BeginStep,
    Cancel,
    ChangeWeights,
    Commit,
    Create,
    Done,
    EndStep,
    Evict,
    FailStep,
    Fork,
    LookUp,
    Pin,
    Preempt,
    Receive,
    Release,
    ReleaseEach,
    Reserve,
    Reset,
    Resume,
    Send,
    Tick,
    Trim,
    Unpin,
    Use,
)
from kvoracle.model.run import run
from kvoracle.model.trace import Configuration, Trace

CONFIG = Configuration(4, 2, prefix_cache=True)
CREATE, APPEND = Create("a"), Append("a", (1,))
OTHER = [Create("b"), Append("b", (9,))]
STEP = [CREATE, BeginStep("s1", ("a",), (1,))]
SHARED = [CREATE, APPEND, Fork("a", "b")]
LOAD = Receive("a", (1, 2), "t", 1, 1)
SENT = [CREATE, APPEND, Send("a", "t", 2, 0)]


def failure_of(adapter, operations, config=CONFIG):
    return run(Trace(config, list(operations)), adapter)


class Silent(ImplAdapter):
    """Nothing is counted and no order promised: what is wrong must show in blocks and contents."""

    reuses_in_order = False

    def free_blocks(self):
        return None

    def holders(self):
        return None

    def statistics(self):
        return None


def on(*parts, adapter=Silent, **body):
    """The adapter of an allocator of which these parts (pool, steps, ...) are exchanged."""
    for part in parts:
        name = next(
            name
            for name, right in vars(PagedAllocator).items()
            if name.endswith("_class") and issubclass(part, right)
        )
        body[name] = part
    allocator = type("Broken", (PagedAllocator,), body)
    return type("Broken", (adapter,), {"allocator_class": allocator})


def does(verb, replace, adapter=Silent):
    """An adapter that does `replace(adapter, right, *arguments)` for a verb."""

    def replaced(self, *arguments):
        return replace(self, getattr(adapter, verb).__get__(self), *arguments)

    return type("Does", (adapter,), {verb: replaced})


def nothing(verb, adapter=Silent):
    return does(verb, lambda *_: None, adapter)


class HoldsNothing(Steps):
    def _hold(self, rows, sources):
        return super()._hold(rows[:0], [])


class HoldsNoSources(Steps):
    def _hold(self, rows, sources):
        return super()._hold(rows, [])


class FailsOneStep(Steps):
    def fail(self, name):
        self._step(name)
        step = self.in_flight[name]
        self.tables.in_flight[step.rows[self._alive(step)]] -= 1
        self._drop(name)


class EndsAnyStep(Steps):
    def end(self, name):
        if name in self.in_flight:
            self.in_flight = {name: self.in_flight.pop(name), **self.in_flight}
        super().end(name)


class LoadsPinNothing(Transfers):
    def receive(self, request, prompt, name, *arguments):
        growth = super().receive(request, prompt, name, *arguments)
        self.pool.drop_pin(self.by_name[name].blocks)
        self.by_name[name].blocks = self.by_name[name].blocks[:0]
        return growth


class OneWorkerIsEnough(Transfers):
    def acknowledge(self, name, worker, generation):
        self.by_name[name].workers = 1
        super().acknowledge(name, 0, generation)


class LostIsArrived(Transfers):
    def tick(self):
        over = list(self.by_name.values())
        super().tick()
        for transfer in over:
            self._arrive(transfer)


class WritesAtOnce(Silent):
    """A step is an append: it is written, and published, when it begins."""

    def begin_step(self, step, requests, tokens):
        return self.append_each(requests, tokens)

    def end_step(self, step):
        pass


def misplaced(slot):
    """Begins steps whose first token goes to a slot of this block."""
    return does("begin_step", lambda _, right, *a: Done(slots={right(*a) and a[1][0]: [slot]}))


CASES = {
    "hands out a block of a step in flight": (
        on(HoldsNothing),
        [*STEP, Release("a"), *OTHER],
        ("choice", 0),
        "block 0 (owners: none; pins: none; step: s1) was taken for 'b' but is not free",
    ),
    "hands out the source of a copy that has not run": (
        on(HoldsNoSources),
        [*SHARED, BeginStep("s1", ("a",), (2,)), Release("b"), Create("c"), Append("c", (9,))],
        ("choice", 0),
        "block 0 (owners: none; pins: none; step: s1) was taken for 'c' but is not free",
    ),
    "publishes before the step has ended": (
        WritesAtOnce,
        [CREATE, APPEND, BeginStep("s1", ("a",), (2,)), Admit("b", (1, 2, 3))],
        ("choice", 0),
        "block 0 (owners: a; pins: none; step: s1) was taken for 'b' but is not free",
    ),
    "lets a request that is gone write to the block of another": (
        misplaced(2),
        [*STEP, Create("b"), Append("b", (9,)), Release("a"), EndStep("s1")],
        ("contents", 1),
        "'b' reads token 1 that 'a' wrote as its position 0 at position 0 (block 1, offset 0): "
        "token 9 that 'b' wrote as its position 0 is right",
    ),
    "lets a step that failed spoil the block of another": (
        misplaced(2),
        [*STEP, *OTHER, FailStep("s1")],
        ("contents", 1),
        "'b' reads token -1 that 'a' wrote as its position 0",
    ),
    "orders no copy for a step": (
        does("begin_step", lambda _, right, *a: Done(slots=right(*a).slots)),
        [*SHARED, BeginStep("s1", ("b",), (2,))],
        ("contents", 1),
        "'b' reads a slot that was never written at position 0 (block 1, offset 0)",
    ),
    "refuses a step with room": (
        does("begin_step", lambda *_: Done(refused=["a"])),
        STEP,
        ("outcome", None),
        "1 of 4 free blocks needed, yet: ok, refused a",
    ),
    "ends a step before an earlier one": (
        on(EndsAnyStep),
        [*STEP, BeginStep("s2", ("a",), (2,)), EndStep("s2")],
        ("outcome", None),
        "answered 'ok', and must answer 'rejected: an earlier step is in flight'",
    ),
    "leaves a step in flight that must have failed": (
        on(FailsOneStep),
        [*STEP, BeginStep("s2", ("a",), (2,)), FailStep("s1"), EndStep("s2")],
        ("outcome", None),
        "answered 'ok', and must answer 'rejected: unknown step'",
    ),
    "counts no holder for a step": (
        on(HoldsNothing, adapter=ImplAdapter),
        STEP,
        ("holder count", 0),
        "the allocator counts 1 holders of block 0: it has 2",
    ),
    "frees the blocks of a load when its request goes": (
        on(LoadsPinNothing),
        [LOAD, Release("a"), *OTHER],
        ("choice", 0),
        "block 0 (owners: none; pins: t) was taken for 'b' but is not free",
    ),
    "takes a stale acknowledgement": (
        does("acknowledge", lambda _, right, transfer, worker, life: right(transfer, worker, 0)),
        [LOAD, Acknowledge("t", 0, 0), Send("a", "t", 1, 0), Acknowledge("t", 0, 1)],
        ("outcome", None),
        "answered 'ok', and must answer 'rejected: stale handle'",
    ),
    "takes a second acknowledgement": (
        does("acknowledge", lambda *_: None),
        [*SENT, Acknowledge("t", 0, 0), Acknowledge("t", 0, 0)],
        ("outcome", None),
        "answered 'ok', and must answer 'rejected: already acknowledged'",
    ),
    "ends a transfer that another worker still reads": (
        on(OneWorkerIsEnough),
        [*SENT, Acknowledge("t", 1, 0), Release("a"), *OTHER],
        ("choice", 0),
        "block 0 (owners: none; pins: t) was taken for 'b' but is not free",
    ),
    "lets a lease go on": (
        nothing("tick", ImplAdapter),
        [CREATE, APPEND, Send("a", "t", 1, 1), Tick()],
        ("holder count", 0),
        "the allocator counts 2 holders of block 0: it has 1",
    ),
    "takes a lost load as arrived": (
        on(LostIsArrived),
        [LOAD, Tick(), Append("a", (3,))],
        ("table", 1),
        "the table of 'a' is [0, 1]: [0] is right",
    ),
    "publishes a lost load": (
        on(LostIsArrived),
        [LOAD, Tick(), Release("a"), Admit("b", (1, 2, 3))],
        ("hit", None),
        "says that 2 tokens of the prompt are written: 0 are",
    ),
    "counts a block that is taken again as taken once": (
        does("generations", lambda _, right: {b: min(n, 1) for b, n in right().items()}),
        [CREATE, APPEND, Release("a"), *OTHER],
        ("generation", 0),
        "the allocator counts 1 takings of block 0: it has 2",
    ),
    "reserves nothing": (
        nothing("reserve"),
        [CREATE, Reserve("a", 3)],
        ("table", None),
        "the table of 'a' is []: 2 blocks are needed",
    ),
    "trims nothing": (
        nothing("trim"),
        [CREATE, Reserve("a", 3), Trim("a")],
        ("table", 0),
        "the table of 'a' is [0, 1]: [] is right",
    ),
    "commits to the wrong slot": (
        does("commit", lambda *_: Done(slots={"a": [1]})),
        [CREATE, Reserve("a", 3), Commit("a", (5,))],
        ("contents", 0),
        "'a' reads a slot that was never written at position 0 (block 0, offset 0)",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_allocator_that_loses_track_fails_by_its_rule_in_one_sentence(name):
    adapter, operations, (rule, block), message = CASES[name]

    failure = failure_of(adapter, operations)

    assert failure is not None
    assert failure.rule == rule
    assert block is None or failure.block == block
    assert message in failure.message
    assert failure.index == len(operations) - 1
    assert len(failure.message.splitlines()) == 1
    assert "page" not in failure.message


@pytest.mark.parametrize("name", CASES)
def test_the_operations_of_an_allocator_that_loses_track_pass_on_a_right_one(name):
    assert failure_of(ImplAdapter, CASES[name][1]) is None
    assert failure_of(Silent, CASES[name][1]) is None


@pytest.mark.parametrize("name", CASES)
def test_the_failure_of_an_allocator_that_loses_track_comes_back_when_it_is_explained(name):
    adapter, operations, _, _ = CASES[name]

    assert explain(failure_of(adapter, operations), adapter).reproduced


# One trace of every operation


EVERY = [
    *(Create("a"), Append("a", (1,)), AppendEach(("a",), (2,)), Fork("a", "b"), Pin("a", "t1")),
    *(Unpin("t1"), Release("b"), BeginStep("s1", ("a",), (3,)), EndStep("s1")),
    *(BeginStep("s2", ("a",), (4,)), FailStep("s2"), Trim("a"), Reserve("a", 2), Commit("a", (5,))),
    *(Preempt("a"), Resume("a"), Send("a", "t2", 1, 1), Acknowledge("t2", 0, 0), Evict("a", 0)),
    *(ReleaseEach(("a",)), Admit("c", (1, 2)), LookUp("d", (1, 2, 3)), Use("d"), LookUp("e", (1,))),
    *(Cancel("e"), ChangeWeights(), Release("c"), Release("d"), Reset()),
    *(Receive("f", (1, 2), "t3", 1, 1), Tick()),
]
VERBS = tuple(operation.verb for operation in OPERATIONS)
REPORTS = ("table", "free_blocks", "holders", "generations", "statistics")


def test_every_operation_succeeds_in_one_trace():
    assert {operation.verb for operation in EVERY} == set(VERBS)
    assert failure_of(ImplAdapter, EVERY) is None


@pytest.mark.parametrize("method", [*VERBS, *REPORTS])
def test_an_exit_of_an_allocator_is_a_verdict(method):
    def fail(self, *arguments):
        raise SystemExit(3)

    failure = failure_of(type("Exits", (ImplAdapter,), {method: fail}), EVERY)

    assert failure.rule == "exception"
    assert failure.message.startswith("the allocator raised SystemExit: 3")
    assert failure.trace.operations[-1].verb == method or method in REPORTS


STATISTICS = sorted(set(asdict(PagedAllocator(1, 1).statistics())) - {"usage"})


@pytest.mark.parametrize("name", STATISTICS)
def test_a_wrong_statistic_is_named(name):
    class Miscounts(ImplAdapter):
        def statistics(self):
            return {**super().statistics(), name: super().statistics()[name] + 1}

    failure = failure_of(Miscounts, EVERY)

    assert (failure.rule, failure.index) == ("statistics", 0)
    right = {"free": 4}.get(name, 0)
    assert failure.message == f"the allocator says {name} {right + 1}: {right} is right"


@pytest.mark.parametrize("name", STATISTICS)
def test_a_statistic_that_is_never_counted_is_missed(name):
    class CountsNever(ImplAdapter):
        def statistics(self):
            return {name: {"free": 4}.get(name, 0)}

    more = [Admit("g", (1, 2, 3)), Release("g"), Admit("h", tuple(range(9, 16)))]
    failure = failure_of(CountsNever, [*EVERY[:-2], *more])

    assert failure.rule == "statistics"
    assert name in failure.message


# The history of a failure


class TakesBlockZeroForC(ImplAdapter):
    def table(self, request):
        return [0] if request == "c" and super().table(request) else super().table(request)


def test_the_history_tells_who_took_shared_pinned_wrote_and_dropped_the_block_at_which_operation():
    operations = [
        Create("a"),
        Append("a", (1,)),
        Append("a", (2,)),
        Fork("a", "b"),
        Pin("a", "t1"),
        Pin("b", "t2"),
        Append("a", (3,)),
        Release("b"),
        Unpin("t2"),
        Create("c"),
        Append("c", (4,)),
    ]
    failure = failure_of(TakesBlockZeroForC, operations, Configuration(3, 4))
    assert (failure.rule, failure.block, failure.index) == ("choice", 0, 10)

    explanation = explain(failure, TakesBlockZeroForC)

    assert explanation.events == [
        (1, "taken by a"),
        (1, "holds token 1 that 'a' wrote as its position 0 at offset 0"),
        (2, "holds token 2 that 'a' wrote as its position 1 at offset 1"),
        (3, "shared with b"),
        (4, "pinned by t1"),
        (5, "pinned by t2"),
        (6, "dropped by a"),
        (7, "dropped by b"),
        (8, "no longer pinned by t2"),
    ]
    assert explanation.tables_before == {"a": [1], "c": []}
    assert explanation.tables_after == {"a": [1], "c": [0]}
    assert explanation.answer == "Done(copies=[], slots={'c': [8]}, refused=[], hit=0)"
    assert explanation.reproduced


def test_the_history_tells_when_the_block_became_free():
    class LosesTheTableOfB(ImplAdapter):
        def table(self, request):
            table = super().table(request)
            return [*table, 0] if request == "b" and table else table

    failure = failure_of(
        LosesTheTableOfB,
        [CREATE, APPEND, Release("a"), Create("b"), Append("b", (2,))],
    )
    assert (failure.rule, failure.block) == ("table", None)

    failure.block = 0
    events = explain(failure, LosesTheTableOfB).events

    assert events[:4] == [
        (1, "taken by a"),
        (1, "holds token 1 that 'a' wrote as its position 0 at offset 0"),
        (2, "dropped by a"),
        (2, "free"),
    ]


def history(block, *operations, config=CONFIG):
    """What an explanation says of a block, where the last report is wrong."""

    class EndsBadly(ImplAdapter):
        ticks = 0

        def tick(self):
            self.ticks += 1
            super().tick()

        def free_blocks(self):
            return super().free_blocks() + (self.ticks == 2)

    failure = failure_of(EndsBadly, [*operations, Tick(), Tick()], config)
    failure.block = block
    explanation = explain(failure, EndsBadly)
    assert explanation.reproduced
    return [f"{index} {event}" for index, event in explanation.events if "holds token" not in event]


def test_the_history_tells_which_step_held_the_block_and_when_it_was_published():
    operations = [CREATE, APPEND, BeginStep("s1", ("a",), (2,)), EndStep("s1"), Release("a")]

    assert history(0, *operations) == [
        *("1 taken by a", "2 held by step s1", "3 published", "3 no longer held by step s1"),
        *("4 dropped by a", "4 idle"),
    ]


def test_the_history_tells_who_found_an_idle_block_and_who_took_it_for_something_else():
    operations = [Admit("a", (1, 2, 3)), Release("a"), LookUp("b", (1, 2, 3)), Cancel("b")]
    operations += [Admit("b", (1, 2)), Release("b"), Admit("c", (1, 2, 4)), Release("c")]

    assert history(0, *operations, Admit("d", tuple(range(10, 14))), Evict("c", 0)) == [
        *("0 taken by a", "0 published", "1 dropped by a", "1 idle"),
        *("2 held by lookup b", "3 no longer held by lookup b", "3 idle"),
        *("6 hit by c", "7 dropped by c", "7 idle"),
    ]


def test_the_history_tells_that_an_entry_was_withdrawn_and_what_a_taken_block_was_before():
    config = Configuration(1, 1, prefix_cache=True)
    operations = [Admit("a", (1,)), Evict("a", 0), Release("a"), Admit("b", (2,)), Release("b")]

    assert history(0, *operations, Admit("c", (3,)), ChangeWeights(), config=config) == [
        *("0 taken by a", "0 published", "1 no longer published", "2 dropped by a", "2 free"),
        *("3 taken by b", "3 published", "4 dropped by b", "4 idle"),
        *("5 no longer published", "5 taken by c", "5 published"),
        "6 no longer published",
    ]
