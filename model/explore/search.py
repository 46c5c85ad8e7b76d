"""Breadth first over every state of a scope: nothing is left out, and nothing is expanded twice."""

from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

from kvoracle.model import witnesses
from kvoracle.model.explore.canonical import Canonical, Key, canonical
from kvoracle.model.explore.clone import clone
from kvoracle.model.explore.scope import Scope, moves
from kvoracle.model.operations import Operation
from kvoracle.model.oracle import oracle_of
from kvoracle.reference import BrokenInvariant, Oracle

NameStates = Callable[[Oracle, bool], Canonical]


class Found(NamedTuple):
    """How a state was first reached: from which state, and by which operation."""

    before: int
    operation: Operation


class Broken(NamedTuple):
    """A state that breaks an invariant, and a shortest path to it."""

    path: list[Operation]
    message: str


class Graph:
    """Every state reached so far, how it was first reached, and what was counted on the way.

    `numbers` maps a state to its number; `found[number]` says how it was reached, None for the empty
    pool.  `transitions` change the state or may; `refusals` are appends that find no block.
    """

    def __init__(self) -> None:
        self.numbers: dict[Key, int] = {}
        self.found: list[Found | None] = []
        self.depths: list[int] = []
        self.expanded = 0
        self.transitions = 0
        self.refusals = 0
        self.most_out = 0
        self.by_verb: Counter[str] = Counter()
        self.witnessed: dict[str, int] = {}
        """Each witness that was met, and the state in which it first was."""
        self.broken: Broken | None = None

    def add(self, key: Key, found: Found | None) -> int:
        """Number a state that is new."""
        self.numbers[key] = len(self.found)
        self.found.append(found)
        self.depths.append(0 if found is None else self.depths[found.before] + 1)
        return len(self.found) - 1

    def path(self, number: int) -> list[Operation]:
        """The operations of a shortest path to a state."""
        path: list[Operation] = []
        while (found := self.found[number]) is not None:
            path.append(found.operation)
            number = found.before
        return path[::-1]


class Search:
    """A search under way; `expand` takes it one state further."""

    def __init__(self, scope: Scope, name_states: NameStates = canonical) -> None:
        self.scope = scope
        self.name_states = name_states
        self.graph = Graph()
        self.queue: deque[tuple[int, Oracle]] = deque()
        empty = reference_of(scope)
        self.graph.add(self.key(empty), None)
        self.queue.append((0, empty))

    def key(self, kv: Oracle) -> Key:
        """What tells one state from another."""
        return self.name_states(kv, self.scope.caches).key

    @property
    def is_complete(self) -> bool:
        """Whether every state was expanded."""
        return not self.queue

    def expand(self) -> None:
        """Carry out every operation of the next state."""
        graph, (number, kv) = self.graph, self.queue.popleft()
        before = graph.transitions + graph.refusals
        for operation in moves(kv, self.scope):
            for witness in witnesses.about_to_happen(kv, operation):
                graph.witnessed.setdefault(witness, number)
            self._follow(number, kv, operation)
        graph.expanded += 1
        graph.most_out = max(graph.most_out, graph.transitions + graph.refusals - before)

    def _follow(self, number: int, kv: Oracle, operation: Operation) -> None:
        graph, after = self.graph, clone(kv)
        try:
            operation.perform(after, operation.writes())
        except MemoryError:
            graph.refusals += 1
            return
        graph.transitions += 1
        graph.by_verb[operation.verb] += 1
        key = self.key(after)
        if key not in graph.numbers:
            reached = graph.add(key, Found(number, operation))
            self._check(reached, after)
            self.queue.append((reached, after))

    def _check(self, number: int, kv: Oracle) -> None:
        try:
            kv.check()
        except BrokenInvariant as error:
            self.graph.broken = Broken(self.graph.path(number), str(error))


def reference_of(scope: Scope) -> Oracle:
    """The empty pool of a scope."""
    return oracle_of(scope.config(), in_order=True)
