"""SGLang's token allocators on CPU tensors: `TokenToKVPoolAllocator` and its paged sibling.

They hand out slots and keep no account of requests, so an adapter keeps what the scheduler keeps in
`req_to_token`: the slots of each request, as the engine returned them.  The tables come from these,
and a release gives them back by the call that `free_kv_row` makes.  The allocators count no owners,
so nothing is forked or pinned.

The decode step is all or nothing: the scheduler retracts requests until the batch fits.  So
`append_each` asks for the whole batch and, when that is refused, for each request on its own.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator

from kvoracle.model.adapters.base import Adapter
from kvoracle.model.operations import Done, Outcome, OutOfBlocks
from kvoracle.model.trace import Configuration


class SGLangTokenAdapter(Adapter):
    """`TokenToKVPoolAllocator`, which SGLang uses for page size 1."""

    first_block = 1  # page 0 takes the writes of padded tokens
    block_sizes = range(1, 2)
    need_sort: ClassVar[bool] = False
    """Freed pages wait until an allocation runs short, and are then merged in and sorted."""

    def __init__(self, config: Configuration) -> None:
        super().__init__(config)
        self.slots: dict[str, list[int]] = {}
        self.allocator = self._new_pool()

    def create(self, request: str) -> None:
        self.slots[request] = []

    def append(self, request: str, tokens: Sequence[int]) -> Outcome:
        taken = self._extend(request, len(tokens))
        return OutOfBlocks() if taken is None else self._grown({request: taken.tolist()})

    def append_each(self, requests: Sequence[str], tokens: Sequence[int]) -> Outcome:  # noqa: ARG002
        batch = self._decode(requests)
        alone = [self._decode([request]) for request in requests] if batch is None else batch
        pairs = zip(requests, alone, strict=True)
        grown = self._grown({request: [int(slot)] for request, slot in pairs if slot is not None})
        grown.refused = [request for request in requests if request not in grown.slots]
        refused_what_fits = batch is None and not grown.refused
        return OutOfBlocks() if refused_what_fits else grown

    def release(self, request: str) -> None:
        slots = torch.tensor(self.slots.pop(request), dtype=torch.int64)
        self.allocator.free_segments([(slots, 0)])

    def release_each(self, requests: Sequence[str]) -> None:
        self.allocator.free_group_begin()
        for request in requests:
            self.release(request)
        self.allocator.free_group_end()

    def table(self, request: str) -> Sequence[int]:
        size = self.config.block_size
        return [slot // size for slot in self.slots[request][::size]]

    def free_blocks(self) -> int:
        slots: int = self.allocator.available_size()
        return slots // self.config.block_size

    def _new_pool(self) -> TokenToKVPoolAllocator:
        return TokenToKVPoolAllocator(
            self.config.blocks,
            dtype=torch.float16,
            device="cpu",
            kvcache=None,
            need_sort=self.need_sort,
        )

    def _extend(self, request: str, count: int) -> torch.Tensor | None:  # noqa: ARG002
        """Slots for the next tokens of a request; None when the engine has too few."""
        return self.allocator.alloc(count)

    def _decode(self, requests: Sequence[str]) -> torch.Tensor | None:
        """A slot for the next token of each request; None when the engine has too few."""
        return self.allocator.alloc(len(requests))

    def _grown(self, slots: dict[str, list[int]]) -> Done:
        for request, new in slots.items():
            self.slots[request] += new
        return Done(slots=slots)


class SGLangPagedAdapter(SGLangTokenAdapter):
    """`PagedTokenToKVPoolAllocator`, for larger pages, on its path without Triton."""

    block_sizes = range(2, 4097)

    def _new_pool(self) -> PagedTokenToKVPoolAllocator:
        pool = PagedTokenToKVPoolAllocator(
            self.config.blocks * self.config.block_size,
            self.config.block_size,
            dtype=torch.float16,
            device="cpu",
            kvcache=None,
            need_sort=self.need_sort,
        )
        pool.use_triton_kernels = False  # CPU tensors, on a machine with a GPU too
        return pool

    def _extend(self, request: str, count: int) -> torch.Tensor | None:
        before, last = self._lengths([request]), self._last_slots([request])
        after = before + count
        return self.allocator.alloc_extend(before, before, after, after, last, count)

    def _decode(self, requests: Sequence[str]) -> torch.Tensor | None:
        after = self._lengths(requests) + 1
        return self.allocator.alloc_decode(after, after, self._last_slots(requests))

    def _lengths(self, requests: Sequence[str]) -> torch.Tensor:
        return torch.tensor([len(self.slots[request]) for request in requests])

    def _last_slots(self, requests: Sequence[str]) -> torch.Tensor:
        return torch.tensor([(self.slots[request] or [-1])[-1] for request in requests])


class SGLangSortedTokenAdapter(SGLangTokenAdapter):
    """The same, as SGLang builds it when prefill and decode run on separate machines."""

    need_sort = True


class SGLangSortedPagedAdapter(SGLangPagedAdapter):
    """The same, as SGLang builds it when prefill and decode run on separate machines."""

    need_sort = True
