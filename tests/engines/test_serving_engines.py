"""The released engines serve traffic as this project's own allocator does, step by step."""

from random import Random

import pytest

from kvoracle.model.registry import missing, resolve
from kvoracle.model.serving.contestant import Contestant
from kvoracle.model.serving.replay import Conduct, Replay
from kvoracle.model.serving.scheduler import Scheduler
from kvoracle.model.trace import Configuration
from kvoracle.model.traffic.arrival import Arrival

COLUMNS = ("clock", "running", "waiting", "used", "tails", "promised")
BLOCKS, BLOCK_SIZE, PREFIX_BLOCK = 60, 4, 8


def turns(seed, requests=80):
    """Prompts that begin as one of eight do."""
    random, clock = Random(seed), 0
    for number in range(requests):
        shared, own = random.randrange(0, 6), random.randrange(1, 40)
        conversation = random.randrange(8)
        prompt = shared * PREFIX_BLOCK + own
        alone = range(own // PREFIX_BLOCK + 1)
        ids = [conversation * 100 + place for place in range(shared)]
        ids += [10_000 + number * 100 + place for place in alone]
        clock += random.randrange(40_000)
        blocks = -(-prompt // PREFIX_BLOCK)
        yield Arrival(clock, prompt, random.randrange(1, 30), tuple(ids[:blocks]), PREFIX_BLOCK)


def served(name, seed, *, caches, credited):
    config = Configuration(BLOCKS, BLOCK_SIZE, caches)
    scheduler = Scheduler(Contestant(resolve(name), config).pool(), 32, credited=credited)
    return Replay(turns(seed), scheduler, Conduct()).run()


@pytest.mark.parametrize("credited", [False, True])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("name", "caches"), [("sglang", False), ("vllm", False), ("vllm", True), ("impl-token", False)]
)
def test_an_engine_serves_as_impl_does(name, caches, seed, credited):
    if why := missing(name):
        pytest.skip(why)

    theirs = served(name, seed, caches=caches, credited=credited)
    ours = served("impl", seed, caches=caches, credited=credited)

    for column in COLUMNS:
        assert list(theirs.column(column)) == list(ours.column(column)), column
    assert (theirs.hit_tokens, theirs.preemptions) == (ours.hit_tokens, ours.preemptions)
    assert (ours.hit_tokens > 0) == caches
    assert ours.preemptions > 0 or credited
