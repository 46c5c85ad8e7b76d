"""vLLM's allocators: `BlockPool` alone, and the `KVCacheManager` on top of it, which caches prefixes.

Importing this module imports the engine, so an absent engine is an ImportError here.  The methods
used are those of vLLM 0.33.0; tests/engines/test_vllm_drift.py names them.

vLLM rejects almost no misuse (a block may be freed twice, an unknown request freed), so the adapters
promise one refusal only: the manager resets no cache while blocks are in use.  Block 0 is vLLM's
null block and never handed out.
"""

import logging
from collections.abc import Sequence
from itertools import chain
from typing import Any, ClassVar

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request, RequestStatus

from kvoracle.model.adapters.base import Adapter
from kvoracle.model.fields import TOKENS_MAX
from kvoracle.model.operations import Done, Outcome, OutOfBlocks, Rejected
from kvoracle.model.trace import Configuration

NULL_BLOCKS = 1
LOOKS_UP_ITS_PROMPT = SamplingParams()
LOOKS_UP_NOTHING = SamplingParams(skip_reading_prefix_cache=True)

init_none_hash(sha256)  # the seed of every hash chain; the engine does this as it starts
# Each reset would be a line on the terminal; here it is an outcome.
logging.getLogger("vllm.v1.core.block_pool").setLevel(logging.ERROR)


class _OnBlockPool(Adapter):
    """What both adapters have in common: a `BlockPool` to count in, and the decode step."""

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


class VllmBlockPoolAdapter(_OnBlockPool):
    """`BlockPool` alone: the tables are kept here, as its callers keep theirs.

    A fork and a pin touch every block once more; what is not writable is copied first, as the
    managers do for a partial prefix hit.  What a prompt hits, and what is published, the managers
    decide, so there is no `admit` here.
    """

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
        block joins the free list at the last one only.
        """
        tables = [self.tables.pop(request) for request in requests]
        self.pool.free_blocks(chain.from_iterable(reversed(table) for table in tables))
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


class VllmAdapter(_OnBlockPool):
    """`KVCacheManager` for one group of full-attention layers, called as the scheduler calls it.

    A vLLM request has a prompt, so one that was only created begins with the first append that finds
    room, and is told to skip the lookup: it hits nothing, and publishes as any other.  The manager
    can neither fork a request nor pin one for a transfer.  The watermark is 0, its default: no
    block is kept back.
    """

    refuses = frozenset({"blocks in use"})

    def __init__(self, config: Configuration) -> None:
        super().__init__(config)
        self.manager = KVCacheManager(
            _kv_cache_config(config),
            # `allocate_slots` silently gives fewer slots beyond this; the scheduler stays below.
            max_model_len=config.blocks * config.block_size + TOKENS_MAX,
            scheduler_block_size=config.block_size,
            hash_block_size=config.block_size,
            enable_caching=config.prefix_cache,
        )
        self.hasher = (
            get_request_block_hasher(config.block_size, sha256) if config.prefix_cache else None
        )
        self.pool = self.manager.block_pool
        self.requests: dict[str, Any] = {}

    def create(self, request: str) -> None:
        self.requests[request] = None

    def admit(self, request: str, prompt: Sequence[int]) -> Outcome:
        hit = self._begin(request, prompt, LOOKS_UP_ITS_PROMPT)
        return OutOfBlocks() if hit is None else Done(hit=hit)

    def append(self, request: str, tokens: Sequence[int]) -> Outcome:
        running = self.requests[request]
        if running is None:
            hit = self._begin(request, tokens, LOOKS_UP_NOTHING)
            return OutOfBlocks() if hit is None else Done()
        running.append_output_token_ids(list(tokens))
        if not self._schedule(running):
            self._take_back(running, len(tokens))
            return OutOfBlocks()
        return Done()

    def release(self, request: str) -> None:
        running = self.requests.pop(request)
        if running is not None:
            self.manager.free(running)

    def release_each(self, requests: Sequence[str]) -> None:
        for request in requests:
            self.release(request)

    def reset(self) -> Outcome:
        return Done() if self.manager.reset_prefix_cache() else Rejected("blocks in use")

    def table(self, request: str) -> Sequence[int]:
        (block_ids,) = self.manager.get_block_ids(request)
        ids: list[int] = block_ids
        return ids

    def _begin(self, name: str, prompt: Sequence[int], sampling: Any) -> int | None:
        """How many tokens of the prompt were hit; None where there is no room."""
        waiting = Request(
            name, list(prompt), sampling, pooling_params=None, block_hasher=self.hasher
        )
        blocks, hit, _ = self.manager.get_computed_blocks(waiting)
        if not self._schedule(waiting, hit, blocks):
            return None
        waiting.status = RequestStatus.RUNNING
        self.requests[name] = waiting
        computed: int = hit
        return computed

    def _schedule(self, request: Any, hit: int = 0, blocks: Any = None) -> bool:
        """Allocate for all tokens not yet computed, then count them as computed."""
        new = request.num_tokens - request.num_computed_tokens - hit
        allocated = self.manager.allocate_slots(
            request, new, num_new_computed_tokens=hit, new_computed_blocks=blocks
        )
        if allocated is None:
            return False
        request.num_computed_tokens += hit + new
        return True

    def _take_back(self, request: Any, count: int) -> None:
        """Undo `append_output_token_ids`; vLLM would preempt the request instead."""
        del request._output_token_ids[-count:]
        del request._all_token_ids[-count:]
        if self.hasher is not None:
            del request.block_hashes[request.num_tokens // self.config.block_size :]


def _kv_cache_config(config: Configuration) -> Any:
    spec = FullAttentionSpec(
        block_size=config.block_size, num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    return KVCacheConfig(
        num_blocks=config.blocks + NULL_BLOCKS,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
    )
