"""The vLLM methods that the adapters call still take what they took in 0.33.0."""

import importlib.util
import inspect
from importlib.metadata import version
from pathlib import Path

import pytest

if any(importlib.util.find_spec(module) is None for module in ("torch", "vllm", "zmq", "cbor2")):
    install = "pip install torch==2.13.0 pyzmq cbor2 && pip install --no-deps vllm==0.33.0"
    pytest.skip(f"vLLM is absent: {install}", allow_module_level=True)

import light_vllm

light_vllm.install()

from vllm.utils import hashing  # noqa: E402
from vllm.v1.core import kv_cache_utils  # noqa: E402
from vllm.v1.metrics.stats import PrefixCacheStats  # noqa: E402

from kvoracle.model.adapters import vllm as adapter  # noqa: E402
from kvoracle.model.adapters import vllm_blockpool, vllm_requests  # noqa: E402
from kvoracle.model.operations import (  # noqa: E402
    Append,
    AppendEach,
    Done,
    Evict,
    OutOfBlocks,
    Rejected,
    Release,
)
from kvoracle.model.trace import Configuration  # noqa: E402

SIGNATURES = {
    vllm_blockpool.BlockPool: {
        "__init__": (
            "(self, num_gpu_blocks, enable_caching, hash_block_size, enable_kv_cache_events=False,"
            " metrics_collector=None, num_hash_lookahead_tokens=0, medium='GPU')"
        ),
        "free_blocks": "(self, ordered_blocks)",
        "get_new_blocks": "(self, num_blocks)",
        "get_num_free_blocks": "(self)",
        "is_block_writable": "(self, block)",
        "touch": "(self, blocks)",
    },
    adapter.KVCacheManager: {
        "__init__": (
            "(self, kv_cache_config, max_model_len, scheduler_block_size, hash_block_size,"
            " max_in_flight_tokens=None, enable_caching=True, use_eagle=False,"
            " num_hash_lookahead_tokens=0, num_prefill_lookahead=0, log_stats=False,"
            " enable_kv_cache_events=False, dcp_world_size=1, pcp_world_size=1,"
            " metrics_collector=None, watermark=0.0, enable_mamba_shared_prefix_checkpoint=False)"
        ),
        "allocate_slots": (
            "(self, request, num_new_tokens, num_new_computed_tokens=0, new_computed_blocks=None,"
            " num_lookahead_tokens=0, num_external_computed_tokens=0, delay_cache_blocks=False,"
            " num_encoder_tokens=0, full_sequence_must_fit=False, reserved_blocks=0,"
            " has_scheduled_reqs=True, skip_zeroing_group_ids=())"
        ),
        "cache_blocks": "(self, request, num_computed_tokens)",
        "evict_blocks": "(self, block_ids)",
        "free": "(self, request)",
        "get_block_ids": "(self, request_id)",
        "get_blocks": "(self, request_id)",
        "get_computed_blocks": "(self, request, max_cache_hit_length=None)",
        "make_prefix_cache_stats": "(self)",
        "record_prefix_cache_stats": "(self, request, num_hits)",
        "reset_prefix_cache": "(self)",
    },
    vllm_requests.Request: {
        "__init__": (
            "(self, request_id, prompt_token_ids, sampling_params, pooling_params, client_index=0,"
            " arrival_time=None, prompt_embeds=None, prompt_is_token_ids=None, mm_features=None,"
            " lora_request=None, cache_salt=None, priority=0, trace_headers=None,"
            " block_hasher=None, resumable=False, session_id=None, reasoning_ended=None,"
            " reasoning_parser_kwargs=None, abort_immediately=False, kv_hints=None)"
        ),
        "append_output_token_ids": "(self, token_ids)",
    },
    adapter.KVCacheConfig: {
        "__init__": (
            "(self, num_blocks, kv_cache_tensors, kv_cache_groups,"
            " prefix_cache_retention_interval=None, kv_cache_layout=None, hash_block_size=None,"
            " cache_hit_alignment_tokens=None, hisparse_host_num_blocks=None,"
            " hisparse_host_block_stride=None, hisparse_shared_host_pool=False, kv_tp_replicas=1)"
        ),
    },
    adapter.KVCacheGroupSpec: {
        "__init__": (
            "(self, layer_names, kv_cache_spec, is_eagle_group=False, host_resident=False,"
            " enable_kv_transfer=True, role=<KVCacheGroupRole.DEFAULT: 'default'>)"
        ),
    },
    adapter.FullAttentionSpec: {
        "__init__": (
            "(self, block_size, *, dcp_sharded=True, block_stride_alignment=None, is_draft=False,"
            " max_tp_shards=None, num_kv_heads, head_size, dtype, head_size_v=None,"
            " kv_quant_mode=<KVQuantMode.NONE: 0>, page_size_padded=None, num_head_slots=None,"
            " state_content_bytes=None, tokens_per_state=1, sliding_window=None,"
            " attention_chunk_size=None, non_causal=False)"
        ),
    },
    kv_cache_utils: {
        "get_request_block_hasher": (
            "(hash_block_size, caching_hash_fn, num_hash_lookahead_tokens=0)"
        ),
        "init_none_hash": "(hash_fn)",
    },
    hashing: {"sha256": "(input)"},
}
CACHING = Configuration(blocks=3, block_size=2, prefix_cache=True)
CALLS = [
    (owner, method, signature)
    for owner, methods in SIGNATURES.items()
    for method, signature in methods.items()
]


