"""Groups of layers on one pool, each with its own block size and window, and one agreed hit length.

The null block is taken from the pool once, for ever.  Every call takes the blocks of all groups at
once, so it succeeds in all of them or changes nothing, and what one group hits no other takes.  What
leaves a window is given back when the call is over, group after group, so that nothing is taken
again while the call still reads it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvoracle.impl.chains import Prompt
from kvoracle.impl.contents import AnyTokens, as_count, as_tokens, check_extra_keys
from kvoracle.impl.errors import BadCall, OutOfBlocks
from kvoracle.impl.ids import Ids, Rows, Slots
from kvoracle.impl.layer_group import NULL, GroupIndex, LayerGroup
from kvoracle.impl.pool import BlockPool
from kvoracle.impl.prefix_index import KeyOf, sha256_key
from kvoracle.impl.tables import Column

NO_KEYS: Mapping[str, str] = MappingProxyType({})


@dataclass(slots=True)
class GroupedGrowth:
    """What a call that gives out slots did.

    `slots` is int64 [groups, new tokens], or [groups, requests] with -1 where a request was refused;
    `granted` is bool [requests]; `hit` tokens of a prompt were found written.  A slot counts in its
    group's block size.
    """

    slots: Slots
    granted: NDArray[np.bool_]
    hit: int = 0


@dataclass(frozen=True, slots=True)
class Remembered:
    """What is left of a preempted request; its tokens with a prefix cache only."""

    length: int
    tokens: AnyTokens
    extra_keys: Mapping[str, str]


class GroupedAllocator:
    """`blocks` blocks, named from 1 on, for requests with a table in each of `groups`.

    A group is (block size, window): a query sees so many tokens, itself included; window 0 is all of
    them.  With `prefix_cache` full blocks are published, also those that leave a window.

    Blocks are reused as in `BlockPool`; what one call gives back is listed group after group, in each
    request after request.
    """

    pool_class: ClassVar[type[BlockPool]] = BlockPool
    index_class: ClassVar[type[GroupIndex]] = GroupIndex
    group_class: ClassVar[type[LayerGroup]] = LayerGroup

    def __init__(
        self,
        blocks: int,
        groups: Sequence[tuple[int, int]],
        *,
        prefix_cache: bool = False,
        key_of: KeyOf = sha256_key,
    ) -> None:
        as_count(blocks, 1, "the number of blocks")
        as_count(len(groups), 1, "the number of groups")
        self.prefix_cache = prefix_cache
        self.index = self.index_class(key_of)
        self.pool = self.pool_class(blocks + 1, self.index.forget)
        self.reserve_null()
        self.groups = [
            self.group_class(number, size, window, self.pool, self.index, prefix_cache)
            for number, (size, window) in enumerate(groups)
        ]
        self.hit_unit = math.lcm(*(group.block_size for group in self.groups))
        self.by_name: dict[str, int] = {}
        self.preempted: dict[str, Remembered] = {}

    def create(self, name: str) -> None:
        """Begin a request with empty tables."""
        self._check_new(name)
        row = self._open(name)
        for group in self.groups:
            group.chains.begin(row, group.chains.root({}))

    def admit(
        self, name: str, prompt: ArrayLike, extra_keys: Mapping[str, str] = NO_KEYS
    ) -> GroupedGrowth:
        """Begin a request with a prompt (int [tokens]) on the longest prefix that all groups have.

        The last token is never hit: its logits are still to be computed.
        """
        self._check_new(name)
        tokens = as_tokens(prompt)
        if len(tokens) == 0:
            raise BadCall("no tokens", name)
        kept = tokens.copy() if self.prefix_cache else tokens[:0]
        return self._begin(name, Remembered(len(tokens), kept, check_extra_keys(extra_keys)))

    def append(self, name: str, tokens: ArrayLike) -> GroupedGrowth:
        """Grow a request by tokens (int [tokens])."""
        rows, new = self._rows([name]), as_tokens(tokens)
        if len(new) == 0:
            raise BadCall("no tokens", name)
        befores = self._lengths(rows)
        granted = self._make_room(rows, befores + len(new))
        if not granted[0]:
            raise OutOfBlocks(int(self._needs(befores, befores + len(new)).sum()), self.num_free)
        row, first = int(rows[0]), int(befores[0])
        for group in self.groups:
            group.chains.write(row, first, new)
        slots = np.array([group.tables.slots(row, first, len(new)) for group in self.groups])
        self.slide(rows, befores)
        return GroupedGrowth(slots, granted)

    def can_append(self, name: str, count: int) -> bool:
        """Whether an append of `count` tokens would find room in all groups now."""
        befores = self._lengths(self._rows([name]))
        return int(self._needs(befores, befores + count).sum()) <= self.num_free

    def append_batch(self, names: Sequence[str], tokens: ArrayLike) -> GroupedGrowth:
        """Grow each request by one token (int [requests]), in order; those that find no room in all
        groups are refused."""
        every, new = self._rows(names), as_tokens(tokens)
        if len(new) != len(every):
            raise BadCall("one token for each request", ", ".join(names))
        before = self._lengths(every)
        granted = self._make_room(every, before + 1)
        rows, befores = every[granted], before[granted]
        slots = np.full((len(self.groups), len(every)), -1, np.int64)
        for number, group in enumerate(self.groups):
            group.chains.write_each(rows, befores, new[granted])
            slots[number, granted] = group.tables.slots_at(rows, befores)
        self.slide(rows, befores)
        return GroupedGrowth(slots, granted)

    def release(self, name: str) -> None:
        """End a request, or forget a preempted one."""
        if self.preempted.pop(name, None) is None:
            self.release_batch([name])

    def release_batch(self, names: Sequence[str]) -> None:
        """End several live requests in one call."""
        rows = self._rows(names)
        self.pool.drop_owners(np.concatenate([group.held(rows) for group in self.groups]))
        for name, row in zip(names, rows.tolist(), strict=True):
            for group in self.groups:
                group.chains.end(row)
                group.tables.close_row(row)
            del self.by_name[name]

    def preempt(self, name: str) -> None:
        """End a request and remember what it has written, for `resume`."""
        row = int(self._rows([name])[0])
        chains, length = self.groups[0].chains, int(self.groups[0].tables.lengths[row])
        if length == 0:
            raise BadCall("no tokens", name)
        remembered = Remembered(length, chains.written(row), chains.extra_keys(row))
        self.release_batch([name])
        self.preempted[name] = remembered

    def resume(self, name: str) -> GroupedGrowth:
        """Begin a preempted request again with all that it had written, as `admit` would."""
        if name not in self.preempted:
            raise BadCall("not preempted", name)
        growth = self._begin(name, self.preempted[name])
        del self.preempted[name]
        return growth

    def reset_prefix_cache(self) -> None:
        """Forget every published block; refused while any block is in use."""
        if self.num_free < self.pool.blocks - 1:
            raise BadCall("blocks in use", "reset")
        self.pool.forget_idle()

    def tables(self, name: str) -> list[Ids]:
        """The table of a request in each group, NULL where no later query looks: int32 [blocks]."""
        row = int(self._rows([name])[0])
        return [group.tables.table(row).copy() for group in self.groups]

    @property
    def num_free(self) -> int:
        """How many blocks can be taken: free ones and idle ones."""
        return self.pool.num_free

    def reserve_null(self) -> None:
        """Take the null block out of the pool."""
        assert self.pool.take_one() == NULL

    def agree(self, prompts: Sequence[Prompt], length: int) -> list[int]:
        """How many tokens each group hits: the same for all, as many as all of them can."""
        edges = np.arange(0, length if self.prefix_cache else 1, self.hit_unit)
        able = [group.can_hit(p.hit, edges) for group, p in zip(self.groups, prompts, strict=True)]
        return [int(edges[np.logical_and.reduce(able)][-1])] * len(self.groups)

    def take(self, hits: Sequence[Ids], numbers: Sequence[int]) -> list[Ids]:
        """Use the blocks that groups hit and take new ones for each, or OutOfBlocks and none."""
        hit = np.concatenate(hits)
        fresh = self.pool.use_and_take(hit, sum(numbers), 0)[len(hit) :]
        return np.split(fresh, np.cumsum(numbers)[:-1])

    def slide(self, rows: Rows, befores: Column) -> None:
        """Give back what the next queries of rows do not see."""
        left = np.concatenate([group.slide(rows, befores) for group in self.groups])
        if len(left):
            self.pool.drop_owners(left)

    def _begin(self, name: str, begun: Remembered) -> GroupedGrowth:
        """Begin a request on the agreed hit, and write the rest."""
        prompts = [
            group.find(begun.length, begun.tokens, begun.extra_keys) for group in self.groups
        ]
        agreed = self.agree(prompts, begun.length)
        parts = list(zip(self.groups, prompts, agreed, strict=True))
        for group, prompt, hit in parts:
            group.narrow(prompt, hit)
        fresh = self.take(
            [prompt.hit[prompt.hit != NULL] for prompt in prompts],
            [
                -(-begun.length // group.block_size) - hit // group.block_size
                for group, _, hit in parts
            ],
        )
        row = self._open(name)
        for (group, prompt, _), ids in zip(parts, fresh, strict=True):
            group.tables.extend(row, np.concatenate([prompt.hit, ids]))
            group.tables.lengths[row] = begun.length
            group.chains.write_prompt(row, prompt)
        hit = agreed[0]
        slots = [group.tables.slots(row, hit, begun.length - hit) for group in self.groups]
        self.slide(np.array([row], np.intp), np.array([hit]))
        return GroupedGrowth(np.array(slots), np.ones(1, np.bool_), hit)

    def _make_room(self, rows: Rows, afters: Column) -> NDArray[np.bool_]:
        """Have blocks in all groups for each row to grow to a length, in order; returns for which."""
        needs = self._needs(self._lengths(rows), afters)
        granted = self._granted(needs.sum(axis=0))
        rows, needs = rows[granted], needs[:, granted]
        fresh = self.pool.take(int(needs.sum()))
        shares = np.split(fresh, needs.sum(axis=1).cumsum()[:-1])
        for group, numbers, ids in zip(self.groups, needs, shares, strict=True):
            group.tables.extend_each(rows, numbers, ids)
            group.tables.lengths[rows] = afters[granted]
        return granted

    def _needs(self, befores: Column, afters: Column) -> Column:
        """How many blocks each group needs for each request: int64 [groups, requests]."""
        return np.array([group.lacking(befores, afters) for group in self.groups])

    def _granted(self, needs: Column) -> NDArray[np.bool_]:
        """Which requests, in order, find all the blocks that they need."""
        granted, free = np.ones(len(needs), np.bool_), self.num_free
        if needs.sum() > free:
            for index, need in enumerate(needs.tolist()):
                granted[index] = need <= free
                free -= need if need <= free else 0
        return granted

    def _lengths(self, rows: Rows) -> Column:
        lengths: Column = self.groups[0].tables.lengths[rows]
        return lengths

    def _check_new(self, name: str) -> None:
        if name in self.by_name or name in self.preempted:
            raise BadCall("duplicate request", name)

    def _rows(self, names: Sequence[str]) -> Rows:
        """The rows of distinct live requests."""
        if len(names) == 0:
            raise BadCall("no requests", "")
        for name in names:
            if name not in self.by_name:
                raise BadCall("unknown request", name)
        if len(set(names)) < len(names):
            raise BadCall("repeated request", ", ".join(names))
        return np.array([self.by_name[name] for name in names], np.intp)

    def _open(self, name: str) -> int:
        """Give a new name the same row in all groups."""
        (row,) = {group.tables.open_row() for group in self.groups}
        self.by_name[name] = row
        return row
