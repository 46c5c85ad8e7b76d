"""Traffic for tests: conversations whose turns repeat what was said before, and what serves it."""

from itertools import count
from random import Random

from kvoracle.model.registry import resolve
from kvoracle.model.serving.contents import Contents
from kvoracle.model.serving.pool import Pool, directly
from kvoracle.model.serving.replay import Conduct, Replay
from kvoracle.model.serving.scheduler import Scheduler
from kvoracle.model.trace import Configuration
from kvoracle.model.traffic.arrival import Arrival

PREFIX_BLOCK = 8


def conversations(seed, requests, *, longest=200, apart=30_000, odd=False):
    """Requests in order of time; a turn's prompt begins with that of an earlier turn.

    `odd` prompts end inside a block: none is computed anew because its last token must be.
    """
    random, ids = Random(seed), count()
    said, arrivals, clock = [()], [], 0
    for _ in range(requests):
        before = random.choice(said[-30:])
        new = random.randrange(1, 60)
        prompt = min(len(before) * PREFIX_BLOCK + new, longest) | odd
        prefixes = (*before, *ids_for(ids, prompt))[: -(-prompt // PREFIX_BLOCK)]
        said.append(prefixes[: prompt // PREFIX_BLOCK])
        clock += random.randrange(apart)
        arrivals.append(Arrival(clock, prompt, random.randrange(1, 40), prefixes, PREFIX_BLOCK))
    return arrivals


def ids_for(ids, prompt):
    return tuple(next(ids) for _ in range(-(-prompt // PREFIX_BLOCK)))


def served(
    arrivals, blocks, block_size=4, *, allocator="impl", budget=64, credited=False, **conduct
):
    """A finished replay; `allocator` is a name or an adapter class."""
    factory = resolve(allocator).factory if isinstance(allocator, str) else allocator
    adapter = factory(Configuration(blocks, block_size, prefix_cache=True))
    contents = Contents(blocks, block_size, adapter.first_block)
    pool = Pool(adapter, directly(adapter), contents)
    scheduler = Scheduler(pool, budget, credited=credited)
    replay = Replay(iter(arrivals), scheduler, Conduct(**conduct))
    replay.run()
    return replay
