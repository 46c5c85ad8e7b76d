"""What tails need of traffic: how long its requests are, and which full blocks of theirs are one.

Requests share the blocks that lie wholly in a prefix of their prompts that is the same.  Each is
counted once, as if all requests of the traffic were there together and nothing was evicted.  A block
that the prompt does not fill is not shared: its request writes on in it.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from kvoracle.model.traffic.arrival import PREFIX_BLOCK, Arrival
from kvoracle.reference.capacity import blocks_for


@dataclass
class Workload:
    """Lengths and how often they occur, and each prefix block once."""

    lengths: Counter[int] = field(default_factory=Counter)
    """Of prompt and answer together."""
    prompts: Counter[int] = field(default_factory=Counter)
    """Of the prompts whose prefixes are known."""
    prefixes: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Where each prefix block begins and ends."""

    @property
    def requests(self) -> int:
        return self.lengths.total()

    @property
    def tokens(self) -> int:
        """Of all requests, shared ones in each of them."""
        return sum(length * count for length, count in self.lengths.items())

    def add(self, arrival: Arrival) -> None:
        """Count a request."""
        self.lengths[arrival.tokens] += 1
        if not arrival.prefixes:
            return
        self.prompts[arrival.prompt] += 1
        for index, prefix in enumerate(arrival.prefixes):
            begin = index * PREFIX_BLOCK
            end = min(begin + PREFIX_BLOCK, arrival.prompt)
            self.prefixes[prefix] = (begin, max(end, self.prefixes.get(prefix, (0, 0))[1]))

    def logical_blocks(self, block_size: int) -> int:
        """The blocks of all requests, as if none was shared."""
        return sum(blocks_for(n, block_size) * count for n, count in self.lengths.items())

    def physical_blocks(self, block_size: int) -> int:
        """The same, shared ones once."""
        full = sum(n // block_size * count for n, count in self.prompts.items())
        once = sum(end // block_size - begin // block_size for begin, end in self.prefixes.values())
        return self.logical_blocks(block_size) - full + once

    def tails(self, block_size: int) -> Counter[int]:
        """How many requests leave so many slots of their last block empty."""
        found: Counter[int] = Counter()
        for length, count in self.lengths.items():
            found[-length % block_size] += count
        return found


def workload(arrivals: Iterable[Arrival]) -> Workload:
    """All of the traffic, in one pass."""
    whole = Workload()
    for arrival in arrivals:
        whole.add(arrival)
    return whole
