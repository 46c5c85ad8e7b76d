"""What each request has written: the chain of its full blocks, and the tokens of its partial one.

A decode step writes its tokens into one matrix; only rows whose block becomes full are looked at one
by one, to be hashed and published.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np

from kvoracle.impl.contents import AnyTokens, block_texts, packed, unpacked
from kvoracle.impl.ids import Ids, Rows
from kvoracle.impl.pool import BlockPool
from kvoracle.impl.prefix_index import PrefixIndex
from kvoracle.impl.tables import BlockTables, Column


@dataclass(slots=True)
class Chain:
    """The full blocks of one request: the key of the last (or the root), and their packed tokens,
    each text those of one block or more."""

    extra_keys: Mapping[str, str]
    epoch: int
    parent: bytes
    texts: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class Prompt:
    """What a request begins with: `length` tokens, the keys of its full blocks, the blocks it hits.

    `tokens` are given with a prefix cache only.
    """

    length: int
    tokens: AnyTokens
    root: Chain
    keys: list[bytes]
    hit: Ids


class Chains:
    """The chains of all rows.  Without `caching` nothing is kept."""

    def __init__(
        self, tables: BlockTables, pool: BlockPool, index: PrefixIndex, caching: bool
    ) -> None:
        self.tables = tables
        self.pool = pool
        self.index = index
        self.caching = caching
        self.block_size = tables.block_size
        self.epoch = 0
        self.tails = np.zeros((0, tables.block_size), np.int64)
        self.of_row: dict[int, Chain] = {}

    def root(self, extra_keys: Mapping[str, str]) -> Chain:
        """The chain of a request that has written nothing."""
        return Chain(extra_keys, self.epoch, self.index.root(extra_keys, self.epoch))

    def begin(self, row: int, chain: Chain) -> None:
        """Begin a row whose last full block is that of the chain, without a partial one."""
        if not self.caching:
            return
        if row >= len(self.tails):
            more = len(self.tables.lengths) - len(self.tails)
            self.tails = np.pad(self.tails, ((0, more), (0, 0)))
        self.of_row[row] = chain

    def begin_with(self, row: int, prompt: Prompt, blocks: int) -> Chain:
        """Begin a row that has written the first full blocks of a prompt."""
        root, parent = prompt.root, prompt.keys[blocks - 1] if blocks else prompt.root.parent
        written = prompt.tokens[: blocks * self.block_size]
        chain = Chain(root.extra_keys, root.epoch, parent, [packed(written)])
        self.begin(row, chain)
        return chain

    def fork(self, parent: int, child: int) -> None:
        """Begin a row that has written what another has."""
        if not self.caching:
            return
        chain = self.of_row[parent]
        self.begin(child, Chain(chain.extra_keys, chain.epoch, chain.parent, chain.texts.copy()))
        self.tails[child] = self.tails[parent]

    def end(self, row: int) -> None:
        """Forget a row."""
        self.of_row.pop(row, None)

    def written(self, row: int) -> AnyTokens:
        """The tokens of a row, a copy; none without `caching`."""
        if not self.caching:
            return np.zeros(0, np.int64)
        rest = self.tails[row, : self.tables.lengths[row] % self.block_size]
        return np.concatenate([*map(unpacked, self.of_row[row].texts), rest])

    def extra_keys(self, row: int) -> Mapping[str, str]:
        """What keeps the blocks of a row apart from others'; nothing without `caching`."""
        return self.of_row[row].extra_keys if self.caching else {}

    def write_prompt(self, row: int, prompt: Prompt) -> None:
        """Publish the full blocks of a prompt beyond those that were hit."""
        if not self.caching:
            return
        known, full = len(prompt.hit), len(prompt.keys)
        chain = self.begin_with(row, prompt, full)
        blocks = self.tables.table(row)[known:full].tolist()
        self._publish(repeat(chain), blocks, prompt.keys[known:])
        rest = prompt.tokens[full * self.block_size :]
        self.tails[row, : len(rest)] = rest

    def write(self, row: int, first: int, tokens: AnyTokens) -> None:
        """Write tokens into a row from position `first` on, and publish the blocks they fill."""
        if not self.caching:
            return
        logical, offset = divmod(first, self.block_size)
        tokens = np.concatenate([self.tails[row, :offset], tokens])
        texts = block_texts(tokens, self.block_size)
        if texts:
            chain = self.of_row[row]
            keys = self.index.keys(chain.parent, texts)
            blocks = self.tables.ids[row, logical : logical + len(keys)].tolist()
            self._publish(repeat(chain), blocks, keys)
            chain.parent = keys[-1]
            chain.texts += texts
        rest = tokens[len(texts) * self.block_size :]
        self.tails[row, : len(rest)] = rest

    def write_each(self, rows: Rows, positions: Column, tokens: AnyTokens) -> None:
        """Write one token into each row, and publish the blocks that this fills."""
        if not self.caching:
            return
        offsets = positions % self.block_size
        self.tails[rows, offsets] = tokens
        full = (offsets == self.block_size - 1).nonzero()[0]
        if len(full):
            self._fill(rows[full], positions[full] // self.block_size)

    def _fill(self, rows: Rows, logical: Column) -> None:
        """Publish the block at `logical` of each row, whose tokens are in its tail."""
        texts = block_texts(self.tails[rows].ravel(), self.block_size)
        blocks = self.tables.ids[rows, logical].tolist()
        chains, keys = [self.of_row[row] for row in rows.tolist()], []
        for chain, text in zip(chains, texts, strict=True):
            chain.parent = self.index.key_of(chain.parent, text)
            chain.texts.append(text)
            keys.append(chain.parent)
        self._publish(chains, blocks, keys)

    def _publish(self, chains: Iterable[Chain], blocks: list[int], keys: list[bytes]) -> None:
        """Make full blocks findable, unless their weights are gone or they were evicted."""
        epoch, barred, add, publish = (
            self.epoch,
            self.pool.barred,
            self.index.add,
            self.pool.publish,
        )
        for chain, block, key in zip(chains, blocks, keys, strict=False):
            if chain.epoch == epoch and block not in barred:
                add(key, block)
                publish(block)
