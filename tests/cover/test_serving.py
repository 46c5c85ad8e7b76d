"""Traffic served on allocators: what is measured is right, and what allocators do wrong is noticed."""

from array import array
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_traffic import conversations, served

from kvoracle.model.adapters.impl import ImplAdapter
from kvoracle.model.lockstep import Violation
from kvoracle.model.operations import Done, OutOfBlocks, Rejected
from kvoracle.model.registry import resolve
from kvoracle.model.serving.contestant import contestant
from kvoracle.model.serving.judge import Judge
from kvoracle.model.serving.replay import Conduct, Replay
from kvoracle.model.serving.result import result_of
from kvoracle.model.serving.scheduler import Scheduler
from kvoracle.model.serving.texts import Texts
from kvoracle.model.traffic.arrival import Arrival, scaled_down
from kvoracle.model.traffic.reuse import reuse_distances, unlimited

# Hit rates, against what knows no allocator


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("block_size", [1, 3, 4, 8, 16])
def test_with_room_for_everything_each_hit_is_one_of_the_naive_count(seed, block_size):
    arrivals = conversations(seed, 60)

    measures = served(arrivals, 20_000, block_size).measures

    assert (measures.hit_tokens, measures.prompt_tokens) == unlimited(arrivals, block_size)
    assert measures.hit_tokens > 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("blocks", [70, 100, 150, 300, 600])
def test_one_at_a_time_the_hits_are_those_of_the_reuse_distances(seed, blocks):
    """But for a last block that is not full: it takes the place of one that could be hit."""
    arrivals = conversations(seed, 80, odd=True)
    reuse = reuse_distances(arrivals, 4)

    hits = served(arrivals, blocks, concurrency=1).measures.hit_tokens

    assert reuse.hit_tokens(blocks - 1) <= hits <= reuse.hit_tokens(blocks)


def test_hits_fall_as_memory_shrinks():
    arrivals = conversations(1, 150)
    sizes = [4000, 1000, 500, 200, 100, 70]

    hits = [served(arrivals, blocks).measures.hit_tokens for blocks in sizes]

    assert all(more >= fewer for more, fewer in pairwise(hits))
    assert hits[0] == reuse_distances(arrivals, 4).unlimited
    assert hits[-1] < hits[0] * 0.7


# What is measured


def test_one_request_alone():
    """A prompt of 10 in chunks of 4, and an answer of 3: three steps for the prompt, three more."""
    replay = served([Arrival(5, 10, 3)], 8, budget=4, step=1000, token=10)
    measures = replay.measures

    assert list(measures.column("used")) == [1, 2, 3, 3, 3, 0]
    assert list(measures.column("tails")) == [0, 0, 2, 1, 0, 0]
    assert list(measures.column("took")) == [1040, 1040, 1020, 1010, 1010, 1010]
    assert measures.seconds == pytest.approx(6130e-6)
    assert (measures.finished, list(measures.waits)) == (1, [0])


def test_means_are_over_time_and_not_over_steps():
    measures = served([Arrival(0, 4, 1)], 8, step=1000, token=1000).measures

    assert list(measures.column("took")) == [5000, 2000]
    assert list(measures.column("running")) == [1, 0]
    assert measures.mean("running") == pytest.approx(5 / 7)


def test_a_series_has_the_means_of_equal_spans():
    measures = served([Arrival(0, 4, 1)], 8, step=1_000_000, token=0).measures

    assert measures.series("running") == [(0.0, 1.0), (1.0, 0.0)]


def test_times_are_those_of_the_trace_and_idle_time_passes_at_once():
    arrivals = [Arrival(1000, 4, 1), Arrival(9_000_000, 4, 1)]

    replay = served(arrivals, 8, step=10, token=0)

    assert list(replay.measures.waits) == [0, 0]
    assert replay.measures.seconds == pytest.approx(8.999020)


def test_so_many_at_once_whenever_they_came():
    arrivals = conversations(3, 40)

    for concurrency in (1, 3):
        measures = served(arrivals, 2000, concurrency=concurrency).measures

        assert max(measures.column("running")) == concurrency
        assert measures.finished == 40


def test_what_can_never_fit_is_refused_and_the_others_are_served():
    replay = served([Arrival(0, 20, 5), Arrival(0, 200, 1), Arrival(0, 3, 20)], 8)

    assert (replay.measures.refused, replay.measures.finished) == (1, 2)


def test_preemptions_are_counted_and_so_is_what_is_computed_again():
    replay = served([Arrival(0, 12, 20), Arrival(0, 12, 20)], 10)

    assert replay.measures.preemptions > 0
    assert replay.measures.recomputed_tokens > 0
    assert replay.measures.finished == 2


