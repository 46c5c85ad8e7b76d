"""What serving came to, on one allocator and block size: the numbers of a row of the table."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kvoracle.model.serving.contestant import Contestant
from kvoracle.model.serving.measures import Measures
from kvoracle.model.traffic.reuse import Reuse

SERIES = ("running", "waiting", "used")


@dataclass(frozen=True)
class Result:
    """Means are over simulated time; shares are of 1, and None where there is nothing to share."""

    allocator: str
    block_size: int
    blocks: int
    arrived: int
    finished: int
    cancelled: int
    refused: int
    seconds: float
    """Simulated."""
    steps: int
    running_mean: float
    running_most: int
    used_mean: float
    """The share of blocks that are held."""
    used_most: float
    hit_rate: float | None
    """Of the prompt tokens of first admissions."""
    hit_rate_lru: float | None
    """The same, had the requests been served one at a time."""
    hit_rate_unlimited: float | None
    """The same, had nothing been evicted."""
    preemptions: int
    recomputed_tokens: int
    wait_median: float | None
    """Seconds from arrival to admission."""
    wait_p99: float | None
    tail_waste: float
    """The share of held slots that are empty in last blocks."""
    reserved_waste: float
    """The share of held and promised slots that are kept for tokens that are not there yet."""
    allocator_median: float
    """Microseconds of processor time that a step spends in the allocator."""
    allocator_p99: float
    allocator_seconds: float
    """All of it."""


def result_of(
    contestant: Contestant, measures: Measures, arrived: int, reuse: Reuse | None
) -> Result:
    """The numbers of a run; `reuse` where the traffic has prefixes and the allocator caches them."""
    config = contestant.config
    slots = measures.mean("used") * config.block_size
    empty, promised = measures.mean("tails"), measures.mean("promised") * config.block_size
    tails, reserved = (0.0, empty) if contestant.reserves_whole else (empty, promised)
    steps = measures.column("allocator") / 1000
    waits = np.frombuffer(measures.waits, np.int64) / 1e6
    return Result(
        allocator=contestant.name,
        block_size=config.block_size,
        blocks=config.blocks,
        arrived=arrived,
        finished=measures.finished,
        cancelled=measures.cancelled,
        refused=measures.refused,
        seconds=measures.seconds,
        steps=len(steps),
        running_mean=measures.mean("running"),
        running_most=_most(measures.column("running")),
        used_mean=measures.mean("used") / config.blocks,
        used_most=_most(measures.column("used")) / config.blocks,
        hit_rate=_share(measures.hit_tokens, measures.prompt_tokens) if reuse else None,
        hit_rate_lru=_share(reuse.hit_tokens(config.blocks), reuse.prompt_tokens)
        if reuse
        else None,
        hit_rate_unlimited=_share(reuse.unlimited, reuse.prompt_tokens) if reuse else None,
        preemptions=measures.preemptions,
        recomputed_tokens=measures.recomputed_tokens,
        wait_median=_percentile(waits, 50),
        wait_p99=_percentile(waits, 99),
        tail_waste=_share(tails, slots) or 0.0,
        reserved_waste=_share(reserved, slots + promised) or 0.0,
        allocator_median=_percentile(steps, 50) or 0.0,
        allocator_p99=_percentile(steps, 99) or 0.0,
        allocator_seconds=float(steps.sum() / 1e6),
    )


def as_json(result: Result, measures: Measures) -> dict[str, Any]:
    """The row, and its series as [seconds, mean] over equal spans of time."""
    return {**asdict(result), "series": {name: measures.series(name) for name in SERIES}}


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _most(values: Any) -> int:
    return int(values.max()) if len(values) else 0


def _percentile(values: Any, percent: int) -> float | None:
    return float(np.percentile(values, percent)) if len(values) else None
