"""The names of requests, what may be asked of each of them, and how requests begin and end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kvoracle.impl.chains import Chains, Prompt
from kvoracle.impl.contents import AnyTokens
from kvoracle.impl.errors import BadCall
from kvoracle.impl.ids import Ids, Rows
from kvoracle.impl.pool import BlockPool
from kvoracle.impl.tables import BlockTables, Column


@dataclass(slots=True)
class Preempted:
    """What is remembered of a preempted request; its tokens with a prefix cache only."""

    length: int
    tokens: AnyTokens
    extra_keys: Mapping[str, str]


class Requests:
    """Live requests by row; the prompts of lookups and what is left of preempted requests by name.

    A request has at most `max_length` tokens; 0 is no limit.
    """

    def __init__(
        self, pool: BlockPool, tables: BlockTables, chains: Chains, max_length: int
    ) -> None:
        self.pool = pool
        self.tables = tables
        self.chains = chains
        self.max_length = max_length
        self.by_name: dict[str, int] = {}
        self.name_of: dict[int, str] = {}
        self.looked_up: dict[str, Prompt] = {}
        self.preempted: dict[str, Preempted] = {}
        self.preemptions = 0

    def check_new(self, name: str) -> None:
        """Refuse a name that stands for something."""
        if name in self.by_name or name in self.looked_up or name in self.preempted:
            raise BadCall("duplicate request", name)

    def row(self, name: str) -> int:
        """The row of a live request."""
        try:
            return self.by_name[name]
        except KeyError:
            raise BadCall("unknown request", name) from None

    def rows(self, names: Sequence[str]) -> Rows:
        """The rows of distinct live requests."""
        if len(names) == 0:
            raise BadCall("no requests", "")
        rows = np.array([self.row(name) for name in names], np.intp)
        if len(set(names)) < len(names):
            raise BadCall("repeated request", ", ".join(names))
        return rows

    def check_loaded(self, row: int) -> None:
        """Refuse a request that waits for a transfer."""
        if self.tables.waiting[row]:
            raise BadCall("tokens on their way", self.name_of[row])

    def check_settled(self, row: int) -> None:
        """Refuse a request that waits for a transfer or a step."""
        self.check_loaded(row)
        if self.tables.in_flight[row]:
            raise BadCall("step in flight", self.name_of[row])

    def check_unreserved(self, row: int) -> None:
        """Refuse a request that waits for anything, or has room for more tokens."""
        self.check_settled(row)
        if self.tables.reserved[row]:
            raise BadCall("tokens reserved", self.name_of[row])

    def check_settled_each(self, rows: Rows) -> None:
        """`check_settled` for the first that does not pass; only reserved rows may not."""
        if np.count_nonzero(self.tables.reserved[rows]):
            for row in rows.tolist():
                self.check_settled(row)

    def check_loaded_each(self, rows: Rows) -> None:
        """`check_loaded` for the first that does not pass."""
        if np.count_nonzero(self.tables.waiting[rows]):
            for row in rows.tolist():
                self.check_loaded(row)

    def check_length(self, name: str, length: int) -> None:
        """Refuse to have a request that is too long."""
        if 0 < self.max_length < length:
            raise BadCall("longer than max_model_len", name)

    def check_length_each(self, rows: Rows, lengths: Column) -> None:
        """`check_length` for the first that does not pass."""
        if self.max_length:
            for row in rows[lengths > self.max_length].tolist():
                self.check_length(self.name_of[row], self.max_length + 1)

    def create(self, name: str) -> None:
        """Begin a request with an empty table."""
        self.check_new(name)
        row = self.open(name)
        self.chains.begin(row, self.chains.root({}))

    def open(self, name: str) -> int:
        """Give a new name a row with an empty table."""
        row = self.tables.open_row()
        self.by_name[name] = row
        self.name_of[row] = name
        return row

    def fork(self, parent: str, child: str) -> None:
        """Begin a request that shares every block of its parent, a partial tail included."""
        parent_row = self.row(parent)
        self.check_unreserved(parent_row)
        self.check_new(child)
        child_row = self.open(child)
        tables = self.tables
        tables.extend(child_row, tables.table(parent_row))
        tables.lengths[child_row] = tables.lengths[parent_row]
        tables.suspect[[parent_row, child_row]] = 1
        self.pool.add_owner(tables.table(parent_row))
        self.chains.fork(parent_row, child_row)

    def release(self, name: str) -> None:
        """End a request in whatever state it is; its blocks are free once nothing else holds them."""
        if name in self.preempted:
            del self.preempted[name]
            return
        row = self.row(name)
        self.pool.drop_owner(self.tables.table(row))
        self._close(row)

    def release_batch(self, names: Sequence[str]) -> None:
        """End several live requests in one call."""
        rows = self.rows(names)
        self.pool.drop_owners(self.tables.concatenated(rows))
        for row in rows.tolist():
            self._close(row)

    def preempt(self, name: str) -> None:
        """End a request and remember its name and what it has written."""
        row = self.row(name)
        self.check_loaded(row)
        length = int(self.tables.lengths[row])
        if length == 0:
            raise BadCall("no tokens", name)
        remembered = Preempted(length, self.chains.written(row), self.chains.extra_keys(row))
        self.release(name)
        self.preempted[name] = remembered
        self.preemptions += 1

    def table(self, name: str) -> Ids:
        """The block ids of a request, or the hits of a lookup: int32 [blocks], a copy."""
        if name in self.looked_up:
            return self.looked_up[name].hit.copy()
        return self.tables.table(self.row(name)).copy()

    def _close(self, row: int) -> None:
        self.chains.end(row)
        self.tables.close_row(row)
        del self.by_name[self.name_of.pop(row)]
