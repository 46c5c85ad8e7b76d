"""Shrinking: smaller, failing by the same rule, within its limit of runs."""

import pytest

from kvoracle.impl import PagedAllocator
from kvoracle.impl.steps import Steps
from kvoracle.model.adapters.impl import ImplAdapter
from kvoracle.model.operations import (
    OPERATIONS,
    Acknowledge,
    Admit,
    Append,
    AppendEach,
    BeginStep,
    Create,
    EndStep,
    Evict,
    FailStep,
    Fork,
    LookUp,
    Pin,
    Receive,
    Release,
    ReleaseEach,
    Reserve,
    Reset,
    Send,
    Unpin,
)
from kvoracle.model.run import Failure, run
from kvoracle.model.shrink import shrink
from kvoracle.model.trace import OPTIONS, Configuration, Expected, Trace
from kvoracle.model.walk import walk


class ForkMissesAnOwner(ImplAdapter):
    """The planted bug: a fork counts no owner for the tail it shares."""

    def fork(self, parent, child):
        super().fork(parent, child)
        self.allocator.pool.owners[self.table(child)[-1:]] -= 1


class ForkMissesAnOwnerAndKeepsNoCounts(ForkMissesAnOwner):
    """The same, found only once a block that is still shared is taken again."""

    def free_blocks(self):
        return None

    def holders(self):
        return None


class FailsOnTheThirdRelease(ImplAdapter):
    releases = 0

    def release(self, request):
        super().release(request)
        self.releases += 1
        if self.releases == 3:
            raise RuntimeError("third release")


WITHOUT_CACHE = (Create, Append, AppendEach, Fork, Pin, Unpin, Release, ReleaseEach)
ONE_WAY_TO_WRITE = (Create, Append, Fork, Pin, Unpin, Release, ReleaseEach)


class Fails:
    """Runs a trace on an adapter and counts the runs."""

    def __init__(self, adapter):
        self.adapter = adapter
        self.runs = 0

    def __call__(self, trace):
        self.runs += 1
        return run(trace, self.adapter)


def first_failure(adapter, seeds=range(1000), operations=WITHOUT_CACHE):
    walks = (walk(seed, operations, steps=200, options=ImplAdapter.options) for seed in seeds)
    return next(failure for trace in walks if (failure := run(trace, adapter)))


def names_in(trace):
    text = [operation.arguments() for operation in trace.operations]
    flat = [name for arguments in text for name in arguments]
    every = [n for name in flat for n in (name if isinstance(name, tuple) else (name,))]
    return list(dict.fromkeys(name for name in every if isinstance(name, str)))


def tokens_in(trace):
    return [t for o in trace.operations for tokens in o.writes().values() for t in tokens]


def renamed_by_hand():
    """A trace of long names in which the fork bug is deep inside."""
    return Trace(
        Configuration(16, 4),
        [
            Create("request-17"),
            Append("request-17", tuple(range(100, 110))),
            Create("request-4"),
            Append("request-4", (7,)),
            Pin("request-4", "transfer-9"),
            AppendEach(("request-4", "request-17"), (8, 9)),
            Unpin("transfer-9"),
            Release("request-4"),
            Fork("request-17", "request-99"),
            ReleaseEach(("request-17", "request-99")),
        ],
    )


@pytest.mark.parametrize("seed", range(0, 900, 100))
def test_a_planted_fork_bug_shrinks_to_at_most_four_operations_with_plain_names(seed):
    failure = first_failure(ForkMissesAnOwner, range(seed, seed + 1000), ONE_WAY_TO_WRITE)
    fails = Fails(ForkMissesAnOwner)

    small = shrink(failure, fails)

    assert small.rule == failure.rule
    assert [type(operation) for operation in small.trace.operations] == [Create, Append, Fork]
    assert small.trace.operations == [Create("a"), Append("a", (1,)), Fork("a", "b")]
    assert small.trace.config == Configuration(1, 1)
    assert fails.runs < 500


@pytest.mark.parametrize("seed", range(0, 1000, 100))
def test_a_planted_fork_bug_among_all_operations_shrinks_to_at_most_four(seed):
    failure = first_failure(ForkMissesAnOwner, range(seed, seed + 1000), OPERATIONS)
    fails = Fails(ForkMissesAnOwner)

    small = shrink(failure, fails)

    assert small.rule == failure.rule
    assert len(small.trace.operations) <= 4
    assert small.trace.operations[-1] == Fork("a", "b")
    assert tokens_in(small.trace) == [1]
    assert small.trace.config == Configuration(1, 1)
    assert fails.runs < 500


