"""The promised order of reuse, against lists: random calls of every kind, and after each the order of all
blocks that can be taken is what the promise says."""

import random

import pytest
from impl_states import assert_is_whole, order_of_reuse

from kvoracle.impl import BadCall, OutOfBlocks, PagedAllocator

STEPS = 400


def last_mentions(blocks):
    return [block for place, block in enumerate(blocks) if block not in blocks[place + 1 :]]


class Promise:
    """`stack` is taken from its end, then `queue` from its front."""

    def __init__(self, allocator):
        self.allocator = allocator
        self.stack = list(range(allocator.pool.blocks))[::-1]
        self.queue = []
        self.held = {}  # by step and by transfer
        self.leases = {}

    def counts(self):
        pool = self.allocator.pool
        return (pool.owners + pool.pins + pool.holds).tolist()

    def table(self, request):
        return self.allocator.table(request).tolist()

    def tables(self, requests):
        return [block for request in requests for block in self.table(request)]

    def given_back(self, verb, *arguments):
        """The lists that a call gives back, of which it has not happened yet."""
        it, name = self.allocator, arguments[0] if arguments else ""
        lists = []
        if (verb in ("release", "preempt") and name not in it.requests.preempted) or verb in (
            "use",
            "cancel",
        ):
            lists = [self.table(name)]
        elif verb == "release_batch":
            lists = [self.tables(name)]
        elif verb == "trim":
            written = -(-int(it.tables.lengths[it.requests.row(name)]) // it.block_size)
            lists = [self.table(name)[written:]]
        elif verb in ("unpin", "end_step"):
            lists = [self.held.pop(name)]
        elif verb == "acknowledge":
            one = it.transfers.by_name[name]
            if len(one.acknowledged) == one.workers - 1:
                lists = [self.held.pop(name)]
        elif verb == "fail_step":
            steps = list(it.steps.in_flight)
            lists = [self.held.pop(step) for step in reversed(steps[steps.index(name) :])]
        elif verb == "tick":
            ends = it.transfers.clock + 1
            running = it.transfers.by_name.items()
            lists = [self.held.pop(name) for name, one in running if one.deadline == ends]
        return lists

    def note(self, verb, arguments, growth):
        """Note what a step or a transfer that has begun holds."""
        it = self.allocator
        if verb == "begin_step":
            name, requests, _ = arguments
            granted = [r for r, grew in zip(requests, growth.granted, strict=True) if grew]
            sources = [source for source, _ in growth.copies]
            self.held[name] = last_mentions(self.tables(granted) + sources)
        if verb in ("pin", "send"):
            self.held[arguments[1]] = self.table(arguments[0])
        if verb == "receive":
            self.held[arguments[2]] = self.table(arguments[0])[growth.hit // it.block_size :]

    def call(self, verb, *arguments):
        """Make a call, and do to the lists what the promise says of it."""
        pool = self.allocator.pool
        before, taken_before = self.counts(), pool.generations.copy()
        try:
            lists = self.given_back(verb, *arguments)
        except (KeyError, ValueError):  # of a name that the allocator must refuse
            lists = None
        growth = getattr(self.allocator, verb)(*arguments)
        assert lists is not None
        after, taken = self.counts(), (pool.generations > taken_before).nonzero()[0].tolist()
        self.note(verb, arguments, growth)
        hits = [block for block in self.queue if after[block] and block not in taken]
        self.queue = [block for block in self.queue if block not in hits]
        order = self.stack[::-1] + self.queue
        assert sorted(taken) == sorted(order[: len(taken)])
        self.stack = [block for block in self.stack if block not in taken]
        self.queue = [block for block in self.queue if block not in taken]
        if verb in ("change_weights", "reset_prefix_cache"):
            self.stack, self.queue = self.stack + self.queue, []
        self.give_back(lists, before, after)

    def give_back(self, lists, before, after):
        holders = [max(pair) for pair in zip(before, after, strict=True)]
        for number, blocks in enumerate(lists):
            for block in blocks:
                holders[block] -= 1
            last = number == len(lists) - 1
            freed = [
                block
                for block in last_mentions(blocks)
                if (holders[block] <= 0 or last) and not after[block]
            ]
            self.stack += [block for block in freed if not self.allocator.pool.published[block]]
            self.queue += [block for block in freed[::-1] if self.allocator.pool.published[block]]


def calls(draw, it, step):
    """A random call; some are refused."""
    live = sorted(it.requests.by_name) or ["none"]
    some = draw.sample(live, draw.randint(1, min(3, len(live))))
    prompt = [draw.randint(0, 1) for _ in range(draw.randint(1, 7))]
    transfers = sorted(it.transfers.by_name) or ["none"]
    transfer = draw.choice(transfers)
    steps = list(it.steps.in_flight) or ["none"]
    looked_up = sorted(it.requests.looked_up) or ["none"]
    preempted = sorted(it.requests.preempted) or ["none"]
    name, request = f"n{step}", draw.choice(live)
    return draw.choice(
        [
            ("admit", name, prompt),
            ("admit", name, prompt),
            ("look_up", name, prompt),
            ("use", draw.choice(looked_up)),
            ("cancel", draw.choice(looked_up)),
            ("append", request, prompt),
            ("append_batch", some, [draw.randint(0, 1) for _ in some]),
            ("reserve", request, draw.randint(1, 5)),
            ("commit", request, prompt[:2]),
            ("trim", request),
            ("fork", request, name),
            ("begin_step", name, some, [draw.randint(0, 1) for _ in some]),
            ("begin_step", name, some, [draw.randint(0, 1) for _ in some]),
            ("end_step", steps[0]),
            ("end_step", steps[0]),
            ("fail_step", draw.choice(steps)),
            ("pin", request, f"t{step % 5}"),
            ("send", request, f"t{step % 5}", draw.randint(1, 2), draw.randint(0, 4)),
            ("receive", name, prompt, f"t{step % 5}", draw.randint(1, 2), draw.randint(0, 4)),
            ("unpin", transfer),
            ("acknowledge", transfer, draw.randint(0, 1), it.generation_of(transfer)),
            ("acknowledge", transfer, draw.randint(0, 1), it.generation_of(transfer)),
            ("tick",),
            ("release", request),
            ("release", request),
            ("release_batch", some),
            ("preempt", request),
            ("resume", draw.choice(preempted)),
            ("evict", request, draw.randint(0, 3)),
            ("reset_prefix_cache",),
            *[("change_weights",)][: draw.random() < 0.2],
        ]
    )


@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize("seed", range(25))
def test_blocks_are_reused_in_the_promised_order_whatever_happens(seed, prefix_cache):
    draw = random.Random(seed)
    it = PagedAllocator(draw.randint(4, 20), draw.randint(1, 3), prefix_cache=prefix_cache)
    promise, done = Promise(it), set()
    for step in range(STEPS):
        call = calls(draw, it, step)
        held = dict(promise.held)
        try:
            promise.call(*call)
        except (BadCall, OutOfBlocks):
            promise.held = held
        else:
            done.add(call[0])
        assert order_of_reuse(it) == promise.stack[::-1] + promise.queue
        assert_is_whole(it)
    assert len(done) >= 15


def test_of_several_failed_steps_the_youngest_gives_back_first():
    it = PagedAllocator(6, 1)
    for request in "ab":
        it.create(request)
    it.begin_step("old", ["a"], [1])
    it.begin_step("young", ["b"], [1])
    assert (it.table("a").tolist(), it.table("b").tolist()) == ([0], [1])
    it.release_batch(["b", "a"])

    it.fail_step("old")

    assert order_of_reuse(it) == [0, 1, 2, 3, 4, 5]


def test_of_several_leases_that_end_the_oldest_transfer_gives_back_first():
    it = PagedAllocator(6, 1)
    for request in "ab":
        it.admit(request, [1, 2])
        it.send(request, f"to {request}", 1, 1)
    it.release_batch(["b", "a"])

    it.tick()

    assert order_of_reuse(it) == [3, 2, 1, 0, 4, 5]
