"""A row of the table: a race that has a goal, or a quantity that has a limit."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kvoracle.model.bench.side import Racer, Side
from kvoracle.model.bench.stopwatch import seconds_a_unit

Sides = Mapping[str, Callable[[], Side]]
"""How to make each side, by its name."""


class Result(NamedTuple):
    """What a row measured.  A race has both times; `value` is their ratio, or the quantity."""

    value: float
    met: bool
    ours_seconds: float | None = None
    peer_seconds: float | None = None


class Race(NamedTuple):
    """This project's allocator against a released one: how many times as long does that take?"""

    name: str
    work: str
    engine: str
    ours: Callable[[], Racer]
    peer: Callable[[], Racer]
    goal: float

    @property
    def sides(self) -> Sides:
        """Ours, and the peer's."""
        return {"impl": self.ours, self.engine: self.peer}

    def measure(self, rounds: int) -> Result:
        """The ratio of the medians, of sides that took and gave back as much as each other."""
        sides = [self.ours(), self.peer()]
        ours, peer = seconds_a_unit(sides, rounds)
        assert sides[0].num_free() == sides[1].num_free(), f"{self.name} is not the same work"
        return Result(peer / ours, peer / ours >= self.goal, ours, peer)


class Limit(NamedTuple):
    """A quantity of this project's allocator alone, which is to stay small."""

    name: str
    work: str
    sides: Sides
    quantity: Callable[[list[float]], float]
    goal: float
    unit: str

    def measure(self, rounds: int) -> Result:
        """The quantity, in `unit`, made from the medians of the sides in seconds."""
        value = self.quantity(seconds_a_unit([new() for new in self.sides.values()], rounds))
        return Result(value, value <= self.goal)


Row = Race | Limit
