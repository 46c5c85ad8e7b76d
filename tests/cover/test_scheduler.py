"""The scheduler model: what it does, every state of small pools, and planted faults that are found."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scheduler_states import (
    BrokenLaw,
    check,
    check_step,
    depends,
    events,
    explore,
    happen,
    ready,
    stuck,
)
from test_capacity import STATED

from kvoracle.reference.admission import Claim, Credits
from kvoracle.reference.records import Rejected
from kvoracle.reference.scheduler import Job, Scheduler

TWO = [Job("a", (1, 2, 3), 2), Job("b", (1, 2, 4), 1)]
THREE = [Job("a", (1, 2, 3), 1), Job("b", (1, 2, 4), 2), Job("c", (1, 2, 3), 1)]
LONG = [Job("a", (1, 2, 3, 4, 5), 1), Job("b", (1, 2, 3, 4, 6), 3), Job("c", (1, 2, 3), 2)]
WAKING = [Job("a", (1, 2, 3), 1), Job("b", (9,), 3), Job("c", (1, 2, 3), 1)]

REMOTE = [
    Job("a", (1, 2, 3), 2, remote=True),
    Job("b", (1, 2, 4), 1),
    Job("c", (1, 2, 3), 1, remote=True),
]

SCOPES = {
    "two": (TWO, 3, 2, 1),
    "two with room": (TWO, 4, 3, 2),
    "three": (THREE, 4, 3, 1),
    "three, one token a step": (THREE, 4, 1, 1),
    "waking": (WAKING, 3, 2, 1),
    "remote": (REMOTE, 4, 2, 1),
    "long": (LONG, 4, 2, 1),
    "long, two transfers": (LONG, 5, 3, 2),
}
"""Jobs, blocks of two slots, the budget, transfers at once."""


@cache
def explored(scope, kind=Scheduler, *, credited=True, judged=True):
    jobs, blocks, budget, transfers = SCOPES[scope]
    return explore(
        lambda: kind(blocks, 2, budget, credited=credited),
        jobs,
        transfers=transfers,
        judged=judged,
    )


def scheduler_of(blocks, budget, *jobs, credited=True):
    scheduler = Scheduler(blocks, 2, budget, credited=credited)
    for job in jobs:
        assert scheduler.arrive(job)
    return scheduler


# Every state of small pools


@pytest.mark.parametrize("scope", SCOPES)
def test_with_credits_every_admitted_request_ends_whatever_the_others_do(scope):
    """Not even cleanups and ends of transfers are needed, and nobody is preempted on the way."""
    graph = explored(scope)

    assert depends(graph) == []
    assert graph.seen["preempted"] == graph.seen["waited"] == 0
    assert graph.seen["admitted"] > 0


@pytest.mark.parametrize("credited", [True, False])
@pytest.mark.parametrize("scope", SCOPES)
def test_there_is_no_deadlock_and_no_preemption_loop(scope, credited):
    assert stuck(explored(scope, credited=credited)) == ([], [])


def test_what_the_scopes_contain():
    """So many states, and each thing that matters really happens in them."""
    graphs = {name: explored(name) for name in SCOPES}
    optimistic = explored("long", credited=False)

    counts = [len(graph.numbers) for graph in graphs.values()]
    assert counts == [140, 346, 494, 1367, 660, 1309, 940, 2721]
    for what in ("hit", "copied", "send refused"):
        assert any(graph.seen.get(what) for graph in graphs.values())
    assert optimistic.seen["preempted"] > 0
    assert optimistic.seen["waited"] > 0


def test_without_credits_a_request_may_depend_on_others():
    assert depends(explored("two", credited=False))


# Planted faults


class LeaksACredit(Scheduler):
    """What is cancelled or finished keeps its credits."""

    def _leave(self, request):
        self.running.remove(request)
        self.leaving.append(request)


class CountsAnIdleHitTwice(Scheduler):
    """As a block that need not be taken, and as one that may be."""

    def claim(self, request):
        return replace(super().claim(request), woken=0)


class DiscountsTwice(Scheduler):
    def claim(self, request):
        claim = super().claim(request)
        return replace(claim, needed=claim.needed - claim.hit)


class SendsWithoutACredit(Scheduler):
    def send(self, request, transfer):
        self.credited = False
        result = super().send(request, transfer)
        self.credited = True
        return result


class GivesBackBeforeCleanup(Scheduler):
    """Admits on blocks that are still to be cleaned up."""

    def _admit(self, request, done):
        ending = sum(len(self.pool.tables[name]) for name in self.leaving)
        self.credits.grant("ending", -ending)
        result = super()._admit(request, done)
        self.credits.end("ending")
        return result


class PreemptsItself(Scheduler):
    """And others for nothing: the loop of engines whose blocks are kept by transfers."""

    def _find_room(self, request, count, done):
        while self._to_take(request, count) > len(self.pool.takeable()):
            done.preempted.append(self.running[-1])
            self._preempt(self.running[-1])
            if request not in self.running:
                return False
        return True


@pytest.mark.parametrize(
    ("kind", "scope"),
    [
        (LeaksACredit, "two"),
        (CountsAnIdleHitTwice, "waking"),
        (DiscountsTwice, "two"),
        (SendsWithoutACredit, "two"),
        (GivesBackBeforeCleanup, "long"),
    ],
)
def test_a_planted_fault_of_credits_is_found(kind, scope):
    explored(scope)
    with pytest.raises(BrokenLaw):
        explored(scope, kind)


def test_the_shortest_way_to_a_leak_is_told():
    with pytest.raises(BrokenLaw) as error:
        explored("two", LeaksACredit)
    assert str(error.value) == (
        "AssertionError: credits {'a': 2}, needed {},"
        " after (('arrive', 0), ('step',), ('cancel', 'a'))"
    )


def test_a_leak_is_found_by_what_it_does_alone():
    """A request waits for ever in an empty pool."""
    graph = explored("two", LeaksACredit, judged=False)
    circling, left_over = stuck(graph)

    assert circling == []
    assert [graph.live[number] for number in left_over] == [(("b",), (), ())]


def test_a_preemption_loop_is_found_by_what_it_does_alone():
    circling, _ = stuck(explored("two", PreemptsItself, credited=False, judged=False))

    assert circling


# Larger pools, sampled

JOBS = st.lists(
    st.builds(
        lambda length, value, output, remote: Job("", (*range(length - 1), value), output, remote),
        st.integers(1, 12),
        st.integers(0, 12),
        st.integers(1, 9),
        st.booleans(),
    ),
    min_size=1,
    max_size=7,
)


@STATED
@given(JOBS, st.integers(4, 14), st.integers(1, 4), st.integers(1, 9), st.booleans(), st.data())
def test_laws_hold_after_any_events_and_then_all_ends(jobs, blocks, size, budget, credited, data):
    jobs = [replace(job, name=f"r{number}") for number, job in enumerate(jobs)]
    scheduler, arrived = Scheduler(blocks, size, budget, credited=credited), 0
    for _ in range(data.draw(st.integers(0, 40))):
        event = data.draw(st.sampled_from(list(events(scheduler, arrived, jobs, 2))))
        runs = ready(scheduler)
        result = happen(scheduler, event, jobs)
        arrived += event[0] == "arrive"
        check(scheduler)
        if event[0] == "step":
            check_step(scheduler, runs, result)
        if event[0] == "arrive":
            assert result == (-(-len(jobs[event[1]].text) // size) <= blocks)
    drain(scheduler)
    assert len(scheduler.pool.takeable()) == blocks


def drain(scheduler):
    """Everything on its way comes; the steps that it takes are bounded by the tokens there are."""
    tokens = sum(len(job.text) for job in scheduler.jobs.values())
    for _ in range(len(scheduler.jobs) * tokens + 1):
        for event in list(events(scheduler, len(scheduler.jobs), scheduler.jobs, 0)):
            if event[0] in ("sent", "loaded"):
                happen(scheduler, event, [])
        for request in list(scheduler.leaving):
            scheduler.clean(request)
        if not scheduler.waiting and not scheduler.running:
            return
        scheduler.step()
        check(scheduler)
    raise AssertionError(f"{scheduler.waiting} wait and {scheduler.running} run")


# What it does


def test_a_request_that_can_never_fit_is_refused_at_once():
    scheduler = Scheduler(3, 2, 4)

    assert not scheduler.arrive(Job("a", (1, 2, 3, 4, 5), 2))
    assert scheduler.arrive(Job("b", (1, 2, 3, 4, 5), 1))
    assert (scheduler.waiting, list(scheduler.jobs)) == (["b"], ["b"])


def test_a_prompt_comes_in_chunks_and_then_a_token_a_step():
    scheduler = scheduler_of(4, 3, Job("a", (1, 2, 3, 4), 2))

    wrote = [scheduler.step().wrote for _ in range(5)]

    assert wrote == [{"a": 3}, {"a": 1}, {"a": 1}, {"a": 1}, {}]
    assert scheduler.leaving == ["a"]


def test_a_discount_admits_a_request_that_would_wait_without_it():
    first, other = Job("a", (1, 2, 3), 1), Job("b", (7, 8, 9), 1)
    shared = replace(other, prompt=(1, 2, 9))

    assert scheduler_of(3, 9, first, other).step().admitted == ["a"]
    assert scheduler_of(3, 9, first, shared).step().admitted == ["a", "b"]


def test_a_discount_is_kept_when_the_other_request_ends():
    scheduler = scheduler_of(4, 3, Job("a", (1, 2, 3), 2), Job("b", (1, 2, 9), 1))
    scheduler.step()
    assert scheduler.step().admitted == ["b"]
    scheduler.cancel("a")
    scheduler.clean("a")

    assert scheduler.credits.of == {"b": 0}
    assert scheduler.step().wrote == {"b": 1}


def test_blocks_of_what_ended_are_not_promised_before_they_are_cleaned_up():
    scheduler = scheduler_of(2, 9, Job("a", (1, 2, 3), 1), Job("b", (7, 8, 9), 1))
    scheduler.step()
    scheduler.cancel("a")

    assert scheduler.step().admitted == []
    scheduler.clean("a")
    assert scheduler.step().admitted == ["b"]


def test_a_transfer_keeps_blocks_and_needs_a_credit_for_a_copy():
    scheduler = scheduler_of(3, 9, Job("a", (1,), 4))
    scheduler.step()

    assert scheduler.credits.of == {"a": 2}
    assert not scheduler.send("a", "t")
    scheduler.step()
    assert scheduler.send("a", "t")
    scheduler.cancel("a")
    scheduler.clean("a")
    assert len(scheduler.pool.takeable()) == 2
    scheduler.sent("t")
    assert len(scheduler.pool.takeable()) == 3


def test_a_remote_prompt_has_its_blocks_at_once_and_runs_when_it_has_arrived():
    scheduler = scheduler_of(4, 1, Job("a", (1, 2, 3, 4, 5), 2, remote=True))

    assert scheduler.step().admitted == ["a"]
    assert len(scheduler.pool.takeable()) == 1
    assert scheduler.step().wrote == {}
    assert not scheduler.send("a", "t")
    scheduler.loaded("a")
    assert [scheduler.step().wrote for _ in range(3)] == [{"a": 1}, {"a": 1}, {}]


def test_blocks_of_a_cancelled_load_are_kept_until_it_has_arrived():
    scheduler = scheduler_of(2, 9, Job("a", (1, 2, 3), 1, remote=True))
    scheduler.step()
    scheduler.cancel("a")
    scheduler.clean("a")

    assert scheduler.pool.takeable() == []
    scheduler.loaded("a")
    assert len(scheduler.pool.takeable()) == 2


def test_without_credits_the_newest_is_preempted_and_computed_anew():
    jobs = Job("a", (1, 2), 4), Job("b", (7, 8), 4)
    scheduler = scheduler_of(4, 9, *jobs, credited=False)
    done = scheduler.step()
    assert done.admitted == ["a", "b"]

    while not done.preempted:
        done = scheduler.step()

    assert (done.preempted, done.wrote, scheduler.waiting) == (["b"], {"a": 1}, ["b"])
    assert scheduler.known["b"] == 4
    drain(scheduler)


def test_nobody_is_admitted_before_one_that_came_earlier():
    large, small = Job("b", (7, 8, 9), 3), Job("c", (5,), 1)
    scheduler = scheduler_of(4, 9, Job("a", (1, 2, 3), 1), large, small)

    assert scheduler.step().admitted == ["a"]
    assert scheduler.waiting == ["b", "c"]


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.arrive(Job("a", (1,), 1)),
        lambda s: s.arrive(Job("b", (), 1)),
        lambda s: s.arrive(Job("b", (1,), 0)),
        lambda s: s.cancel("b"),
        lambda s: s.clean("a"),
        lambda s: s.send("a", "t"),
        lambda s: s.sent("t"),
    ],
)
def test_misuse_is_rejected(call):
    scheduler = scheduler_of(3, 9, Job("a", (1, 2, 3), 1))

    with pytest.raises(Rejected):
        call(scheduler)
    assert scheduler.waiting == ["a"]


def test_a_step_has_a_budget():
    with pytest.raises(ValueError, match="at least 1 token"):
        Scheduler(3, 2, 0)


# Admission arithmetic

CLAIMS = st.integers(0, 30).flatmap(
    lambda needed: st.integers(0, needed).flatmap(
        lambda hit: st.builds(Claim, st.just(needed), st.just(hit), st.integers(0, hit))
    )
)


@STATED
@given(CLAIMS, st.integers(0, 30), st.integers(0, 30))
def test_a_safe_claim_keeps_the_law_and_one_alone_in_a_pool_that_fits_is_safe(
    claim, promised, available
):
    if claim.is_safe(available, promised):
        assert promised + claim.credit <= available - claim.woken
    blocks = claim.needed
    assert claim.ever_fits(blocks)
    assert not claim.ever_fits(blocks - 1)
    if claim.hit == claim.woken:
        assert claim.is_safe(blocks, 0)


def test_credits_are_summed_over_requests():
    ledger = Credits()
    ledger.grant("a", 3)
    ledger.grant("b", 2)
    ledger.grant("a", 1)
    ledger.spend("a", 2)
    assert (ledger.of, ledger.promised) == ({"a": 2, "b": 2}, 4)
    ledger.end("a")
    assert ledger.promised == 2
