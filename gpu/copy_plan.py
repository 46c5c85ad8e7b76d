"""The order in which block copies give what parallel assignment gives, without a temporary.

A list of pairs (source, destination) means `blocks[destinations] = blocks[sources]`: every source
read before any destination is written.  One pair stands in the way of another only where it writes
what the other reads.  Pairs tied in that way form a chain, which one program carries out in order;
chains are free of each other.  Since no block is written twice, a chain is a tree, carried out from
its leaves to its root, or it has one cycle.  Of either, the source of the last pair is read before
anything is written: for a tree that changes nothing, and a cycle it closes.  Everything is O(pairs).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

Pair = tuple[int, int]


class CopyPlan(NamedTuple):
    """Pairs in order; chain i is `pairs[starts[i]:starts[i + 1]]`.  Block copies on themselves, which
    change nothing, are left out."""

    pairs: list[Pair]
    starts: list[int]

    @property
    def chains(self) -> int:
        """How many there are."""
        return len(self.starts) - 1

    @property
    def is_disjoint(self) -> bool:
        """Whether no block is both read and written, so that order does not matter."""
        return self.chains == len(self.pairs)


def plan_copies(pairs: Sequence[Pair]) -> CopyPlan:
    """The plan of a list of pairs; a destination given twice is a ValueError."""
    source_of = _source_of(pairs)
    targets = defaultdict(list)
    for destination, source in source_of.items():
        targets[source].append(destination)
    plan = CopyPlan([], [0])
    for source in [source for source in targets if source not in source_of]:
        for destination in targets[source]:
            _add_chain(plan, _tree(source, destination, targets))
    for cycle in _cycles(source_of, {destination for _, destination in plan.pairs}):
        _add_chain(plan, _around(cycle, targets))
    return plan


def _source_of(pairs: Sequence[Pair]) -> dict[int, int]:
    source_of: dict[int, int] = {}
    for source, destination in pairs:
        if destination in source_of:
            raise ValueError(
                f"block {destination} is the destination of two copies; give each block one source"
            )
        source_of[destination] = source
    return {block: source for block, source in source_of.items() if block != source}


def _add_chain(plan: CopyPlan, chain: Iterator[Pair]) -> None:
    plan.pairs.extend(chain)
    plan.starts.append(len(plan.pairs))


def _tree(source: int, destination: int, targets: dict[int, list[int]]) -> Iterator[Pair]:
    """A pair, and before it all that reads its destination."""
    found, waiting = [], [(source, destination)]
    while waiting:
        pair = waiting.pop()
        found.append(pair)
        waiting += [(pair[1], reader) for reader in targets.get(pair[1], ())]
    return reversed(found)


def _cycles(source_of: dict[int, int], seen: set[int]) -> Iterator[list[int]]:
    """Every cycle, each block before the one that it is copied from."""
    for first in source_of:
        walk = []
        block = first
        while block not in seen:
            seen.add(block)
            walk.append(block)
            block = source_of[block]
        if block in walk:
            yield walk[walk.index(block) :]


def _around(cycle: list[int], targets: dict[int, list[int]]) -> Iterator[Pair]:
    """The trees that hang on a cycle, then the cycle, whose last pair reads what its first one wrote."""
    inside = set(cycle)
    for block in cycle:
        for reader in targets[block]:
            if reader not in inside:
                yield from _tree(block, reader, targets)
    yield from zip(cycle[1:] + cycle[:1], cycle, strict=True)