@pytest.mark.parametrize(("owner", "method", "expected"), CALLS)
def test_signatures_are_those_of_0_33_0(owner, method, expected):
    function = getattr(owner, method, None)
    found = "gone" if function is None else signature_of(function)
    assert found == expected, (
        f"{owner.__name__}.{method} of vLLM {version('vllm')} is {found}, where it was "
        f"{expected}: look at kvoracle/model/adapters/vllm*.py again"
    )


def test_a_refused_append_leaves_the_request_as_it_was():
    manager = adapter.VllmAdapter(Configuration(blocks=2, block_size=2))
    manager.create("a")
    assert manager.append("a", (1, 2, 3, 4, 5)) == OutOfBlocks()
    assert manager.requests == {"a": None}
    assert manager.append("a", (1,)) == Done()
    assert manager.append("a", (2, 3)) == Done()
    assert manager.append("a", (4, 5)) == OutOfBlocks()
    request = manager.requests["a"]
    assert list(request.all_token_ids) == [1, 2, 3]
    assert list(request.output_token_ids) == [2, 3]
    assert request.num_computed_tokens == 3
    assert manager.append("a", (4,)) == Done()


def test_a_refused_append_takes_its_hashes_back():
    manager = adapter.VllmAdapter(CACHING)
    assert manager.admit("a", (1, 2, 3)) == Done(hit=0)
    assert manager.append("a", (4, 5, 6, 7)) == OutOfBlocks()
    assert len(manager.requests["a"].block_hashes) == 1
    assert manager.append("a", (8,)) == Done()
    assert computed(manager, 1, 2, 3, 4, 5) == 2
    assert computed(manager, 1, 2, 3, 8, 5) == 4


def test_a_refused_admission_leaves_nothing():
    manager = adapter.VllmAdapter(CACHING)
    assert manager.admit("a", (1, 2)) == Done(hit=0)
    manager.release("a")
    assert manager.admit("a", (1, 2, 3, 4, 5, 6, 7)) == OutOfBlocks()
    assert (manager.requests, manager.holders(), manager.free_blocks()) == ({}, {}, 3)
    assert manager.admit("a", (1, 2, 3)) == Done(hit=2)


def test_a_request_that_was_only_created_hits_nothing_and_publishes():
    manager = adapter.VllmAdapter(CACHING)
    for request in ("a", "b"):
        manager.create(request)
        assert manager.append(request, (1, 2)) == Done()
    assert manager.table("a") != manager.table("b")
    assert manager.admit("c", (1, 2, 3)) == Done(hit=2)
    assert manager.table("c")[:1] == manager.table("a")


def test_no_reset_while_blocks_are_in_use():
    manager = adapter.VllmAdapter(CACHING)
    assert manager.admit("a", (1, 2, 3)) == Done(hit=0)
    assert manager.reset() == Rejected("blocks in use")
    manager.release("a")
    assert manager.reset() == Done()
    assert manager.admit("a", (1, 2, 3)) == Done(hit=0)


