"""Decode steps under way: their slots are given out when they begin, their tokens count when they end."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from kvoracle.impl.contents import AnyTokens, as_tokens
from kvoracle.impl.errors import BadCall
from kvoracle.impl.growing import Growing
from kvoracle.impl.growth import BatchGrowth
from kvoracle.impl.ids import Rows
from kvoracle.impl.tables import Column

STEPS_MAX = 3


@dataclass(slots=True)
class _Step:
    """One step: the granted rows in their lives of then, a token for each, and the blocks held."""

    rows: Rows
    lives: Column
    tokens: AnyTokens
    held: Rows


class Steps:
    """The steps under way of one allocator, the oldest first."""

    def __init__(self, growing: Growing) -> None:
        self.growing = growing
        self.requests = growing.requests
        self.pool = growing.pool
        self.tables = growing.tables
        self.chains = growing.chains
        self.in_flight: dict[str, _Step] = {}

    def begin(self, name: str, requests: Sequence[str], tokens: ArrayLike) -> BatchGrowth:
        """Make room for one more token of each request, and hold every block of their tables."""
        rows, new = self._check(name, requests, tokens)
        positions = self.tables.lengths[rows] + self.tables.in_flight[rows]
        ends = positions + 1
        self.requests.check_length_each(rows, ends)
        room = self.growing.make_room_each(rows, positions, ends)
        granted, kept = room.granted, rows[room.granted]
        ahead = self.tables.in_flight[kept] + 1
        self.tables.in_flight[kept] = ahead
        self.tables.reserved[kept] = np.maximum(self.tables.reserved[kept], ahead)
        held = self._hold(kept, [source for source, _ in room.copies])
        self.in_flight[name] = _Step(kept, self.tables.lives[kept], new[granted], held)
        slots = np.full(len(rows), -1, np.int64)
        slots[granted] = self.tables.slots_at(kept, positions[granted])
        return BatchGrowth(slots, granted, room.copies, room.fresh)

    def end(self, name: str) -> None:
        """The oldest step has run: its tokens are written."""
        step = self._step(name)
        if name != next(iter(self.in_flight)):
            raise BadCall("an earlier step is in flight", name)
        alive = self._alive(step)
        rows = step.rows[alive]
        positions = self.tables.lengths[rows]
        self.tables.lengths[rows] += 1
        self.tables.reserved[rows] -= 1
        self.tables.in_flight[rows] -= 1
        self.chains.write_each(rows, positions, step.tokens[alive])
        self._drop(name)

    def fail(self, name: str) -> None:
        """A step and all that were begun after it are given up, the youngest first."""
        self._step(name)
        names = list(self.in_flight)
        for later in reversed(names[names.index(name) :]):
            step = self.in_flight[later]
            self.tables.in_flight[step.rows[self._alive(step)]] -= 1
            self._drop(later)

    def _check(
        self, name: str, requests: Sequence[str], tokens: ArrayLike
    ) -> tuple[Rows, AnyTokens]:
        if name in self.in_flight:
            raise BadCall("duplicate step", name)
        if len(self.in_flight) == STEPS_MAX:
            raise BadCall("too many steps in flight", name)
        rows = self.requests.rows(requests)
        self.requests.check_loaded_each(rows)
        new = as_tokens(tokens)
        if len(new) != len(rows):
            raise BadCall("one token for each request", ", ".join(requests))
        return rows, new

    def _step(self, name: str) -> _Step:
        try:
            return self.in_flight[name]
        except KeyError:
            raise BadCall("unknown step", name) from None

    def _hold(self, rows: Rows, sources: list[int]) -> Rows:
        blocks = np.concatenate([self.tables.concatenated(rows), np.array(sources, np.int32)])
        held = self.pool.last_mentions(blocks)
        self.pool.add_hold(held)
        return held

    def _alive(self, step: _Step) -> Rows:
        alive: Rows = (self.tables.lives[step.rows] == step.lives).nonzero()[0]
        return alive

    def _drop(self, name: str) -> None:
        self.pool.drop_hold(self.in_flight.pop(name).held)
