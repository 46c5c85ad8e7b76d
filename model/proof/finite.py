"""The world of small tables: formulas are evaluated, and a relation is carried out."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from kvoracle.model.proof.logic import Formula, Term
from kvoracle.model.proof.relation import Relation
from kvoracle.model.proof.state import (
    FUNCTIONS,
    Function,
    State,
    empty,
    signature,
    sort_of,
    variables,
)

Domains = Mapping[str, Sequence[Any]]
NOTHING = {"truth": False, "number": 0, "index": 0, "offset": 0, "generation": 0}
"""The value of a function where nobody gave it one; of other sorts it is None."""


class Finite:
    """Just these values of each sort."""

    def __init__(self, domains: Domains) -> None:
        self.domains = domains
        self._ranges: dict[object, list[Sequence[Any]]] = {}

    def every(self, claim: Function) -> Formula:
        return all(claim(*values) for values in product(*self._range(claim)))

    def some(self, claim: Function) -> Formula:
        return any(claim(*values) for values in product(*self._range(claim)))

    def _range(self, claim: Function) -> list[Sequence[Any]]:
        ranges = self._ranges.get(claim.__code__)
        if ranges is None:
            ranges = [self.domains[sort_of(name)] for name in variables(claim)]
            self._ranges[claim.__code__] = ranges
        return ranges


class Table:
    """A function by its values; where it has none, its value is that of `NOTHING`."""

    def __init__(self, values: dict[tuple[Any, ...], Term], otherwise: Term) -> None:
        self.values = values
        self._otherwise = otherwise

    def __call__(self, *arguments: Term) -> Term:
        return self.values.get(arguments, self._otherwise)


def empty_pool(size: int, domains: Domains) -> State:
    """The state before the first operation on a pool of these blocks."""
    nothing = State(Finite(domains), {name: Table({}, _otherwise(name)) for name in FUNCTIONS})
    return tabulated(empty(nothing).with_changes({"size": lambda: size}), nothing)


def carried_out(relation: Relation, state: State, *arguments: Term) -> State:
    """The state after an operation."""
    return tabulated(relation.after(state, *arguments), state)


def tabulated(state: State, before: State) -> State:
    """The same state; what differs from the one before is written out in tables."""
    assert isinstance(state.world, Finite)
    changed = {
        name: _table(name, function, state.world.domains)
        for name, function in state.functions.items()
        if function is not before.functions[name]
    }
    return state.with_changes(changed)


def _table(name: str, function: Function, domains: Domains) -> Table:
    arguments, _ = signature(FUNCTIONS[name])
    otherwise = _otherwise(name)
    values = {
        place: value
        for place in product(*(domains[sort] for sort in arguments))
        if (value := function(*place)) != otherwise
    }
    return Table(values, otherwise)


def _otherwise(name: str) -> Term:
    return NOTHING.get(signature(FUNCTIONS[name])[1])
