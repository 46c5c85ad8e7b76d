"""The allocator: requests with block tables over one pool, shared by fork, held by pins.

Copies are returned, not carried out: the caller copies each (source, destination) block before it
writes the slots of the same call.  Every call either succeeds or changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from kvoracle.impl.errors import BadCall, OutOfBlocks
from kvoracle.impl.ids import Ids, Rows, Slots, Tokens
from kvoracle.impl.pool import BlockPool
from kvoracle.impl.prefix_index import KeyOf, PrefixIndex, sha256_key
from kvoracle.impl.tables import BlockTables

Copy = tuple[int, int]


@dataclass(slots=True)
class Growth:
    """What an append or an admission did.

    `slots` is int64 [new tokens]; `copies` come first; `hit` tokens of a prompt were found written.
    """

    slots: Slots
    copies: list[Copy] = field(default_factory=list)
    hit: int = 0


@dataclass(slots=True)
class BatchGrowth:
    """What a batch append did.

    `slots` is int64 [requests], -1 where a request was refused; `copies` come first, in order.
    """

    slots: Slots
    copies: list[Copy] = field(default_factory=list)


def _as_tokens(values: ArrayLike) -> Tokens:
    """Token ids as int64 [tokens]; ValueError for anything but one row of whole numbers."""
    tokens = np.asarray(values)
    if tokens.ndim != 1 or (len(tokens) > 0 and tokens.dtype.kind not in "iu"):
        raise ValueError(f"tokens are one row of whole numbers, not {tokens.dtype} {tokens.shape}")
    if tokens.dtype == np.uint64 and len(tokens) > 0 and tokens.max() > np.iinfo(np.int64).max:
        raise ValueError("a token id does not fit into int64")
    return tokens.astype(np.int64)


@dataclass(slots=True)
class _Chain:
    """What the next block of a request is identified by: its parent's key, and its tokens so far."""

    parent: bytes = b""
    tokens: list[int] = field(default_factory=list)


