"""What a witness is: a situation, and the operations without which it cannot be met."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from kvoracle.model.operations import Operation
from kvoracle.reference import Oracle

Needs = dict[str, frozenset[type[Operation]]]
Looks = dict[type[Operation], Callable[[Oracle, Any], Iterator[str]]]
"""For a type of operation, what names the witnesses that it is about to meet."""


class Fate(NamedTuple):
    """What one request of a batch gets: room or none, and the tail that was copied for it."""

    is_granted: bool
    copied: int | None


def fates(kv: Oracle, requests: Sequence[str]) -> list[Fate]:
    """What a batch gives each of its requests, room for one more token, in order."""
    free, gone, told = len(kv.takeable()), Counter[int](), list[Fate]()
    for request in requests:
        life, tail = kv.lives[request], kv.tail_to_copy(request)
        if tail is not None and not kv.pages[tail].pins:
            tail = tail if len(kv.pages[tail].owners) - gone[tail] > 1 else None
        position = kv.length(request) + life.in_flight
        starts = position // kv.block_size == len(kv.tables[request])
        need = (tail is not None) + starts if life.in_flight == life.reserved else 0
        told.append(Fate(need <= free, tail if need <= free else None))
        if need <= free:
            free -= need
            gone.update([] if tail is None else [tail])
    return told
