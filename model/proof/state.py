"""A state of a pool: what is true of blocks, requests, transfers and steps, as functions.

`FUNCTIONS` gives each function the sorts of its arguments and of its value.  A variable's sort is the
last word of its name: `block`, `fresh_block` and `other_block` are blocks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kvoracle.model.proof.logic import Formula, Position, Term, all_of, any_of, given, implies

Function = Callable[..., Term]

FUNCTIONS = {
    # blocks
    "size": "-> number",
    "free": "block -> truth",
    "fill": "block -> number",
    "content": "block offset -> token",
    # requests; a table is a function, `depth` its inverse: a block is at one index in every table
    "live": "request -> truth",
    "owns": "request block -> truth",
    "table": "request index -> block",
    "depth": "block -> index",
    "count": "request -> index",
    "length_index": "request -> index",
    "length_offset": "request -> offset",
    "promised_index": "request -> index",
    "promised_offset": "request -> offset",
    "room_index": "request -> index",
    "room_offset": "request -> offset",
    # transfers
    "outstanding": "transfer -> truth",
    "record": "transfer block -> truth",
    "pinned": "transfer block -> truth",
    "plain": "transfer -> truth",
    "generation": "transfer -> generation",
    "awaited": "transfer worker -> truth",
    "acknowledged": "transfer worker -> truth",
    # the prefix index: the key is that of the extra keys, `epoch` that of the weights
    "epoch": "-> number",
    "epoch_of": "request -> number",
    "key": "request -> key",
    "published": "block -> truth",
    "entry": "block index offset -> token",
    "entry_key": "block -> key",
    # steps in flight, which write one token a request, and the copies that run with them
    "flying": "step -> truth",
    "number": "step -> number",
    "latest": "-> number",
    "holds": "step block -> truth",
    "writes": "step request -> truth",
    "to_write": "step request -> token",
    "write_index": "step request -> index",
    "write_offset": "step request -> offset",
    "write_block": "step request -> block",
    "writer": "request index offset -> step",
    "pending": "block -> truth",
    "source": "block -> block",
    "copier": "block -> step",
    "strays": "step block offset -> truth",
    # sliding window: what a request still reads, and what of its table it still has
    "horizon_index": "request -> index",
    "horizon_offset": "request -> offset",
    "first": "request -> index",
    # what nobody stores, and everybody relies on
    "appended": "request index offset -> token",
    "snapshot": "transfer block offset -> token",
    "snapshot_fill": "transfer block -> number",
    "context": "block index offset -> token",
    "context_key": "block -> key",
    "context_epoch": "block -> number",
    "reading": "transfer generation worker -> truth",
    "said": "transfer generation worker -> truth",
}


ARGUMENTS = {
    "hits": "index -> block",
    "prompt": "index offset -> token",
    "workers": "worker -> truth",
}
"""Arguments of operations that are functions themselves."""


def signature(text: str) -> tuple[tuple[str, ...], str]:
    """The sorts of a function's arguments, and of its value."""
    *arguments, _, value = text.split()
    return tuple(arguments), value


def sort_of(variable: str) -> str:
    """The sort of a variable: the last word of its name."""
    return variable.rpartition("_")[2]


def variables(claim: Function) -> tuple[str, ...]:
    """The names of a function's parameters."""
    code = claim.__code__
    return code.co_varnames[: code.co_argcount]


class World(Protocol):
    """What there is: it knows how to say something of everything of a sort."""

    def every(self, claim: Function) -> Formula:
        """The claim holds of all values of its parameters."""

    def some(self, claim: Function) -> Formula:
        """The claim holds of some values of its parameters."""


@dataclass(frozen=True)
class State:
    """One state in a world; `s.owns(request, block)` reads a function of it."""

    world: World
    functions: Mapping[str, Function]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.functions[name]
        except KeyError:
            raise AttributeError(name) from None

    def every(self, claim: Function) -> Formula:
        return self.world.every(claim)

    def some(self, claim: Function) -> Formula:
        return self.world.some(claim)

    def with_changes(self, changes: Mapping[str, Function]) -> "State":
        return State(self.world, {**self.functions, **changes})

    def length(self, request: Term) -> Position:
        """The end of what is written."""
        return Position(self.length_index(request), self.length_offset(request))

    def promised(self, request: Term) -> Position:
        """The end of what steps in flight will have written."""
        return Position(self.promised_index(request), self.promised_offset(request))

    def room(self, request: Term) -> Position:
        """The end of the room that is reserved."""
        return Position(self.room_index(request), self.room_offset(request))

    def horizon(self, request: Term) -> Position:
        """The first position that is still read."""
        return Position(self.horizon_index(request), self.horizon_offset(request))

    def writes_at(self, step: Term, request: Term) -> Position:
        """Where a step in flight writes."""
        return Position(self.write_index(step, request), self.write_offset(step, request))

    def tail(self, request: Term) -> Term:
        """The block at the end of what is written; it is there if that end is inside a block."""
        return self.table(request, self.length_index(request))

    def is_settled(self, request: Term) -> Formula:
        """Nothing is in flight or reserved: what is written is all there is."""
        return self.room(request).is_at(self.length(request))

    def in_table(self, request: Term, index: Term) -> Formula:
        """A live request's table names a block there."""
        return all_of(self.live(request), self.first(request) <= index, index < self.count(request))

    def in_block(self, offset: Term) -> Formula:
        return all_of(offset >= 0, offset < self.size())

    def stored(self, block: Term, offset: Term) -> Term:
        """What a block holds once the copy that it waits for has run."""
        copied = self.content(self.source(block), offset)
        return given(self.pending(block), copied, self.content(block, offset))

    def is_owned(self, block: Term) -> Formula:
        return self.some(lambda request: self.owns(request, block))

    def is_pinned(self, block: Term) -> Formula:
        return self.some(lambda transfer: self.pinned(transfer, block))

    def is_in_flight(self, block: Term) -> Formula:
        return self.some(lambda step: self.holds(step, block))

    def is_in_use(self, block: Term) -> Formula:
        """A block has a holder beside the prefix index."""
        return any_of(self.is_owned(block), self.is_pinned(block), self.is_in_flight(block))

    def is_owned_alone(self, request: Term, block: Term) -> Formula:
        return self.every(
            lambda other_request: implies(self.owns(other_request, block), other_request == request)
        )


def put(function: Function, *at_and_value: Term) -> Function:
    """A function that is as before, but for one place: `put(s.fill, block, 0)`."""
    *at, value = at_and_value

    def changed(*arguments: Term) -> Term:
        is_there = all_of(*(one == other for one, other in zip(arguments, at, strict=True)))
        return given(is_there, value, function(*arguments))

    return changed


def put_position(state: State, name: str, *at_and_position: Any) -> dict[str, Function]:
    """A position that is as before, but for one place: `put_position(s, "length", request, end)`."""
    *at, position = at_and_position
    index, offset = f"{name}_index", f"{name}_offset"
    return {
        index: put(getattr(state, index), *at, position.index),
        offset: put(getattr(state, offset), *at, position.offset),
    }


NOT_YET = (
    *("live", "owns", "published", "outstanding", "pinned", "plain", "reading", "said"),
    *("flying", "holds", "writes", "pending", "strays"),
)
"""What is true of nothing before the first operation."""


def empty(state: State) -> State:
    """The state before the first operation: all blocks are free."""
    nothing: dict[str, Function] = {name: lambda *_: False for name in NOT_YET}
    return state.with_changes({**nothing, "free": lambda _: True, "latest": lambda: 0})
