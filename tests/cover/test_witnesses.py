"""Witnesses: each is named by a small trace, at the operation that it is about and at no other."""

import ast
import inspect

import pytest

from kvoracle.model.adapters.impl import ImplAdapter
from kvoracle.model.engines import hunt
from kvoracle.model.operations import (
    Acknowledge,
    Admit,
    Append,
    AppendEach,
    BeginStep,
    Cancel,
    ChangeWeights,
    Commit,
    Create,
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
from kvoracle.model.registry import target_of
from kvoracle.model.witnesses import (
    PARTIAL_BLOCKS,
    REJECTIONS,
    WITNESSES,
    about_to_happen,
    core,
    flight,
    prefix,
    required,
)
from kvoracle.reference import Oracle, Rejected

OPTIONAL = {prefix.EXTRA_KEYS, prefix.WATERMARK, prefix.PARTIAL_HIT, prefix.IDLE_SOURCE}
TARGET = target_of("impl", ImplAdapter)

A, B, C = Create("a"), Create("b"), Create("c")
ONE = [A, Append("a", (1,))]
SHARED = [*ONE, Fork("a", "b")]
PROMPT = Admit("a", (1, 2, 3))
IDLE = [PROMPT, Release("a")]
STEP = BeginStep("s1", ("a",), (9,))
SEND = Send("a", "t", 1, 1)
LOAD = Receive("a", (1, 2, 3), "t", 1, 1)
DONE = Acknowledge("t", 0, 0)
FOUR_BLOCKS = tuple(range(10, 17))


def two(first, second):
    return [*ONE, first, second]


MET = {
    "append fills the tail in place": [*ONE, Append("a", (2,))],
    "append starts a block at an exact multiple": [A, Append("a", (1, 2)), Append("a", (3,))],
    "append takes several blocks at once": [A, Append("a", (1, 2, 3))],
    "append copies a shared tail": [*SHARED, Append("b", (2,))],
    "append copies a pinned tail of its only owner": two(Pin("a", "t"), Append("a", (2,))),
    "append finds too few free blocks": [A, Append("a", (*FOUR_BLOCKS, 2, 3))],
    "append finds no block for its copy": [*SHARED, C, Append("c", (5,) * 6), Append("b", (2,))],
    "append takes the last free block": [A, Append("a", FOUR_BLOCKS)],
    "append leaves one free block": [A, Append("a", (1, 2, 3, 4, 5))],
    "append lacks one block": [A, Append("a", (*FOUR_BLOCKS, 2, 3))],
    "append_each grows some and refuses others": [
        *(A, B, C, Append("c", (5,) * 6), AppendEach(("a", "b"), (1, 2))),
    ],
    "append_each meets a tail to copy": [*SHARED, AppendEach(("a", "b"), (2, 3))],
    "fork shares a partial tail": SHARED,
    "fork shares full blocks only": [A, Append("a", (1, 2)), Fork("a", "b")],
    "fork of an empty request": [A, Fork("a", "b")],
    "pin of a block that another transfer pins": two(Pin("a", "t"), Pin("a", "u")),
    "unpin frees a block that no request owns": [
        *two(Pin("a", "t"), Release("a")),
        Unpin("t"),
    ],
    "unpin leaves a block to another transfer": [*two(Pin("a", "t"), Pin("a", "u")), Unpin("t")],
    "release frees blocks": [*ONE, Release("a")],
    "release leaves a shared block": [*SHARED, Release("a")],
    "release leaves a pinned block": two(Pin("a", "t"), Release("a")),
    "release_each names a block twice": [*SHARED, ReleaseEach(("a", "b"))],
    "admit hits an idle block": [*IDLE, Admit("b", (1, 2, 4))],
    "admit hits a block in use": [PROMPT, Admit("b", (1, 2, 4))],
    "admit hits a content that two blocks hold": [
        *(A, B, Append("a", (1, 2)), Append("b", (1, 2)), Admit("c", (1, 2, 3))),
    ],
    "admit leaves the last block of a whole hit to be computed": [
        *(Admit("a", (1, 2, 3, 4)), Admit("b", (1, 2, 3, 4))),
    ],
    "admit takes idle blocks and drops their entries": [
        *(Admit("a", (1, 2, 3, 4)), Release("a"), Admit("b", (5, 6, 7, 8, 9))),
    ],
    "admit finds room only if its own hits were taken": [
        *(Admit("a", (1, 2, 3, 4)), C, Append("c", (5,) * 4), Release("a")),
        Admit("b", (1, 2, 5, 6, 7)),
    ],
    "append takes an idle block and drops its entry": [
        *(Admit("a", (1, 2, 3, 4)), Release("a"), B, Append("b", (5,) * 5)),
    ],
    "lookup holds an idle block": [*IDLE, LookUp("b", (1, 2, 3))],
    "use begins on blocks that were looked up": [PROMPT, LookUp("b", (1, 2, 3)), Use("b")],
    "use finds too few free blocks": [
        *(A, Append("a", FOUR_BLOCKS), LookUp("b", (1,)), Use("b")),
    ],
    "use follows the release of the request that wrote its blocks": [
        *(PROMPT, LookUp("b", (1, 2, 3)), Release("a"), Use("b")),
    ],
    "cancel leaves blocks idle": [*IDLE, LookUp("b", (1, 2, 3)), Cancel("b")],
    "preempt leaves blocks idle": [PROMPT, Preempt("a")],
    "resume hits blocks": [PROMPT, Preempt("a"), Resume("a")],
    "resume recomputes a full block": [PROMPT, Preempt("a"), ChangeWeights(), Resume("a")],
    "evict forgets a block in use": [PROMPT, Evict("a", 0)],
    "change_weights forgets a block in use": [PROMPT, ChangeWeights()],
    "reset forgets idle blocks": [*IDLE, Reset()],
    "reset is refused while blocks are in use": [PROMPT, Reset()],
    prefix.EXTRA_KEYS: [Admit("a", (1, 2, 3), {"salt": "x"}), Admit("b", (1, 2, 3))],
    prefix.WATERMARK: [Admit("a", FOUR_BLOCKS)],
    prefix.PARTIAL_HIT: [Admit("a", (1,)), Admit("b", (1, 2))],
    prefix.IDLE_SOURCE: [Admit("a", (1,)), Release("a"), Admit("b", (1, 2))],
    "reserve takes a block before its tokens": [A, Reserve("a", 1)],
    "reserve copies a tail": [*SHARED, Reserve("b", 1)],
    "commit fills a part of the reserved room": [A, Reserve("a", 3), Commit("a", (1,))],
    "trim gives blocks back": [A, Reserve("a", 3), Trim("a")],
    "begin_step finds another step in flight": [A, STEP, B, BeginStep("s2", ("b",), (1,))],
    "begin_step grows a request that is in flight": [A, STEP, BeginStep("s2", ("a",), (1,))],
    "begin_step copies a tail": [*SHARED, STEP],
    "begin_step grows some and refuses others": [
        *(A, B, C, Append("c", (5,) * 6), BeginStep("s1", ("a", "b"), (1, 2))),
    ],
    "release while a step is in flight": [A, STEP, Release("a")],
    "preempt while a step is in flight": two(STEP, Preempt("a")),
    "end_step finds a request gone": [A, STEP, Release("a"), A, EndStep("s1")],
    "end_step frees a block": [A, STEP, Release("a"), EndStep("s1")],
    "fail_step fails a later step too": [A, STEP, BeginStep("s2", ("a",), (1,)), FailStep("s1")],
    "send pins what another transfer pins": two(Pin("a", "u"), SEND),
    "receive finds a part of its prompt": [PROMPT, Receive("b", (1, 2, 4), "t", 1, 0)],
    "acknowledge leaves other workers awaited": two(Send("a", "t", 2, 0), DONE),
    "acknowledge ends a transfer whose request is gone": [*two(SEND, Release("a")), DONE],
    "a load arrives": [LOAD, DONE],
    "a load arrives for a request that is gone": [LOAD, Release("a"), DONE],
    "a stale acknowledgement is refused": [*two(SEND, DONE), SEND, Acknowledge("t", 0, 1)],
    "a second acknowledgement of a worker is refused": [*two(Send("a", "t", 2, 0), DONE), DONE],
    "a lease runs out": two(SEND, Tick()),
    "a load is lost": [LOAD, Tick()],
}
"""A trace on 4 blocks of 2 slots whose last operation is the first to meet the witness."""

MISSED = {
    "append fills the tail in place": [
        [A, Reserve("a", 2), Append("a", (1,))],
        [*SHARED, C, Append("c", (5,) * 6), Append("b", (2,))],
    ],
    "append_each grows some and refuses others": [
        [A, Reserve("a", 1), C, Append("c", (5,) * 5), AppendEach(("a", "c"), (1, 2))],
        [*SHARED, C, Append("c", (5,) * 6), Create("d"), AppendEach(("b", "d"), (1, 2))],
    ],
    "append_each meets a tail to copy": [
        [*SHARED, C, Append("c", (5,) * 6), AppendEach(("b",), (2,))],
    ],
    "release frees blocks": [[A, STEP, Release("a")]],
    "unpin frees a block that no request owns": [
        [A, Append("a", (1, 2)), Pin("a", "t"), STEP, Release("a"), Unpin("t")],
    ],
    "cancel leaves blocks idle": [
        [PROMPT, LookUp("b", (1, 2, 3)), Evict("a", 0), Release("a"), Cancel("b")],
    ],
    "preempt leaves blocks idle": [[PROMPT, SEND, Preempt("a")], [PROMPT, STEP, Preempt("a")]],
    "resume hits blocks": [
        [PROMPT, Preempt("a"), C, LookUp("d", (1, 2, 9)), Append("c", (5,) * 6), Resume("a")],
    ],
    "receive finds a part of its prompt": [
        [PROMPT, Receive("b", (1, 2, *range(10, 18)), "t", 1, 0)],
        [PROMPT, SEND, Receive("b", (1, 2, 4), "t", 1, 0)],
    ],
    "begin_step copies a tail": [[*SHARED, C, Append("c", (5,) * 6), STEP]],
    "begin_step grows a request that is in flight": [
        [*ONE, STEP, C, Append("c", (5,) * 6), BeginStep("s2", ("a",), (1,))],
    ],
    "begin_step grows some and refuses others": [
        [A, Reserve("a", 1), C, Append("c", (5,) * 5), BeginStep("s1", ("a", "c"), (1, 2))],
    ],
    "end_step frees a block": [[A, STEP, EndStep("s1")]],
    "fail_step fails a later step too": [[A, STEP, FailStep("s1")]],
    "trim gives blocks back": [[*ONE, Reserve("a", 1), Trim("a")]],
    "commit fills a part of the reserved room": [[A, Reserve("a", 1), Commit("a", (1,))]],
    "a stale acknowledgement is refused": [[*ONE, SEND, DONE, Acknowledge("t", 0, 1)]],
    "a second acknowledgement of a worker is refused": [[*ONE, SEND, DONE, DONE]],
    "a lease runs out": [two(Send("a", "t", 1, 2), Tick()), two(Send("a", "t", 1, 0), Tick())],
}
"""Traces that come near a witness and do not meet it."""


def met_by(operations, **options):
    """The witnesses that each operation of a trace meets, as lockstep counts them."""
    kv = Oracle(4, 2, caching=True, **options)
    met = []
    for operation in operations:
        try:
            foreseen = about_to_happen(kv, operation)
        except (KeyError, Rejected):
            foreseen = []
        try:
            operation.perform(kv, operation.writes())
        except Rejected:
            foreseen = [name for name in foreseen if name in REJECTIONS]
        except MemoryError:
            pass
        met.append(foreseen)
    return met


def options_of(name):
    if name == prefix.WATERMARK:
        return {"watermark": 1}
    return {"match_unit": 1} if name in (prefix.PARTIAL_HIT, prefix.IDLE_SOURCE) else {}


def test_every_witness_has_a_trace_here():
    assert set(MET) == set(WITNESSES) | OPTIONAL


@pytest.mark.parametrize("name", MET)
def test_a_witness_is_named_at_the_operation_that_it_is_about(name):
    *before, last = met_by(MET[name], **options_of(name))

    assert name in last
    assert not any(name in names for names in before)


@pytest.mark.parametrize("name", MISSED)
def test_a_witness_is_not_named_by_what_only_comes_near_it(name):
    for operations in MISSED[name]:
        assert not any(name in names for names in met_by(operations)), operations


def test_what_the_watermark_keeps_out_is_not_said_to_need_its_own_hits():
    name = "admit finds room only if its own hits were taken"

    assert met_by([Admit("a", FOUR_BLOCKS)], watermark=1) == [[prefix.WATERMARK]]
    assert name in met_by(MET[name], watermark=0)[-1]


def test_a_call_that_is_rejected_meets_only_what_is_a_rejection():
    for name, operations in MET.items():
        kv = Oracle(4, 2, caching=True, **options_of(name))
        rejected = False
        for operation in operations:
            try:
                operation.perform(kv, operation.writes())
            except Rejected:
                rejected = True
            except MemoryError:
                rejected = False
        assert rejected == (name in REJECTIONS), name


def yielded_by(room):
    """Every string that a file of witnesses can yield."""
    for node in ast.walk(ast.parse(inspect.getsource(room))):
        if isinstance(node, ast.Yield):
            for part in ast.walk(node.value):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value
                elif isinstance(part, ast.Name) and isinstance(getattr(room, part.id, 0), str):
                    yield getattr(room, part.id)


def test_every_witness_can_be_named_by_code_and_nothing_else_is():
    named = {name for room in (core, flight, prefix) for name in yielded_by(room)}

    assert named == set(WITNESSES) | OPTIONAL
    assert (PARTIAL_BLOCKS | REJECTIONS.keys()).issubset(WITNESSES)


# What is required of an allocator


def test_impl_must_meet_every_witness_that_it_can():
    able = {prefix.WATERMARK} if "watermark" in TARGET.options else set()
    if "match_unit" in TARGET.options:
        able |= {prefix.PARTIAL_HIT, prefix.IDLE_SOURCE}

    assert set(required(TARGET)) == set(WITNESSES) | {prefix.EXTRA_KEYS} | able


@pytest.mark.parametrize("name", WITNESSES)
def test_a_witness_needs_operations_of_its_trace_and_every_one_of_them(name):
    needs = WITNESSES[name]
    assert needs <= {type(operation) for operation in MET[name]} | {Append, Admit, Fork, Release}

    for lacking in needs:
        able = tuple(operation for operation in TARGET.operations if operation is not lacking)
        assert name not in required(TARGET._replace(operations=able))


def test_nothing_of_the_prefix_cache_is_required_without_admit():
    able = (Create, Append, Release, Fork)
    names = required(TARGET._replace(operations=able))

    assert names
    assert not OPTIONAL & set(names)
    assert all(WITNESSES[name] <= set(able) for name in names)


def test_blocks_of_one_slot_need_no_partial_tails():
    names = required(TARGET._replace(block_sizes=range(1, 2)))

    assert set(required(TARGET)) - set(names) == PARTIAL_BLOCKS


@pytest.mark.parametrize(
    ("declared", "names"),
    [
        ({"extra_keys": frozenset({"salt"})}, {prefix.EXTRA_KEYS}),
        ({"options": frozenset({"watermark"})}, {prefix.WATERMARK}),
        ({"options": frozenset({"match_unit"})}, {prefix.PARTIAL_HIT, prefix.IDLE_SOURCE}),
        ({}, set()),
    ],
    ids=str,
)
def test_what_an_allocator_does_not_declare_is_not_required_of_it(declared, names):
    nothing = {"extra_keys": frozenset(), "options": frozenset()}
    target = TARGET._replace(**{**nothing, **declared})

    assert set(required(target)) & OPTIONAL == names


def test_what_an_allocator_cannot_reach_is_not_required_of_it():
    target = TARGET._replace(unreachable=frozenset({"a load is lost"}))

    assert set(required(TARGET)) - set(required(target)) == {"a load is lost"}


def test_a_walk_campaign_reaches_nearly_every_witness():
    failure, tally = hunt("walk", TARGET, seed=1, operations_max=10_000)
    unmet = [name for name in required(TARGET) if name not in tally.witnesses]

    assert failure is None
    assert len(unmet) <= 5, unmet


@pytest.mark.parametrize(("name", "reason"), REJECTIONS.items())
def test_a_rejection_that_is_not_promised_is_not_required(name, reason):
    lacking = TARGET._replace(refuses=TARGET.refuses - {reason})

    assert set(required(TARGET)) - set(required(lacking)) == {name}
