"""Operations broken on purpose: without one of its parts a proof must fail, and on a trace that an
allocator with the same bug fails on."""

from itertools import product
from pathlib import Path
from typing import NamedTuple

import msgspec

from kvoracle.model.errors import UsageError
from kvoracle.model.proof.invariants import INVARIANTS, Claim
from kvoracle.model.proof.pool import BY_NAME
from kvoracle.model.proof.relation import Relation
from kvoracle.model.proof.search import Found, group_of, shortest
from kvoracle.model.proof.solver import any_state, argument
from kvoracle.model.proof.state import State
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
    """A trace on which a broken operation breaks an invariant, this one or any."""
    claims = INVARIANTS if claim is None else (claim,)

    def happens(done: Relation, _: State, after: State) -> list[str]:
        if done != relation:
            return []
        return [invariant.__name__ for invariant in claims if not invariant(after)]

    found = shortest(group_of(relation), happens, {**BY_NAME, relation.name: relation})
    if found is None:
        return None
    example = Counterexample(found.trace, list(dict.fromkeys(found.happened)))
    mutant = MUTANTS.get(f"{relation.name}: {', '.join(relation.left_out)}")
    if mutant is None:
        return example
    target = resolve(MUTANT_PREFIX + mutant)
    return example._replace(target=target, failure=_failure(found, target))


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
