"""vLLM's real allocators, run as released, in lockstep with the reference."""

import importlib.util

import pytest

if any(importlib.util.find_spec(module) is None for module in ("torch", "vllm", "zmq", "cbor2")):
    install = "pip install torch==2.13.0 pyzmq cbor2 && pip install --no-deps vllm==0.33.0"
    pytest.skip(f"vLLM is absent: {install}", allow_module_level=True)

import light_vllm

light_vllm.install()

from kvoracle.model.adapters import vllm as adapter  # noqa: E402
from kvoracle.model.check import as_target  # noqa: E402
from kvoracle.model.engines import hunt  # noqa: E402
from kvoracle.model.operations import Admit, Append, Create, Release  # noqa: E402
from kvoracle.model.run import Tally, run  # noqa: E402
from kvoracle.model.trace import Configuration, Trace  # noqa: E402

ENGINES = pytest.mark.parametrize("engine", ["walk", "hypothesis"])


@ENGINES
def test_the_manager_keeps_every_rule_and_hits_its_cache(engine):
    failure, tally = hunt(engine, as_target(adapter.VllmAdapter), seed=1, operations_max=4_000)

    assert failure is None
    assert tally.outcomes["append", "ok"] > 50
    assert tally.outcomes["admit", "out of blocks"] > 0
    assert tally.witnesses["admit hits an idle block"] > 0
    assert tally.witnesses["admit hits a block in use"] > 0
    assert tally.witnesses["reset is refused while blocks are in use"] > 0


@ENGINES
def test_the_block_pool_keeps_every_rule(engine):
    target = as_target(adapter.VllmBlockPoolAdapter)

    failure, tally = hunt(engine, target, seed=1, operations_max=4_000)

    assert failure is None
    assert tally.outcomes["append", "ok"] > 100
    assert tally.witnesses["release leaves a shared block"] > 0
    assert "admit" in target.left_out


class TakesLessBack(adapter.VllmAdapter):
    """A refused append leaves the hashes of the tokens that it took back."""

    def _take_back(self, request, count):
        hashes = list(request.block_hashes)
        super()._take_back(request, count)
        request.block_hashes[:] = hashes


class ForgetsThePrefix(adapter.VllmAdapter):
    """A block is known by its own tokens only."""

    def __init__(self, config):
        super().__init__(config)
        chained = self.hasher

        def hasher(request):
            size = config.block_size
            known, tokens = len(request.block_hashes), request.all_token_ids
            ends = range((known + 1) * size, request.num_tokens + 1, size)
            return [adapter.sha256(tuple(tokens[end - size : end])) for end in ends]

        self.hasher = chained and hasher


class LooksUpAlways(adapter.VllmAdapter):
    """A request that was only created hits as well."""

    def append(self, request, tokens):
        if self.requests[request] is None:
            return self.admit(request, tokens)
        return super().append(request, tokens)


@pytest.mark.parametrize("wrong", [TakesLessBack, ForgetsThePrefix])
def test_a_wrong_cache_inside_the_adapter_is_caught(wrong):
    failure, _ = hunt("walk", as_target(wrong), seed=1, operations_max=20_000)

    assert failure is not None
    assert failure.rule in ("choice", "hit", "outcome")


def test_a_hit_of_a_request_that_was_only_created_is_caught():
    begin = [Create("a"), Append("a", (1, 2)), Create("b"), Append("b", (1, 2, 3))]
    trace = Trace(Configuration(blocks=8, block_size=2, prefix_cache=True), begin)

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