def test_loaded_blocks_outlive_their_request_and_are_published_for_none():
    manager = adapter.VllmAdapter(CACHING)
    assert manager.receive("a", (1, 2, 3, 4), "t", 2, 0) == Done(hit=0)
    manager.release("a")
    assert manager.free_blocks() == 1
    manager.acknowledge("t", 1, 0)
    assert manager.free_blocks() == 1
    manager.acknowledge("t", 0, 0)
    assert manager.free_blocks() == 3
    assert manager.admit("b", (1, 2, 3)) == Done(hit=0)


def test_a_load_is_published_when_it_has_arrived():
    manager = adapter.VllmAdapter(CACHING)
    assert manager.receive("a", (1, 2, 3, 4), "t", 1, 0) == Done(hit=0)
    assert computed(manager, 1, 2, 3) == 0
    manager.acknowledge("t", 0, 0)
    assert computed(manager, 1, 2, 3) == 2
    assert manager.requests["a"].status == adapter.RequestStatus.RUNNING
    assert manager.append("a", (5, 6)) == Done()


def test_drafts_are_published_when_they_are_accepted():
    manager = adapter.VllmAdapter(CACHING)
    assert manager.admit("a", (1, 2, 3)) == Done(hit=0)
    assert manager.reserve("a", 3) == Done()
    assert len(manager.table("a")) == 3
    assert computed(manager, 1, 2, 3, 4, 5) == 2
    manager.commit("a", (4,))
    assert computed(manager, 1, 2, 3, 4, 5) == 4
    assert manager.reserve("a", 4) == OutOfBlocks()


def test_a_failed_request_is_only_ended():
    manager = adapter.VllmAdapter(CACHING)
    assert manager.admit("a", (1, 2, 3)) == Done(hit=0)
    manager.evict("a", 0)
    assert computed(manager, 1, 2, 3) == 0
    assert not manager.can_try(Append("a", (4,)))
    assert not manager.can_try(AppendEach(("a",), (4,)))
    assert not manager.can_try(Evict("a", 0))
    assert manager.can_try(Release("a"))


@pytest.mark.parametrize("blocks", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("watermark", [0, 1, 2, 3, 10])
def test_the_watermark_is_so_many_blocks(blocks, watermark):
    manager = adapter.VllmAdapter(Configuration(blocks, 2, watermark=watermark))
    assert manager.manager.watermark_blocks == watermark


def test_counts_of_a_preempted_request_are_kept_apart_and_added():
    manager = adapter.VllmAdapter(CACHING)
    assert manager.admit("a", (1, 2, 3)) == Done(hit=0)
    manager.preempt("a")
    assert manager.resume("a") == Done(hit=2)
    assert manager.manager.prefix_cache_stats.preempted_hits == 2
    assert manager.statistics() == {"queried_tokens": 6, "hit_tokens": 2, "held": 2}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("multimodal/inputs.py", "class PlaceholderRange:\n"),
        ("multimodal/inputs.py", "class MultiModalFeatureSpec:\n"),
        ("v1/core/kv_cache_utils.py", 'extra_keys.append(("mm", mm_feature.identifier, offset'),
        ("v1/core/sched/scheduler.py", "self.kv_cache_manager.evict_blocks(sync_blocks_to_evict)"),
        ("v1/core/sched/scheduler.py", "has_scheduled_reqs=bool(self.running),"),
        (
            "v1/simple_kv_offload/manager.py",
            "# Touch GPU blocks to prevent freeing during async load",
        ),
    ],
)
def test_callers_that_the_adapter_plays_still_say_so(file, text):
    """Read from the file: in the light import most of these are stand-ins."""
    assert text in (Path(hashing.__file__).parents[1] / file).read_text("utf-8")


def test_fields_are_those_of_0_33_0():
    fields = vllm_requests.LoRARequest.__struct_fields__
    assert fields[:3] == ("lora_name", "lora_int_id", "lora_path")
    assert {"queries", "hits", "preempted_queries", "preempted_hits"} <= vars(
        PrefixCacheStats()
    ).keys()


def computed(manager, *tokens):
    """How many tokens of a prompt would be hit."""
    return manager.manager.get_computed_blocks(manager.new.waiting("waiting", tokens))[1]


def signature_of(function):
    """Names, kinds and defaults, without annotations."""
    signature = inspect.signature(function)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))
