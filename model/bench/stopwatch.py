"""Time by turns: every round times each side once, and the next round in the opposite order.

Time of the processor, not of the clock: where other programs run, they would interrupt the slower
side more often.
"""

import gc
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kvoracle.model.bench.heap import keep_freed_memory
from kvoracle.model.bench.side import Side

WARM_UP_ROUNDS = 1


def seconds_a_unit(sides: Sequence[Side], rounds: int) -> list[float]:
    """The median of the rounds for each side; the collector of reference cycles rests meanwhile."""
    keep_freed_memory()
    taken: list[list[float]] = [[] for _ in sides]
    with _no_collection():
        for number in range(WARM_UP_ROUNDS + rounds):
            turns = list(zip(sides, taken, strict=True))
            for side, seconds in reversed(turns) if number % 2 else turns:
                seconds.append(_seconds(side))
    return [statistics.median(seconds[WARM_UP_ROUNDS:]) for seconds in taken]


def _seconds(side: Side) -> float:
    side.begin()
    started = time.process_time()
    side.work()
    return (time.process_time() - started) / side.units


@contextmanager
def _no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
