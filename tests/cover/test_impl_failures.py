"""A call that finds no block changes nothing, wherever in a history that happens to it."""

import pytest
from impl_states import assert_is_whole, state

from kvoracle.impl import OutOfBlocks, PagedAllocator
from kvoracle.impl.pool import BlockPool

HISTORY = [
    ("admit", "a", [1, 2, 3, 4, 5]),
    ("admit", "b", [1, 2, 3, 9]),
    ("create", "c"),
    ("append", "c", [1, 2, 3]),
    ("fork", "a", "d"),
    ("append", "d", [6]),
    ("append", "a", [6, 7]),
    ("reserve", "c", 4),
    ("commit", "c", [4, 5]),
    ("append_batch", ["a", "b", "d"], [8, 8, 8]),
    ("append_batch", ["a", "b", "d"], [9, 9, 9]),
    ("pin", "b", "p"),
    ("append", "b", [7]),
    ("begin_step", "s", ["a", "b"], [1, 2]),
    ("begin_step", "t", ["b", "a", "d"], [3, 4, 5]),
    ("end_step", "s"),
    ("trim", "c"),
    ("send", "c", "out", 1),
    ("look_up", "e", [1, 2, 3, 4, 5, 6]),
    ("release", "a"),
    ("use", "e"),
    ("fail_step", "t"),
    ("preempt", "d"),
    ("receive", "f", [1, 2, 3, 4, 7, 7, 7], "in", 1),
    ("resume", "d"),
    ("evict", "e", 1),
    ("fork", "e", "g"),
    ("append", "g", [1, 1, 1]),
    ("release_batch", ["b", "c", "g"]),
    ("unpin", "p"),
    ("admit", "h", [1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ("tick",),
]


class Injected(BlockPool):
    """A pool that claims to be out of blocks when it is asked for some for the k-th time."""

    until = 0

    def count_down(self):
        self.until -= 1
        if self.until == 0:
            raise OutOfBlocks(1, 0)

    def take(self, count):
        self.count_down()
        return super().take(count)

    def use_and_take(self, *how):
        self.count_down()
        return super().use_and_take(*how)


class Failing(PagedAllocator):
    pool_class = Injected


def after_the_history(prefix_cache, failure):
    """The end of the history in which the pool fails once; and how often the pool was asked.

    A call that raises is made again.
    """
    it = Failing(40, 2, prefix_cache=prefix_cache)
    it.pool.until = failure
    raised = 0
    for verb, *arguments in HISTORY:
        before = state(it)
        try:
            getattr(it, verb)(*arguments)
        except OutOfBlocks:
            raised += 1
            assert state(it) == before
            getattr(it, verb)(*arguments)
        assert_is_whole(it)
    return state(it), failure - it.pool.until, raised


@pytest.mark.parametrize("prefix_cache", [False, True])
def test_a_call_that_fails_at_any_take_changes_nothing_and_succeeds_when_made_again(prefix_cache):
    expected, asked, _ = after_the_history(prefix_cache, 0)
    assert asked > 12

    raised = 0
    for failure in range(1, asked + 1):
        end, _, failed = after_the_history(prefix_cache, failure)
        raised += failed
        assert end == expected

    assert raised == asked


@pytest.mark.parametrize("prefix_cache", [False, True])
@pytest.mark.parametrize("blocks", range(1, 24))
def test_a_history_in_a_pool_that_is_too_small_keeps_every_rule(blocks, prefix_cache):
    it = PagedAllocator(blocks, 2, prefix_cache=prefix_cache)
    failed = 0
    for verb, *arguments in HISTORY:
        before = state(it)
        try:
            getattr(it, verb)(*arguments)
        except (OutOfBlocks, ValueError):
            failed += 1
            assert state(it) == before
        assert_is_whole(it)

    assert failed or blocks > 13


@pytest.mark.parametrize("failure", range(1, 5))
@pytest.mark.parametrize("face", ["append_batch", "begin_step"])
def test_of_a_batch_with_tails_to_copy_only_the_request_that_fails_is_refused(face, failure):
    it = Failing(40, 4)
    it.admit("a", [1, 2])
    for child in "bcde":
        it.fork("a", child)
    it.pool.until = failure
    step = ["s"] if face == "begin_step" else []

    growth = getattr(it, face)(*step, list("bcde"), [1, 2, 3, 4])

    granted = [number != failure for number in range(1, 5)]
    assert growth.granted.tolist() == granted
    assert (growth.slots >= 0).tolist() == granted
    assert [it.table(child).tolist() != [0] for child in "bcde"] == granted
    assert len(growth.fresh) == len(growth.copies) == 3
    assert_is_whole(it)
