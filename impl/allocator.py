"""The allocator: requests with block tables over one pool, shared by fork, held by transfers and steps.

This is the face; the parts behind it have one idea each.  Every call either succeeds or changes
nothing.  `BadCall` says by its reason what is wrong with a call, `OutOfBlocks` that it finds too few
blocks, and a plain ValueError that an argument is not of the right kind.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvoracle.impl.admission import Admission
from kvoracle.impl.chains import Chains
from kvoracle.impl.contents import as_count
from kvoracle.impl.errors import BadCall
from kvoracle.impl.growing import Growing
from kvoracle.impl.growth import BatchGrowth, Growth
from kvoracle.impl.ids import Ids, Rows
from kvoracle.impl.pool import BlockPool
from kvoracle.impl.prefix_index import KeyOf, PrefixIndex, sha256_key
from kvoracle.impl.requests import Requests
from kvoracle.impl.statistics import Statistics, statistics_of
from kvoracle.impl.steps import Steps
from kvoracle.impl.tables import BlockTables, Column
from kvoracle.impl.transfers import Transfers

NO_KEYS: Mapping[str, str] = MappingProxyType({})


class PagedAllocator:
    """`blocks` blocks of `block_size` token slots, and what holds them.

    With `prefix_cache` the full blocks of a request are published, and requests that begin find them
    by their content until they are taken for something else.  Blocks are published as soon as they
    are full: the caller writes the slots of a call before it lets another request read them.
    With a `match_unit` that divides the block size, partial blocks are published up to their last
    multiple of so many tokens, and a request that hits a part of a block begins on a copy of it.
    Requests that begin leave `watermark` blocks free, and none gets longer than `max_model_len`
    tokens (0 is no limit).

    `extra_keys` map any of "adapter", "salt" and "image" to text; only requests with the same ones
    share blocks by content.
    """

    pool_class: ClassVar[type[BlockPool]] = BlockPool
    index_class: ClassVar[type[PrefixIndex]] = PrefixIndex
    tables_class: ClassVar[type[BlockTables]] = BlockTables
    chains_class: ClassVar[type[Chains]] = Chains
    requests_class: ClassVar[type[Requests]] = Requests
    growing_class: ClassVar[type[Growing]] = Growing
    admission_class: ClassVar[type[Admission]] = Admission
    steps_class: ClassVar[type[Steps]] = Steps
    transfers_class: ClassVar[type[Transfers]] = Transfers

    def __init__(
        self,
        blocks: int,
        block_size: int,
        *,
        prefix_cache: bool = False,
        watermark: int = 0,
        max_model_len: int = 0,
        match_unit: int = 0,
        key_of: KeyOf = sha256_key,
    ) -> None:
        if blocks < 1 or block_size < 1:
            raise ValueError("blocks and block_size must be at least 1")
        unit = as_count(match_unit, 0, "the match unit") or block_size
        if block_size % unit:
            raise ValueError(f"a match unit of {unit} does not divide a block of {block_size}")
        self.block_size = block_size
        self.prefix_cache = prefix_cache
        self.index = self.index_class(key_of)
        self.pool = self.pool_class(blocks, self.index.forget)
        self.tables = self.tables_class(block_size)
        self.chains = self.chains_class(self.tables, self.pool, self.index, prefix_cache, unit)
        self.requests = self.requests_class(
            self.pool, self.tables, self.chains, as_count(max_model_len, 0, "max_model_len")
        )
        self.growing = self.growing_class(self.requests)
        self.admission = self.admission_class(
            self.requests, as_count(watermark, 0, "the watermark")
        )
        self.steps = self.steps_class(self.growing)
        self.transfers = self.transfers_class(self.admission)

    # Requests begin and end

    def create(self, request: str) -> None:
        """Begin a request with an empty table."""
        self.requests.create(request)

    def admit(
        self, request: str, prompt: ArrayLike, extra_keys: Mapping[str, str] = NO_KEYS
    ) -> Growth:
        """Begin a request with a prompt (int [tokens]) on its longest published prefix.

        The last token is never hit: its logits are still to be computed.
        """
        return self.admission.admit(request, prompt, extra_keys)

    def look_up(
        self, request: str, prompt: ArrayLike, extra_keys: Mapping[str, str] = NO_KEYS
    ) -> int:
        """Hold the longest published prefix of a prompt for a request that `use` begins; returns its
        length in tokens."""
        return self.admission.look_up(request, prompt, extra_keys)

    def use(self, request: str) -> Growth:
        """Begin a looked-up request on the prefix held for it; OutOfBlocks leaves that held."""
        return self.admission.use(request)

    def cancel(self, request: str) -> None:
        """Let go of what a lookup holds."""
        self.admission.cancel(request)

    def fork(self, parent: str, child: str) -> None:
        """Begin a request that shares every block of its parent, a partial tail included."""
        self.requests.fork(parent, child)

    def release(self, request: str) -> None:
        """End a request, or forget a preempted one; its blocks are free once nothing else holds
        them.  Steps in flight no longer write its tokens, but hold its blocks until they end."""
        self.requests.release(request)

    def release_batch(self, requests: Sequence[str]) -> None:
        """End several requests in one call."""
        self.requests.release_batch(requests)

    def preempt(self, request: str) -> None:
        """End a request and remember what it has written, for `resume`."""
        self.requests.preempt(request)

    def resume(self, request: str) -> Growth:
        """Begin a preempted request again with all that it had written, as `admit` would."""
        return self.admission.resume(request)

    # Requests grow

    def append(self, request: str, tokens: ArrayLike) -> Growth:
        """Grow a request by tokens (int [tokens]), into its reserved room first."""
        return self.growing.append(request, tokens)

    def reserve(self, request: str, count: int) -> Growth:
        """Have room for `count` tokens beyond the length of a request; returns all their slots."""
        return self.growing.reserve(request, count)

    def commit(self, request: str, tokens: ArrayLike) -> Growth:
        """Write tokens (int [tokens]) into reserved room."""
        return self.growing.commit(request, tokens)

    def trim(self, request: str) -> None:
        """Give back the reserved room of a request, but for the rest of its last block."""
        self.growing.trim(request)

    def append_batch(self, requests: Sequence[str], tokens: ArrayLike) -> BatchGrowth:
        """Grow each request by one token (int [requests]), in order; those that find no block are
        refused."""
        return self.growing.append_batch(requests, tokens)

    def rows(self, requests: Sequence[str]) -> Rows:
        """The handles of distinct requests, valid until each is released or preempted."""
        return self.requests.rows(requests)

    def grow(self, rows: Rows, counts: Column, tokens: ArrayLike | None = None) -> BatchGrowth:
        """Grow the request of row i by `counts[i]` tokens, in order, each all or none.

        `tokens` (int [sum of counts], row after row) are needed with a prefix cache.
        """
        return self.growing.grow(rows, counts, tokens)

    # Steps

    def begin_step(self, step: str, requests: Sequence[str], tokens: ArrayLike) -> BatchGrowth:
        """Give each request a slot for one more token (int [requests]), to be written by a step that
        holds all blocks of their tables until it ends; those that find no block are refused."""
        return self.steps.begin(step, requests, tokens)

    def end_step(self, step: str) -> None:
        """The oldest step has run: its tokens are written."""
        self.steps.end(step)

    def fail_step(self, step: str) -> None:
        """A step and all begun after it are over, and wrote nothing that counts."""
        self.steps.fail(step)

    # Transfers

    def pin(self, request: str, transfer: str) -> Ids:
        """Begin a transfer that may read every block of a request; returns int32 [blocks]."""
        return self.transfers.pin(request, transfer)

    def unpin(self, transfer: str) -> None:
        """End a transfer that `pin` began."""
        self.transfers.unpin(transfer)

    def send(self, request: str, transfer: str, workers: int, lease: int = 0) -> int:
        """Begin a transfer that reads every block of a request until all workers have acknowledged
        it, or until the lease-th tick from now; returns its generation."""
        return self.transfers.send(request, transfer, workers, lease)

    def receive(
        self,
        request: str,
        prompt: ArrayLike,
        transfer: str,
        workers: int,
        lease: int = 0,
        extra_keys: Mapping[str, str] = NO_KEYS,
    ) -> Growth:
        """Begin a request that waits for a transfer to write its prompt, but for the hits, to the
        slots returned; when the lease is over its room is left reserved, and nothing is written."""
        return self.transfers.receive(request, prompt, transfer, workers, lease, extra_keys)

    def acknowledge(self, transfer: str, worker: int, generation: int) -> None:
        """A worker, from 0 on, is done with a transfer of this generation."""
        self.transfers.acknowledge(transfer, worker, generation)

    def generation_of(self, transfer: str) -> int:
        """The generation of the latest transfer begun under a name; 0 where there was none."""
        return self.transfers.generations.latest(transfer)

    def tick(self) -> None:
        """Advance the clock of the leases."""
        self.transfers.tick()

    # The prefix cache

    def evict(self, request: str, first: int) -> None:
        """Forget the content of the blocks from position `first` of a table on; they are not
        published again while they are allocated."""
        row = self.requests.row(request)
        first = as_count(first, 0, "the first position to evict")
        self.pool.unpublish(self.tables.table(row)[first:])

    def change_weights(self) -> None:
        """Forget every published block, and publish nothing of requests that are under way."""
        for request in self.requests.looked_up:
            raise BadCall("lookup outstanding", request)
        self.chains.epoch += 1
        self.pool.forget_idle()
        self.pool.published[:] = False
        self.index.clear()

    def reset_prefix_cache(self) -> None:
        """Forget every published block; refused while any block is in use."""
        if self.num_free < self.pool.blocks:
            raise BadCall("blocks in use", "reset")
        self.pool.forget_idle()

    # Questions

    def can_admit(self, prompt: ArrayLike, extra_keys: Mapping[str, str] = NO_KEYS) -> bool:
        """Whether `admit` would find room for a prompt now."""
        return self.admission.can_admit(prompt, extra_keys)

    def would_hit(
        self, prompt: ArrayLike, extra_keys: Mapping[str, str] = NO_KEYS
    ) -> tuple[int, int]:
        """How many tokens of a prompt `admit` would find now, and how many of the whole blocks that
        hold them are idle, so that the hit makes room scarcer."""
        return self.admission.would_hit(prompt, extra_keys)

    def can_append(self, request: str, count: int) -> bool:
        """Whether `append` would find room for `count` tokens now, and for the copy of a shared tail;
        BadCall as for `append`."""
        return self.growing.can_append(request, count)

    # Reports

    def table(self, request: str) -> Ids:
        """The block ids of a request, or those held by a lookup: int32 [blocks], a copy."""
        return self.requests.table(request)

    @property
    def num_free(self) -> int:
        """How many blocks can be taken: free ones and idle ones."""
        return self.pool.num_free

    @property
    def generations(self) -> NDArray[np.int64]:
        """How often each block was taken: int64 [blocks], a copy."""
        return self.pool.generations.copy()

    def statistics(self) -> Statistics:
        """What was done and how full the pool is."""
        return statistics_of(self.requests, self.admission)
