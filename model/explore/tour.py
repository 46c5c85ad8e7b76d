"""Every edge of the graph on an allocator, in lockstep.

A tour begins on an empty pool, goes to a state that has edges left, and then along edges that
nobody went yet, for as long as there are any.  The reference in lockstep says which state it is in,
so nothing depends on the blocks that the allocator chooses; where its choice leads to a state that
the search did not find, that state's edges are gone too.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kvoracle.model.engines import Share
from kvoracle.model.explore.canonical import Canonical, Key, canonical
from kvoracle.model.explore.scope import Scope, moves
from kvoracle.model.explore.search import Graph
from kvoracle.model.fields import NAMES, kinds
from kvoracle.model.lockstep import Lockstep, Violation
from kvoracle.model.operations import Operation
from kvoracle.model.registry import Target
from kvoracle.model.run import Failure, start
from kvoracle.model.session import Pulse
from kvoracle.model.trace import Trace
from kvoracle.reference import Oracle

Label = tuple[Any, ...]
"""An operation without names: the verb, and its fields by their place in the canonical order."""


class Coverage(msgspec.Struct):
    """How much of the graph was carried out on an allocator."""

    edges: int = 0
    covered: int = 0
    operations: int = 0
    tours: int = 0
    beyond: int = 0
    """States that only the allocator's own choices lead to; their edges are among the others."""
    elsewhere: int = 0
    """States of the search that the allocator's choices do not lead to; theirs are not."""
    failure: Failure | None = None


def label(operation: Operation, state: Canonical) -> Label:
    """An operation as it is told of a state without names."""
    places = {("request", name): place for place, name in enumerate(state.requests)}
    places |= {("transfer", name): place for place, name in enumerate(state.transfers)}
    places |= {("step", name): place for place, name in enumerate(state.steps)}

    def told(kind: str, value: Any) -> Any:
        if kind == "requests":
            return tuple(places[NAMES[kind], name] for name in value)
        if kind == "extra keys":
            return tuple(sorted(value.items()))
        return places.get((NAMES[kind], value), "new") if kind in NAMES else value

    fields = kinds(type(operation)).items()
    return (operation.verb, *(told(kind, getattr(operation, name)) for name, kind in fields))


TOUR_MAX = 200
"""Operations of a tour: the trace of a crash is written anew before each of them."""
NEAR = 300
"""How many states a way to an edge that is left is looked for in."""


class Tours:
    """The edges that are left, and what was covered."""

    def __init__(
        self, graph: Graph, scope: Scope, target: Target, share: Share, pulse: Pulse
    ) -> None:
        self.graph, self.scope, self.target, self.pulse = graph, scope, target, pulse
        self.coverage = Coverage()
        self.left: dict[Key, set[Label]] = {}
        self.paths: dict[Key, list[Operation]] = {}
        self.waiting: list[Key] = []
        self.leads_to: dict[Key, dict[Label, Key]] = {}
        for number, key in list(enumerate(graph.numbers))[share.first :: share.step]:
            self._open(key, graph.path(number))

    def _open(self, key: Key, path: list[Operation]) -> None:
        """A state whose edges are to be gone."""
        self.paths[key] = path
        self.waiting.append(key)

    def run(self, beat: Callable[[Coverage], None]) -> Coverage:
        """Tour after tour, until no edge is left or one goes wrong."""
        for key in _growing(self.waiting):
            while self.left.get(key) != set():
                covered = self.coverage.covered
                self._tour(key)
                beat(self.coverage)
                if self.coverage.failure is not None:
                    return self.coverage
                if self.coverage.covered == covered:
                    self.coverage.elsewhere += 1
                    break
        return self.coverage

    def _tour(self, key: Key) -> None:
        trace = Trace(self.scope.config(), [])
        self.coverage.tours += 1
        try:
            lockstep = start(self.target.factory, trace)
            for operation in self.paths[key]:
                self._step(lockstep, trace, operation)
            self._go_on(lockstep, trace)
        except Violation as violation:
            self.coverage.failure = Failure(
                trace, violation.rule, violation.message, violation.block
            )

    def _go_on(self, lockstep: Lockstep, trace: Trace) -> None:
        """Edge after edge; along known ones where that leads to one that is left."""
        came: tuple[Key, Label] | None = None
        planned: list[Label] = []
        while True:
            state = canonical(lockstep.reference, self.scope.caches)
            if came is not None:
                self.leads_to.setdefault(came[0], {})[came[1]] = state.key
            if not self._knows(state.key, trace) or len(trace.operations) > TOUR_MAX:
                return
            able = {label(move, state): move for move in self._moves(lockstep.reference)}
            planned = planned or self._plan(state.key, able)
            if not planned or planned[0] not in able:
                return
            came = state.key, planned.pop(0)
            self._step(lockstep, trace, able[came[1]])

    def _step(self, lockstep: Lockstep, trace: Trace, operation: Operation) -> None:
        trace.operations.append(operation)  # type: ignore[arg-type]
        self.coverage.operations += 1
        self.pulse.begin(trace)
        self.pulse.beat(len(trace.operations) - 1)
        lockstep.step(operation)

    def _knows(self, key: Key, trace: Trace) -> bool:
        """Whether a state is of this share; one that the search did not find is taken into it."""
        if key not in self.paths and key not in self.graph.numbers:
            self.coverage.beyond += 1
            self._open(key, list(trace.operations))
        return key in self.paths

    def _plan(self, key: Key, able: Iterable[Label]) -> list[Label]:
        """An edge that is left, which counts as covered; or the way to a state that has one."""
        if key not in self.left:
            self.left[key] = set(able)
            self.coverage.edges += len(self.left[key])
        chosen = next((one for one in able if one in self.left[key]), None)
        if chosen is None:
            return self._way(key)
        self.left[key].remove(chosen)
        self.coverage.covered += 1
        return [chosen]

    def _way(self, key: Key) -> list[Label]:
        """The shortest known way to a state with edges left, if there is a short one."""
        came: dict[Key, tuple[Key, Label] | None] = {key: None}
        queue = [key]
        for near in queue:
            if self.left.get(near) != set() and near in self.paths:
                return _labels(came, near)
            if len(queue) < NEAR:
                new = {
                    after: (near, along) for along, after in self._edges(near) if after not in came
                }
                came.update(new)
                queue += new
        return []

    def _edges(self, key: Key) -> Iterable[tuple[Label, Key]]:
        return self.leads_to.get(key, {}).items()

    def _moves(self, kv: Oracle) -> Iterable[Operation]:
        able = set(self.target.operations)
        return (move for move in moves(kv, self.scope) if type(move) in able)


def _labels(came: dict[Key, tuple[Key, Label] | None], key: Key) -> list[Label]:
    """The edges that lead to a state, in order."""
    labels: list[Label] = []
    while (edge := came[key]) is not None:
        key, along = edge
        labels.append(along)
    return labels[::-1]


def _growing(keys: list[Key]) -> Iterable[Key]:
    """The items of a list that becomes longer meanwhile."""
    index = 0
    while index < len(keys):
        yield keys[index]
        index += 1
