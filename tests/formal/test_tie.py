"""The relations against the reference: the same operations lead to the same states."""

import itertools

import pytest

from kvoracle.model.operations import (
    OPERATIONS,
    Acknowledge,
    Admit,
    Append,
    AppendEach,
    BeginStep,
    Cancel,
    Create,
    EndStep,
    FailStep,
    Fork,
    LookUp,
    Pin,
    Receive,
    Release,
    Reserve,
    Send,
    Trim,
    Unpin,
    Use,
)
from kvoracle.model.proof.invariants import INVARIANTS
from kvoracle.model.proof.pool import Pool
from kvoracle.model.proof.tie import domains_of, seen_in_pool, seen_in_reference
from kvoracle.model.trace import Configuration, Trace
from kvoracle.model.walk import walk
from kvoracle.reference import ListOracle, Oracle, Rejected
from kvoracle.reference.group_records import Group
from kvoracle.reference.groups import GroupedKV

NOT_MODELLED = {LookUp, Use, Cancel, Receive}
MODELLED = [operation for operation in OPERATIONS if operation not in NOT_MODELLED]


def granted(operation, refused):
    """The operation without the requests of a batch that were refused."""
    if not isinstance(operation, AppendEach | BeginStep):
        return operation
    pairs = [
        pair
        for pair in zip(operation.requests, operation.tokens, strict=True)
        if pair[0] not in refused
    ]
    requests, tokens = zip(*pairs, strict=True) if pairs else ((), ())
    fields = {"requests": requests, "tokens": tokens}
    if isinstance(operation, BeginStep):
        fields["step"] = operation.step
    return type(operation)(**fields)


class Both:
    """The reference and a pool that goes by the relations."""

    def __init__(self, trace):
        config = trace.config
        self.trace = trace
        self.kv = Oracle(config.blocks, config.block_size, caching=config.prefix_cache)
        self.lists = ListOracle()
        self.pool = Pool(config.block_size, domains_of(trace), caching=config.prefix_cache)

    def follow(self):
        """Both sides along the trace; how many operations were carried out and compared."""
        return sum(map(self.step, self.trace.operations))

    def step(self, operation):
        try:
            result = operation.perform(self.kv, operation.writes())
        except (MemoryError, Rejected):
            return False
        operation.retell(self.lists, result)
        self.pool.perform(granted(operation, operation.refused(result)))
        assert seen_in_pool(self.pool) == self.seen(), operation
        return True

    def seen(self):
        appended = {request: self.lists.read(request) for request in self.kv.tables}
        return seen_in_reference(self.kv, appended)

    def check_invariants(self):
        for invariant in INVARIANTS:
            assert invariant(self.pool.state), invariant.__name__


EVERY = (
    Create("a"),
    Admit("a", (1, 2, 3)),
    Append("a", (4,)),
    Append("a", (5, 6, 7)),
    Fork("a", "b"),
    Append("b", (8,)),
    Pin("a", "t"),
    Unpin("t"),
    Send("a", "t", 1, 0),
    Acknowledge("t", 0, 0),
    Reserve("a", 3),
    Trim("a"),
    BeginStep("s", ("a",), (9,)),
    BeginStep("z", ("b",), (9,)),
    EndStep("s"),
    FailStep("s"),
    Release("a"),
    Release("b"),
)


def test_relations_follow_the_reference_on_every_short_trace():
    """Each operation in each state that fewer operations lead to."""
    config = Configuration(blocks=4, block_size=2, prefix_cache=True)
    known, traces = set(), [()]
    for _ in range(4):
        longer = [(*trace, operation) for trace in traces for operation in EVERY]
        traces = []
        for trace in longer:
            both = Both(Trace(config, list(trace)))
            both.follow()
            state = repr(both.seen())
            if state not in known:
                known.add(state)
                traces.append(trace)

    assert len(known) > 100


def small_walks(count):
    """The traces of the first seeds that draw a small pool."""
    traces = (
        walk(seed, MODELLED, range(1, 4), steps=60, options=frozenset())
        for seed in itertools.count()
    )
    return list(itertools.islice((trace for trace in traces if trace.config.blocks <= 8), count))


@pytest.mark.parametrize("trace", small_walks(40), ids=lambda trace: trace.origin["seed"])
def test_relations_follow_the_reference_along_a_walk(trace):
    both = Both(trace)

    assert both.follow() > 5
    both.check_invariants()


@pytest.mark.parametrize("window", [1, 2, 3, 5])
def test_window_reclamation_follows_the_reference_of_groups(window):
    kv = GroupedKV(6, [Group(2, window)], caching=False)
    operations = [Create("a"), *(Append("a", (token,)) for token in range(9)), Release("a")]
    trace = Trace(Configuration(blocks=6, block_size=2), operations)
    pool = Pool(2, domains_of(trace), caching=False, window=window)
    for operation in operations:
        operation.perform(kv, operation.writes())
        pool.perform(operation)
        retained = [page for table in kv.tables.values() for page in table[0] if page]
        s = pool.state
        kept = [s.table("a", i) for i in range(s.first("a"), s.count("a"))] if s.live("a") else []
        assert len(kept) == len(retained)
        assert sum(map(s.free, range(6))) == len(kv.free)
    assert all(invariant(pool.state) for invariant in INVARIANTS)