class PagedAllocator:
    """`blocks` blocks of `block_size` token slots, and the requests and transfers that hold them.

    With `prefix_cache` the full blocks of a request are published, and `admit` finds them by their
    content until they are taken for something else.  Blocks are published as soon as they are full:
    the caller writes the slots of a call before it lets another request read them.
    """

    def __init__(
        self,
        blocks: int,
        block_size: int,
        *,
        prefix_cache: bool = False,
        key_of: KeyOf = sha256_key,
    ) -> None:
        if blocks < 1 or block_size < 1:
            raise ValueError("blocks and block_size must be at least 1")
        self.block_size = block_size
        self.prefix_cache = prefix_cache
        self.index = PrefixIndex(block_size, key_of)
        self.pool = BlockPool(blocks, self.index.forget)
        self.tables = BlockTables(block_size)
        self._rows: dict[str, int] = {}
        self._chains: dict[int, _Chain] = {}
        self._transfers: dict[str, Ids] = {}

    def create(self, request: str) -> None:
        """Begin a request with an empty table."""
        self._check_new(request)
        self._open(request)

    def admit(self, request: str, prompt: ArrayLike) -> Growth:
        """Begin a request with a prompt (int [tokens]) on its longest published prefix.

        The last token is never hit: its logits are still to be computed.  OutOfBlocks changes nothing.
        """
        self._check_new(request)
        tokens = _as_tokens(prompt)
        if len(tokens) == 0:
            raise BadCall("no tokens", request)
        keys = self.index.keys(b"", tokens) if self.prefix_cache else []
        hit = self._hits(keys, len(tokens))
        needed = -(-len(tokens) // self.block_size)
        room = self.pool.num_free - self.pool.count_idle(hit)
        if needed - len(hit) > room:
            raise OutOfBlocks(needed - len(hit), room)
        self.pool.use(hit)
        row = self._open(request)
        self.tables.reserve_width(needed)
        self.tables.ids[row, : len(hit)] = hit
        self.tables.ids[row, len(hit) : needed] = self.pool.take(needed - len(hit))
        self.tables.lengths[row] = len(tokens)
        self._publish(row, keys, len(hit), tokens)
        first = len(hit) * self.block_size
        return Growth(self.tables.slots(row, first, len(tokens) - first), hit=first)

    def append(self, request: str, tokens: ArrayLike) -> Growth:
        """Grow a request by tokens (int [tokens]), or raise OutOfBlocks."""
        row = self._row(request)
        new = _as_tokens(tokens)
        if len(new) == 0:
            raise BadCall("no tokens", request)
        growth = self._grow(row, len(new))
        self._write(row, new)
        return growth

    def append_batch(self, requests: Sequence[str], tokens: ArrayLike) -> BatchGrowth:
        """Grow each request by one token (int [requests]), in order; those that find no block are
        refused."""
        rows = self._batch_rows(requests)
        new = _as_tokens(tokens)
        if len(new) != len(rows):
            raise BadCall("one token for each request", ", ".join(requests))
        if self._any_tail_must_be_copied(rows):
            batch = self._append_one_by_one(rows)
        else:
            batch = self._append_at_once(rows)
        if self.prefix_cache:
            for index in np.flatnonzero(batch.slots >= 0).tolist():
                self._write(int(rows[index]), new[index : index + 1])
        return batch

    def reset_prefix_cache(self) -> None:
        """Forget every published block; refused while any block is in use."""
        if self.num_free < self.pool.blocks:
            raise BadCall("blocks in use", "reset")
        self.pool.forget_idle()

    def fork(self, parent: str, child: str) -> None:
        """Begin a request that shares every block of its parent, a partial tail included."""
        parent_row = self._row(parent)
        self._check_new(child)
        child_row = self._open(child)
        table = self.tables.table(parent_row)
        self.tables.ids[child_row, : len(table)] = table
        self.tables.lengths[child_row] = self.tables.lengths[parent_row]
        self.pool.add_owner(table)
        parent_chain = self._chains[parent_row]
        self._chains[child_row] = _Chain(parent_chain.parent, list(parent_chain.tokens))

    def pin(self, request: str, transfer: str) -> Ids:
        """Begin a transfer that may read every block of a request; returns int32 [blocks]."""
        table = self.table(request)
        if transfer in self._transfers:
            raise BadCall("duplicate transfer", transfer)
        if len(table) == 0:
            raise BadCall("nothing to pin", request)
        self._transfers[transfer] = table
        self.pool.add_pin(table)
        return table.copy()

    def unpin(self, transfer: str) -> None:
        """End a transfer."""
        if transfer not in self._transfers:
            raise BadCall("unknown transfer", transfer)
        self.pool.drop_pin(self._transfers.pop(transfer))

    def release(self, request: str) -> None:
        """End a request; its blocks are free once nothing else holds them."""
        row = self._row(request)
        del self._rows[request]
        self.pool.drop_owner(self.tables.table(row))
        self.tables.close_row(row)

    def release_batch(self, requests: Sequence[str]) -> None:
        """End several requests in one call."""
        rows = self._batch_rows(requests)
        self.pool.drop_owners(np.concatenate([self.tables.table(row) for row in rows]))
        for request, row in zip(requests, rows.tolist(), strict=True):
            del self._rows[request]
            self.tables.close_row(row)

    def table(self, request: str) -> Ids:
        """The block ids of a request: int32 [blocks], a copy."""
        return self.tables.table(self._row(request)).copy()

    @property
    def num_free(self) -> int:
        """How many blocks can be taken: free ones and idle ones."""
        return self.pool.num_free

    def _open(self, request: str) -> int:
        row = self.tables.open_row()
        self._rows[request] = row
        self._chains[row] = _Chain()
        return row

    def _hits(self, keys: list[bytes], length: int) -> Ids:
        most = (length - 1) // self.block_size
        return np.array(self.index.match(keys[:most]), np.int32)

    def _publish(self, row: int, keys: list[bytes], known: int, tokens: Tokens) -> None:
        """Publish the full blocks of a prompt beyond those that were hit."""
        if not self.prefix_cache:
            return
        for logical in range(known, len(keys)):
            self._publish_block(row, logical, keys[logical])
        rest = tokens[len(keys) * self.block_size :].tolist()
        self._chains[row] = _Chain(keys[-1] if keys else b"", rest)

    def _write(self, row: int, tokens: Tokens) -> None:
        """Publish the blocks that a request has filled with its new tokens."""
        if not self.prefix_cache:
            return
        chain = self._chains[row]
        chain.tokens += tokens.tolist()
        keys = self.index.keys(chain.parent, np.array(chain.tokens, np.int64))
        if keys:
            first = int(self.tables.lengths[row] - len(chain.tokens)) // self.block_size
            for logical, key in enumerate(keys, start=first):
                self._publish_block(row, logical, key)
            rest = chain.tokens[len(keys) * self.block_size :]
            self._chains[row] = _Chain(keys[-1], rest)

    def _publish_block(self, row: int, logical: int, key: bytes) -> None:
        block = int(self.tables.ids[row, logical])
        self.index.add(key, block)
        self.pool.published[block] = True

    def _append_at_once(self, rows: Rows) -> BatchGrowth:
        """One token to each row, where no tail is to be copied."""
        lengths = self.tables.lengths[rows]
        need = lengths % self.block_size == 0
        granted = ~need | (np.cumsum(need) <= self.pool.num_free)
        starting = need & granted
        self.tables.reserve_width(int(lengths.max()) // self.block_size + 1)
        logical = lengths // self.block_size
        fresh = self.pool.take(int(np.count_nonzero(starting)))
        self.tables.ids[rows[starting], logical[starting]] = fresh
        self.tables.lengths[rows[granted]] += 1
        blocks = self.tables.ids[rows, logical].astype(np.int64)
        slots = blocks * self.block_size + lengths % self.block_size
        return BatchGrowth(np.where(granted, slots, -1))

    def _row(self, request: str) -> int:
        if request not in self._rows:
            raise BadCall("unknown request", request)
        return self._rows[request]

    def _check_new(self, request: str) -> None:
        if request in self._rows:
            raise BadCall("duplicate request", request)

    def _batch_rows(self, requests: Sequence[str]) -> Rows:
        if not requests:
            raise BadCall("no requests", "")
        rows = np.array([self._row(request) for request in requests], np.intp)
        if len(set(requests)) < len(requests):
            raise BadCall("repeated request", ", ".join(requests))
        return rows

    def _grow(self, row: int, count: int) -> Growth:
        length = int(self.tables.lengths[row])
        held = self.tables.num_blocks(row)
        needed = -(-(length + count) // self.block_size)
        copied = self._tail_must_be_copied(row)
        fresh = self.pool.take(needed - held + copied)
        self.tables.reserve_width(needed)
        copies = []
        if copied:
            copies.append(self._redirect_tail(row, held - 1, int(fresh[0])))
            fresh = fresh[1:]
        self.tables.ids[row, held:needed] = fresh
        self.tables.lengths[row] = length + count
        return Growth(self.tables.slots(row, length, count), copies)

    def _tail_must_be_copied(self, row: int) -> bool:
        if self.tables.lengths[row] % self.block_size == 0:
            return False
        return not self.pool.is_exclusive(self.tables.ids[row, self.tables.num_blocks(row) - 1])

    def _any_tail_must_be_copied(self, rows: Rows) -> bool:
        lengths = self.tables.lengths[rows]
        partial = lengths % self.block_size != 0
        tails = self.tables.ids[rows, lengths // self.block_size * partial]
        return bool(np.any(partial & ~self.pool.are_exclusive(tails)))

    def _redirect_tail(self, row: int, index: int, copy: int) -> Copy:
        source = int(self.tables.ids[row, index])
        self.tables.ids[row, index] = copy
        self.pool.drop_owner(np.array([source], np.int32))
        return source, copy

    def _append_one_by_one(self, rows: Rows) -> BatchGrowth:
        batch = BatchGrowth(np.full(len(rows), -1, np.int64))
        for index, row in enumerate(rows.tolist()):
            try:
                growth = self._grow(row, 1)
            except OutOfBlocks:
                continue
            batch.slots[index] = growth.slots[0]
            batch.copies += growth.copies
        return batch
