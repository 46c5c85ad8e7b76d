"""Mutants of the token pool and its request-to-token table: pages, padding, rows."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from kvoracle.impl.request_table import RequestTable
from kvoracle.impl.token_pool import FREE, TokenPool
from kvoracle.model.adapters.impl_token import REQUESTS_MAX, ImplTokenAdapter
from kvoracle.model.mutants.base import mutant
from kvoracle.model.operations import Done, Outcome
from kvoracle.model.trace import Configuration


class _FreesInTwoPieces(TokenPool):
    def __init__(self, pages: int, page_size: int) -> None:
        super().__init__(pages, page_size)
        self._stack = np.resize(self._stack, 16 * pages)

    def free(self, slots: ArrayLike) -> None:
        given = np.asarray(slots, np.int64)
        for piece in np.array_split(given, 2):
            self._give_back(np.unique(piece // self.page_size))


@mutant("DF06", adapter=ImplTokenAdapter)
class FreedInTwoPieces(ImplTokenAdapter):
    """The slots of a request are freed in two pieces, and the page that has the seam twice."""

    def __init__(self, config: Configuration) -> None:
        super().__init__(config)
        self.pool = _FreesInTwoPieces(config.blocks, config.block_size)


class _HandsOutPadding(TokenPool):
    def __init__(self, pages: int, page_size: int) -> None:
        super().__init__(pages, page_size)
        self._stack -= 1
        self.used[0] = FREE


@mutant("SM07", adapter=ImplTokenAdapter)
class PaddingHandedOut(ImplTokenAdapter):
    """The page that padded tokens are written to is handed out to a request."""

    def __init__(self, config: Configuration) -> None:
        super().__init__(config)
        self.pool = _HandsOutPadding(config.blocks, config.block_size)


@mutant("SM08", adapter=ImplTokenAdapter)
class SlotsUpToTheEndOfThePage(ImplTokenAdapter):
    """The slots of an append are those of whole pages, more than it has tokens."""

    def append(self, request: str, tokens: Sequence[int]) -> Outcome:
        grown, size = super().append(request, tokens), self.config.block_size
        if not isinstance(grown, Done):
            return grown
        slots = grown.slots[request]
        edge = -(-(slots[-1] + 1) // size) * size
        return Done(slots={request: slots + list(range(slots[-1] + 1, edge))})


class _KeepsLengths(RequestTable):
    def close(self, rows: ArrayLike) -> None:
        lengths = self.lengths.copy()
        super().close(rows)
        self.lengths = lengths


@mutant("BT02", adapter=ImplTokenAdapter)
class RowReadPastItsEnd(ImplTokenAdapter):
    """A reused row is read as far as the request before wrote it."""

    def __init__(self, config: Configuration) -> None:
        super().__init__(config)
        self.requests = _KeepsLengths(REQUESTS_MAX, config.blocks * config.block_size)
