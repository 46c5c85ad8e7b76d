"""The contiguous baseline as a paged allocator whose block is a whole reservation.

`block_size` is `max_model_len`, and every request has at most one block.  The reference takes that
block when the first token is written, so that is when the adapter admits: until then a request that
was created is only a name.

So no request ever has a second block, and the witnesses that need one are out of reach.
"""

from collections.abc import Sequence

from kvoracle import impl
from kvoracle.impl.contiguous import ContiguousAllocator
from kvoracle.model.adapters.base import Adapter
from kvoracle.model.operations import Done, Outcome, OutOfBlocks, Rejected
from kvoracle.model.trace import Configuration


class ContiguousAdapter(Adapter):
    """`kvoracle.impl.contiguous.ContiguousAllocator` with `max_model_len = block_size`."""

    refuses = frozenset({"unknown request", "no tokens", "longer than max_model_len"})
    unreachable = frozenset(
        {"append starts a block at an exact multiple", "append takes several blocks at once"}
    )

    def __init__(self, config: Configuration) -> None:
        super().__init__(config)
        self.allocator = ContiguousAllocator(config.blocks * config.block_size, config.block_size)
        self.waiting: set[str] = set()
        self.max_model_len = config.block_size

    def outcome_of(self, error: Exception) -> Outcome | None:
        if isinstance(error, impl.OutOfBlocks):
            return OutOfBlocks()
        return Rejected(error.reason) if isinstance(error, impl.BadCall) else None

    def create(self, request: str) -> None:
        self.waiting.add(request)

    def append(self, request: str, tokens: Sequence[int]) -> Outcome:
        begin_or_grow = self.allocator.admit if request in self.waiting else self.allocator.append
        slots = begin_or_grow(request, len(tokens))
        self.waiting.discard(request)
        return Done(slots={request: slots.tolist()})

    def release(self, request: str) -> None:
        if request in self.waiting:
            self.waiting.remove(request)
        else:
            self.allocator.release(request)

    def table(self, request: str) -> Sequence[int]:
        return [] if request in self.waiting else [self.allocator.reservation(request)]

    def free_blocks(self) -> int:
        return self.allocator.num_free
