"""Every edge on an allocator: n of n on ours, and bugs found on pools of two or three blocks."""

import pytest

from kvoracle.model.engines import Share
from kvoracle.model.explore.scope import Scope
from kvoracle.model.explore.search import Search
from kvoracle.model.explore.tour import Tours
from kvoracle.model.registry import resolve
from kvoracle.model.run import run
from kvoracle.model.session import Pulse

SCOPES = (
    Scope(blocks=2, requests=2, transfers=1, tokens=3),
    Scope(blocks=2, requests=2, transfers=0, tokens=3, features=("core", "reserve")),
    Scope(blocks=2, requests=2, transfers=0, tokens=2, steps=1, features=("core", "steps")),
    Scope(blocks=2, requests=2, transfers=1, tokens=2, features=("core", "transfers")),
    Scope(
        blocks=2,
        block_size=1,
        requests=2,
        transfers=0,
        tokens=2,
        features=("core", "cache", "lookup"),
    ),
)


def graph_of(scope):
    search = Search(scope)
    while not search.is_complete:
        search.expand()
    return search.graph


def covered(scope, allocator, share=Share()):  # noqa: B008
    tours = Tours(graph_of(scope), scope, resolve(allocator), share, Pulse())
    return tours.run(lambda _: None)


@pytest.mark.parametrize("scope", SCOPES, ids=lambda scope: "+".join(scope.features))
def test_every_edge_is_gone_on_our_allocator(scope):
    graph, coverage = graph_of(scope), covered(scope, "impl")
    assert coverage.failure is None
    assert coverage.covered == coverage.edges
    if not scope.caches:  # which of two equal blocks is hit, an allocator may choose
        assert coverage.elsewhere == coverage.beyond == 0
        assert coverage.covered == graph.transitions + graph.refusals


def test_shares_cover_everything_together():
    scope = SCOPES[0]
    graph = graph_of(scope)
    parts = [covered(scope, "impl", Share(n, 2)) for n in range(2)]
    assert sum(part.covered for part in parts) == graph.transitions + graph.refusals


@pytest.mark.parametrize("mutant", ["fork-misses-an-owner", "removal-order"])
def test_a_bug_is_found_on_a_pool_of_three_blocks(mutant):
    scope = Scope(blocks=3, requests=2, transfers=1, tokens=3)
    failure = covered(scope, f"mutant:{mutant}").failure
    assert failure is not None
    assert run(failure.trace, resolve(f"mutant:{mutant}").factory).rule == failure.rule
    assert run(failure.trace, resolve("impl").factory) is None