def test_a_cache_that_a_failure_does_not_need_is_switched_off():
    config = Configuration(1, 1, prefix_cache=True)
    failure = run(
        Trace(config, [Create("a"), Append("a", (1,)), Fork("a", "b")]), ForkMissesAnOwner
    )

    assert shrink(failure, Fails(ForkMissesAnOwner)).trace.config == Configuration(1, 1)


def test_a_prompt_gets_shorter_and_its_block_is_still_hit():
    class RaisesOnAHit(ImplAdapter):
        def admit(self, *arguments):
            done = super().admit(*arguments)
            if done.hit:
                raise RuntimeError("hit")
            return done

    prompt = tuple(range(50, 70))
    failure = run(
        Trace(
            Configuration(40, 4, prefix_cache=True),
            [Admit("x", prompt), Release("x"), Reset(), Admit("x", prompt), Admit("y", prompt)],
        ),
        RaisesOnAHit,
    )

    small = shrink(failure, Fails(RaisesOnAHit)).trace

    assert small.operations == [Admit("a", (1,)), Admit("b", (1, 2))]
    assert small.config == Configuration(2, 1, prefix_cache=True)


def test_a_planted_fork_bug_in_long_names_shrinks_to_a_and_b():
    failure = run(renamed_by_hand(), ForkMissesAnOwner)

    small = shrink(failure, Fails(ForkMissesAnOwner))

    assert small.trace.operations == [Create("a"), Append("a", (1,)), Fork("a", "b")]


@pytest.mark.parametrize("seed", range(0, 500, 100))
def test_a_planted_bug_without_counts_shrinks_and_keeps_its_rule(seed):
    failure = first_failure(ForkMissesAnOwnerAndKeepsNoCounts, range(seed, seed + 1000))

    small = shrink(failure, Fails(ForkMissesAnOwnerAndKeepsNoCounts))

    assert small.rule == failure.rule
    assert len(small.trace.operations) <= 6
    assert names_in(small.trace)[0] == "a"


def test_what_is_shrunk_fails_by_itself_just_as_it_says():
    failure = first_failure(ForkMissesAnOwnerAndKeepsNoCounts)
    small = shrink(failure, Fails(ForkMissesAnOwnerAndKeepsNoCounts))

    assert run(small.trace, ForkMissesAnOwnerAndKeepsNoCounts) == small


def test_requests_and_transfers_and_tokens_are_renamed_in_order_of_appearance():
    class UnpinRaises(ImplAdapter):
        def unpin(self, transfer):
            super().unpin(transfer)
            transfers, requests = self.allocator.transfers, self.allocator.requests
            if len(transfers.by_name) == 1 and len(requests.by_name) == 3:
                raise RuntimeError

    failure = run(
        Trace(
            Configuration(4, 2),
            [
                Create("zeta"),
                Create("yps"),
                Create("xi"),
                Append("yps", (50,)),
                Append("xi", (40,)),
                Pin("yps", "omega"),
                Pin("xi", "psi"),
                Unpin("omega"),
            ],
        ),
        UnpinRaises,
    )

    small = shrink(failure, Fails(UnpinRaises)).trace

    assert [name for name in names_in(small) if len(name) == 1] == ["a", "b", "c"]
    assert [name for name in names_in(small) if len(name) == 2] == ["t1", "t2"]
    assert tokens_in(small) == list(range(1, len(tokens_in(small)) + 1))


def test_more_requests_than_letters_get_different_names():
    operations = [Create(f"request-{index}") for index in range(30)]

    class FailsWithThirty(ImplAdapter):
        def create(self, request):
            super().create(request)
            if len(self.allocator.requests.by_name) == 30:
                raise RuntimeError("thirty")

    failure = run(Trace(Configuration(1, 1), operations), FailsWithThirty)

    small = shrink(failure, Fails(FailsWithThirty))

    assert len(small.trace.operations) == 30
    assert names_in(small.trace)[:2] == ["a", "b"]
    assert len(set(names_in(small.trace))) == 30


def test_tokens_and_batches_get_shorter():
    class FailsOnEightTokens(ImplAdapter):
        def append(self, request, tokens):
            done = super().append(request, tokens)
            if len(tokens) >= 3:
                raise RuntimeError("three tokens")
            return done

    failure = run(
        Trace(Configuration(40, 1), [Create("a"), Append("a", tuple(range(40)))]),
        FailsOnEightTokens,
    )

    small = shrink(failure, Fails(FailsOnEightTokens))

    assert small.trace.operations == [Create("a"), Append("a", (1, 2, 3))]


