"""What is explored: a pool, how much may live in it at once, and which operations there are.

Names are interchangeable: of those that are not in use the first is as good as any.  Without a
prefix cache so are tokens, and one value stands for all of them.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kvoracle.model.operations import (
    Acknowledge,
    Admit,
    Append,
    BeginStep,
    Cancel,
    ChangeWeights,
    Commit,
    Create,
    EndStep,
    FailStep,
    Fork,
    LookUp,
    Operation,
    Pin,
    Preempt,
    Release,
    Reserve,
    Reset,
    Resume,
    Send,
    Trim,
    Unpin,
    Use,
)
from kvoracle.model.trace import Configuration
from kvoracle.reference import Oracle

FEATURES: dict[str, frozenset[type[Operation]]] = {
    "core": frozenset({Create, Append, Release}),
    "sharing": frozenset({Fork, Pin, Unpin}),
    "cache": frozenset({Admit, Reset, Preempt, Resume}),
    "lookup": frozenset({LookUp, Use, Cancel}),
    "reserve": frozenset({Reserve, Commit, Trim}),
    "steps": frozenset({BeginStep, EndStep, FailStep}),
    "transfers": frozenset({Send, Acknowledge}),
    "weights": frozenset({ChangeWeights}),
}
"""The operations that each feature adds."""


class Scope(NamedTuple):
    """Bounds: blocks of `block_size` slots, requests and transfers at once, tokens of one request,
    different token values (`values`, where contents matter), and features."""

    blocks: int = 4
    block_size: int = 2
    requests: int = 3
    transfers: int = 2
    tokens: int = 6
    values: int = 1
    steps: int = 1
    match_unit: int = 0
    features: tuple[str, ...] = ("core", "sharing")

    @property
    def caches(self) -> bool:
        """Whether contents matter."""
        return "cache" in self.features or "lookup" in self.features

    @property
    def operations(self) -> frozenset[type[Operation]]:
        """The operations that are explored."""
        return frozenset().union(*(FEATURES[feature] for feature in self.features))

    def config(self) -> Configuration:
        """The pool of a trace in this scope."""
        return Configuration(self.blocks, self.block_size, self.caches, match_unit=self.match_unit)


def moves(kv: Oracle, scope: Scope) -> list[Operation]:
    """Every operation of the scope that the reference accepts, or finds no room for, in a state."""
    able = scope.operations
    return [move for kind, draw in _MOVES for move in draw(kv, scope) if kind in able]


def _settled(kv: Oracle) -> list[str]:
    return [r for r, life in kv.lives.items() if not (life.waiting or life.in_flight)]


def _names(kv: Oracle) -> int:
    return len(kv.tables) + len(kv.lookups) + len(kv.preempted)


def _unused(prefix: str, used: Sequence[str]) -> str:
    return next(name for name in (f"{prefix}{n}" for n in range(100)) if name not in used)


def _new_request(kv: Oracle) -> str:
    return _unused("r", [*kv.tables, *kv.lookups, *kv.preempted])


def _begins(kv: Oracle, scope: Scope) -> bool:
    return _names(kv) < scope.requests


def _create(kv: Oracle, scope: Scope) -> Iterator[Operation]:
    if _begins(kv, scope):
        yield Create(_new_request(kv))


def _prompts(scope: Scope) -> Iterator[tuple[int, ...]]:
    """Every sequence of token values up to the bound."""
    sequences: list[tuple[int, ...]] = [()]
    for _ in range(scope.tokens):
        sequences = [(*s, value) for s in sequences for value in range(scope.values)]
        yield from sequences


def _admit(kv: Oracle, scope: Scope) -> Iterator[Operation]:
    if _begins(kv, scope):
        yield from (Admit(_new_request(kv), prompt) for prompt in _prompts(scope))


def _look_up(kv: Oracle, scope: Scope) -> Iterator[Operation]:
    if _begins(kv, scope):
        yield from (LookUp(_new_request(kv), prompt) for prompt in _prompts(scope))


def _use(kv: Oracle, _: Scope) -> Iterator[Operation]:
    yield from (Use(request) for request in kv.lookups)


def _cancel(kv: Oracle, _: Scope) -> Iterator[Operation]:
    yield from (Cancel(request) for request in kv.lookups)


def _append(kv: Oracle, scope: Scope) -> Iterator[Operation]:
    for request in _settled(kv):
        if kv.length(request) < scope.tokens:
            yield from (Append(request, (value,)) for value in range(scope.values))


def _reserve(kv: Oracle, scope: Scope) -> Iterator[Operation]:
    for request in _settled(kv):
        for count in range(kv.lives[request].reserved + 1, scope.tokens - kv.length(request) + 1):
            yield Reserve(request, count)


def _commit(kv: Oracle, scope: Scope) -> Iterator[Operation]:
    for request in _settled(kv):
        if kv.lives[request].reserved:
            yield from (Commit(request, (value,)) for value in range(scope.values))


def _trim(kv: Oracle, _: Scope) -> Iterator[Operation]:
    yield from (Trim(request) for request in _settled(kv) if kv.lives[request].reserved)


def _fork(kv: Oracle, scope: Scope) -> Iterator[Operation]:
    if _begins(kv, scope):
        yield from (Fork(request, _new_request(kv)) for request in _unreserved(kv))


def _unreserved(kv: Oracle) -> list[str]:
    return [request for request in _settled(kv) if not kv.lives[request].reserved]


def _new_transfers(kv: Oracle, scope: Scope) -> Iterator[tuple[str, str]]:
    if len(kv.transfers) < scope.transfers:
        name = _unused("t", list(kv.transfers))
        yield from ((request, name) for request in _unreserved(kv) if kv.tables[request])


def _pin(kv: Oracle, scope: Scope) -> Iterator[Operation]:
    yield from (Pin(*names) for names in _new_transfers(kv, scope))


def _unpin(kv: Oracle, _: Scope) -> Iterator[Operation]:
    yield from (Unpin(name) for name, transfer in kv.transfers.items() if transfer.is_pin)


def _send(kv: Oracle, scope: Scope) -> Iterator[Operation]:
    yield from (Send(*names, 2, 0) for names in _new_transfers(kv, scope))


def _acknowledge(kv: Oracle, _: Scope) -> Iterator[Operation]:
    for name, transfer in kv.transfers.items():
        for worker in sorted(transfer.awaited - transfer.acknowledged):
            yield Acknowledge(name, worker, 0)


def _begin_step(kv: Oracle, scope: Scope) -> Iterator[Operation]:
    if len(kv.steps) == scope.steps:
        return
    room = [
        request
        for request, life in kv.lives.items()
        if not life.waiting and kv.length(request) + life.in_flight < scope.tokens
    ]
    batches: list[tuple[str, ...]] = [(request,) for request in room]
    if len(room) > 1:
        batches += itertools.permutations(room)
    for batch in batches:
        yield BeginStep(_unused("s", list(kv.steps)), batch, (0,) * len(batch))


def _end_step(kv: Oracle, _: Scope) -> Iterator[Operation]:
    yield from (EndStep(step) for step in list(kv.steps)[:1])


def _fail_step(kv: Oracle, _: Scope) -> Iterator[Operation]:
    yield from (FailStep(step) for step in kv.steps)


def _release(kv: Oracle, _: Scope) -> Iterator[Operation]:
    yield from (Release(request) for request in [*kv.tables, *kv.preempted])


def _preempt(kv: Oracle, _: Scope) -> Iterator[Operation]:
    for request, life in kv.lives.items():
        if not life.waiting and kv.length(request):
            yield Preempt(request)


def _resume(kv: Oracle, _: Scope) -> Iterator[Operation]:
    yield from (Resume(request) for request in kv.preempted)


def _reset(kv: Oracle, _: Scope) -> Iterator[Operation]:
    if kv.index and len(kv.takeable()) == kv.capacity:
        yield Reset()


def _change_weights(kv: Oracle, _: Scope) -> Iterator[Operation]:
    if kv.index and not kv.lookups:
        yield ChangeWeights()


_MOVES = (
    (Create, _create),
    (Admit, _admit),
    (LookUp, _look_up),
    (Use, _use),
    (Cancel, _cancel),
    (Append, _append),
    (Reserve, _reserve),
    (Commit, _commit),
    (Trim, _trim),
    (Fork, _fork),
    (Pin, _pin),
    (Unpin, _unpin),
    (Send, _send),
    (Acknowledge, _acknowledge),
    (BeginStep, _begin_step),
    (EndStep, _end_step),
    (FailStep, _fail_step),
    (Release, _release),
    (Preempt, _preempt),
    (Resume, _resume),
    (Reset, _reset),
    (ChangeWeights, _change_weights),
)
