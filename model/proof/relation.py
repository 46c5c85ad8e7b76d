"""An operation as a relation between two states: what must hold before it, and what it changes.

A relation is a generator of named parts.  A guard is a formula over the state before.  An effect gives
new values to functions, in terms of the state before; what no effect names stays as it is.  Blocks
that are given back become free, but for those that are still held in the state after.
A part can be left out by its name: that is how an operation is broken on purpose.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kvoracle.model.proof.logic import Formula, Term, all_of, any_of, no
from kvoracle.model.proof.state import Function, State, variables


@dataclass(frozen=True)
class Part:
    """One guard, one effect, what is given back, or what of it stays."""

    name: str
    guard: Formula = True
    changes: dict[str, Function] = field(default_factory=dict)
    returns: Function | None = None
    spares: Callable[[State, Term], Formula] | None = None


Parts = Iterator[Part]


def guard(name: str, claim: Formula) -> Part:
    """What must hold for the operation to happen."""
    return Part(name, guard=claim)


def effect(name: str, **changes: Function) -> Part:
    """What the operation changes."""
    return Part(name, changes=changes)


def give_back(name: str, blocks: Function) -> Parts:
    """What the operation gives back: these blocks, but for those that something still holds."""
    yield Part(name, returns=blocks)
    yield Part("owned blocks stay", spares=State.is_owned)
    yield Part("pinned blocks stay", spares=State.is_pinned)
    yield Part("published blocks stay", spares=lambda s, block: s.published(block))
    yield Part("blocks of steps stay", spares=State.is_in_flight)


@dataclass(frozen=True)
class Relation:
    """An operation: its parts, given the state before and its arguments."""

    build: Callable[..., Parts]
    left_out: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.build.__name__

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of its arguments; their last words are their sorts."""
        return variables(self.build)[1:]

    def parts(self, state: State, *arguments: Term) -> list[Part]:
        parts = list(self.build(state, *arguments))
        return [part for part in parts if part.name not in self.left_out]

    def without(self, name: str) -> "Relation":
        """The relation with a part left out."""
        return Relation(self.build, self.left_out | {name})

    def guards(self, state: State, *arguments: Term) -> list[Formula]:
        return [part.guard for part in self.parts(state, *arguments)]

    def after(self, state: State, *arguments: Term) -> State:
        """The state after it."""
        changes: dict[str, Any] = {}
        parts = self.parts(state, *arguments)
        for part in parts:
            assert not changes.keys() & part.changes.keys(), f"{self.name} changes something twice"
            changes |= part.changes
        after = state.with_changes(changes)
        returns = [part.returns for part in parts if part.returns is not None]
        spares = [part.spares for part in parts if part.spares is not None]
        if not returns:
            return after
        return after.with_changes({"free": _freed(after, returns, spares)})


def _freed(
    after: State,
    returns: list[Function],
    spares: list[Callable[[State, Term], Formula]],
) -> Function:
    """`free` when blocks were given back."""

    def free(block: Term) -> Formula:
        given_back = any_of(*(blocks(block) for blocks in returns))
        stays = any_of(*(spared(after, block) for spared in spares))
        return any_of(after.free(block), all_of(given_back, no(stays)))

    return free


def relations(*builders: Callable[..., Parts]) -> tuple[Relation, ...]:
    """The operations of a group."""
    return tuple(Relation(builder) for builder in builders)
