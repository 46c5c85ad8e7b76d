"""The baseline that paging replaced: `max_model_len` contiguous slots reserved for each request.

First fit over extents of one size is the lowest free extent, so the free list is a heap of them.
After Kwon et al., arXiv:2309.06180, section 3.1.
"""

import heapq

import numpy as np

from kvoracle.impl.errors import BadCall, OutOfBlocks
from kvoracle.impl.ids import Slots


class ContiguousAllocator:
    """A pool of `slots` token slots in reservations of `max_model_len`; what is left over is unused.

    Every call either succeeds or changes nothing.
    """

    def __init__(self, slots: int, max_model_len: int) -> None:
        if max_model_len < 1 or slots < max_model_len:
            raise ValueError("max_model_len must be at least 1 and fit into the pool")
        self.max_model_len = max_model_len
        self._free = list(range(slots // max_model_len))
        self._reservations: dict[str, int] = {}
        self._lengths: dict[str, int] = {}

    @property
    def num_free(self) -> int:
        """How many requests can be admitted."""
        return len(self._free)

    def admit(self, request: str, tokens: int) -> Slots:
        """Begin a request with a prompt of `tokens` tokens in a reservation of its own.

        Returns the slots of the prompt, int64 [tokens]; OutOfBlocks when no reservation is free.
        """
        if request in self._reservations:
            raise BadCall("duplicate request", request)
        self._check_growth(request, 0, tokens)
        if not self._free:
            raise OutOfBlocks(1, 0)
        self._reservations[request] = heapq.heappop(self._free)
        self._lengths[request] = 0
        return self._fill(request, tokens)

    def append(self, request: str, tokens: int) -> Slots:
        """The slots of a request's next tokens: int64 [tokens].  Takes nothing from the pool."""
        self.reservation(request)
        self._check_growth(request, self._lengths[request], tokens)
        return self._fill(request, tokens)

    def release(self, request: str) -> None:
        """End a request and give its whole reservation back."""
        heapq.heappush(self._free, self.reservation(request))
        del self._reservations[request], self._lengths[request]

    def reservation(self, request: str) -> int:
        """Which reservation a request has; its slots begin at that times `max_model_len`."""
        if request not in self._reservations:
            raise BadCall("unknown request", request)
        return self._reservations[request]

    def _check_growth(self, request: str, length: int, tokens: int) -> None:
        if tokens < 1:
            raise BadCall("no tokens", request)
        if length + tokens > self.max_model_len:
            raise BadCall("longer than max_model_len", request)

    def _fill(self, request: str, tokens: int) -> Slots:
        first = self._reservations[request] * self.max_model_len + self._lengths[request]
        self._lengths[request] += tokens
        return np.arange(first, first + tokens)
