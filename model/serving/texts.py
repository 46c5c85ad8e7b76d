"""The text of a request of traffic: an identity for each token, and the tokens that they stand for.

Identities are equal where prefixes are, and nowhere else: the number of a chunk of text and the offset
in it.  Tokens are alike in all chunks but for the first one, which is the chunk's own.  So most blocks
have the text of many others, and only what came before tells them apart.
"""

from collections.abc import Callable

import numpy as np

from kvoracle.model.serving.request import Text
from kvoracle.model.traffic.arrival import Arrival

OFFSETS = 1 << 20
"""Beyond every offset: identity = number x OFFSETS + offset."""


def token_of(identity: int) -> int:
    """The token that the allocator is told."""
    number, offset = divmod(identity, OFFSETS)
    return offset or OFFSETS + number


def tokens_of(text: "Text[int]") -> "Text[int]":
    """The tokens of a text."""
    numbers, offsets = np.divmod(np.asarray(text), OFFSETS)
    return _text(np.where(offsets, offsets, OFFSETS + numbers))


class Texts:
    """Numbers the chunks that it meets: prefix blocks, and whatever else requests write."""

    def __init__(self) -> None:
        self._number_of: dict[int, int] = {}
        self._numbered = 0

    def maker(self, arrival: Arrival) -> Callable[[], "Text[int]"]:
        """Makes the text of a request: its prompt, and then its answer."""
        size = arrival.prefix_block
        shared = [self._number(prefix) for prefix in arrival.prefixes]
        own = arrival.tokens - (arrival.prompt if shared else 0)
        first = self._take(-(-own // size))

        def make() -> "Text[int]":
            alone = range(first, first + -(-own // size))
            prompt = _identities(shared, size)[: arrival.prompt if shared else 0]
            return _text(np.concatenate([prompt, _identities(alone, size)[:own]]))

        return make

    def _number(self, prefix: int) -> int:
        if prefix not in self._number_of:
            self._number_of[prefix] = self._take(1)
        return self._number_of[prefix]

    def _take(self, count: int) -> int:
        first = self._numbered
        self._numbered += count
        return first


def _identities(
    numbers: "list[int] | range", size: int
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    starts = np.array(numbers, np.int64)[:, None] * OFFSETS
    return (starts + np.arange(size)).reshape(-1)


def _text(values: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> "Text[int]":
    text = Text("q")
    text.frombytes(values.tobytes())
    return text
