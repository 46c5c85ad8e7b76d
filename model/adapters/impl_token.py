"""This project's own token pool and request-to-token table, used as SGLang's scheduler uses its own.

The pool keeps no account of requests: their slots are in the request-to-token table, the block
tables are read from there, and a release gives them back.  No page is shared, so nothing is forked
or pinned.  The decode step is all or nothing; refused as a batch, it is tried request by request.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from kvoracle import impl
from kvoracle.impl.request_table import RequestTable
from kvoracle.impl.token_pool import TokenPool
from kvoracle.model.adapters.base import Adapter
from kvoracle.model.operations import Done, Outcome, OutOfBlocks, Rejected
from kvoracle.model.trace import Configuration

PADDING_ROW = 0
REQUESTS_MAX = 256
"""The rows of the table; more live requests than any engine draws."""

_REASONS = {"unknown row": "unknown request", "repeated row": "repeated request"}


class ImplTokenAdapter(Adapter):
    """`TokenPool` and `RequestTable` of `kvoracle.impl`, with pages of any size."""

    first_block = 1  # page 0 takes the writes of padded tokens
    refuses = frozenset(_REASONS.values())
    need_sort: ClassVar[bool] = False
    """Freed pages wait until an allocation runs short, and are then merged in and sorted."""

    def __init__(self, config: Configuration) -> None:
        super().__init__(config)
        self.pool = TokenPool(config.blocks, config.block_size, need_sort=self.need_sort)
        self.requests = RequestTable(REQUESTS_MAX, config.blocks * config.block_size)
        self.rows: dict[str, int] = {}

    def outcome_of(self, error: Exception) -> Outcome | None:
        if isinstance(error, impl.BadCall) and error.reason in _REASONS:
            return Rejected(_REASONS[error.reason])
        return OutOfBlocks() if isinstance(error, impl.OutOfBlocks) else None

    def create(self, request: str) -> None:
        (self.rows[request],) = self.requests.open(1).tolist()

    def append(self, request: str, tokens: Sequence[int]) -> Outcome:
        rows = self._rows([request])
        before = self.requests.lengths[rows]
        slots = self.pool.alloc_extend(before, before + len(tokens), self.requests.last(rows))
        self.requests.append(rows, [len(tokens)], slots)
        return Done(slots={request: slots.tolist()})

    def append_each(self, requests: Sequence[str], tokens: Sequence[int]) -> Outcome:  # noqa: ARG002
        self.requests.check(self._rows(requests))
        grown = self._decode(requests)
        if grown:
            return Done(slots=grown)
        for request in requests:
            grown |= self._decode([request])
        refused = [request for request in requests if request not in grown]
        return Done(slots=grown, refused=refused) if refused else OutOfBlocks()

    def release(self, request: str) -> None:
        self.release_each([request])

    def release_each(self, requests: Sequence[str]) -> None:
        rows = self.requests.check(self._rows(requests))
        self.pool.begin_group()
        for row in rows.tolist():
            self.pool.free(self.requests.row(row))
        self.pool.end_group()
        self.requests.close(rows)
        for request in requests:
            del self.rows[request]

    def table(self, request: str) -> Sequence[int]:
        size = self.config.block_size
        table: list[int] = (self.requests.row(self.rows[request])[::size] // size).tolist()
        return table

    def free_blocks(self) -> int:
        return self.pool.available // self.config.block_size

    def holders(self) -> dict[int, int]:
        return dict.fromkeys(np.flatnonzero(self.pool.used > 0).tolist(), 1)

    def _rows(self, requests: Sequence[str]) -> list[int]:
        """The rows of requests; an unknown one has the padding row, which is never open."""
        return [self.rows.get(request, PADDING_ROW) for request in requests]

    def _decode(self, requests: Sequence[str]) -> dict[str, list[int]]:
        """A slot for the next token of each request, or nothing when they are too few."""
        rows = self._rows(requests)
        try:
            slots = self.pool.alloc_decode(self.requests.lengths[rows], self.requests.last(rows))
        except impl.OutOfBlocks:
            return {}
        self.requests.append(rows, [1] * len(rows), slots)
        return {request: [slot] for request, slot in zip(requests, slots.tolist(), strict=True)}


class ImplSortedTokenAdapter(ImplTokenAdapter):
    """The same with `need_sort`, as SGLang builds it for prefill and decode on separate machines."""

    need_sort = True
