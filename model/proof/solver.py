"""The world of a solver: sorts without any bound, functions without any table, and its answers."""

import time
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from kvoracle.model.proof.logic import Formula, Term, z3
from kvoracle.model.proof.state import (
    ARGUMENTS,
    FUNCTIONS,
    Function,
    State,
    signature,
    sort_of,
    variables,
)

QUERY_SECONDS_MAX = 30.0
NUMBERS = ("number", "index", "offset", "generation")


@cache
def sort(name: str) -> Any:
    """What the solver knows about a sort: numbers and truth are its own, of others nothing."""
    if name in NUMBERS:
        return z3().IntSort()
    return z3().BoolSort() if name == "truth" else z3().DeclareSort(name)


class Unbounded:
    """As many blocks, requests, transfers and steps as you like, and blocks of any size."""

    def every(self, claim: Function) -> Formula:
        bound = [constant(name) for name in variables(claim)]
        return z3().ForAll(bound, claim(*bound))

    def some(self, claim: Function) -> Formula:
        bound = [constant(name) for name in variables(claim)]
        return z3().Exists(bound, claim(*bound))


def constant(name: str) -> Term:
    """Some value of the sort that the name ends with."""
    return z3().Const(name, sort(sort_of(name)))


def argument(name: str) -> Term:
    """Some argument of an operation."""
    kind = sort_of(name)
    return _any_function(name, ARGUMENTS[kind]) if kind in ARGUMENTS else constant(f"the_{name}")


def any_state() -> State:
    """A state of which nothing is known."""
    return State(Unbounded(), {name: _any_function(name, text) for name, text in FUNCTIONS.items()})


def _any_function(name: str, text: str) -> Function:
    arguments, value = signature(text)
    if not arguments:
        return lambda: z3().Const(name, sort(value))
    function: Function = z3().Function(name, *map(sort, arguments), sort(value))
    return function


class Answer(NamedTuple):
    """What the solver says of a query: `unsat` is a proof, `sat` a counterexample, `unknown` neither.

    `unchanged` is a claim that the operation does not touch, for which there is nothing to ask.
    """

    verdict: str
    seconds: float = 0.0

    @property
    def is_proof(self) -> bool:
        return self.verdict in ("unsat", "unchanged")


def follows(
    claim: Formula, premises: Sequence[Formula], seconds: float = QUERY_SECONDS_MAX
) -> Answer:
    """Whether a claim follows: that the premises hold and the claim does not is `unsat`."""
    solver = z3().Solver()
    solver.set("timeout", int(1000 * seconds))
    solver.add(*[premise for premise in premises if premise is not True])
    solver.add(z3().Not(claim) if claim is not True else False)
    started = time.perf_counter()
    verdict = str(solver.check())
    return Answer(verdict, time.perf_counter() - started)
