"""The tokens of a request of traffic: an id for each, so that equal ids mean equal prefixes.

A prefix block with one identity has the same tokens wherever it occurs; every other
token occurs once.
"""

from collections.abc import Callable

import numpy as np

from kvoracle.model.serving.request import Text
from kvoracle.model.traffic.arrival import Arrival


class Texts:
    """Numbers the prefix blocks that it meets; block `n` of `size` tokens has those from `size n` on."""

    def __init__(self) -> None:
        self._number_of: dict[int, int] = {}
        self._numbered = 0

    def maker(self, arrival: Arrival) -> Callable[[], "Text[int]"]:
        """Makes the text of a request: its prompt, and then its answer."""
        size = arrival.prefix_block
        shared = [self._number(prefix) for prefix in arrival.prefixes]
        own = arrival.tokens - (arrival.prompt if shared else 0)
        first = self._take(-(-own // size)) * size

        def make() -> "Text[int]":
            starts = np.array(shared, np.int64)[:, None] * size
            prompt = (starts + np.arange(size)).reshape(-1)[: arrival.prompt]
            text = Text("q")
            text.frombytes(prompt.tobytes())
            text.frombytes(np.arange(first, first + own, dtype=np.int64).tobytes())
            return text

        return make

    def _number(self, prefix: int) -> int:
        if prefix not in self._number_of:
            self._number_of[prefix] = self._take(1)
        return self._number_of[prefix]

    def _take(self, count: int) -> int:
        first = self._numbered
        self._numbered += count
        return first
