"""This project's own optimized allocator."""

from collections.abc import Sequence

from kvoracle import impl
from kvoracle.model.adapters.base import Adapter
from kvoracle.model.operations import Done, Outcome, OutOfBlocks, Rejected
from kvoracle.model.trace import Configuration


class ImplAdapter(Adapter):
    """`kvoracle.impl.PagedAllocator`: single-request verbs and batches on one pool."""

    refuses = frozenset(
        {
            "unknown request",
            "duplicate request",
            "unknown transfer",
            "duplicate transfer",
            "repeated request",
            "nothing to pin",
            "no tokens",
            "no requests",
            "one token for each request",
            "blocks in use",
        }
    )
    allocator_class: type[impl.PagedAllocator] = impl.PagedAllocator

    def __init__(self, config: Configuration) -> None:
        super().__init__(config)
        self.allocator = self.allocator_class(
            config.blocks, config.block_size, prefix_cache=config.prefix_cache
        )

    def outcome_of(self, error: Exception) -> Outcome | None:
        if isinstance(error, impl.BadCall):
            return Rejected(error.reason)
        return OutOfBlocks() if isinstance(error, impl.OutOfBlocks) else None

    def create(self, request: str) -> None:
        self.allocator.create(request)

    def admit(self, request: str, prompt: Sequence[int]) -> Outcome:
        growth = self.allocator.admit(request, prompt)
        return Done(slots={request: growth.slots.tolist()}, hit=growth.hit)

    def append(self, request: str, tokens: Sequence[int]) -> Outcome:
        growth = self.allocator.append(request, tokens)
        return Done(copies=growth.copies, slots={request: growth.slots.tolist()})

    def append_each(self, requests: Sequence[str], tokens: Sequence[int]) -> Outcome:
        growth = self.allocator.append_batch(requests, tokens)
        slots = dict(zip(requests, growth.slots.tolist(), strict=True))
        return Done(
            copies=growth.copies,
            slots={request: [slot] for request, slot in slots.items() if slot >= 0},
            refused=[request for request, slot in slots.items() if slot < 0],
        )

    def fork(self, parent: str, child: str) -> None:
        self.allocator.fork(parent, child)

    def pin(self, request: str, transfer: str) -> None:
        self.allocator.pin(request, transfer)

    def unpin(self, transfer: str) -> None:
        self.allocator.unpin(transfer)

    def release(self, request: str) -> None:
        self.allocator.release(request)

    def release_each(self, requests: Sequence[str]) -> None:
        self.allocator.release_batch(requests)

    def reset(self) -> None:
        self.allocator.reset_prefix_cache()

    def table(self, request: str) -> Sequence[int]:
        table: list[int] = self.allocator.table(request).tolist()
        return table

    def free_blocks(self) -> int:
        return self.allocator.num_free

    def holders(self) -> dict[int, int]:
        pool = self.allocator.pool
        counts = (pool.owners + pool.pins).tolist()
        return {block: count for block, count in enumerate(counts) if count != 0}
