"""Operations broken on purpose: without one of its parts a proof must fail, and on a trace that an
allocator with the same bug fails on."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import msgspec

from kvoracle.model.errors import UsageError
from kvoracle.model.proof.finite import Finite, carried_out
from kvoracle.model.proof.invariants import INVARIANTS, Claim
from kvoracle.model.proof.pool import BY_NAME
from kvoracle.model.proof.relation import Relation
from kvoracle.model.proof.search import Found, Happens, group_of, shortest
from kvoracle.model.proof.solver import any_state, argument
from kvoracle.model.proof.state import State, sort_of
from kvoracle.model.registry import MUTANT_PREFIX, Target, resolve
from kvoracle.model.run import Failure, run
from kvoracle.model.trace import Trace, write

MUTANTS = {
    "append_in_place: no other request owns the tail": "copy-skipped-on-shared-tail",
    "append_in_place: no transfer pins the tail": "copy-skipped-on-pinned-tail",
    "append_copy: the data is copied and the token written": "copy-shares-the-data",
    "fork: the child owns every block": "fork-misses-an-owner",
    "release: pinned blocks stay": "pin-ignored-on-release",
    "unpin: pinned blocks stay": "one-unpin-ends-both",
    "hit: it owns the hits": "hit-misses-an-owner",
    "hit: the tokens before it are the prompt's": "key-without-parent",
    "evict: its entry goes": "recycled-block-keeps-its-entry",
}
"""The parts whose absence is the bug of a mutant."""


MORE_MAX = 2
"""By how many operations a trace may be made longer until the bug shows."""


class Counterexample(NamedTuple):
    """A trace that ends where an operation without one of its parts breaks invariants; and how an
    allocator that is broken in the same way fails on it, where there is one."""

    trace: Trace
    broken: list[str]
    is_out_of_turn: bool = False
    target: Target | None = None
    failure: Failure | None = None

    @property
    def pool(self) -> str:
        config = self.trace.config
        return f"{config.blocks} blocks of {config.block_size}"

    def save(self, folder: Path) -> Path:
        path = folder / f"prove-{'-'.join(self.broken[0].split('_'))}.json"
        write(self.trace, path)
        return path


def relation_without(name: str) -> Relation:
    """An operation without one of its parts, by `OPERATION: PART`."""
    operation, _, part = name.partition(": ")
    if operation not in BY_NAME:
        raise UsageError(
            f"There is no operation {operation!r}; write 'OPERATION: PART' with one of"
            f" {', '.join(BY_NAME)}."
        )
    parts = parts_of(BY_NAME[operation])
    if part not in parts:
        raise UsageError(
            f"{operation} has no part {part!r}; write '{operation}: PART' with one of"
            f" {', '.join(map(repr, parts))}."
        )
    return BY_NAME[operation].without(part)


def parts_of(relation: Relation) -> list[str]:
    """The names of what an operation consists of."""
    arguments = [argument(name) for name in relation.arguments]
    return [part.name for part in relation.parts(any_state(), *arguments)]


def counterexample(relation: Relation, claim: Claim | None = None) -> Counterexample | None:
    """A trace on which a broken operation breaks an invariant, this one or any.

    Where no call of a trace leads there, one after which the operation could happen by itself.
    """
    claims = INVARIANTS if claim is None else (claim,)
    group = group_of(relation)
    found = shortest(group, _when_done(relation, claims), {**BY_NAME, relation.name: relation})
    if found is None:
        found = shortest(group, _out_of_turn(relation, claims))
        return found and Counterexample(found.trace, found.happened, is_out_of_turn=True)
    example = Counterexample(found.trace, found.happened)
    mutant = MUTANTS.get(f"{relation.name}: {', '.join(relation.left_out)}")
    if mutant is None:
        return example
    target = resolve(MUTANT_PREFIX + mutant)
    return example._replace(target=target, failure=_failure(found, target))


def _when_done(relation: Relation, claims: Sequence[Claim]) -> Happens:
    return lambda done, _, after: broken_in(after, claims) if done == relation else []


def _out_of_turn(relation: Relation, claims: Sequence[Claim]) -> Happens:
    def happens(_: Relation, __: State, state: State) -> list[str]:
        assert isinstance(state.world, Finite)
        domains = state.world.domains
        for arguments in product(*(domains.get(sort_of(name), ()) for name in relation.arguments)):
            if all(relation.guards(state, *arguments)):
                broken = broken_in(carried_out(relation, state, *arguments), claims)
                if broken:
                    return broken
        return []

    return happens


def broken_in(state: State, claims: Sequence[Claim]) -> list[str]:
    """The names of the claims that do not hold."""
    return [claim.__name__ for claim in claims if not claim(state)]


def _failure(found: Found, target: Target) -> Failure | None:
    """How a mutant fails on a trace; where its bug does not show yet, on one that goes on."""
    trace = found.trace
    for more in range(MORE_MAX + 1):
        for tail in product(found.way.operations, repeat=more):
            longer = msgspec.structs.replace(trace, operations=[*trace.operations, *tail])
            failure = run(longer, target.factory)
            if failure is not None:
                return failure
    return None
