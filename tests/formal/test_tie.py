"""The relations against the reference: the same operations lead to the same states."""

import itertools

import pytest

from kvoracle.model.operations import (
    OPERATIONS,
    AppendEach,
    BeginStep,
    Cancel,
    LookUp,
    Receive,
    Use,
)
from kvoracle.model.proof.invariants import INVARIANTS
from kvoracle.model.proof.pool import Pool
from kvoracle.model.proof.tie import domains_of, seen_in_pool, seen_in_reference
from kvoracle.model.walk import walk
from kvoracle.reference import ListOracle, Oracle, Rejected

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


def follow(trace):
    """Both sides along a trace; how many operations were carried out and compared."""
    config = trace.config
    kv = Oracle(config.blocks, config.block_size, caching=config.prefix_cache)
    lists = ListOracle()
    pool = Pool(config.block_size, domains_of(trace), caching=config.prefix_cache)
    done = 0
    for operation in trace.operations:
        try:
            result = operation.perform(kv, operation.writes())
        except (MemoryError, Rejected):
            assert seen_in_pool(pool) == seen(kv, lists), f"{operation} was refused"
            continue
        operation.retell(lists, result)
        pool.perform(granted(operation, operation.refused(result)))
        assert seen_in_pool(pool) == seen(kv, lists), operation
        done += 1
    for invariant in INVARIANTS:
        assert invariant(pool.state), invariant.__name__
    return done


def seen(kv, lists):
    return seen_in_reference(kv, {request: lists.read(request) for request in kv.tables})


def small_walks(count):
    """The traces of the first seeds that draw a small pool."""
    traces = (
        walk(seed, MODELLED, range(1, 4), steps=60, options=frozenset())
        for seed in itertools.count()
    )
    return itertools.islice((trace for trace in traces if trace.config.blocks <= 8), count)


@pytest.mark.parametrize("trace", small_walks(40), ids=lambda trace: trace.origin["seed"])
def test_relations_follow_the_reference_along_a_walk(trace):
    assert follow(trace) > 5
