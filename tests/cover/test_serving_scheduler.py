"""The fast scheduler decides what the reference scheduler decides, whatever happens to both."""

from array import array
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvoracle.model.adapters.impl import ImplAdapter
from kvoracle.model.adapters.impl_batch import ImplBatchAdapter
from kvoracle.model.registry import resolve
from kvoracle.model.serving.contents import Contents
from kvoracle.model.serving.contestant import Contestant
from kvoracle.model.serving.judge import Judge
from kvoracle.model.serving.pool import Pool, directly
from kvoracle.model.serving.request import Request
from kvoracle.model.serving.scheduler import Scheduler
from kvoracle.model.trace import Configuration
from kvoracle.reference import scheduler as reference

BLOCK_SIZE = 2
PROMPTS = [(1, 2, 3, 4, 5, 6, 7), (1, 2, 3, 4, 8, 9), (1, 2, 5), (9,), (1, 2, 3, 4, 5)]
ANSWER = 100
"""Tokens from here on are in answers, and each in one of them."""

EVENTS = ("step", "clean", "send", "sent", "loaded")
WHAT_MATTERS = ("admitted", "preempted", "waited", "hit", "sent", "not sent", "loaded")

jobs = st.tuples(st.sampled_from(PROMPTS), st.integers(1, 7), st.booleans())
events = st.tuples(
    st.sampled_from(("step", "step", "arrive", "cancel", *EVENTS)),
    st.integers(0, 3),
)


class Both:
    """The two schedulers, told the same."""

    def __init__(self, blocks, budget, credited, make_pool):
        self.right = reference.Scheduler(blocks, BLOCK_SIZE, budget, credited=credited)
        self.fast = Scheduler(make_pool(blocks), budget, credited=credited)
        self.requests = {}
        self.seen = set()

    def arrive(self, job):
        number = len(self.requests)
        name, (prompt, output, remote) = f"r{number}", job
        answer = range(ANSWER * (number + 1), ANSWER * (number + 1) + output)
        request = Request(
            name, number, len(prompt), output, lambda: array("q", [*prompt, *answer]), remote
        )
        self.requests[name] = request
        right = self.right.arrive(reference.Job(name, prompt, output, remote))
        assert self.fast.arrive(request) == right

    def happen(self, event, index):
        getattr(self, event)(index)
        self.compare()

    def step(self, _):
        right, fast = self.right.step(), self.fast.step()
        for field in ("left", "wrote", "admitted", "preempted", "waited"):
            assert getattr(fast, field) == getattr(right, field), field
        self.seen |= {f for f in ("admitted", "preempted", "waited") if getattr(right, f)}
        self.seen |= {"hit"} if any(fast.hits.values()) else set()

    def cancel(self, index):
        names = [*self.right.waiting, *self.right.running]
        if index < len(names):
            self.right.cancel(names[index])
            self.fast.cancel(self.requests[names[index]])

    def clean(self, index):
        if index < len(self.right.leaving):
            name = self.right.leaving[index]
            self.right.clean(name)
            self.fast.clean(self.requests[name])

    def send(self, index):
        name = f"send {len(self.right.pool.begun)}"
        if index < len(self.right.running):
            request = self.right.running[index]
            right = self.right.send(request, name)
            assert self.fast.send(self.requests[request], name) == right
            self.seen |= {"sent" if right else "not sent"}

    def sent(self, index):
        pins = [name for name, transfer in self.right.pool.transfers.items() if transfer.is_pin]
        if index < len(pins):
            self.right.sent(pins[index])
            self.fast.sent(pins[index])

    def loaded(self, index):
        loads = [name for name, job in self.right.jobs.items() if job.load in self.fast.transfers]
        if index < len(loads):
            self.right.loaded(loads[index])
            self.fast.loaded(self.requests[loads[index]].load)
            self.seen |= {"loaded"}

    def compare(self):
        for field in ("waiting", "running", "leaving"):
            fast = getattr(self.fast, field)
            names = list(fast) if field == "leaving" else [request.name for request in fast]
            assert names == getattr(self.right, field), field
        assert self.fast.pool.free == len(self.right.pool.takeable())
        if self.fast.credited:
            assert self.fast.promised == self.right.credits.promised

    def finish(self):
        """Everything that is on its way comes, and everybody ends."""
        for _ in range(400):
            for event in ("loaded", "sent", "clean", "step"):
                self.happen(event, 0)
        assert not self.right.waiting + self.right.running + self.right.leaving


