"""vLLM's `KVCacheManager` for one group of full-attention layers, called as its scheduler calls it.

Importing this module imports the engine, so an absent engine is an ImportError here.  The methods
used are those of vLLM 0.33.0; tests/engines/test_vllm_drift.py names them, and docs/engines.md says
what is left out and why.

vLLM rejects almost no misuse (an unknown request may be freed), so one refusal only is promised: no
cache is reset while blocks are in use.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import RequestStatus

from kvoracle.model.adapters.base import NO_KEYS
from kvoracle.model.adapters.vllm_blockpool import NULL_BLOCKS, OnBlockPool
from kvoracle.model.adapters.vllm_requests import Requests
from kvoracle.model.fields import COUNT_MAX, TOKENS_MAX
from kvoracle.model.operations import Done, Operation, Outcome, OutOfBlocks, Rejected
from kvoracle.model.trace import Configuration

ENDS = frozenset({"release", "release_each"})
BEFORE_ITS_FIRST_TOKEN = ENDS | {"append", "append_each"}
FULL_BLOCKS_ONLY = frozenset({"pin", "send"})


class _Transfer(NamedTuple):
    """Blocks that a connector has touched, who is still to report, and the request that it loads."""

    blocks: Sequence[Any]
    awaited: set[int]
    loads: Any = None


class VllmManagerAdapter(OnBlockPool):
    """The manager; its scheduler and a connector are played here.

    A vLLM request has a prompt, so one that was only created begins with the first append that finds
    room: it looks up nothing and knows no watermark, and publishes as any other.
    """

    extra_keys: ClassVar[frozenset[str]] = frozenset({"adapter", "salt", "image"})
    options: ClassVar[frozenset[str]] = frozenset({"watermark"})
    unreachable: ClassVar[frozenset[str]] = frozenset(
        {
            "append copies a pinned tail of its only owner",
            "a stale acknowledgement is refused",
            "a second acknowledgement of a worker is refused",
        }
    )

    def __init__(self, config: Configuration) -> None:
        super().__init__(config)
        self.manager = KVCacheManager(
            _kv_cache_config(config),
            # `allocate_slots` silently gives fewer slots beyond this; the scheduler stays below.
            max_model_len=config.blocks * config.block_size + max(TOKENS_MAX, COUNT_MAX),
            scheduler_block_size=config.block_size,
            hash_block_size=config.block_size,
            enable_caching=config.prefix_cache,
            log_stats=True,
            watermark=_watermark(config),
        )
        self.pool = self.manager.block_pool
        self.new = Requests(config)
        self.requests: dict[str, Any] = {}
        self.transfers: dict[str, _Transfer] = {}
        self.counted = {"queried_tokens": 0, "hit_tokens": 0}

    def can_try(self, operation: Operation) -> bool:
        """As far as vLLM's own callers go."""
        return super().can_try(operation) and all(
            self._is_in_contract(operation.verb, self.requests[name])
            for name in _named(operation)
            if name in self.requests
        )

    def create(self, request: str) -> None:
        self.requests[request] = None

    def admit(
        self, request: str, prompt: Sequence[int], extra_keys: Mapping[str, str] = NO_KEYS
    ) -> Outcome:
        return self._admit(self.new.waiting(request, prompt, extra_keys))

    def would_hit(
        self, request: str, prompt: Sequence[int], extra_keys: Mapping[str, str] = NO_KEYS
    ) -> tuple[int, int] | None:
        found, hit, _ = self.manager.get_computed_blocks(
            self.new.waiting(request, prompt, extra_keys)
        )
        (blocks,) = found.blocks
        return hit, sum(block.ref_cnt == 0 for block in blocks)

    def append(self, request: str, tokens: Sequence[int]) -> Outcome:
        running = self.requests[request]
        if running is None:
            return self._begin_unseen(self.new.waiting(request, tokens))
        running.append_output_token_ids(list(tokens))
        if not self._allocate(running, len(tokens)):
            # vLLM would preempt a request instead.
            self.new.take_back(running, len(tokens))
            return OutOfBlocks()
        running.num_computed_tokens += len(tokens)
        return Done()

    def reserve(self, request: str, count: int) -> Outcome:
        """Slots for the next token and for the drafts after it; none of them is published."""
        running = self.requests[request]
        has_room = self._allocate(running, 1, num_lookahead_tokens=count - 1)
        return Done() if has_room else OutOfBlocks()

    def commit(self, request: str, tokens: Sequence[int]) -> None:
        """Drafts that were accepted."""
        running = self.requests[request]
        running.append_output_token_ids(list(tokens))
        running.num_computed_tokens += len(tokens)
        self.manager.cache_blocks(running, running.num_computed_tokens)

    def pin(self, request: str, transfer: str) -> None:
        self._begin(transfer, self._blocks(request), 1)

    def unpin(self, transfer: str) -> None:
        self._end(transfer)

    def send(self, request: str, transfer: str, workers: int, lease: int) -> None:  # noqa: ARG002
        self._begin(transfer, self._blocks(request), workers)

    def receive(
        self,
        request: str,
        prompt: Sequence[int],
        transfer: str,
        workers: int,
        lease: int,  # noqa: ARG002
        extra_keys: Mapping[str, str] = NO_KEYS,
    ) -> Outcome:
        """An asynchronous load of all that is not hit."""
        waiting = self.new.waiting(request, prompt, extra_keys)
        hit = self._admitted(waiting, loads=True)
        if hit is None:
            return OutOfBlocks()
        waiting.status = RequestStatus.WAITING_FOR_REMOTE_KVS
        loaded = self._blocks(request)[hit // self.config.block_size :]
        self._begin(transfer, loaded, workers, waiting)
        return Done(hit=hit)

    def acknowledge(self, transfer: str, worker: int, life: int) -> None:  # noqa: ARG002
        """The engine counts its workers, and reports a transfer when all of them have."""
        self.transfers[transfer].awaited.remove(worker)
        if self.transfers[transfer].awaited:
            return
        loaded = self._end(transfer).loads
        if loaded is not None and self.requests.get(loaded.request_id) is loaded:
            self._arrive(loaded)

    def release(self, request: str) -> None:
        """An aborted load too: what is still written into is kept by the connector's references."""
        released = self.requests.pop(request)
        if released is not None:
            self.manager.free(released)

    def preempt(self, request: str) -> None:
        preempted = self.requests[request]
        self.manager.free(preempted)
        preempted.status = RequestStatus.PREEMPTED
        preempted.num_computed_tokens = 0
        preempted.num_preemptions += 1

    def resume(self, request: str) -> Outcome:
        return self._admit(self.requests[request])

    def evict(self, request: str, first: int) -> None:
        """A synchronous load has failed, and with it the request."""
        self.manager.evict_blocks({block.block_id for block in self._blocks(request)[first:]})
        self.requests[request].status = RequestStatus.FINISHED_ERROR

    def table(self, request: str) -> Sequence[int]:
        (block_ids,) = self.manager.get_block_ids(request)
        ids: list[int] = block_ids
        return ids

    def statistics(self) -> dict[str, int]:
        latest = self.manager.make_prefix_cache_stats()
        self.counted["queried_tokens"] += latest.queries + latest.preempted_queries
        self.counted["hit_tokens"] += latest.hits + latest.preempted_hits
        return {**self.counted, "held": round(self.manager.usage * self.config.blocks)}

    def _is_in_contract(self, verb: str, request: Any) -> bool:
        """Before its first token there is no request, and one that failed is ended next; a load that
        fails is not cached yet, so nothing of it is evicted; a connector reads full blocks only, for
        the manager writes a tail in place."""
        if request is None:
            return verb in BEFORE_ITS_FIRST_TOKEN
        if request.status == RequestStatus.FINISHED_ERROR:
            return verb in ENDS
        if verb == "evict":
            return bool(request.status == RequestStatus.RUNNING)
        is_full = request.num_tokens % self.config.block_size == 0
        return is_full or verb not in FULL_BLOCKS_ONLY

    def _admit(self, waiting: Any) -> Outcome:
        hit = self._admitted(waiting)
        if hit is None:
            return OutOfBlocks()
        waiting.status = RequestStatus.RUNNING
        return Done(hit=hit)

    def _admitted(self, waiting: Any, *, loads: bool = False) -> int | None:
        """How many tokens were hit; None where there is no room.  What is not hit is computed, or
        loaded by a connector."""
        blocks, hit, _ = self.manager.get_computed_blocks(waiting)
        rest = waiting.num_tokens - hit
        has_room = self._allocate(
            waiting,
            0 if loads else rest,
            num_new_computed_tokens=hit,
            new_computed_blocks=blocks,
            num_external_computed_tokens=rest if loads else 0,
            delay_cache_blocks=loads,
            full_sequence_must_fit=True,
        )
        if not has_room:
            return None
        self.manager.record_prefix_cache_stats(waiting, hit)
        waiting.num_computed_tokens = waiting.num_tokens
        self.requests[waiting.request_id] = waiting
        computed: int = hit
        return computed

    def _begin_unseen(self, waiting: Any) -> Outcome:
        """No lookup; and no watermark, as for whatever begins while nothing else runs."""
        if not self._allocate(waiting, waiting.num_tokens, has_scheduled_reqs=False):
            return OutOfBlocks()
        waiting.status = RequestStatus.RUNNING
        waiting.num_computed_tokens = waiting.num_tokens
        self.requests[waiting.request_id] = waiting
        return Done()

    def _allocate(self, request: Any, new: int, **how: Any) -> bool:
        return self.manager.allocate_slots(request, new, **how) is not None

    def _blocks(self, request: str) -> Sequence[Any]:
        (blocks,) = self.manager.get_blocks(request).blocks
        return list(blocks)

    def _begin(self, name: str, blocks: Sequence[Any], workers: int, loads: Any = None) -> None:
        """vLLM's own connectors touch what they read or write, and free it when that is done."""
        self.pool.touch(blocks)
        self.transfers[name] = _Transfer(blocks, set(range(workers)), loads)

    def _end(self, name: str) -> _Transfer:
        ended = self.transfers.pop(name)
        self.pool.free_blocks(reversed(ended.blocks))
        return ended

    def _arrive(self, loaded: Any) -> None:
        """What was loaded is published, and the last token computed again, for its logits."""
        self.manager.cache_blocks(loaded, loaded.num_computed_tokens)
        loaded.num_computed_tokens = loaded.num_tokens - 1
        loaded.status = RequestStatus.WAITING
        self._allocate(loaded, 1, has_scheduled_reqs=False)
        loaded.num_computed_tokens = loaded.num_tokens
        loaded.status = RequestStatus.RUNNING


class VllmAdapter(VllmManagerAdapter):
    """The manager with everything that it can do."""

    refuses = frozenset({"blocks in use"})

    def release_each(self, requests: Sequence[str]) -> None:
        """As vLLM's scheduler does: one request after the other."""
        for request in requests:
            self.release(request)

    def reset(self) -> Outcome:
        return Done() if self.manager.reset_prefix_cache() else Rejected("blocks in use")


class VllmInOrderAdapter(VllmManagerAdapter):
    """The manager without what leaves its blocks in an order of its own: a reset, which moves none,
    and the end of several requests, which vLLM ends one by one."""

    reuses_in_order: ClassVar[bool] = True


def _named(operation: Operation) -> Iterator[str]:
    """The live requests that an operation is about."""
    yield from getattr(operation, "requests", ())
    if hasattr(operation, "request"):
        yield operation.request


def _watermark(config: Configuration) -> float:
    """The share of all blocks that vLLM rounds down to just so many."""
    return (config.watermark + 0.5) / (config.blocks + NULL_BLOCKS) if config.watermark else 0.0


def _kv_cache_config(config: Configuration) -> Any:
    spec = FullAttentionSpec(
        block_size=config.block_size, num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    return KVCacheConfig(
        num_blocks=config.blocks + NULL_BLOCKS,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
    )
