"""An exploration from beginning to end: the search, then every edge on an allocator."""

import time
from collections.abc import Callable
from multiprocessing.connection import wait
from pathlib import Path
from typing import NamedTuple

from kvoracle.model.child import Child, ChildError, Send
from kvoracle.model.engines import Share
from kvoracle.model.explore import checkpoint
from kvoracle.model.explore.scope import Scope
from kvoracle.model.explore.search import Graph, Search
from kvoracle.model.explore.tour import Coverage, Tours
from kvoracle.model.registry import Target
from kvoracle.model.run import Failure
from kvoracle.model.session import Pulse

SAVE_EVERY_SECONDS = 30.0
SHOW_EVERY_STATES = 64


class Limits(NamedTuple):
    """When to stop early, and where to save what was found until then."""

    states: int
    checkpoint: Path | None


def search_all(search: Search, limits: Limits, show: Callable[[Search], None]) -> None:
    """Expand every state, or as many as the limit allows; interrupted, what there is is saved."""
    saved = time.monotonic()
    try:
        while not search.is_complete and search.graph.broken is None:
            if len(search.graph.found) >= limits.states:
                break
            search.expand()
            if search.graph.expanded % SHOW_EVERY_STATES == 0:
                show(search)
            if limits.checkpoint and time.monotonic() - saved > SAVE_EVERY_SECONDS:
                checkpoint.save(search, limits.checkpoint)
                saved = time.monotonic()
    finally:
        if limits.checkpoint:
            checkpoint.save(search, limits.checkpoint)


def cover_all(
    graph: Graph,
    scope: Scope,
    target: Target,
    workers: int,
    show: Callable[[Coverage], None],
) -> Coverage:
    """Every edge of the graph on an allocator, in processes of their own."""
    children = [Child(_cover, graph, scope, target, Share(n, workers)) for n in range(workers)]
    latest = [Coverage() for _ in children]
    try:
        while running := [child for child in children if child.is_running]:
            wait([child.pipe for child in running], timeout=0.2)
            for place, child in enumerate(children):
                latest[place] = _newest(child, latest[place])
            total = _total(latest)
            show(total)
            if total.failure is not None:
                break
    finally:
        for child in children:
            if child.is_running:
                child.kill()
    return _total(latest)


def _newest(child: Child, known: Coverage) -> Coverage:
    for message in child.messages():
        if isinstance(message, ChildError):
            raise message
        known = message
    failure: Failure | None = child.failure()
    if failure is not None:
        known.failure = failure
    return known


def _cover(
    send: Send, pulse: Pulse, graph: Graph, scope: Scope, target: Target, share: Share
) -> None:
    told = time.monotonic()

    def beat(coverage: Coverage) -> None:
        nonlocal told
        if time.monotonic() - told > 0.2:
            send(coverage)
            told = time.monotonic()

    send(Tours(graph, scope, target, share, pulse).run(beat))


def _total(parts: list[Coverage]) -> Coverage:
    total = Coverage()
    for part in parts:
        total.edges += part.edges
        total.covered += part.covered
        total.operations += part.operations
        total.tours += part.tours
        total.beyond += part.beyond
        total.elsewhere += part.elsewhere
        total.failure = total.failure or part.failure
    return total
