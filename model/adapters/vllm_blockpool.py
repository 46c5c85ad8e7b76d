"""vLLM's `BlockPool` alone, and what an adapter of anything on top of it reports.

Importing this module imports the engine, so an absent engine is an ImportError here.  The methods
used are those of vLLM 0.33.0; tests/engines/test_vllm_drift.py names them.

vLLM rejects almost no misuse (a block may be freed twice), so nothing is promised here.  Block 0 is
vLLM's null block and never handed out.
"""

import logging
from collections.abc import Sequence
from typing import Any, ClassVar

from vllm.v1.core.block_pool import BlockPool

from kvoracle.model.adapters.base import Adapter
from kvoracle.model.operations import Done, Outcome, OutOfBlocks
from kvoracle.model.trace import Configuration

NULL_BLOCKS = 1

# Each reset would be a line on the terminal; here it is an outcome.
logging.getLogger("vllm.v1.core.block_pool").setLevel(logging.ERROR)


class OnBlockPool(Adapter):
    """What both adapters have in common: a `BlockPool` to count in and to pin in, the decode step."""

    first_block: ClassVar[int] = NULL_BLOCKS
    pool: Any

    def append(self, request: str, tokens: Sequence[int]) -> Outcome:
        raise NotImplementedError

    def append_each(self, requests: Sequence[str], tokens: Sequence[int]) -> Outcome:
        """As vLLM's scheduler does: one request after the other."""
        step = Done()
        for request, token in zip(requests, tokens, strict=True):
            outcome = self.append(request, (token,))
            if isinstance(outcome, Done):
                step.copies += outcome.copies
            else:
                step.refused.append(request)
        return step

    def free_blocks(self) -> int:
        count: int = self.pool.get_num_free_blocks()
        return count

    def holders(self) -> dict[int, int]:
        return {
            block.block_id: block.ref_cnt
            for block in self.pool.blocks
            if block.ref_cnt != 0 and not block.is_null
        }


class VllmBlockPoolAdapter(OnBlockPool):
    """`BlockPool` alone: the tables are kept here, as its callers keep theirs.

    A fork and a pin touch every block once more; what is not writable is copied first, as the
    managers do for a partial prefix hit.  What a prompt hits, and what is published, the managers
    decide, so there is no `admit` here.
    """

    reuses_in_order: ClassVar[bool] = True

    def __init__(self, config: Configuration) -> None:
        super().__init__(config)
        self.pool = BlockPool(
            config.blocks + NULL_BLOCKS, enable_caching=False, hash_block_size=config.block_size
        )
        self.tables: dict[str, list[Any]] = {}
        self.lengths: dict[str, int] = {}
        self.transfers: dict[str, list[Any]] = {}

    def create(self, request: str) -> None:
        self.tables[request] = []
        self.lengths[request] = 0

    def append(self, request: str, tokens: Sequence[int]) -> Outcome:
        table, length = self.tables[request], self.lengths[request] + len(tokens)
        copied = self._tail_to_copy(request)
        fresh = -(-length // self.config.block_size) - len(table)
        # `get_new_blocks` raises when it is asked for too many; its callers count first.
        if fresh + len(copied) > self.pool.get_num_free_blocks():
            return OutOfBlocks()
        copies = [(tail.block_id, self._redirect_tail(table)) for tail in copied]
        table += self.pool.get_new_blocks(fresh)
        self.lengths[request] = length
        return Done(copies=copies)

    def fork(self, parent: str, child: str) -> None:
        self.pool.touch(self.tables[parent])
        self.tables[child] = list(self.tables[parent])
        self.lengths[child] = self.lengths[parent]

    def pin(self, request: str, transfer: str) -> None:
        self.pool.touch(self.tables[request])
        self.transfers[transfer] = list(self.tables[request])

    def unpin(self, transfer: str) -> None:
        self.pool.free_blocks(reversed(self.transfers.pop(transfer)))

    def release(self, request: str) -> None:
        self.release_each((request,))

    def release_each(self, requests: Sequence[str]) -> None:
        """One call, which names a block once for each of the requests that hold it.

        That is within the contract of `free_blocks`: it gives up one reference a mention, and the
        block joins the free list at the last one only.  The order is the caller's to choose.
        """
        named = [block for request in requests for block in self.tables.pop(request)]
        last_mention = {block.block_id: place for place, block in enumerate(named)}
        self.pool.free_blocks(sorted(named, key=lambda block: -last_mention[block.block_id]))
        for request in requests:
            del self.lengths[request]

    def table(self, request: str) -> Sequence[int]:
        return [block.block_id for block in self.tables[request]]

    def _tail_to_copy(self, request: str) -> list[Any]:
        """The partial last block, if others hold it too."""
        if self.lengths[request] % self.config.block_size == 0:
            return []
        tail = self.tables[request][-1]
        return [] if self.pool.is_block_writable(tail) else [tail]

    def _redirect_tail(self, table: list[Any]) -> int:
        shared, (table[-1],) = table[-1], self.pool.get_new_blocks(1)
        self.pool.free_blocks([shared])
        destination: int = table[-1].block_id
        return destination
