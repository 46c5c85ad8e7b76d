"""The queries: the empty pool satisfies every invariant, every operation keeps each, and together they
imply what users care about."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kvoracle.model.proof import slots
from kvoracle.model.proof.invariants import INVARIANTS
from kvoracle.model.proof.logic import z3
from kvoracle.model.proof.properties import PROPERTIES
from kvoracle.model.proof.relation import Relation
from kvoracle.model.proof.relations import RELATIONS
from kvoracle.model.proof.solver import (
    QUERY_SECONDS_MAX,
    Answer,
    any_state,
    argument,
    follows,
)
from kvoracle.model.proof.state import empty

EMPTY = "empty pool"


class Row(NamedTuple):
    """What the solver says of each invariant after one operation, or of one property."""

    name: str
    answers: list[Answer]

    @property
    def is_proof(self) -> bool:
        return all(answer.is_proof for answer in self.answers)

    @property
    def seconds(self) -> float:
        return sum(answer.seconds for answer in self.answers)


def empty_pool() -> Row:
    """Every invariant holds before the first operation, on blocks of any size from 1 on."""
    state = empty(any_state())
    premises = [state.size() >= 1]
    return Row(EMPTY, [follows(invariant(state), premises) for invariant in INVARIANTS])


def operation(relation: Relation, seconds: float = QUERY_SECONDS_MAX) -> Row:
    """Where every invariant holds and the guards allow the operation, each invariant holds after it."""
    before = any_state()
    arguments = [argument(name) for name in relation.arguments]
    after = relation.after(before, *arguments)
    known = [invariant(before) for invariant in INVARIANTS]
    premises = [*known, *relation.guards(before, *arguments)]
    claims = [invariant(after) for invariant in INVARIANTS]
    return Row(
        relation.name,
        [
            Answer("unchanged") if z3().eq(claim, same) else follows(claim, premises, seconds)
            for claim, same in zip(claims, known, strict=True)
        ],
    )


def operations(relations: Sequence[Relation] = RELATIONS) -> Iterator[Row]:
    """A row for each operation; one that is broken on purpose is given little time."""
    for relation in relations:
        yield operation(relation, BROKEN_SECONDS_MAX if relation.left_out else QUERY_SECONDS_MAX)


def properties() -> Iterator[Row]:
    """What users care about, from the invariants; and what slots add to it."""
    state = any_state()
    known = [invariant(state) for invariant in INVARIANTS]
    for claim in PROPERTIES:
        yield Row(claim.__name__, [follows(claim(state), known)])
    for claim_about_slots in slots.CLAIMS:
        yield Row(claim_about_slots.__name__, [claim_about_slots()])


BROKEN_SECONDS_MAX = 2.0
"""Where a proof is not expected, a solver may search for ever."""
