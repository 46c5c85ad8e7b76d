"""Soundness by search: random calls, every request read back, the whole pool returned."""

import random

import pytest
from reference_helpers import hit_depth, holding, state

from kvoracle.reference import PrefixCachedKV


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
