"""The shortest trace on which something happens, found by going all ways from an empty pool.

The pool does what the relations say, broken ones included.  So a trace that ends with a broken
invariant is a solver's counterexample that can really be reached, and an allocator that is broken
in the same way fails on it.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kvoracle.model.operations import (
    Acknowledge,
    Admit,
    AnyOperation,
    Append,
    BeginStep,
    ChangeWeights,
    Commit,
    Create,
    EndStep,
    Evict,
    FailStep,
    Fork,
    Pin,
    Release,
    Reserve,
    Send,
    Tick,
    Trim,
    Unpin,
)
from kvoracle.model.proof.pool import BY_NAME, Pool, Stuck
from kvoracle.model.proof.relation import Relation
from kvoracle.model.proof.relations import GROUPS
from kvoracle.model.proof.state import State
from kvoracle.model.proof.tie import domains_of
from kvoracle.model.trace import Configuration, Group, Trace

Happens = Callable[[Relation, State, State], list[str]]
"""What of interest happened when a relation was carried out, given the states before and after."""

CORE: list[AnyOperation] = [
    Create("a"),
    Append("a", (1,)),
    Fork("a", "b"),
    Append("b", (2,)),
    Pin("a", "t"),
    Pin("a", "u"),
    Unpin("t"),
    Release("a"),
    Release("b"),
]


class Way(NamedTuple):
    """A pool, and the operations that are tried on it."""

    config: Configuration
    operations: Sequence[AnyOperation]


LARGE = Configuration(blocks=3, block_size=2, prefix_cache=True)
SMALL = Configuration(blocks=6, block_size=1, prefix_cache=True)
SLIDING = Configuration(blocks=3, block_size=2, groups=(Group(2, window=2),))
WAYS: dict[str, Way] = {
    "core": Way(LARGE, CORE),
    "room": Way(LARGE, [*CORE, Reserve("a", 1), Reserve("a", 3), Commit("a", (3,)), Trim("a")]),
    "prefix cache": Way(
        SMALL,
        [
            Admit("a", (1, 2, 3)),
            Admit("b", (4, 3)),
            Admit("c", (4, 2, 3)),
            Admit("d", (1, 2, 3), {"salt": "x"}),
            Release("a"),
            Release("b"),
            Append("a", (5,)),
            Evict("a", 0),
            ChangeWeights(),
        ],
    ),
    "steps": Way(
        LARGE,
        [
            *CORE,
            Trim("a"),
            BeginStep("s", ("a",), (5,)),
            BeginStep("z", ("a",), (6,)),
            BeginStep("z", ("b",), (7,)),
            EndStep("s"),
            EndStep("z"),
            FailStep("s"),
        ],
    ),
    "transfers": Way(
        LARGE,
        [
            *CORE,
            Send("a", "t", 1, 0),
            Send("a", "t", 2, 0),
            Send("a", "t", 1, 1),
            Acknowledge("t", 0, 0),
            Acknowledge("t", 1, 0),
            Acknowledge("t", 0, 1),
            Tick(),
        ],
    ),
    "window": Way(SLIDING, CORE),
}
"""What is tried, by the group of the operation that is looked for."""

FEW = {"worker": range(2), "generation": range(4), "token": (0,), "key": ((),)}
TRIES = (1_000, 4_000, 10_000)
"""How many operations are tried on one way before the others, and then when none led anywhere."""


class Found(NamedTuple):
    """A trace at whose end something happens, what it is, and which way it was found on."""

    trace: Trace
    happened: list[str]
    way: Way


def shortest(
    first: str, happens: Happens, relations: Mapping[str, Relation] = BY_NAME
) -> Found | None:
    """The shortest trace of the first way that has one, those of a group first."""
    for tries in TRIES:
        for name in sorted(WAYS, key=lambda name: name != first):
            found = _search(WAYS[name], happens, relations, tries)
            if found is not None:
                return found
    return None


def _search(
    way: Way, happens: Happens, relations: Mapping[str, Relation], tries: int
) -> Found | None:
    config, operations = way
    domains = {**domains_of(Trace(config, list(operations))), **FEW}
    start = Pool(
        config.block_size,
        domains,
        caching=config.prefix_cache,
        window=config.layer_groups[0].window,
        takes_idle_last=True,
        relations=relations,
    )
    queue: deque[tuple[Pool, list[AnyOperation]]] = deque([(start, [])])
    known = set()
    while queue and tries > 0:
        pool, trace = queue.popleft()
        tries -= len(operations)
        for operation in operations:
            following = pool.copy()
            happened: list[str] = []
            following.observe = _noting(happens, happened)
            try:
                following.perform(operation)
            except (Stuck, KeyError):
                continue
            if happened:
                return Found(Trace(config, [*trace, operation]), [*dict.fromkeys(happened)], way)
            if (fingerprint := _fingerprint(following)) not in known:
                known.add(fingerprint)
                queue.append((following, [*trace, operation]))
    return None


def _noting(happens: Happens, happened: list[str]) -> Callable[[Relation, State, State], None]:
    def observe(relation: Relation, before: State, after: State) -> None:
        happened.extend(happens(relation, before, after))

    return observe


def _fingerprint(pool: Pool) -> object:
    tables = {
        name: frozenset(function.values.items())
        for name, function in pool.state.functions.items()
        if hasattr(function, "values")
    }
    return frozenset(tables.items()), tuple(pool.steps), tuple(pool.leases.items())


def group_of(relation: Relation) -> str:
    """The group of operations that a relation belongs to."""
    return next(
        name for name, group in GROUPS.items() if relation.name in [one.name for one in group]
    )
