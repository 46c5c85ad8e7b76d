"""Groups of layers in lockstep: the engines, what is judged and how, traces, shrinking, reports."""

import msgspec
import pytest

from kvoracle.model import witnesses
from kvoracle.model.adapters.impl import ImplAdapter
from kvoracle.model.adapters.impl_groups import ImplGroupsAdapter
from kvoracle.model.canaries import CANARIES, with_canary
from kvoracle.model.check import as_target, check, check_trace, unfit
from kvoracle.model.drain import drain
from kvoracle.model.engines import hunt
from kvoracle.model.errors import UsageError
from kvoracle.model.found import as_python, describe
from kvoracle.model.grouped_lockstep import GroupedLockstep
from kvoracle.model.lockstep import Lockstep, Violation
from kvoracle.model.mutation import mutant_named
from kvoracle.model.operations import (
    Admit,
    Append,
    AppendEach,
    Create,
    Done,
    OutOfBlocks,
    Preempt,
    Release,
    Resume,
)
from kvoracle.model.run import Failure, run, start, with_expected
from kvoracle.model.shrink import shrink
from kvoracle.model.trace import Configuration, Group, Trace, parse, render
from kvoracle.model.walk import walk
from kvoracle.reference import Oracle
from kvoracle.reference.group_records import Group as ReferenceGroup
from kvoracle.reference.groups import GroupedKV

TARGET = as_target(ImplGroupsAdapter)
TWO = Configuration(9, 2, True, groups=(Group(2), Group(1, 2)))
ABC = (1, 2, 3, 4, 5)


def failure_of(adapter, *operations, config=TWO):
    return run(Trace(config, list(operations)), adapter)


# Nothing is found in what is right


@pytest.mark.parametrize(("engine", "operations"), [("walk", 6_000), ("hypothesis", 600)])
def test_nothing_is_found(engine, operations):
    failure, tally = hunt(engine, TARGET, 1, operations)

    assert failure is None
    if engine == "walk":
        assert [name for name in witnesses.required(TARGET) if not tally.witnesses.get(name)] == []


@pytest.mark.parametrize("canary", CANARIES)
def test_every_canary_is_caught(canary):
    spoiled = TARGET._replace(factory=with_canary(ImplGroupsAdapter, canary))

    failure, _ = hunt("walk", spoiled, 1, 2_000)

    assert failure is not None


def test_the_adapter_says_which_lockstep_it_is_for():
    grouped, plain = (
        start(ImplGroupsAdapter, Trace(TWO, [])),
        start(ImplAdapter, Trace(Configuration(4, 2), [])),
    )

    assert isinstance(grouped, GroupedLockstep)
    assert isinstance(grouped.reference, GroupedKV)
    assert type(plain) is Lockstep
    assert isinstance(plain.reference, Oracle)


def test_a_pool_without_groups_is_one_of_full_attention():
    lockstep = start(ImplGroupsAdapter, Trace(Configuration(4, 2, True), []))

    assert lockstep.step(Admit("a", ABC)) == Done(slots={"a": [2, 3, 4, 5, 6]}, hit=0)
    assert lockstep.reference.tables == {"a": [[1, 2, 3]]}


def test_one_table_after_the_other_with_the_null_block():
    lockstep = start(ImplGroupsAdapter, Trace(TWO, []))
    lockstep.step(Admit("a", ABC))

    full, windowed = lockstep.reference.tables["a"]

    assert windowed == [0, 0, 0, 0, windowed[4]]
    assert list(lockstep.adapter.table("a")) == full + windowed
    assert lockstep.adapter.free_blocks() == 9 - 4


# What is wrong is found


class Broken(ImplGroupsAdapter):
    """Answers as it should but for what a subclass spoils."""

    def append(self, request, tokens):
        return self.spoil(request, super().append(request, tokens))

    def spoil(self, request, done):
        return done


class NoSlots(Broken):
    def spoil(self, request, done):
        return Done()


