"""vLLM's real allocators, run as released, in lockstep with the reference."""

import importlib.util
from pathlib import Path

import pytest

if any(importlib.util.find_spec(module) is None for module in ("torch", "vllm", "zmq", "cbor2")):
    install = "pip install torch==2.13.0 pyzmq cbor2 && pip install --no-deps vllm==0.33.0"
    pytest.skip(f"vLLM is absent: {install}", allow_module_level=True)

import light_vllm

light_vllm.install()

from kvoracle.model.adapters import vllm as adapter  # noqa: E402
from kvoracle.model.adapters.vllm_blockpool import VllmBlockPoolAdapter  # noqa: E402
from kvoracle.model.adapters.vllm_requests import Requests, sha256  # noqa: E402
from kvoracle.model.check import as_target  # noqa: E402
from kvoracle.model.engines import hunt  # noqa: E402
from kvoracle.model.operations import (  # noqa: E402
    Admit,
    Append,
    Create,
    Evict,
    Preempt,
    Receive,
    Release,
    Reset,
    Send,
)
from kvoracle.model.run import Tally, run  # noqa: E402
from kvoracle.model.trace import Configuration, Trace, read  # noqa: E402

SEEDS = Path(__file__).parents[2] / "seeds"

ENGINES = pytest.mark.parametrize(
    ("engine", "operations_max"), [("walk", 4_000), ("hypothesis", 1_000)]
)
CACHING = Configuration(blocks=8, block_size=2, prefix_cache=True)


@ENGINES
def test_the_manager_keeps_every_rule_and_hits_its_cache(engine, operations_max):
    failure, tally = hunt(
        engine, as_target(adapter.VllmAdapter), seed=1, operations_max=operations_max
    )

    assert failure is None
    assert tally.outcomes["append", "ok"] > 30
    assert tally.outcomes["admit", "out of blocks"] > 0
    assert tally.witnesses["admit hits an idle block"] > 0
    assert tally.witnesses["admit hits a block in use"] > 0
    assert tally.witnesses["reset is refused while blocks are in use"] > 0


def test_the_manager_meets_what_takes_time():
    failure, tally = hunt("walk", as_target(adapter.VllmAdapter), seed=2, operations_max=10_000)

    assert failure is None
    for witness in (
        "admit misses what only other extra keys would hit",
        "a load arrives",
        "a load arrives for a request that is gone",
        "acknowledge ends a transfer whose request is gone",
        "commit fills a part of the reserved room",
        "evict forgets a block in use",
        "receive finds a part of its prompt",
        "reserve takes a block before its tokens",
        "resume hits blocks",
        "the watermark keeps a request out",
        "unpin frees a block that no request owns",
    ):
        assert tally.witnesses.get(witness), witness


def test_the_manager_keeps_its_order_of_reuse():
    target = as_target(adapter.VllmInOrderAdapter)

    failure, tally = hunt("walk", target, seed=1, operations_max=4_000)

    assert failure is None
    assert tally.witnesses["append takes an idle block and drops its entry"] > 0
    assert target.left_out[-3:] == ["release_each", "reset", "change_weights"]


@ENGINES
def test_the_block_pool_keeps_every_rule(engine, operations_max):
    target = as_target(VllmBlockPoolAdapter)

    failure, tally = hunt(engine, target, seed=1, operations_max=operations_max)

    assert failure is None
    assert tally.outcomes["append", "ok"] > 100
    assert tally.witnesses["release leaves a shared block"] > 0
    assert "admit" in target.left_out


class TakesLessBack(Requests):
    """A refused append leaves the hashes of the tokens that it took back."""

    def take_back(self, request, count):
        hashes = list(request.block_hashes)
        super().take_back(request, count)
        request.block_hashes[:] = hashes


class ForgetsThePrefix(Requests):
    """A block is known by its own tokens only."""

    def __init__(self, config):
        super().__init__(config)
        chained = self.hasher

        def hasher(request):
            size = config.block_size
            known, tokens = len(request.block_hashes), request.all_token_ids
            ends = range((known + 1) * size, request.num_tokens + 1, size)
            return [sha256(tuple(tokens[end - size : end])) for end in ends]

        self.hasher = chained and hasher


class ForgetsTheKeys(Requests):
    """A block is known by its tokens only."""

    def waiting(self, name, prompt, keys=()):
        return super().waiting(name, prompt)


def with_requests(requests):
    class Wrong(adapter.VllmAdapter):
        def __init__(self, config):
            super().__init__(config)
            self.new = requests(config)

    return Wrong


class LooksUpAlways(adapter.VllmAdapter):
    """A request that was only created hits as well."""

    def append(self, request, tokens):
        if self.requests[request] is None:
            return self.admit(request, tokens)
        return super().append(request, tokens)

    def statistics(self):
        return None


@pytest.mark.parametrize("wrong", [TakesLessBack, ForgetsThePrefix, ForgetsTheKeys])
def test_a_wrong_cache_inside_the_adapter_is_caught(wrong):
    failure, _ = hunt("walk", as_target(with_requests(wrong)), seed=2, operations_max=20_000)

    assert failure is not None
    assert failure.rule in ("choice", "hit", "outcome")


