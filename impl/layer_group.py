"""One group of layers: its tables, what its window leaves out, and how it identifies blocks.

Block 0 is the null block, which a table names wherever no later query looks.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kvoracle.impl.chains import Chain, Chains, Prompt
from kvoracle.impl.contents import AnyTokens, as_count, block_texts
from kvoracle.impl.ids import Ids, Rows
from kvoracle.impl.pool import BlockPool
from kvoracle.impl.prefix_index import PrefixIndex
from kvoracle.impl.tables import BlockTables, Column, runs

NULL = 0


class GroupIndex(PrefixIndex):
    """Which blocks of which group hold which content."""

    def group_root(self, group: int, extra_keys: Mapping[str, str], epoch: int) -> bytes:
        """The parent of the first block of a request in a group."""
        return self.key_of(self.root(extra_keys, epoch), b"group %d" % group)

    def find(self, keys: list[bytes]) -> Ids:
        """A block for each key, NULL where there is none: int32 [keys]."""
        return np.array([self._blocks.get(key, (NULL,))[0] for key in keys], np.int32)


class GroupChains(Chains):
    """What each request has written, as one group identifies it."""

    def __init__(
        self, number: int, tables: BlockTables, pool: BlockPool, index: GroupIndex, caching: bool
    ) -> None:
        super().__init__(tables, pool, index, caching)
        self.number = number

    def root(self, extra_keys: Mapping[str, str]) -> Chain:
        assert isinstance(self.index, GroupIndex)
        return Chain(
            extra_keys, self.epoch, self.index.group_root(self.number, extra_keys, self.epoch)
        )


class LayerGroup:
    """The tables of one group.  The rows of all groups are opened and closed together."""

    chains_class: ClassVar[type[GroupChains]] = GroupChains

    def __init__(
        self,
        number: int,
        block_size: int,
        window: int,
        pool: BlockPool,
        index: GroupIndex,
        caching: bool,
    ) -> None:
        self.block_size = as_count(block_size, 1, "a block size")
        self.window = as_count(window, 0, "a window")
        self.index = index
        self.tables = BlockTables(self.block_size)
        self.chains = self.chains_class(number, self.tables, pool, index, caching)

    def first_seen(self, lengths: Column) -> Column:
        """The position of the first block that the next query of a request of each length sees."""
        if self.window == 0:
            return np.zeros_like(lengths)
        positions: Column = np.maximum(lengths - (self.window - 1), 0) // self.block_size
        return positions

    def lacking(self, befores: Column, afters: Column) -> Column:
        """How many blocks requests need to grow from one length to another."""
        count: Column = -(-afters // self.block_size) - -(-befores // self.block_size)
        return count

    def find(self, length: int, tokens: AnyTokens, extra_keys: Mapping[str, str]) -> Prompt:
        """What a prompt finds block by block, NULL where nothing does."""
        root = self.chains.root(extra_keys)
        keys = self.index.keys(root.parent, block_texts(tokens, self.block_size))
        return Prompt(length, tokens, root, keys, self.index.find(keys))

    def can_hit(self, found: Ids, edges: Column) -> NDArray[np.bool_]:
        """Whether all is found that the query at each edge, a multiple of the block size, sees."""
        missing = np.concatenate([[0], (found == NULL).cumsum()])
        whole: NDArray[np.bool_] = (
            missing[edges // self.block_size] == missing[self.first_seen(edges)]
        )
        return whole

    def narrow(self, prompt: Prompt, length: int) -> None:
        """Let a prompt hit `length` tokens, and NULL where the next query does not look."""
        prompt.hit = prompt.hit[: length // self.block_size]
        prompt.hit[: self.first_seen(np.array([length]))[0]] = NULL

    def held(self, rows: Rows) -> Ids:
        """The blocks that rows own, one table after the other: int32."""
        firsts = self.first_seen(self.tables.lengths[rows])
        return self._entries(rows, firsts, self.tables.counts[rows] - firsts)

    def slide(self, rows: Rows, befores: Column) -> Ids:
        """Make null what the next queries of rows do not see, and did not leave out at these earlier
        lengths; returns the blocks that were there."""
        firsts = self.first_seen(befores)
        numbers = self.first_seen(self.tables.lengths[rows]) - firsts
        left = self._entries(rows, firsts, numbers)
        self.tables.ids[rows.repeat(numbers), runs(firsts, numbers)] = NULL
        return left

    def _entries(self, rows: Rows, firsts: Column, numbers: Column) -> Ids:
        ids: Ids = self.tables.ids[rows.repeat(numbers), runs(firsts, numbers)]
        return ids