def test_a_create_and_its_release_go_together():
    failure = run(
        Trace(
            Configuration(4, 2),
            [
                operation
                for name in ("a", "b", "c", "d")
                for operation in (Create(name), Append(name, (1,)), Release(name))
            ],
        ),
        FailsOnTheThirdRelease,
    )

    small = shrink(failure, Fails(FailsOnTheThirdRelease))

    assert small.rule == "exception"
    assert small.trace.operations == [Create("a"), Release("a")] * 3


def test_two_operations_that_are_apart_and_cancel_out_go_together():
    class FailsWhenCallsBalance(ImplAdapter):
        appends = balance = 0

        def create(self, request):
            self.balance += 1
            super().create(request)

        def release(self, request):
            self.balance -= 1
            super().release(request)

        def append(self, request, tokens):
            self.appends += 1
            if (self.appends, self.balance) == (2, 1):
                raise RuntimeError("the second append of one request")
            return super().append(request, tokens)

    operations = [
        Create("a"),
        Create("b"),
        Append("a", (1,)),
        Release("b"),
        Append("a", (2,)),
    ]
    failure = run(Trace(Configuration(4, 2), operations), FailsWhenCallsBalance)

    small = shrink(failure, Fails(FailsWhenCallsBalance))

    assert small.trace.operations == [Create("a"), Append("a", (1,)), Append("a", (2,))]


def test_a_smaller_trace_that_fails_by_another_rule_is_not_taken():
    def fails(trace):
        rule = "choice" if len(trace.operations) == 10 else "contents"
        return Failure(trace, rule, "")

    failure = fails(renamed_by_hand())

    assert shrink(failure, fails).rule == "choice"
    assert len(shrink(failure, fails).trace.operations) == 10


@pytest.mark.parametrize("runs_max", [0, 1, 2, 7, 30])
def test_no_more_runs_are_made_than_allowed(runs_max):
    failure = first_failure(ForkMissesAnOwnerAndKeepsNoCounts)
    fails = Fails(ForkMissesAnOwnerAndKeepsNoCounts)

    small = shrink(failure, fails, runs_max)

    assert fails.runs == runs_max
    assert small.rule == failure.rule
    assert len(small.trace.operations) <= len(failure.trace.operations)
    assert runs_max > 0 or small is failure


def test_a_trace_that_does_not_fail_any_more_is_left_alone():
    failure = first_failure(ForkMissesAnOwner)
    before = list(failure.trace.operations)
    fails = Fails(ImplAdapter)

    assert shrink(failure, fails) is failure
    assert failure.trace.operations == before
    assert fails.runs > 0


def test_a_failure_before_any_operation_is_left_alone():
    failure = Failure(Trace(Configuration(1, 1), []), "exception", "cannot be made")

    assert shrink(failure, lambda _: None) is failure


def test_what_a_file_expected_is_not_kept_for_other_operations():
    trace = renamed_by_hand()
    trace.expected = [Expected("ok", 16)] * len(trace.operations)
    failure = Failure(trace, "holder count", "")

    assert shrink(failure, Fails(ForkMissesAnOwner)).trace.expected == []


# Counts, extra keys, steps, options


def fails_if(predicate):
    """As `fails`, of a trace alone."""
    return lambda trace: Failure(trace, "rule", "") if predicate(trace) else None


def shrunk(operations, predicate, **options):
    """What is left of a trace on 8 blocks of 4, which fails while `predicate(trace)` holds."""
    trace = Trace(Configuration(8, 4, **options), operations)
    assert predicate(trace)
    return shrink(Failure(trace, "rule", ""), fails_if(predicate)).trace


def always(*kinds):
    """Holds while there is an operation of each of these kinds."""
    return lambda trace: set(kinds) <= set(map(type, trace.operations))


def keeps(kind, **least):
    """Holds while there is an operation of a kind whose numbers are at least these."""
    return lambda trace: any(
        isinstance(operation, kind)
        and all(getattr(operation, name) >= count for name, count in least.items())
        for operation in trace.operations
    )