def plain(blocks):
    return on(ImplAdapter, blocks)


def in_rows(blocks):
    return on(ImplBatchAdapter, blocks)


def on(adapter_class, blocks):
    adapter = adapter_class(Configuration(blocks, BLOCK_SIZE, prefix_cache=True))
    return Pool(adapter, directly(adapter), Contents(blocks, BLOCK_SIZE))


def in_lockstep(blocks):
    config = Configuration(blocks, BLOCK_SIZE, prefix_cache=True)
    return Judge(Contestant(resolve("impl"), config)).pool()


@pytest.mark.parametrize("make_pool", [plain, in_rows, in_lockstep])
@given(
    blocks=st.integers(3, 9),
    budget=st.integers(1, 5),
    credited=st.booleans(),
    arriving=st.lists(jobs, min_size=2, max_size=6),
    happening=st.lists(events, max_size=60),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_the_fast_scheduler_decides_as_the_reference(
    make_pool, blocks, budget, credited, arriving, happening
):
    both = Both(blocks, budget, credited, make_pool)
    rest = iter(arriving)
    both.arrive(next(rest))
    for event, index in happening:
        job = next(rest, None) if event == "arrive" else None
        if job is not None:
            both.arrive(job)
        elif event != "arrive":
            both.happen(event, index)
    both.finish()


def test_everything_that_matters_happens():
    """The comparison above would be empty if nobody was ever preempted, refused, ..."""
    seen = Counter()
    for seed in range(150):
        random = Random(seed)
        both = Both(random.randint(3, 9), random.randint(1, 5), bool(seed % 2), plain)
        for _ in range(60):
            if random.random() < 0.2 and len(both.requests) < 6:
                both.arrive((random.choice(PROMPTS), random.randint(1, 7), random.random() < 0.2))
            event = random.choice(("step", "step", "step", "cancel", *EVENTS))
            both.happen(event, random.randint(0, 2))
        seen.update(both.seen)

    assert all(seen[what] > 5 for what in WHAT_MATTERS), seen


SCRIPTS = {
    "a transfer of a request that was cancelled ends": (
        (8, 5, True),
        [((1, 2, 3), 4), "step", "send", "cancel", "sent", "step"],
    ),
    "a cancellation lets the next one in": (
        (6, 5, True),
        [((9,), 7), "step", ((1, 2, 5), 3), "step", "cancel 1", "step"],
    ),
    "a transfer ends before its tail is written": (
        (8, 5, True),
        [((1, 2, 3), 4), "step", "send", "sent", "step"],
    ),
    "two transfers of one tail end": (
        (8, 5, True),
        [((1, 2, 3), 4), "step", "send", "send", "sent", "sent", "step"],
    ),
    "one that shares all its blocks with one that leaves gives nothing back": (
        (4, 6, False),
        [((9,), 5), ((1, 2, 3, 4), 2), ((1, 2, 3, 4, 5), 1), "step", "cancel 2", "step", "step"],
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_chance_seldom_meets(name):
    (blocks, budget, credited), script = SCRIPTS[name]
    both = Both(blocks, budget, credited, plain)
    for what in script:
        if isinstance(what, tuple):
            both.arrive((*what, False))
            continue
        event, _, index = what.partition(" ")
        both.happen(event, int(index or 0))
    both.finish()


def test_one_that_is_longer_than_max_model_len_is_refused():
    scheduler = Scheduler(plain(8), 4, credited=False, max_model_len=7)

    def arrives(number, prompt):
        text = array("q", range(prompt + 1))
        return scheduler.arrive(Request(f"r{number}", number, prompt, 1, lambda: text))

    assert [arrives(0, 6), arrives(1, 7)] == [True, False]
