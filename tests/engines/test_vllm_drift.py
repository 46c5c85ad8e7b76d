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

from kvoracle.model.adapters import vllm as adapter  # noqa: E402
from kvoracle.model.operations import Done, OutOfBlocks, Rejected  # noqa: E402
from kvoracle.model.trace import Configuration  # noqa: E402

SIGNATURES = {
    adapter.BlockPool: {
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
        "free": "(self, request)",
        "get_block_ids": "(self, request_id)",
        "get_computed_blocks": "(self, request, max_cache_hit_length=None)",
        "reset_prefix_cache": "(self)",
    },
    adapter.Request: {
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
        f"{expected}: look at kvoracle/model/adapters/vllm.py again"
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
    assert manager.manager.get_computed_blocks(waiting(manager, 1, 2, 3, 4, 5))[1] == 2
    assert manager.manager.get_computed_blocks(waiting(manager, 1, 2, 3, 8, 5))[1] == 4


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


def test_sampling_parameters_can_skip_the_lookup():
    """Read from the file: in the light import these parameters are a stand-in."""
    source = Path(hashing.__file__).parents[1] / "sampling_params.py"
    assert "    skip_reading_prefix_cache: bool | None = None\n" in source.read_text("utf-8")


def waiting(manager, *tokens):
    return adapter.Request(
        "waiting",
        list(tokens),
        adapter.LOOKS_UP_ITS_PROMPT,
        pooling_params=None,
        block_hasher=manager.hasher,
    )


def signature_of(function):
    """Names, kinds and defaults, without annotations."""
    signature = inspect.signature(function)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))