def test_a_hit_of_a_request_that_was_only_created_is_caught():
    begin = [Create("a"), Append("a", (1, 2)), Create("b"), Append("b", (1, 2, 3))]
    trace = Trace(CACHING, begin)

    failure = run(trace, LooksUpAlways)

    assert failure is not None
    assert failure.rule == "choice"
    assert run(trace, adapter.VllmAdapter) is None


def test_the_manager_may_hit_an_idle_duplicate_and_then_have_no_room():
    """It takes the block that was published first; with the other one, which is in use, it had room."""
    operations = [
        Create("a"),
        Append("a", (1, 2)),
        Create("b"),
        Append("b", (1, 2)),
        Release("a"),
        Create("c"),
        Append("c", (3,)),
        Admit("d", (1, 2, 3)),
    ]
    trace = Trace(Configuration(blocks=3, block_size=2, prefix_cache=True), operations)
    tally = Tally()

    assert run(trace, adapter.VllmAdapter, tally) is None
    assert tally.outcomes["admit", "out of blocks"] == 1


class InOrderAfterAReset(adapter.VllmAdapter):
    reuses_in_order = True


class GoesOnAfterAFailure(adapter.VllmAdapter):
    def can_try(self, operation):
        return True

    def evict(self, request, first):
        super().evict(request, first)
        self.requests[request].status = adapter.RequestStatus.RUNNING


class RecomputesAfterAFailure(adapter.VllmAdapter):
    """As vLLM's scheduler with `kv_load_failure_policy="recompute"`: nothing is evicted."""

    def evict(self, request, first):
        self.requests[request].num_computed_tokens = first * self.config.block_size


class SendsAPartialBlock(adapter.VllmAdapter):
    def can_try(self, operation):
        return True


class WaivesTheWatermark(adapter.VllmAdapter):
    def _allocate(self, request, new, **how):
        return super()._allocate(request, new, **how | {"has_scheduled_reqs": bool(self.requests)})


class LoadsWithoutReferences(adapter.VllmAdapter):
    def _begin(self, name, blocks, workers, loads=None):
        super()._begin(name, blocks[:0], workers, loads)

    def holders(self):
        return None


LEFT_OUT = [
    (
        InOrderAfterAReset,
        "reuse order",
        [Admit("a", (1, 2, 3, 4)), Release("a"), Reset(), Admit("b", (5,)), Admit("c", (6, 7))],
    ),
    (
        GoesOnAfterAFailure,
        "choice",
        [Admit("a", (1,)), Evict("a", 0), Append("a", (2,)), Admit("b", (1, 2, 3))],
    ),
    (
        SendsAPartialBlock,
        "copy",
        [Admit("a", (1,)), Send("a", "t", 1, 0), Append("a", (2,))],
    ),
    (
        LoadsWithoutReferences,
        "free count",
        [Receive("a", (1, 2), "t", 1, 0), Release("a")],
    ),
]


@pytest.mark.parametrize(("wrong", "rule", "operations"), LEFT_OUT)
def test_what_is_left_out_would_break_a_rule(wrong, rule, operations):
    failure = run(Trace(CACHING, operations), wrong)

    assert failure is not None
    assert failure.rule == rule


def test_a_failed_load_stays_published_where_vllm_recomputes_it():
    """docs/findings.md; vllm_failed_load.py shows it on the scheduler itself."""
    trace = read(SEEDS / "findings" / "vllm-failed-load-stays-published.json")

    failure = run(trace, RecomputesAfterAFailure)

    assert failure is not None
    assert (failure.rule, failure.index) == ("hit", 3)
    assert run(trace, adapter.VllmAdapter) is None


def test_the_scheduler_waives_the_watermark_while_nothing_runs():
    config = Configuration(blocks=2, block_size=1, watermark=2)
    trace = Trace(config, [Admit("a", (1,))])

    failure = run(trace, WaivesTheWatermark)

    assert failure is not None
    assert failure.rule == "outcome"
    assert run(trace, adapter.VllmAdapter) is None


def test_two_keys_with_one_text_are_hashed_by_whether_they_are_one_object():
    """vLLM hashes a pickle, and pickle writes an object that it has seen as a reference to it."""
    text, same_text = "tenant-7", "".join(["tenant", "-7"])
    once = {"adapter": text, "salt": text}
    twice = {"adapter": text, "salt": same_text}
    trace = Trace(CACHING, [Admit("a", (1, 2, 3), once), Admit("b", (1, 2, 3), twice)])

    failure = run(trace, adapter.VllmAdapter)

    assert failure is not None
    assert failure.rule == "choice"


def test_a_preempted_request_finds_what_it_left():
    trace = Trace(CACHING, [Admit("a", (1, 2, 3)), Preempt("a"), Admit("b", (1, 2, 3))])

    assert run(trace, adapter.VllmInOrderAdapter) is None
