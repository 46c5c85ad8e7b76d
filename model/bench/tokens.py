"""Slots for whole batches, as SGLang's allocators hand them out: on CPU tensors there, on numpy
arrays here.  Lengths and last slots of the requests are the caller's on both sides.
"""

from importlib import import_module
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kvoracle.model.adapters.impl_token import ImplTokenAdapter
from kvoracle.model.bench.row import Race
from kvoracle.model.bench.side import BLOCK_SIZE, BLOCKS
from kvoracle.model.trace import Configuration

SLOTS = BLOCKS * BLOCK_SIZE
REQUESTS = 256
STEPS = BLOCK_SIZE
LENGTHS = 512 + np.arange(REQUESTS) % BLOCK_SIZE
EXTENSIONS, EXTENSION = 8, 128
FREES, SLOTS_A_FREE = 16, 256

Lengths = NDArray[np.int64]


class Pool(Protocol):
    """An allocator of slots; arrays and slots are of its own kind."""

    def array(self, values: Lengths) -> Any:
        """An array as the allocator takes it."""

    def clear(self) -> None:
        """Take everything back."""

    def alloc(self, count: int) -> Any:
        """Slots, whole pages of them."""

    def decode(self, before: Any, after: Any, last: Any) -> Any:
        """A slot for each request."""

    def extend(self, before: Any, after: Any, last: Any, count: int) -> Any:
        """Slots for each request, `count` in all."""

    def free(self, slots: Any) -> None:
        """Give slots back."""

    def num_free(self) -> int:
        """How many slots can be taken."""


class ImplPool:
    """`TokenPool`."""

    def __init__(self, page_size: int) -> None:
        self.pool = ImplTokenAdapter(Configuration(SLOTS // page_size, page_size)).pool
        self.empty = self.pool.backup()
        self.alloc, self.free = self.pool.alloc, self.pool.free

    def array(self, values: Lengths) -> Any:
        return values

    def clear(self) -> None:
        self.pool.restore(self.empty)

    def decode(self, before: Any, after: Any, last: Any) -> Any:  # noqa: ARG002
        return self.pool.alloc_decode(before, last)

    def extend(self, before: Any, after: Any, last: Any, count: int) -> Any:  # noqa: ARG002
        return self.pool.alloc_extend(before, after, last)

    def num_free(self) -> int:
        return self.pool.available


class SGLangPool:
    """`PagedTokenToKVPoolAllocator`, or `TokenToKVPoolAllocator` for pages of one slot."""

    def __init__(self, page_size: int) -> None:
        self.torch = import_module("torch")
        self.torch.set_num_threads(1)
        self.pool = self._new_pool(page_size)
        self.clear, self.alloc, self.free = self.pool.clear, self.pool.alloc, self.pool.free
        self.num_free = self.pool.available_size

    def array(self, values: Lengths) -> Any:
        return self.torch.from_numpy(values)

    def decode(self, before: Any, after: Any, last: Any) -> Any:  # noqa: ARG002
        return self.pool.alloc_decode(after, after, last)

    def extend(self, before: Any, after: Any, last: Any, count: int) -> Any:
        return self.pool.alloc_extend(before, before, after, after, last, count)

    def _new_pool(self, page_size: int) -> Any:
        """The import is the engine's, and so it comes when a pool is made."""
        sglang = import_module("sglang.srt.mem_cache.allocator")
        common = {"dtype": self.torch.float16, "device": "cpu", "kvcache": None, "need_sort": False}
        if page_size == 1:
            return sglang.TokenToKVPoolAllocator(SLOTS, **common)
        pool = sglang.PagedTokenToKVPoolAllocator(SLOTS, page_size, **common)
        pool.use_triton_kernels = False  # CPU tensors, on a machine with a GPU too
        return pool


class _Growth:
    """A side that begins with running requests of `LENGTHS` tokens, which grow evenly."""

    def __init__(self, pool: Pool, units: int, tokens: int) -> None:
        self.pool = pool
        self.units = units
        self.num_free = pool.num_free
        self.lengths = [pool.array(LENGTHS + unit * tokens) for unit in range(units + 1)]

    def begin(self) -> None:
        nothing = self.pool.array(np.zeros(REQUESTS, np.int64))
        self.pool.clear()
        slots = self.pool.extend(nothing, self.lengths[0], nothing - 1, int(LENGTHS.sum()))
        self.last = slots[self.pool.array(LENGTHS.cumsum() - 1)]


class Decode(_Growth):
    """Steps in which each request grows by a token."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool, STEPS, 1)

    def work(self) -> None:
        last = self.last
        for before, after in pairwise(self.lengths):
            last = self.pool.decode(before, after, last)


class Extend(_Growth):
    """Steps in which each request grows by many tokens at once."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool, EXTENSIONS, EXTENSION)
        self.ends = pool.array(EXTENSION * np.arange(1, REQUESTS + 1) - 1)

    def work(self) -> None:
        last = self.last
        for before, after in pairwise(self.lengths):
            last = self.pool.extend(before, after, last, REQUESTS * EXTENSION)[self.ends]


class Free:
    """Requests give their slots back, one after the other; half of the slots are handed out."""

    units = FREES

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.num_free = pool.num_free

    def begin(self) -> None:
        self.pool.clear()
        slots = self.pool.alloc(SLOTS // 2)
        self.tables = [
            slots[first : first + SLOTS_A_FREE]
            for first in range(0, FREES * SLOTS_A_FREE, SLOTS_A_FREE)
        ]

    def work(self) -> None:
        for slots in self.tables:
            self.pool.free(slots)


def _race(
    name: str, work: str, side: type[Decode | Extend | Free], page_size: int, goal: float
) -> Race:
    return Race(
        name,
        work,
        "sglang",
        lambda: side(ImplPool(page_size)),
        lambda: side(SGLangPool(page_size)),
        goal,
    )


ROWS = (
    _race("slots-decode", "slots of a decode step of 256 requests", Decode, BLOCK_SIZE, 2),
    _race("slots-extend", "slots of 128 more tokens for 256 requests", Extend, BLOCK_SIZE, 20),
    _race("slots-free", "free 256 slots of 428,560, half of them free", Free, 1, 20),
)
