"""vLLM's scheduler after a failed synchronous load: what a second request with the same prompt hits.

By hand, with vLLM and einops installed whole: `python vllm_failed_load.py recompute abort`.  The
first argument is `kv_load_failure_policy`, the second what happens before the blocks that were not
loaded are computed: `abort`, `preempt` or `threshold` (a long prefill goes on in chunks).
docs/findings.md says what to expect.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVTransferConfig,
    ModelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

BLOCKS, BLOCK_SIZE, LONGEST = 64, 16, 1024
PROMPT = list(range(100, 180))
LOADED_TOKENS = 64
TINY_MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "vocab_size": 1000,
    "max_position_embeddings": LONGEST,
}


class FirstRequestIsLoaded(KVConnectorBase_V1):
    """Has the first tokens of one request, and loads them within the step."""

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        is_first = request.request_id == "first"
        return max(LOADED_TOKENS - num_computed_tokens, 0) * is_first, False

    def build_connector_meta(self, scheduler_output):
        return KVConnectorMetadata()

    def update_state_after_alloc(self, *arguments):
        pass

    start_load_kv = wait_for_layer_load = save_kv_layer = wait_for_save = update_state_after_alloc


def scheduler_with(policy):
    folder = tempfile.mkdtemp()
    (Path(folder) / "config.json").write_text(json.dumps(TINY_MODEL), encoding="utf-8")
    config = VllmConfig(
        model_config=ModelConfig(
            folder, skip_tokenizer_init=True, dtype="float32", max_model_len=LONGEST
        ),
        scheduler_config=SchedulerConfig(
            max_num_batched_tokens=512,
            max_model_len=LONGEST,
            is_encoder_decoder=False,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True),
        device_config=DeviceConfig("cpu"),
        kv_transfer_config=KVTransferConfig(
            kv_connector="FirstRequestIsLoaded",
            kv_connector_module_path=Path(__file__).stem,
            kv_role="kv_both",
            kv_load_failure_policy=policy,
        ),
    )
    config.cache_config.num_gpu_blocks = BLOCKS
    spec = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    pool = KVCacheConfig(BLOCKS, [], [KVCacheGroupSpec(["layer"], spec)])
    structured = StructuredOutputManager(config)
    return Scheduler(config, pool, structured, BLOCK_SIZE, BLOCK_SIZE, log_stats=True)


def request_named(name, prompt):
    hasher = get_request_block_hasher(BLOCK_SIZE, sha256)
    return Request(name, prompt, SamplingParams(max_tokens=8), None, block_hasher=hasher)


def main(policy, then):
    init_none_hash(sha256)
    scheduler = scheduler_with(policy)
    first = request_named("first", PROMPT)
    scheduler.add_request(first)
    step = scheduler.schedule()
    not_loaded = set(scheduler.kv_cache_manager.get_block_ids("first")[0][1:4])
    output = ModelRunnerOutput(
        req_ids=["first"],
        req_id_to_index={"first": 0},
        sampled_token_ids=[[7]],
        kv_connector_output=KVConnectorOutput(invalid_block_ids=not_loaded),
    )
    scheduler.update_from_output(step, output)
    if then == "threshold":
        scheduler.scheduler_config.long_prefill_token_threshold = BLOCK_SIZE
    elif policy == "recompute":
        if then == "preempt":
            scheduler.running.remove(first)
            scheduler._preempt_request(first, 0.0)
        scheduler.finish_requests("first", RequestStatus.FINISHED_ABORTED)
    scheduler.add_request(request_named("second", [*PROMPT, 9]))
    step = scheduler.schedule()
    (begun,) = step.scheduled_new_reqs
    hit = begun.block_ids[0][: begun.num_computed_tokens // BLOCK_SIZE]
    print(
        f"not loaded: blocks {sorted(not_loaded)}; this step computes {step.num_scheduled_tokens}"
    )
    print(f"the second request hits {begun.num_computed_tokens} tokens, on blocks {hit}")


if __name__ == "__main__":
    main(*sys.argv[1:])
