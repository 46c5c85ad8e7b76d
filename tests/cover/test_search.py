"""Soundness by search: random calls, every request read back, the whole pool returned."""

import random
from collections import Counter
from typing import ClassVar

import pytest
from reference_helpers import assert_drained, everything, hit_depth, holding, state

from kvoracle.reference import ListOracle, Oracle, PrefixCachedKV, Rejected


class _Picks:
    """Chooses hits among duplicates and fresh pages at random; duplicates in use come first."""

    def __init__(self, draw):
        self.draw = draw
        self.hits = []

    def __call__(self, request, positions):
        if self.hits:
            hits, self.hits = self.hits, []
            return hits
        return self.draw.sample(self.kv.takeable(), len(positions))

    def admit(self, request, tokens):
        idle, size = set(self.kv.idle()), self.kv.block_size
        for depth in range(1, hit_depth(self.kv, tokens) + 1):
            pages = holding(self.kv, *tokens[: depth * size])
            in_use = [page for page in pages if page not in idle]
            self.hits.append(self.draw.choice(in_use or pages))
        try:
            return self.kv.admit(request, *tokens)
        finally:
            self.hits = []


@pytest.mark.parametrize("seed", range(40))
def test_every_request_reads_what_it_was_given_whatever_was_hit_and_taken(seed):
    """Soundness by search: two token values, small pools, every request read back."""
    draw = random.Random(seed)
    picks = _Picks(draw)
    kv = picks.kv = PrefixCachedKV(draw.randint(4, 9), draw.randint(1, 3), choose=picks)
    written, hit, full = {}, 0, 0
    for step in range(150):
        request = f"r{step}"
        tokens = [draw.randint(0, 1) for _ in range(draw.randint(1, 8))]
        before = state(kv)
        try:
            hit += picks.admit(request, tokens)
            written[request] = tokens
        except MemoryError:
            full += 1
            assert state(kv) == before
        for name in [name for name in written if draw.random() < 0.25]:
            kv.release(name)
            del written[name]
        assert {name: kv.read(name) for name in kv.tables} == written
        kv.check()
    assert hit > 0
    assert full > 0


