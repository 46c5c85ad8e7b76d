"""What each request has written: the chain of its full units, and the tokens of its partial one.

A unit is a block, or one of several equal parts of a block.  A decode step writes its tokens into one
matrix; only rows whose unit becomes full are looked at one by one, to be hashed and published.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from kvoracle.impl.contents import AnyTokens, block_texts, packed, unpacked
from kvoracle.impl.ids import Ids, Rows
from kvoracle.impl.pool import BlockPool
from kvoracle.impl.prefix_index import PrefixIndex
from kvoracle.impl.tables import BlockTables, Column


@dataclass(slots=True)
class Chain:
    """The full units of one request: the key of the last (or the root), their packed tokens, each
    text those of one unit or more, and the keys of those in its partial block (`inside`)."""

    extra_keys: Mapping[str, str]
    epoch: int
    parent: bytes
    texts: list[bytes] = field(default_factory=list)
    inside: tuple[bytes, ...] = ()


@dataclass(slots=True)
class Prompt:
    """What a request begins with: `length` tokens, the keys of its full units, the blocks it hits,
    and the block that holds the next `part` tokens as well, if any.

    `tokens` are given with a prefix cache only.
    """

    length: int
    tokens: AnyTokens
    root: Chain
    keys: list[bytes]
    hit: Ids
    source: Ids = field(default_factory=lambda: np.zeros(0, np.int32))
    part: int = 0


class Chains:
    """The chains of all rows.  Without `caching` nothing is kept.

    `unit` tokens, or those of a block where it is 0, are a unit.  `behind` has the rows whose partial
    block is a copy that was not written yet, and that block: it is published when it is.
    """

    def __init__(
        self,
        tables: BlockTables,
        pool: BlockPool,
        index: PrefixIndex,
        caching: bool,
        unit: int = 0,
    ) -> None:
        self.tables = tables
        self.pool = pool
        self.index = index
        self.caching = caching
        self.block_size = tables.block_size
        self.unit = unit or tables.block_size
        self._unit, self._last_offset = np.array(self.unit), np.array(self.unit - 1)
        self.units = tables.block_size // self.unit
        self.epoch = 0
        self.tails = np.zeros((0, self.unit), np.int64)
        self.of_row: dict[int, Chain] = {}
        self.behind: dict[int, int] = {}

    def root(self, extra_keys: Mapping[str, str]) -> Chain:
        """The chain of a request that has written nothing."""
        return Chain(extra_keys, self.epoch, self.index.root(extra_keys, self.epoch))

    def begin(self, row: int, chain: Chain) -> None:
        """Begin a row whose last full unit is that of the chain, without a partial one."""
        if not self.caching:
            return
        if row >= len(self.tails):
            more = len(self.tables.lengths) - len(self.tails)
            self.tails = np.pad(self.tails, ((0, more), (0, 0)))
        self.of_row[row] = chain
        self.behind.pop(row, None)

    def begin_with_hit(self, row: int, prompt: Prompt) -> None:
        """Begin a row that has what a prompt hits, and has written nothing."""
        self._begin_with(row, prompt, len(prompt.hit) * self.units + prompt.part // self.unit)
        self.move_tail(row, int(self.tables.ids[row, len(prompt.hit)]))

    def fork(self, parent: int, child: int) -> None:
        """Begin a row that has written what another has."""
        if not self.caching:
            return
        chain = self.of_row[parent]
        copied = Chain(
            chain.extra_keys, chain.epoch, chain.parent, chain.texts.copy(), chain.inside
        )
        self.begin(child, copied)
        self.tails[child] = self.tails[parent]
        if parent in self.behind:
            self.behind[child] = self.behind[parent]

    def move_tail(self, row: int, copy: int) -> None:
        """The partial block of a row is now a copy."""
        if self.caching and self.of_row[row].inside:
            self.behind[row] = copy

    def end(self, row: int) -> None:
        """Forget a row."""
        self.of_row.pop(row, None)
        self.behind.pop(row, None)

    def written(self, row: int) -> AnyTokens:
        """The tokens of a row, a copy; none without `caching`."""
        if not self.caching:
            return np.zeros(0, np.int64)
        rest = self.tails[row, : self.tables.lengths[row] % self.unit]
        return np.concatenate([*map(unpacked, self.of_row[row].texts), rest])

    def extra_keys(self, row: int) -> Mapping[str, str]:
        """What keeps the blocks of a row apart from others'; nothing without `caching`."""
        return self.of_row[row].extra_keys if self.caching else {}

    def write_prompt(self, row: int, prompt: Prompt) -> None:
        """Publish the blocks of a prompt beyond those that were hit."""
        if not self.caching:
            return
        chain = self._begin_with(row, prompt, len(prompt.keys))
        first = len(prompt.hit) * self.units
        keys = prompt.keys[first:]
        self._publish([chain.epoch] * len(keys), self._blocks(row, first, len(keys)), keys)
        rest = prompt.tokens[len(prompt.keys) * self.unit :]
        self.tails[row, : len(rest)] = rest

    def write(self, row: int, first: int, tokens: AnyTokens) -> None:
        """Write tokens into a row from position `first` on, and publish the blocks whose units they
        fill."""
        if not self.caching:
            return
        if self.behind:
            self._catch_up([row])
        first, offset = divmod(first, self.unit)
        tokens = np.concatenate([self.tails[row, :offset], tokens])
        texts = block_texts(tokens, self.unit)
        if texts:
            chain = self.of_row[row]
            keys = self.index.keys(chain.parent, texts)
            self._publish([chain.epoch] * len(keys), self._blocks(row, first, len(keys)), keys)
            chain.parent = keys[-1]
            chain.texts += texts
            known = (*chain.inside, *keys)
            chain.inside = known[len(known) - (first + len(keys)) % self.units :]
        rest = tokens[len(texts) * self.unit :]
        self.tails[row, : len(rest)] = rest

    def write_each(self, rows: Rows, positions: Column, tokens: AnyTokens) -> None:
        """Write one token into each row, and publish the blocks of which this fills a unit."""
        if not self.caching:
            return
        if self.behind:
            self._catch_up(rows.tolist())
        offsets = positions % self._unit
        self.tails[rows, offsets] = tokens
        full = (offsets == self._last_offset).nonzero()[0]
        if len(full):
            self._fill(rows[full], positions[full])

    def _begin_with(self, row: int, prompt: Prompt, full: int) -> Chain:
        """Begin a row that has the first so many units of a prompt."""
        root, parent = prompt.root, prompt.keys[full - 1] if full else prompt.root.parent
        text = packed(prompt.tokens[: full * self.unit])
        inside = tuple(prompt.keys[full - full % self.units : full])
        chain = Chain(root.extra_keys, root.epoch, parent, [text], inside)
        self.begin(row, chain)
        return chain

    def _blocks(self, row: int, first: int, count: int) -> Ids:
        """The block of each of `count` units of a row, from unit `first` on."""
        blocks: Ids = self.tables.ids[row, first // self.units : -(-(first + count) // self.units)]
        return blocks.repeat(self.units)[first % self.units :][:count]

    def _catch_up(self, rows: list[int]) -> None:
        """Publish the partial blocks of rows that are about to be written, as far as they are."""
        for row in self.behind.keys() & rows:
            chain, block = self.of_row[row], self.behind.pop(row)
            count = len(chain.inside)
            self._publish([chain.epoch] * count, np.full(count, block, np.int32), [*chain.inside])

    def _fill(self, rows: Rows, positions: Column) -> None:
        """Publish the block at a position of each row, whose unit that ends there is in its tail."""
        texts = block_texts(self.tails[rows].ravel(), self.unit)
        chains = list(map(self.of_row.__getitem__, rows.tolist()))
        keys = list(map(self.index.key_of, [chain.parent for chain in chains], texts))
        for chain, key, text in zip(chains, keys, texts, strict=True):
            chain.parent = key
            chain.texts.append(text)
        blocks = self.tables.ids[rows, self.tables.places(positions)]
        self._publish([chain.epoch for chain in chains], blocks, keys)
        if self.units > 1:
            full = positions % self.block_size == self.block_size - 1
            for chain, key, is_full in zip(chains, keys, full.tolist(), strict=True):
                chain.inside = () if is_full else (*chain.inside, key)

    def _publish(self, epochs: list[int], blocks: Ids, keys: list[bytes]) -> None:
        """Make blocks findable, each written in the epoch beside it, unless their weights are gone or
        they were evicted."""
        listed, epoch, barred = blocks.tolist(), self.epoch, self.pool.barred
        if barred or epochs.count(epoch) < len(epochs):
            written = enumerate(zip(epochs, listed, strict=True))
            kept = [n for n, (at, block) in written if at == epoch and block not in barred]
            blocks, keys = blocks[kept], [keys[n] for n in kept]
            listed = blocks.tolist()
        self.index.add(keys, listed)
        self.pool.publish(blocks)
