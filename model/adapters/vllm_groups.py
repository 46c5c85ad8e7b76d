"""vLLM's `KVCacheManager` for groups of layers on one pool: full attention and sliding windows.

Called as its scheduler calls it.  The methods used are those of vLLM 0.33.0.  vLLM lets blocks leave
a window when their request is next scheduled; here its `remove_skipped_blocks` is called after each
call instead, when the tokens are written, as the scheduler does for a request that ends.

vLLM does not promise the longest hit: it publishes nothing beyond the last edge of all groups, of
windows only what ends at an edge that it keeps, and a window of one token must find a block too.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import RequestStatus

from kvoracle.model.adapters.base import NO_KEYS
from kvoracle.model.adapters.vllm_blockpool import NULL_BLOCKS, OnBlockPool
from kvoracle.model.adapters.vllm_requests import Requests
from kvoracle.model.fields import TOKENS_MAX
from kvoracle.model.operations import Done, Outcome, OutOfBlocks, Rejected
from kvoracle.model.trace import Configuration, Group

NOTHING_PUBLISHED_BETWEEN = 0
EVERY_EDGE = None


class VllmGroupsAdapter(OnBlockPool):
    """The manager as engines set it up: of a window they keep what the next turn of a prompt needs."""

    refuses = frozenset({"blocks in use"})
    extra_keys: ClassVar[frozenset[str]] = frozenset({"adapter", "salt", "image"})
    options: ClassVar[frozenset[str]] = frozenset({"groups"})
    finds_longest_hits: ClassVar[bool] = False
    retention_interval: ClassVar[int | None] = NOTHING_PUBLISHED_BETWEEN

    def __init__(self, config: Configuration) -> None:
        super().__init__(config)
        self.sizes = [group.block_size for group in config.layer_groups]
        hash_size = math.gcd(*self.sizes)
        self.manager = KVCacheManager(
            self._kv_cache_config(),
            max_model_len=config.blocks * config.block_size + TOKENS_MAX,
            scheduler_block_size=config.block_size,
            hash_block_size=hash_size,
            enable_caching=config.prefix_cache,
        )
        self.pool = self.manager.block_pool
        self.new = Requests(Configuration(config.blocks, hash_size, config.prefix_cache))
        self.requests: dict[str, Any] = {}

    def create(self, request: str) -> None:
        self.requests[request] = None

    def admit(
        self, request: str, prompt: Sequence[int], extra_keys: Mapping[str, str] = NO_KEYS
    ) -> Outcome:
        outcome = self._begin(self.new.waiting(request, prompt, extra_keys), looks_up=True)
        self._slide(request)
        return outcome

    def append(self, request: str, tokens: Sequence[int]) -> Outcome:
        outcome = self._grow(request, tokens)
        self._slide(request)
        return outcome

    def append_each(self, requests: Sequence[str], tokens: Sequence[int]) -> Outcome:
        """One step: all its requests are scheduled before any of their windows moves."""
        step = Done()
        for request, token in zip(requests, tokens, strict=True):
            outcome = self._grow(request, (token,))
            if isinstance(outcome, Done):
                step.slots |= outcome.slots
            else:
                step.refused.append(request)
        for request in requests:
            self._slide(request)
        return step

    def release(self, request: str) -> None:
        released = self.requests.pop(request)
        if released is not None:
            self.manager.free(released)

    def release_each(self, requests: Sequence[str]) -> None:
        for request in requests:
            self.release(request)

    def preempt(self, request: str) -> None:
        preempted = self.requests[request]
        self.manager.free(preempted)
        preempted.status = RequestStatus.PREEMPTED
        preempted.num_computed_tokens = 0
        preempted.num_preemptions += 1

    def resume(self, request: str) -> Outcome:
        outcome = self._begin(self.requests[request], looks_up=True)
        self._slide(request)
        return outcome

    def reset(self) -> Outcome:
        return Done() if self.manager.reset_prefix_cache() else Rejected("blocks in use")

    def table(self, request: str) -> Sequence[int]:
        return [block for table in self._tables(request) for block in table]

    def _grow(self, name: str, tokens: Sequence[int]) -> Outcome:
        running = self.requests[name]
        if running is None:
            return self._begin(self.new.waiting(name, tokens), looks_up=False)
        first = running.num_tokens
        running.append_output_token_ids(list(tokens))
        if self.manager.allocate_slots(running, len(tokens)) is None:
            # vLLM would preempt a request instead.
            self.new.take_back(running, len(tokens))
            return OutOfBlocks()
        running.num_computed_tokens = running.num_tokens
        return Done(slots={name: self._slots(name, first, running.num_tokens)})

    def _begin(self, waiting: Any, *, looks_up: bool) -> Outcome:
        blocks, hit, boundary = None, 0, 0
        if looks_up:
            blocks, hit, boundary = self.manager.get_computed_blocks(waiting)
        waiting.shared_prefix_boundary = boundary
        allocated = self.manager.allocate_slots(
            waiting,
            waiting.num_tokens - hit,
            num_new_computed_tokens=hit,
            new_computed_blocks=blocks,
            full_sequence_must_fit=True,
        )
        if allocated is None:
            return OutOfBlocks()
        name = waiting.request_id
        waiting.status = RequestStatus.RUNNING
        waiting.num_computed_tokens = waiting.num_tokens
        self.requests[name] = waiting
        return Done(slots={name: self._slots(name, hit, waiting.num_tokens)}, hit=hit)

    def _slide(self, name: str) -> None:
        running = self.requests.get(name)
        if running is not None:
            self.manager.remove_skipped_blocks(
                name, running.num_computed_tokens, running.num_prompt_tokens
            )

    def _slots(self, name: str, first: int, stop: int) -> list[int]:
        """The slots of positions in all groups, one group after the other."""
        return [
            table[position // size] * size + position % size
            for size, table in zip(self.sizes, self._tables(name), strict=True)
            for position in range(first, stop)
        ]

    def _tables(self, name: str) -> Sequence[list[int]]:
        tables: Sequence[list[int]] = self.manager.get_block_ids(name)
        return tables

    def _kv_cache_config(self) -> Any:
        groups = self.config.layer_groups
        has_window = any(group.window for group in groups)
        return KVCacheConfig(
            num_blocks=self.config.blocks + NULL_BLOCKS,
            kv_cache_tensors=[],
            kv_cache_groups=[
                KVCacheGroupSpec([f"layer {number}"], _spec(group))
                for number, group in enumerate(groups)
            ],
            prefix_cache_retention_interval=self.retention_interval if has_window else EVERY_EDGE,
        )


class VllmDenseGroupsAdapter(VllmGroupsAdapter):
    """The manager told to keep what every edge of all groups needs."""

    retention_interval = EVERY_EDGE


def _spec(group: Group) -> Any:
    shape = {
        "block_size": group.block_size,
        "num_kv_heads": 1,
        "head_size": 1,
        "dtype": torch.float32,
    }
    if group.window:
        return SlidingWindowSpec(**shape, sliding_window=group.window)
    return FullAttentionSpec(**shape)
