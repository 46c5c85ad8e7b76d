"""The end of a run: everything ends, and then the whole pool must be there to be taken.

A block that leaked is only missed when it is needed, and an allocator that keeps no count never
says that it is gone.
"""

from collections.abc import Iterator

from kvoracle.model.operations import (
    Acknowledge,
    Append,
    Cancel,
    Create,
    EndStep,
    Operation,
    Release,
    Unpin,
)
from kvoracle.reference import Oracle
from kvoracle.reference.groups import GroupedKV

BLOCKS_MAX = 100
"""Larger pools are emptied and not filled again: it would take too long."""
FIRST_TOKEN = 2**40


def drain(kv: Oracle | GroupedKV) -> Iterator[Operation]:
    """Operations that end all that is live, then take every block with a request of its own; with
    groups of layers as many blocks as one request can."""
    if isinstance(kv, GroupedKV):
        yield from _drain_groups(kv)
        return
    yield from _end_everything(kv)
    if kv.capacity > BLOCKS_MAX:
        return
    count = min(kv.block_size, kv.max_length or kv.block_size)
    for number in range(kv.capacity):
        first = FIRST_TOKEN + number * count
        yield Create(f"fill {number}")
        yield Append(f"fill {number}", tuple(range(first, first + count)))


def _drain_groups(kv: GroupedKV) -> Iterator[Operation]:
    for request in [*kv.tables, *kv.preempted]:
        yield Release(request)
    count = 0
    while len(kv.places(0, count + 1)) <= kv.capacity:
        count += 1
    if kv.capacity <= BLOCKS_MAX and count:
        yield Create("fill")
        yield Append("fill", tuple(range(FIRST_TOKEN, FIRST_TOKEN + count)))


def _end_everything(kv: Oracle) -> Iterator[Operation]:
    for request in list(kv.lookups):
        yield Cancel(request)
    for step in list(kv.steps):
        yield EndStep(step)
    for name, transfer in list(kv.transfers.items()):
        if transfer.is_pin:
            yield Unpin(name)
        for worker in sorted(transfer.awaited - transfer.acknowledged):
            yield Acknowledge(name, worker, 0)
    for request in [*kv.tables, *kv.preempted]:
        yield Release(request)
