"""Speeds, measured with `make bench`; nothing here asserts on wall time."""

import pytest

from kvoracle.model.adapters.impl import ImplAdapter
from kvoracle.model.check import as_target
from kvoracle.model.engines import hunt
from kvoracle.model.operations import OPERATIONS, Admit, Reset
from kvoracle.model.random64 import combine
from kvoracle.model.run import Tally, run
from kvoracle.model.trace import Configuration
from kvoracle.model.walk import walk

WALKS = 100


@pytest.mark.parametrize("name", ["core", "prefix cache"])
def test_fully_checked_operations_on_8_blocks(name, benchmark):
    """Generation, the allocator, the reference, the memory and every check, on one core."""
    caches = name != "core"
    operations = [o for o in OPERATIONS if caches or o not in (Admit, Reset)]
    tally = Tally()

    def campaign():
        tally.outcomes.clear()
        for index in range(WALKS):
            trace = walk(combine(1, index), operations)
            trace.config = Configuration(8, min(trace.config.block_size, 4), caches)
            assert run(trace, ImplAdapter, tally) is None

    benchmark.pedantic(campaign, rounds=5, warmup_rounds=1)
    if benchmark.stats:
        speed = tally.operations / benchmark.stats.stats.median
        benchmark.extra_info["operations_a_second"] = round(speed)
        print(f"\nwalk, {name}: {speed:,.0f} fully checked operations a second")


def test_hypothesis_operations(benchmark):
    """The state machine of one campaign seed."""
    done = []

    def campaign():
        done.append(hunt("hypothesis", as_target("impl"), 1, 1_000)[1].operations)

    benchmark.pedantic(campaign, rounds=3)
    if benchmark.stats:
        speed = done[-1] / benchmark.stats.stats.median
        benchmark.extra_info["operations_a_second"] = round(speed)
        print(f"\nhypothesis: {speed:,.0f} fully checked operations a second")