class SlotsOfOneGroup(Broken):
    def spoil(self, request, done):
        return Done(slots={request: done.slots[request][: len(done.slots[request]) // 2]})


class SlotsInTheNullBlock(Broken):
    def spoil(self, request, done):
        return Done(slots={request: [0, *done.slots[request][1:]]})


class OrdersACopy(Broken):
    def spoil(self, request, done):
        return msgspec.structs.replace(done, copies=[(1, 2)])


class SwapsOffsets(Broken):
    def spoil(self, request, done):
        first, second, *rest = done.slots[request]
        return Done(slots={request: [second, first, *rest]})


class TableOfOneGroup(Broken):
    def table(self, request):
        return list(super().table(request))[:1]


class CountsTheNullBlock(Broken):
    def holders(self):
        return {**super().holders(), 0: 1}


class NamesWhatIsOutOfTheWindow(Broken):
    def table(self, request):
        return [block or 9 for block in super().table(request)]


class Refuses(Broken):
    def append(self, request, tokens):
        return OutOfBlocks()

    def can_append(self, request, count):
        return None


class ForetellsNoRoom(Broken):
    def can_append(self, request, count):
        return False


@pytest.mark.parametrize(
    ("adapter", "rule", "said"),
    [
        (NoSlots, "slots", "0 slots for the 3 new tokens of 'a' in 2 groups"),
        (SlotsOfOneGroup, "slots", "3 slots for the 3 new tokens of 'a' in 2 groups"),
        (SlotsInTheNullBlock, "slots", "slot 0 of 'a', in blocks of 2, is outside the pool"),
        (OrdersACopy, "copy", "orders the copies [(1, 2)]: none is needed"),
        (SwapsOffsets, "contents", "'a' reads token 2 that 'a' wrote as its position 1 in group 0"),
        (TableOfOneGroup, "table", "[2, 3] blocks are needed"),
        (CountsTheNullBlock, "holder count", "1 holders of block 0: it has 0"),
        (NamesWhatIsOutOfTheWindow, "table", "are right"),
        (ForetellsNoRoom, "predicate", "asked whether there is room it said no, yet: ok"),
        (Refuses, "outcome", "5 of 9 free blocks needed, yet: out of blocks"),
    ],
)
def test_what_an_allocator_does_wrong(adapter, rule, said):
    failure = failure_of(adapter, Create("a"), Append("a", (1, 2, 3)))

    assert failure is not None
    assert failure.rule == rule
    assert said in failure.message


class HitsNothing(ImplGroupsAdapter):
    """Publishes nothing and hits nothing."""

    def __init__(self, config):
        super().__init__(msgspec.structs.replace(config, prefix_cache=False))
        self.config = config


class HitsNothingAndSaysSo(HitsNothing):
    finds_longest_hits = False


def test_the_longest_hit_is_required_unless_it_was_declined():
    again = (Admit("a", ABC), Release("a"), Admit("b", ABC))

    failure = failure_of(HitsNothing, *again)

    assert failure is not None
    assert failure.rule == "hit"
    assert failure.message == "says that 0 tokens of the prompt are written: 4 are, in all groups"
    assert failure_of(HitsNothingAndSaysSo, *again) is None
    assert hunt("walk", as_target(HitsNothingAndSaysSo), 1, 2_000)[0] is None


class SaysNothingOfItsHit(ImplGroupsAdapter):
    def admit(self, request, prompt, extra_keys=None):
        outcome = super().admit(request, prompt, extra_keys or {})
        outcome.hit = None
        return outcome


def test_a_hit_that_is_not_told_is_the_longest():
    again = (Admit("a", ABC), Admit("b", ABC), Preempt("a"), Resume("a"))

    assert failure_of(SaysNothingOfItsHit, *again) is None


class HitsTooMuch(ImplGroupsAdapter):
    finds_longest_hits = False

    def admit(self, request, prompt, extra_keys=None):
        outcome = super().admit(request, prompt, extra_keys or {})
        outcome.hit = len(prompt)
        return outcome


def test_a_hit_that_no_group_can_serve():
    failure = failure_of(HitsTooMuch, Admit("a", ABC))

    assert failure is not None
    assert failure.message == "says that 5 tokens of the prompt are written: 0 are, in all groups"


def test_memory_is_one_for_all_groups():
    """A block that another group has overwritten no longer holds what it was published with."""
    lockstep = start(ImplGroupsAdapter, Trace(TWO, []))
    lockstep.step(Admit("a", ABC))
    block = lockstep.reference.tables["a"][0][0]
    slots = [block * lockstep.config.block_size]
    lockstep.memory.write(slots, [lockstep.memory.read(lockstep.reference.tables["a"][1][4])[0]])

    with pytest.raises(Violation) as violation:
        lockstep.step(Create("b"))

    assert violation.value.rule == "contents"
    assert "(group 0, block 1, offset 0)" in violation.value.message


@pytest.mark.parametrize(
    "name",
    ["window-one-token-too-short", "null-block-freed", "group-evicts-anothers-hits"],
)
def test_a_mutant_is_caught_and_its_trace_is_small(name):
    mutant = mutant_named(name)
    failure, _ = hunt("walk", mutant.target, 1, 20_000)
    assert failure is not None

    small = shrink(failure, lambda trace: run(trace, mutant.target.factory))

    assert len(small.trace.operations) <= 5
    assert with_expected(small.trace, mutant.adapter).expected


# Configurations, traces, reports


def test_groups_in_a_trace_read_back():
    trace = Trace(TWO, [Admit("a", ABC)])
    text = render(trace)

    assert parse(text.encode(), "it") == trace
    assert '"groups":[{"block_size":2},{"block_size":1,"window":2}]' in text
    assert "groups" not in render(Trace(Configuration(1, 1), []))


@pytest.mark.parametrize(
    "fields",
    [
        {"block_size": 2, "groups": [{"block_size": 4}]},
        {"block_size": 4, "groups": [{"block_size": 0}]},
        {"block_size": 4, "groups": [{"block_size": 4, "window": -1}]},
        {"block_size": 4, "groups": [{"block_size": 4, "colour": 1}]},
    ],
)
def test_groups_that_make_no_sense(fields):
    text = msgspec.json.encode({"version": 1, "config": {"blocks": 2, **fields}, "operations": []})

    with pytest.raises(UsageError, match="is not a trace"):
        parse(text, "it")


def test_an_allocator_without_groups_is_not_asked_for_them():
    trace = Trace(TWO, [Create("a")])

    assert unfit(trace, as_target(ImplAdapter)) == "does not honour groups"
    assert unfit(trace, TARGET) is None
    check_trace(ImplGroupsAdapter, trace)


def test_a_failure_as_python_fails_again():
    failure = Failure(Trace(TWO, [Create("a"), Append("a", (1,))]), "slots", "it")
    target = as_target(NoSlots)

    text = describe(failure, target)
    program = as_python(failure.trace, "impl-groups")

    assert (
        "9 blocks of 2 with prefix cache; group 0: blocks of 2; group 1: blocks of 1, window 2"
        in text
    )
    exec(compile(program, "it", "exec"), {})
    with pytest.raises(AssertionError, match="0 slots for the 1 new tokens"):
        check(
            NoSlots,
            blocks=9,
            block_size=2,
            groups=TWO.groups,
            operations=failure.trace.operations,
        )


def test_shrinking_leaves_the_groups_that_matter():
    config = Configuration(40, 12, groups=(Group(4, 7), Group(3), Group(2, 2)))
    failure = failure_of(
        NamesWhatIsOutOfTheWindow, Create("a"), Append("a", tuple(range(20))), config=config
    )
    assert failure is not None

    small = shrink(failure, lambda trace: run(trace, NamesWhatIsOutOfTheWindow))

    assert small.trace.config.groups == (Group(1, 1),)
    assert small.trace.config.block_size == 1
    assert len(small.trace.operations) == 2


def test_shrinking_lets_go_of_groups_that_do_not_matter():
    failure = failure_of(NoSlots, Create("a"), Append("a", ABC))
    assert failure is not None

    assert shrink(failure, lambda trace: run(trace, NoSlots)).trace.config == Configuration(1, 1)


# Walks


def walks_on_groups():
    return [
        walk(seed, TARGET.operations, steps=0, options=TARGET.options).config for seed in range(300)
    ]


def test_walks_draw_groups_of_every_kind():
    groups = [group for config in walks_on_groups() for group in config.groups]

    assert {len(config.groups) for config in walks_on_groups()} == {1, 2, 3}
    assert {group.block_size for group in groups} == {1, 2, 3, 4}
    assert any(group.window == 0 for group in groups)
    assert any(group.window == 1 for group in groups)
    assert any(1 < group.window < group.block_size for group in groups)
    assert any(
        group.window > group.block_size and group.window % group.block_size for group in groups
    )


def test_a_walk_has_groups_only_for_allocators_that_have_them():
    assert not any(walk(seed, steps=0).config.groups for seed in range(100))


def test_the_end_of_a_run_takes_as_much_of_the_pool_as_one_request_can():
    kv = GroupedKV(6, [ReferenceGroup(2), ReferenceGroup(1)])
    kv.admit("a", 1, 2)
    kv.admit("p", 1)
    kv.preempt("p")

    release, forget, create, append = drain(kv)

    assert (release, forget, create) == (Release("a"), Release("p"), Create("fill"))
    for operation in (release, forget, create, append):
        operation.perform(kv, operation.writes())
    assert len(kv.takeable()) == 0


def test_a_step_schedules_all_before_any_window_moves():
    config = Configuration(3, 2, groups=(Group(1, 1), Group(2)))
    failure = failure_of(
        ImplGroupsAdapter,
        Create("a"),
        Create("b"),
        Append("a", (1,)),
        AppendEach(("a", "b"), (2, 3)),
        config=config,
    )

    assert failure is None
