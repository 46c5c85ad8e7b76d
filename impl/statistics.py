"""What an allocator has done and how full it is."""

from dataclasses import dataclass

import numpy as np

from kvoracle.impl.admission import Admission
from kvoracle.impl.requests import Requests


@dataclass(frozen=True, slots=True)
class Statistics:
    """`free` blocks can be taken, `idle` of them hold a published prefix, `held` ones cannot;
    `usage` is the share of the held.

    `queried_tokens` were looked for in the prefix cache and `hit_tokens` found.  `evictions` are
    published blocks that were taken for something else.  `tail_waste` is the number of slots in
    blocks of requests that no token is written to, each block counted once.
    """

    free: int
    idle: int
    held: int
    usage: float
    queried_tokens: int
    hit_tokens: int
    evictions: int
    preemptions: int
    tail_waste: int


def statistics_of(requests: Requests, admission: Admission) -> Statistics:
    """The statistics of an allocator with these parts."""
    pool = requests.pool
    held = pool.blocks - pool.num_free
    return Statistics(
        free=pool.num_free,
        idle=len(pool.idle),
        held=held,
        usage=held / pool.blocks,
        queried_tokens=admission.queried_tokens,
        hit_tokens=admission.hit_tokens,
        evictions=pool.evictions,
        preemptions=requests.preemptions,
        tail_waste=_tail_waste(requests),
    )


def _tail_waste(requests: Requests) -> int:
    """Blocks with no token have one owner; forks may share a partial one."""
    tables, size = requests.tables, requests.tables.block_size
    rows = np.fromiter(requests.by_name.values(), np.intp)
    lengths = tables.lengths[rows]
    empty = int((tables.counts[rows] + -lengths // size).sum())
    partial = lengths % size != 0
    tails = tables.ids[rows[partial], lengths[partial] // size]
    _, first = np.unique(tails, return_index=True)
    return empty * size + int((-lengths[partial][first] % size).sum())
