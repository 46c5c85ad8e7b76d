"""The oracle: every rule together, and what can be counted.

Each file adds one rule to the class of the one before it: `PagedKV` (owners, pins, copy-on-write),
`PrefixCachedKV`, `LookUpKV`, `ReservingKV`, `SteppedKV`, `TransferringKV`, `PreemptingKV`.
"""

from kvoracle.reference.preemption import PreemptingKV


class Oracle(PreemptingKV):
    """All of it on one pool."""

    def statistics(self) -> dict[str, int]:
        """Blocks by state, tokens looked up and hit, entries evicted, preemptions, tail waste.

        `tail_waste` is the slots of blocks in tables that hold no token; a shared block counts once.
        """
        owned = [page for page in self.pages.values() if page.owners]
        return {
            "free": len(self.takeable()),
            "idle": len(self.idle()),
            "held": self.capacity - len(self.takeable()),
            "queried_tokens": self.counted["queried_tokens"],
            "hit_tokens": self.counted["hit_tokens"],
            "evictions": self.counted["evictions"],
            "preemptions": self.counted["preemptions"],
            "tail_waste": sum(self.block_size - len(page.tokens) for page in owned),
        }
