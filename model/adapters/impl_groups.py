"""This project's own allocator for several groups of layers on one pool."""

from collections.abc import Mapping, Sequence

import numpy as np

from kvoracle import impl
from kvoracle.impl.groups import GroupedAllocator, GroupedGrowth
from kvoracle.model.adapters.base import NO_KEYS, Adapter
from kvoracle.model.operations import Done, Outcome, OutOfBlocks, Rejected
from kvoracle.model.trace import Configuration

NULL_BLOCKS = 1


class ImplGroupsAdapter(Adapter):
    """`kvoracle.impl.groups.GroupedAllocator`."""

    first_block = NULL_BLOCKS
    refuses = frozenset(
        {
            "blocks in use",
            "duplicate request",
            "no requests",
            "no tokens",
            "not preempted",
            "one token for each request",
            "repeated request",
            "unknown request",
        }
    )
    extra_keys = frozenset({"adapter", "salt", "image"})
    options = frozenset({"groups"})
    allocator_class: type[GroupedAllocator] = GroupedAllocator

    def __init__(self, config: Configuration) -> None:
        super().__init__(config)
        groups = [(group.block_size, group.window) for group in config.layer_groups]
        self.allocator = self.allocator_class(
            config.blocks, groups, prefix_cache=config.prefix_cache
        )

    def outcome_of(self, error: Exception) -> Outcome | None:
        if isinstance(error, impl.BadCall):
            return Rejected(error.reason)
        return OutOfBlocks() if isinstance(error, impl.OutOfBlocks) else None

    def create(self, request: str) -> None:
        self.allocator.create(request)

    def admit(
        self, request: str, prompt: Sequence[int], extra_keys: Mapping[str, str] = NO_KEYS
    ) -> Outcome:
        return _grown(request, self.allocator.admit(request, prompt, extra_keys))

    def append(self, request: str, tokens: Sequence[int]) -> Outcome:
        return _grown(request, self.allocator.append(request, tokens))

    def can_append(self, request: str, count: int) -> bool:
        return self.allocator.can_append(request, count)

    def append_each(self, requests: Sequence[str], tokens: Sequence[int]) -> Outcome:
        growth = self.allocator.append_batch(requests, tokens)
        granted = dict(zip(requests, growth.granted.tolist(), strict=True))
        slots = dict(zip(requests, growth.slots.T.tolist(), strict=True))
        return Done(
            slots={request: slots[request] for request in requests if granted[request]},
            refused=[request for request in requests if not granted[request]],
        )

    def release(self, request: str) -> None:
        self.allocator.release(request)

    def release_each(self, requests: Sequence[str]) -> None:
        self.allocator.release_batch(requests)

    def preempt(self, request: str) -> None:
        self.allocator.preempt(request)

    def resume(self, request: str) -> Outcome:
        return _grown(request, self.allocator.resume(request))

    def reset(self) -> None:
        self.allocator.reset_prefix_cache()

    def table(self, request: str) -> Sequence[int]:
        """The tables of all groups, one after the other."""
        table: list[int] = np.concatenate(self.allocator.tables(request)).tolist()
        return table

    def free_blocks(self) -> int:
        return self.allocator.num_free

    def holders(self) -> dict[int, int]:
        owners = enumerate(self.allocator.pool.owners.tolist())
        return {block: count for block, count in owners if count and block >= NULL_BLOCKS}

    def generations(self) -> dict[int, int]:
        taken = enumerate(self.allocator.pool.generations.tolist())
        return {block: count for block, count in taken if block >= NULL_BLOCKS}


def _grown(request: str, growth: GroupedGrowth) -> Outcome:
    return Done(slots={request: growth.slots.ravel().tolist()}, hit=growth.hit)
