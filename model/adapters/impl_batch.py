"""This project's own optimized allocator, grown through its row handles."""

from collections.abc import Sequence

import numpy as np

from kvoracle.impl import BatchGrowth
from kvoracle.model.adapters.impl import ImplAdapter, batch_outcome
from kvoracle.model.operations import Done, Outcome, OutOfBlocks


class ImplBatchAdapter(ImplAdapter):
    """As `ImplAdapter`, but requests grow by `rows` and `grow`, as a whole batch does."""

    def append(self, request: str, tokens: Sequence[int]) -> Outcome:
        growth = self._grow([request], [len(tokens)], tokens)
        if not growth.granted[0]:
            return OutOfBlocks()
        return Done(copies=growth.copies, slots={request: growth.slots.tolist()})

    def append_each(self, requests: Sequence[str], tokens: Sequence[int]) -> Outcome:
        if len(tokens) != len(requests):  # which rows and counts cannot say
            return super().append_each(requests, tokens)
        return batch_outcome(requests, self._grow(requests, [1] * len(requests), tokens))

    def _grow(
        self, requests: Sequence[str], counts: Sequence[int], tokens: Sequence[int]
    ) -> BatchGrowth:
        """Without a prefix cache the tokens are not told."""
        rows = self.allocator.rows(requests)
        told = tokens if self.config.prefix_cache else None
        return self.allocator.grow(rows, np.array(counts, np.int64), told)