class _Walk:
    """Random calls to the oracle and, where they succeed, to the list oracle.

    A token is its value and the extra key of its request, so that a hit under another is read.
    """

    def __init__(self, seed):
        self.draw = draw = random.Random(seed)
        self.kv = Oracle(
            draw.randint(6, 12),
            draw.randint(1, 3),
            watermark=draw.randint(0, 1),
            value_of=lambda token: token[0],
        )
        self.lists = ListOracle()
        self.outcomes = Counter()

    def pick(self, likely, names):
        """Mostly one for which the call makes sense."""
        fitting = list(likely) if self.draw.random() < 0.9 else []
        return self.draw.choice(fitting or list(names))

    def live(self):
        return self.pick(self.kv.tables, "abcdef")

    def new(self):
        used = {*self.kv.tables, *self.kv.lookups, *self.kv.preempted}
        return self.pick(sorted(set("abcdef") - used), "abcdef")

    def looked_up(self):
        return self.pick(self.kv.lookups, "abcdef")

    def batch(self):
        live = list(self.kv.tables)
        return self.draw.sample(live, min(len(live), self.number())) or ["a"]

    def transfer(self):
        return self.pick(self.kv.transfers, "tuv")

    def new_transfer(self):
        return self.pick(sorted(set("tuv") - self.kv.transfers.keys()), "tuv")

    def step(self):
        return self.pick(self.kv.steps, ["s1", "s2", "s3", "s4"])

    def number(self):
        return self.draw.randint(1, 3)

    def token(self, request):
        keys = self.kv.lives[request].extra_keys if request in self.kv.lives else ()
        return (self.draw.randint(0, 1), dict(keys).get("salt", ""))

    def tokens(self, request):
        return [self.token(request) for _ in range(self.number())]

    def prompt(self):
        salt = self.draw.choice(["", "x"])
        length = self.draw.randint(1, 8)
        return [(self.draw.randint(0, 1), salt) for _ in range(length)], {"salt": salt}

    def both(self, name, *arguments, **options):
        getattr(self.kv, name)(*arguments, **options)
        getattr(self.lists, name)(*arguments, **options)

    def begin(self, name):
        tokens, extra_keys = self.prompt()
        self.both(name, self.new(), *tokens, extra_keys=extra_keys)

    def write(self, name):
        request = self.live()
        self.both(name, request, *self.tokens(request))

    def write_each(self, name, *step):
        requests = self.batch()
        tokens = [self.token(request) for request in requests]
        refused = getattr(self.kv, name)(*step, requests, tokens)
        granted = [pair for pair in zip(requests, tokens, strict=True) if pair[0] not in refused]
        getattr(self.lists, name)(*step, [r for r, _ in granted], [t for _, t in granted])

    def receive(self):
        request, transfer = self.new(), self.new_transfer()
        tokens, extra_keys = self.prompt()
        options = {"workers": 2, "lease": self.draw.randint(0, 5), "extra_keys": extra_keys}
        hit = self.kv.receive(request, *tokens, transfer=transfer, **options)
        self.lists.receive(request, *tokens, transfer=transfer, **options)
        self.lists.find(transfer, hit)

    def acknowledge(self):
        transfer = self.transfer()
        if self.kv.acknowledge(transfer, self.draw.randint(0, 1), self.draw.choice([0, 0, 0, 1])):
            self.lists.arrive(transfer)

    CALLS: ClassVar = {
        "create": lambda walk: walk.both("create", walk.new()),
        "admit": lambda walk: walk.begin("admit"),
        "look_up": lambda walk: walk.begin("look_up"),
        "use": lambda walk: walk.both("use", walk.looked_up()),
        "cancel": lambda walk: walk.both("cancel", walk.looked_up()),
        "append": lambda walk: walk.write("append"),
        "append_each": lambda walk: walk.write_each("append_each"),
        "reserve": lambda walk: walk.both("reserve", walk.live(), walk.number()),
        "commit": lambda walk: walk.write("commit"),
        "trim": lambda walk: walk.both("trim", walk.live()),
        "fork": lambda walk: walk.both("fork", walk.live(), walk.new()),
        "begin_step": lambda walk: walk.write_each(
            "begin_step", walk.draw.choice(["s1", "s2", "s3", "s4"])
        ),
        "end_step": lambda walk: walk.both("end_step", walk.step()),
        "fail_step": lambda walk: walk.both("fail_step", walk.step()),
        "pin": lambda walk: walk.both("pin", walk.live(), walk.new_transfer()),
        "unpin": lambda walk: walk.both("unpin", walk.transfer()),
        "send": lambda walk: walk.both(
            "send", walk.live(), walk.new_transfer(), 2, walk.draw.randint(0, 5)
        ),
        "receive": receive,
        "acknowledge": acknowledge,
        "tick": lambda walk: walk.both("tick"),
        "preempt": lambda walk: walk.both("preempt", walk.live()),
        "resume": lambda walk: walk.both("resume", walk.pick(walk.kv.preempted, "abcdef")),
        "release": lambda walk: walk.both("release", walk.live()),
        "release_each": lambda walk: walk.both("release_each", walk.batch()),
        "evict": lambda walk: walk.both("evict", walk.live(), walk.draw.randint(0, 2)),
        "reset": lambda walk: walk.both("reset"),
        "change_weights": lambda walk: walk.both("change_weights"),
    }
    SELDOM = ("reset", "change_weights", "evict", "release_each")

    def go(self):
        name = self.draw.choice(list(self.CALLS))
        if name in self.SELDOM and self.draw.random() < 0.8:
            return
        before = everything(self.kv)
        try:
            self.CALLS[name](self)
        except (Rejected, MemoryError) as refusal:
            assert everything(self.kv) == before
            name = type(refusal).__name__
        self.outcomes[name] += 1

    def drain(self):
        for step in list(self.kv.steps):
            self.kv.end_step(step)
        for name, transfer in list(self.kv.transfers.items()):
            if transfer.is_pin:
                self.kv.unpin(name)
            for worker in transfer.awaited - transfer.acknowledged:
                self.kv.acknowledge(name, worker, 0)
        for request in list(self.kv.lookups):
            self.kv.cancel(request)
        for request in [*self.kv.tables, *self.kv.preempted]:
            self.kv.release(request)


def walked(seed):
    """A walk in which everything held, and which left nothing behind."""
    walk = _Walk(seed)
    for _ in range(300):
        walk.go()
        walk.kv.check()
        assert {name: walk.kv.read(name) for name in walk.kv.tables} == walk.lists.sequences
    walk.outcomes["hit"] = walk.kv.counted["hit_tokens"]
    walk.drain()
    assert_drained(walk.kv)
    return walk


@pytest.mark.parametrize("seeds", [range(first, first + 5) for first in (0, 5, 10, 15)], ids=str)
def test_whatever_is_called_every_life_reads_its_own_and_the_pool_is_whole_in_the_end(seeds):
    outcomes = sum((walked(seed).outcomes for seed in seeds), Counter())

    assert outcomes.keys() | {"reset"} == {*_Walk.CALLS, "Rejected", "MemoryError", "hit"}
