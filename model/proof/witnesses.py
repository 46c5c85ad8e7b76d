"""A witness of every operation: a trace on which it happens, between states that keep every invariant.

Without one a proof that the operation breaks nothing could be a proof about nothing.
"""

from kvoracle.model.proof.invariants import INVARIANTS
from kvoracle.model.proof.relation import Relation
from kvoracle.model.proof.search import group_of, shortest
from kvoracle.model.proof.state import State
from kvoracle.model.trace import Trace


def witness(relation: Relation) -> Trace | None:
    """The shortest trace that is found on which an operation happens."""

    def happens(done: Relation, before: State, after: State) -> list[str]:
        if done.name != relation.name:
            return []
        holds = all(invariant(state) for invariant in INVARIANTS for state in (before, after))
        return [done.name] if holds else []

    found = shortest(group_of(relation), happens)
    return found.trace if found else None
