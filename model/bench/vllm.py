"""vLLM's manager and its requests, made as the engine makes them, and called as its scheduler does.

The engine is imported when something is made of it.
"""

import logging
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from kvoracle.model.bench.side import BLOCK_SIZE, BLOCKS

NULL_BLOCKS = 1


class Manager:
    """A `KVCacheManager` for one group of full-attention layers."""

    def __init__(self, *, prefix_cache: bool) -> None:
        utils, hashing = (
            import_module("vllm.v1.core.kv_cache_utils"),
            import_module("vllm.utils.hashing"),
        )
        utils.init_none_hash(hashing.sha256)  # the seed of every hash chain
        # Each reset would be a line on the terminal.
        logging.getLogger("vllm.v1.core.block_pool").setLevel(logging.ERROR)
        self.manager = import_module("vllm.v1.core.kv_cache_manager").KVCacheManager(
            _configuration(),
            max_model_len=BLOCKS * BLOCK_SIZE,
            scheduler_block_size=BLOCK_SIZE,
            hash_block_size=BLOCK_SIZE,
            enable_caching=prefix_cache,
        )
        self.pool = self.manager.block_pool
        self.hasher = (
            utils.get_request_block_hasher(BLOCK_SIZE, hashing.sha256) if prefix_cache else None
        )
        requests = import_module("vllm.v1.request")
        self.new_request, self.is_running = requests.Request, requests.RequestStatus.RUNNING
        self.sampling = import_module("vllm.sampling_params").SamplingParams()

    def admit(self, name: str, prompt: list[int]) -> Any:
        """Begin a request with its prompt, which is computed at once."""
        request = self.new_request(
            name, prompt, self.sampling, pooling_params=None, block_hasher=self.hasher
        )
        blocks, hit, _ = self.manager.get_computed_blocks(request)
        self.manager.allocate_slots(
            request, len(prompt) - hit, num_new_computed_tokens=hit, new_computed_blocks=blocks
        )
        request.num_computed_tokens = len(prompt)
        request.status = self.is_running
        return request

    def free(self, requests: Sequence[Any]) -> None:
        """End requests."""
        for request in requests:
            self.manager.free(request)

    def forget(self) -> None:
        """Drop every entry of the prefix cache."""
        self.manager.reset_prefix_cache()

    def num_free(self) -> int:
        """How many blocks can be taken."""
        free: int = self.pool.get_num_free_blocks()
        return free


def _configuration() -> Any:
    interface = import_module("vllm.v1.kv_cache_interface")
    layers = interface.FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=import_module("torch").float32
    )
    return interface.KVCacheConfig(
        num_blocks=BLOCKS + NULL_BLOCKS,
        kv_cache_tensors=[],
        kv_cache_groups=[interface.KVCacheGroupSpec(["layer"], layers)],
    )