def test_cleanup_keeps_blocks_for_so_many_steps():
    measures = served([Arrival(0, 4, 1)], 8, cleanup_steps=3).measures

    assert list(measures.column("used")) == [1, 2, 2, 2, 0]


def test_cancelled_and_remote_requests():
    arrivals = conversations(4, 120)

    measures = served(
        arrivals, 120, cancelled=0.3, remote=0.3, load_steps=3, cleanup_steps=2
    ).measures

    assert measures.cancelled > 10
    assert measures.finished + measures.cancelled + measures.refused == 120


def test_a_text_is_equal_where_prefixes_are_and_nowhere_else():
    texts = Texts()
    one, other, third = (
        texts.maker(Arrival(0, prompt, 2, prefixes, 4))()
        for prompt, prefixes in [(8, (5, 6)), (7, (5, 7)), (3, ())]
    )

    assert one[:4] == other[:4]
    assert len(one) == 10
    assert len(set(one[4:]) | set(other[4:]) | set(third)) == 6 + 5 + 5
    assert isinstance(one, array)


def test_a_scaled_request_keeps_its_prefixes():
    assert scaled_down(Arrival(9, 1025, 1, (1, 2, 3)), 32) == Arrival(9, 33, 1, (1, 2, 3), 16)


def test_the_contiguous_baseline_wastes_by_reserving():
    chosen = contestant(resolve("contiguous"), 300, 16, 100)
    arrivals = [Arrival(0, 50, 10)] * 6
    scheduler = Scheduler(chosen.pool(), 64, credited=False)

    result = result_of(chosen, Replay(iter(arrivals), scheduler, Conduct()).run(), 6, None)

    assert (result.blocks, result.running_most) == (3, 3)
    assert result.tail_waste == 0
    assert 0.4 < result.reserved_waste < 0.6


# Credits


