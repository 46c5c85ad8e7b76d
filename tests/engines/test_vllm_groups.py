"""vLLM's real manager for groups of layers, run as released, in lockstep with the reference."""

import importlib.util
import inspect

import pytest

if any(importlib.util.find_spec(module) is None for module in ("torch", "vllm", "zmq", "cbor2")):
    install = "pip install torch==2.13.0 pyzmq cbor2 && pip install --no-deps vllm==0.33.0"
    pytest.skip(f"vLLM is absent: {install}", allow_module_level=True)

import light_vllm

light_vllm.install()

from vllm.v1.core import kv_cache_coordinator as coordinators  # noqa: E402
from vllm.v1.core import single_type_kv_cache_manager as managers  # noqa: E402

from kvoracle.model.adapters import vllm_groups as adapter  # noqa: E402
from kvoracle.model.check import as_target  # noqa: E402
from kvoracle.model.engines import hunt  # noqa: E402
from kvoracle.model.operations import Admit, Release  # noqa: E402
from kvoracle.model.run import run  # noqa: E402
from kvoracle.model.trace import Configuration, Group, Trace  # noqa: E402
from kvoracle.model.witnesses import required  # noqa: E402

TOKENS = tuple(range(1, 14))


class Longest(adapter.VllmDenseGroupsAdapter):
    """Held to the longest hit."""

    finds_longest_hits = True


class LongestSparse(adapter.VllmGroupsAdapter):
    """Held to the longest hit."""

    finds_longest_hits = True


class LongestWithoutWindowsOfOne(Longest):
    """Held to the longest hit where no window is of one token."""

    def can_try(self, operation):
        return super().can_try(operation) and all(g.window != 1 for g in self.config.layer_groups)


@pytest.mark.parametrize("kind", [adapter.VllmGroupsAdapter, adapter.VllmDenseGroupsAdapter])
@pytest.mark.parametrize(("engine", "operations"), [("walk", 8_000), ("hypothesis", 1_000)])
def test_the_manager_keeps_every_rule(kind, engine, operations):
    failure, tally = hunt(engine, as_target(kind), 1, operations)

    assert failure is None
    if engine == "walk":
        assert [name for name in required(as_target(kind)) if not tally.witnesses.get(name)] == []


def test_the_dense_manager_finds_the_longest_hit_where_windows_are_of_two_tokens_or_more():
    failure, tally = hunt("walk", as_target(LongestWithoutWindowsOfOne), 1, 8_000)

    assert failure is None
    assert tally.witnesses["a hit begins with the null block"] > 20


# Where vLLM hits less than could be hit


def fails_with(kind, config, *operations):
    failure = run(Trace(config, list(operations)), kind)
    return failure and failure.message


def test_a_window_of_one_token_must_find_a_block_that_nobody_reads():
    config = Configuration(4, 1, True, groups=(Group(1, 1),))

    assert "says that 0 tokens" in fails_with(Longest, config, Admit("a", (1, 2)))


def test_windows_are_published_for_the_next_turn_of_the_prompt_only():
    config = Configuration(9, 1, True, groups=(Group(1, 2),))
    prompts = Admit("a", (1, 2)), Admit("b", (1, 2, 3))

    assert fails_with(Longest, config, *prompts) is None
    assert "says that 1 tokens of the prompt are written: 2 are" in fails_with(
        LongestSparse, config, *prompts
    )


def test_nothing_is_published_beyond_the_last_edge_of_all_groups():
    """Of `a`, which ends between two edges, nothing is found; and of `b` a part is recycled."""
    config = Configuration(20, 4, True, groups=(Group(4), Group(1, 4)))
    begun = (
        Admit("a", TOKENS[:11]),
        Admit("b", TOKENS),
        Release("b"),
        Admit("c", tuple(range(100, 106))),
        Admit("d", TOKENS),
    )

    assert "yet: out of blocks" in fails_with(Longest, config, *begun)
    assert fails_with(adapter.VllmDenseGroupsAdapter, config, *begun) is None


# Faults put into vLLM are found


def one_token_too_early(manager, count):
    return max(0, count - manager.sliding_window + 2)


def counts_no_idle_hit(_blocks):
    return 0


@pytest.mark.parametrize(
    ("where", "name", "fault"),
    [
        (managers.SlidingWindowManager, "get_num_skipped_tokens", one_token_too_early),
        (
            managers.SingleTypeKVCacheManager,
            "_get_num_evictable_blocks",
            staticmethod(counts_no_idle_hit),
        ),
        (managers.SlidingWindowManager, "remove_skipped_blocks", lambda *_: None),
        (coordinators.HybridKVCacheCoordinator, "reset_prefix_cache", lambda _: True),
    ],
    ids=["window", "idle hits", "nothing slides", "reset"],
)
def test_a_fault_in_vllm_is_found(monkeypatch, where, name, fault):
    monkeypatch.setattr(where, name, fault)

    failure, _ = hunt("walk", as_target(adapter.VllmDenseGroupsAdapter), 1, 8_000)

    assert failure is not None


def test_groups_that_evict_each_others_hits_are_found(monkeypatch):
    def one_after_the_other(
        self,
        request_id,
        new_computed_blocks,
        num_local_computed_tokens,
        num_external_computed_tokens,
        skip_zeroing_group_ids=(),
    ):
        if any(request_id in manager.num_cached_block for manager in self.single_type_managers):
            return
        for manager, blocks in zip(self.single_type_managers, new_computed_blocks, strict=True):
            length = num_local_computed_tokens
            manager.add_local_computed_blocks(request_id, blocks, length, 0)
            manager.allocate_new_blocks(request_id, length + 1, length + 1)

    monkeypatch.setattr(
        coordinators.KVCacheCoordinator, "allocate_new_computed_blocks", one_after_the_other
    )

    failure, _ = hunt("walk", as_target(adapter.VllmDenseGroupsAdapter), 1, 20_000)

    assert failure is not None


def test_the_methods_for_windows_take_what_they_took_in_0_33_0():
    removes = inspect.signature(adapter.KVCacheManager.remove_skipped_blocks)

    assert list(removes.parameters) == [
        "self",
        "request_id",
        "processed_computed_tokens",
        "num_prompt_tokens",
    ]