@pytest.mark.parametrize(
    ("operation", "least", "small"),
    [
        (Reserve("a", 37), {}, Reserve("a", 0)),
        (Reserve("a", 37), {"count": 5}, Reserve("a", 5)),
        (Reserve("a", 1_000_000), {"count": 999_999}, Reserve("a", 999_999)),
        (Send("a", "t", 64, 9), {}, Send("a", "t1", 1, 0)),
        (Send("a", "t", 64, 9), {"workers": 2, "lease": 3}, Send("a", "t1", 2, 3)),
        (Receive("a", (7, 8), "t", 3, 4), {}, Receive("a", (1,), "t1", 1, 0)),
        (Acknowledge("t", 3, 1), {}, Acknowledge("t1", 0, 0)),
        (Acknowledge("t", 3, 1), {"life": 1}, Acknowledge("t1", 0, 1)),
        (Evict("a", 9), {}, Evict("a", 0)),
        (Evict("a", 9), {"first": 2}, Evict("a", 2)),
    ],
    ids=repr,
)
def test_a_number_gets_as_small_as_it_may(operation, least, small):
    assert shrunk([operation], keeps(type(operation), **least)).operations == [small]


BOTH = {"adapter": "x", "salt": "y"}


@pytest.mark.parametrize("kind", [Admit, LookUp])
def test_extra_keys_go_where_the_failure_does_not_need_them(kind):
    assert shrunk([kind("a", (5, 6), BOTH)], always(kind)).operations == [kind("a", (1,))]


def test_extra_keys_stay_where_the_failure_needs_them():
    def differ(trace):
        return len({str(getattr(o, "extra_keys", "none")) for o in trace.operations}) == 2

    small = shrunk([Admit("x", (5, 6), {"salt": "y"}), Admit("y", (5, 6), BOTH)], differ)

    assert {} in [operation.extra_keys for operation in small.operations]
    assert len(small.operations) == 2


def test_steps_are_renamed_in_order_of_appearance_and_stay_apart():
    def two_steps_end(trace):
        begun = [o.step for o in trace.operations if isinstance(o, BeginStep)]
        ended = [o.step for o in trace.operations if isinstance(o, EndStep | FailStep)]
        return len(set(begun)) == 2 and ended == begun[::-1]

    operations = [
        *(Create("zeta"), Create("psi"), BeginStep("omega", ("zeta", "psi"), (50, 60))),
        *(BeginStep("a", ("psi",), (70,)), EndStep("a"), FailStep("omega")),
    ]

    assert shrunk(operations, two_steps_end).operations == [
        *(BeginStep("s1", ("a",), (1,)), BeginStep("s2", ("a",), (2,))),
        *(EndStep("s2"), FailStep("s1")),
    ]


def test_one_step_does_the_work_of_two():
    operations = [BeginStep("x", ("a",), (1,)), EndStep("x"), BeginStep("y", ("a",), (2,))]

    def begins_twice(trace):
        return sum(isinstance(o, BeginStep) for o in trace.operations) == 2

    assert shrunk(operations, begins_twice).operations == [
        *(BeginStep("s1", ("a",), (1,)), BeginStep("s1", ("a",), (2,))),
    ]


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_of_the_pool_goes_unless_the_failure_needs_it(option):
    operations, value = [Create("a"), Append("a", (1, 2))], 2

    dropped = shrunk(operations, always(Append), **{option: value})
    kept = shrunk(operations, lambda trace: getattr(trace.config, option) > 0, **{option: value})

    assert dropped.config == Configuration(1, 1)
    assert getattr(kept.config, option) > 0
    assert kept.operations == []


class _HoldsNothing(Steps):
    def _hold(self, rows, sources):
        return super()._hold(rows[:0], [])


class StepsHoldNothing(ImplAdapter):
    """A planted bug of the new vocabulary, told by no count: a step holds no block."""

    allocator_class = type("Allocator", (PagedAllocator,), {"steps_class": _HoldsNothing})
    reuses_in_order = False

    def free_blocks(self):
        return None

    def holders(self):
        return None

    def statistics(self):
        return None


@pytest.mark.parametrize("seed", [100, 200, 300])
def test_a_planted_bug_of_steps_shrinks_to_a_step_and_what_takes_its_blocks(seed):
    failure = first_failure(StepsHoldNothing, range(seed, seed + 1000), OPERATIONS)
    fails = Fails(StepsHoldNothing)

    small = shrink(failure, fails).trace

    assert small.config.block_size == 1
    assert {BeginStep} < {type(operation) for operation in small.operations}
    assert len(small.operations) <= 6
    assert fails.runs < 500