@given(
    seed=st.integers(0, 10**6),
    blocks=st.integers(20, 90),
    budget=st.integers(1, 80),
    cleanup_steps=st.integers(0, 5),
    cancelled=st.sampled_from([0.0, 0.3]),
    remote=st.sampled_from([0.0, 0.3]),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_with_credits_nobody_is_preempted_and_everybody_ends(
    seed, blocks, budget, cleanup_steps, cancelled, remote
):
    replay = served(
        conversations(seed, 30, longest=100),
        blocks,
        budget=budget,
        credited=True,
        cleanup_steps=cleanup_steps,
        cancelled=cancelled,
        remote=remote,
    )
    measures = replay.measures

    assert measures.preemptions == 0
    assert measures.finished + measures.cancelled + measures.refused == 30
    assert (measures.column("promised") >= 0).all()
    assert (measures.column("promised") + measures.column("used") <= blocks).all()
    assert replay.scheduler.promised == 0


# What allocators do wrong


def replace_hit(done, hit):
    return Done(copies=done.copies, slots=done.slots, hit=hit)


class Raises(ImplAdapter):
    def append(self, request, tokens):
        raise IndexError("list index out of range")


class KeepsABlock(ImplAdapter):
    """What it gives back is one block less than it was."""

    def release(self, request):
        self.allocator.pin(request, f"kept of {request}")
        super().release(request)


class IsFull(ImplAdapter):
    def admit(self, request, prompt, extra_keys):
        return OutOfBlocks()


class Rejects(ImplAdapter):
    def admit(self, request, prompt, extra_keys):
        return Rejected("duplicate request")


class ForgetsItsParents(ImplAdapter):
    """Blocks of equal text are equal to it, whatever came before them."""

    def __init__(self, config):
        super().__init__(config)
        self.allocator.index.key_of = lambda _, text: text


class HitsTheLastToken(ImplAdapter):
    def admit(self, request, prompt, extra_keys):
        return replace_hit(super().admit(request, prompt, extra_keys), len(prompt))


class PromisesMore(ImplAdapter):
    """Its word on hits is a block more than it hits."""

    def would_hit(self, request, prompt, extra_keys):
        hit, idle = super().would_hit(request, prompt, extra_keys)
        return hit + 4, idle


class TakesABlockMore(ImplAdapter):
    def table(self, request):
        return [*super().table(request), 0]


class CountsTooMany(ImplAdapter):
    def free_blocks(self):
        return super().free_blocks() + 3


class SaysNonsense(ImplAdapter):
    def table(self, request):
        return "abc"


class CopiesBeyondThePool(ImplAdapter):
    def append_each(self, requests, tokens):
        done = super().append_each(requests, tokens)
        return Done(copies=[(0, 10**7)], slots=done.slots)


class WritesElsewhere(ImplAdapter):
    """The slot that it names is that of another token of the same block."""

    def append_each(self, requests, tokens):
        done = super().append_each(requests, tokens)
        return Done(slots={name: [slot ^ 1] for name, (slot,) in done.slots.items()})


class NamesNoSuchSlot(ImplAdapter):
    def append_each(self, requests, tokens):
        return Done(slots={name: [10**6] for name in requests})


class HitsWhatIsNotThere(ImplAdapter):
    """Its keys do not depend on the tokens."""

    def __init__(self, config):
        super().__init__(config)
        self.allocator.index.key_of = lambda parent, _: parent + b"x"


class CutsItsTables(ImplAdapter):
    def table(self, request):
        return super().table(request)[:-1]


WRONG = {
    Raises: "exception",
    KeepsABlock: "leak",
    IsFull: "stuck",
    Rejects: "outcome",
    HitsWhatIsNotThere: "contents",
    CutsItsTables: "table",
    TakesABlockMore: "table",
    ForgetsItsParents: "contents",
    HitsTheLastToken: "hit",
    PromisesMore: "predicate",
    CopiesBeyondThePool: "copy",
    SaysNonsense: "report",
    WritesElsewhere: "contents",
    NamesNoSuchSlot: "slots",
}


@pytest.mark.parametrize("adapter", WRONG)
def test_what_an_allocator_does_wrong_is_named(adapter):
    with pytest.raises(Violation) as caught:
        served(conversations(2, 60), 5000, allocator=adapter)

    assert caught.value.rule == WRONG[adapter]


def test_a_count_that_is_too_high_is_named():
    with pytest.raises(Violation, match="is refused, though what it takes is within the"):
        served(conversations(2, 60), 70, allocator=CountsTooMany)


class SaysNoHitsAreIdle(ImplAdapter):
    def would_hit(self, request, prompt, extra_keys):
        return super().would_hit(request, prompt, extra_keys)[0], 0


@pytest.mark.parametrize("seed", range(4))
def test_with_credits_a_lie_about_idle_blocks_is_named(seed):
    with pytest.raises(Violation, match="which they were admitted with credits for"):
        served(conversations(seed, 60), 75, allocator=SaysNoHitsAreIdle, credited=True)


class KeepsSomeBack(ImplAdapter):
    """It may be full with four free blocks, and is."""

    headroom = 4

    def _has_room(self):
        return self.allocator.num_free > self.headroom

    def admit(self, request, prompt, extra_keys):
        return super().admit(request, prompt, extra_keys) if self._has_room() else OutOfBlocks()

    def append(self, request, tokens):
        return super().append(request, tokens) if self._has_room() else OutOfBlocks()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("credited", [False, True])
def test_what_is_kept_back_is_not_counted_on(seed, credited):
    measures = served(
        conversations(seed, 50), 90, allocator=KeepsSomeBack, credited=credited
    ).measures

    assert measures.finished == 50


class HitsUnsaid(ImplAdapter):
    """Its admissions do not say what they hit; it says so when it is asked before."""

    def admit(self, request, prompt, extra_keys):
        outcome = super().admit(request, prompt, extra_keys)
        return Done(copies=outcome.copies) if isinstance(outcome, Done) else outcome


def test_what_an_admission_does_not_say_is_what_was_said_before():
    arrivals = conversations(1, 60)

    measures = served(arrivals, 5000, allocator=HitsUnsaid, credited=True).measures

    assert measures.hit_tokens == unlimited(arrivals, 4).hit_tokens


def test_what_is_preempted_is_read_back():
    replay = served([Arrival(0, 12, 20), Arrival(0, 12, 20)], 10)

    contents = replay.scheduler.pool.contents
    assert contents.sequences == 2 + replay.measures.preemptions


def test_in_lockstep_what_goes_wrong_is_a_small_trace():
    chosen = contestant(resolve("mutant:hit-misses-an-owner"), 400, 4, 400)
    judge = Judge(chosen)
    scheduler = Scheduler(judge.pool(), 64, credited=False)
    arrivals = conversations(2, 30)

    with pytest.raises(Violation) as caught:
        Replay(iter(arrivals), scheduler, Conduct()).run()
    failure = judge.failure(caught.value)

    assert failure.rule == caught.value.rule
    assert len(failure.trace.operations) < 8


def test_in_lockstep_what_no_call_shows_has_no_trace():
    judge = Judge(contestant(resolve("impl"), 400, 4, 400))
    Replay(iter(conversations(2, 5)), Scheduler(judge.pool(), 64, credited=False), Conduct()).run()

    assert judge.failure(Violation("stuck", "nothing moves")) is None
