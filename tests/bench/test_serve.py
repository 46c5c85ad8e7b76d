"""The Mooncake conversation trace, whole, where it is at hand: `make bench`."""

from pathlib import Path

import pytest

from kvoracle.model.registry import resolve
from kvoracle.model.serving.contestant import contestant
from kvoracle.model.serving.replay import Conduct, Replay
from kvoracle.model.serving.scheduler import Scheduler
from kvoracle.model.serving.serving import Traffic

TRACE = Path(__file__).parents[3] / "shared" / "traces" / "mooncake_conversation.jsonl.gz"
SLOTS, BLOCK_SIZE, BUDGET = 428_560, 16, 8192
ROOM_FOR_EVERYTHING = 152_000_000


@pytest.fixture(autouse=True)
def _where_it_is_at_hand(benchmark):
    if benchmark.disabled:
        pytest.skip("takes a minute; only with --benchmark-enable")
    if not TRACE.exists():
        pytest.skip(f"there is no {TRACE}")


@pytest.mark.parametrize("slots", [SLOTS, ROOM_FOR_EVERYTHING])
def test_the_whole_conversation_trace_on_impl(slots, benchmark):
    traffic = Traffic(str(TRACE), requests=0, scale=1)
    served = []

    def serve():
        pool = contestant(resolve("impl"), slots, BLOCK_SIZE, slots).pool()
        scheduler = Scheduler(pool, BUDGET, credited=False)
        served.append(Replay(traffic.arrivals(), scheduler, Conduct()).run())

    benchmark.pedantic(serve, rounds=1)
    measures, reuse = served[0], traffic.reuse(BLOCK_SIZE, slots)
    predicted = reuse.hit_tokens(slots // BLOCK_SIZE)
    print(
        f"\n{measures.finished:,} requests, {measures.hit_tokens:,} tokens hit, {predicted:,} by LRU"
    )
    assert measures.finished == 12_031
    if slots == ROOM_FOR_EVERYTHING:
        assert measures.hit_tokens == reuse.unlimited
