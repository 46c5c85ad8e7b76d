"""What is measured while traffic is served, and what becomes of it."""

from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kvoracle.model.serving.scheduler import Scheduler

COLUMNS = ("clock", "took", "allocator", "running", "waiting", "used", "tails", "promised")
POINTS = 400
"""Of a series over time, at most."""


@dataclass
class Measures:
    """A row a step: when it began and how long it took in simulated microseconds, and what was so
    at its end; and sums over all steps."""

    rows: dict[str, "array[int]"] = field(
        default_factory=lambda: {name: array("q") for name in COLUMNS}
    )
    waits: "array[int]" = field(default_factory=lambda: array("q"))
    """Of each request that was admitted for the first time, in simulated microseconds."""
    finished: int = 0
    cancelled: int = 0
    refused: int = 0
    """They could never be served."""
    preemptions: int = 0
    prompt_tokens: int = 0
    """Of all admissions, those after a preemption aside."""
    hit_tokens: int = 0
    recomputed_tokens: int = 0
    """Written once more after a preemption."""

    def record(self, clock: int, took: int, nanoseconds: int, scheduler: Scheduler) -> None:
        """The state at the end of a step."""
        size, config = scheduler.block_size, scheduler.pool.config
        tails = sum(-request.length % size for request in scheduler.running)
        row = {
            "clock": clock,
            "took": took,
            "allocator": nanoseconds,
            "running": len(scheduler.running),
            "waiting": len(scheduler.waiting),
            "used": config.blocks - scheduler.pool.free,
            "tails": tails,
            "promised": scheduler.promised if scheduler.credited else 0,
        }
        for name, value in row.items():
            self.rows[name].append(value)

    def column(self, name: str) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """One number a step."""
        return np.frombuffer(self.rows[name], np.int64)

    def mean(self, name: str) -> float:
        """Over simulated time."""
        took = self.column("took").astype(float)
        return float((self.column(name) * took).sum() / max(took.sum(), 1))

    @property
    def seconds(self) -> float:
        """From the first step to the end of the last, simulated."""
        if not len(self.rows["clock"]):
            return 0.0
        return float(self.column("clock")[-1] + self.column("took")[-1]) / 1e6

    def series(self, name: str) -> list[tuple[float, float]]:
        """Means over equal spans of simulated time, as (seconds, mean)."""
        clock, took, values = (self.column(column) for column in ("clock", "took", name))
        if not len(clock):
            return []
        end = int(clock[-1] + took[-1])
        span = max(end // POINTS, 1)
        which = (clock // span).astype(np.int64)
        weight = np.bincount(which, took)
        total = np.bincount(which, took * values)
        kept = weight > 0
        seconds = np.arange(len(weight)) * span / 1e6
        pairs = zip(seconds[kept], total[kept] / weight[kept], strict=True)
        return [(float(second), float(value)) for second, value in pairs]
