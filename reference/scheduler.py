"""A scheduler on the oracle: arrivals, chunked prefill, decode, hits, preemption, cleanup, transfers.

A step gives each running request, in the order of arrival, a share of a budget of tokens: a chunk of
what it knows but has not written, or one token of its answer.  Then requests are admitted in the same
order, none before one that came earlier.

With credits (`admission`) no step ever lacks a block.  Without, the newest request that came later
and gives a block back is preempted: its blocks go, what it had said is known, and it is admitted anew.
Where there is none, the request keeps what it has and waits.  Nobody is admitted in a step in which
somebody was preempted or waited, so that what is admitted is not preempted for the same want again.

What ends, finished or cancelled, keeps its blocks until it is cleaned up; a transfer keeps them until
it has ended.  A remote prompt is transferred in: its request has all blocks for it from its admission
on, and does nothing until it has arrived.  The model is told when each of these happens.  A request
that ends before its longest answer is cancelled: for the pool it is the same.
"""

from bisect import insort
from collections.abc import Hashable
from dataclasses import dataclass, field

from kvoracle.reference.admission import Claim, Credits
from kvoracle.reference.capacity import blocks_for
from kvoracle.reference.oracle import Oracle
from kvoracle.reference.records import Rejected


@dataclass(frozen=True)
class Job:
    """A request as it arrives: its prompt, and how long its answer may become."""

    name: str
    prompt: tuple[Hashable, ...]
    output: int
    remote: bool = False
    """Whether its prompt is transferred in; once preempted, it is computed here all the same."""

    @property
    def load(self) -> str:
        """The transfer of its prompt."""
        return f"load of {self.name}"

    @property
    def text(self) -> tuple[Hashable, ...]:
        """Every token that it will write; nobody else's answer is the same."""
        return self.prompt + tuple((self.name, index) for index in range(self.output))


@dataclass
class Step:
    """What one step did."""

    left: int
    """Of the budget."""
    wrote: dict[str, int] = field(default_factory=dict)
    admitted: list[str] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)
    waited: list[str] = field(default_factory=list)
    """Those that were running and found no block."""


class Scheduler:
    """A pool of `blocks`, and who waits, runs and leaves; at most `budget` tokens a step."""

    def __init__(self, blocks: int, block_size: int, budget: int, *, credited: bool = True) -> None:
        if budget < 1:
            raise ValueError("a step must have a budget of at least 1 token")
        self.pool = Oracle(blocks, block_size, in_order=True)
        self.budget = budget
        self.credited = credited
        self.jobs: dict[str, Job] = {}
        """All that arrived and were not refused, in order."""
        self.known: dict[str, int] = {}
        """How many tokens of its text a request has, written or not."""
        self.waiting: list[str] = []
        self.running: list[str] = []
        self.leaving: list[str] = []
        self.credits = Credits()

    # What happens

    def arrive(self, job: Job) -> bool:
        """A request comes; the result is whether it could ever be served."""
        # check
        if job.name in self.jobs:
            raise Rejected("duplicate request", job.name)
        if not job.prompt or job.output < 1:
            raise Rejected("no tokens", job.name)
        if not Claim(self._blocks_of(len(job.text)), 0, 0).ever_fits(self.pool.capacity):
            return False
        # record
        self.jobs[job.name] = job
        self.known[job.name] = len(job.prompt)
        self.waiting.append(job.name)
        return True

    def cancel(self, request: str) -> None:
        """A request ends early."""
        # check
        if request not in self.waiting + self.running:
            raise Rejected("unknown request", request)
        # record
        if request in self.waiting:
            self.waiting.remove(request)
        else:
            self._leave(request)

    def clean(self, request: str) -> None:
        """What ended is cleaned up: its blocks are given back."""
        # check
        if request not in self.leaving:
            raise Rejected("nothing to clean up", request)
        # record
        self.leaving.remove(request)
        self.pool.release(request)

    def send(self, request: str, transfer: str) -> bool:
        """A transfer of a running request begins; the result is whether there is room for that."""
        # check
        if request not in self.running:
            raise Rejected("not running", request)
        if self.is_loading(request):
            return False
        length = self.pool.length(request)
        copies = length % self.pool.block_size > 0 and self.pool.tail_to_copy(request) is None
        if self.credited and self.credits.promised + copies > len(self.pool.takeable()):
            return False
        # record
        self.pool.pin(request, transfer)
        self.credits.grant(request, int(copies))
        return True

    def sent(self, transfer: str) -> None:
        """A transfer has ended; who would have copied its tail need not."""
        before = [name for name in self.running if self.pool.tail_to_copy(name) is not None]
        self.pool.unpin(transfer)
        for name in before:
            if self.pool.tail_to_copy(name) is None:
                self.credits.spend(name, 1)

    def loaded(self, request: str) -> None:
        """A remote prompt has arrived; whoever it was for may be gone."""
        self.pool.acknowledge(self.jobs[request].load, 0, 0)

    def step(self) -> Step:
        """Write what the budget and the pool allow."""
        done = Step(self.budget)
        for request in list(self.running):
            if request in self.running and done.left and not self.is_loading(request):
                self._advance(request, done)
        if not done.preempted and not done.waited:
            while self.waiting and done.left and self._admit(self.waiting[0], done):
                pass
        return done

    # How much

    def is_loading(self, request: str) -> bool:
        """Whether a running request waits for its remote prompt."""
        return self.pool.lives[request].waiting

    def claim(self, request: str) -> Claim:
        """What a waiting request would need, and what it would hit."""
        hits = self.pool.hits_of((), self._known_text(request))
        needed = self._blocks_of(len(self.jobs[request].text))
        return Claim(needed, len(hits.whole), self.pool.woken_by(hits))

    def still_needed(self, request: str) -> int:
        """What a running request may still take: to its longest, and to copy its tail."""
        whole = self._blocks_of(len(self.jobs[request].text))
        copies = self.pool.tail_to_copy(request) is not None
        return whole - len(self.pool.tables[request]) + copies

    # How

    def _advance(self, request: str, done: Step) -> None:
        length = self.pool.length(request)
        count = min(done.left, max(self.known[request] - length, 1))
        if not self._find_room(request, count, done):
            done.waited.append(request)
            return
        available = len(self.pool.takeable())
        self.pool.append(request, *self.jobs[request].text[length : length + count])
        self.credits.spend(request, available - len(self.pool.takeable()))
        self.known[request] = max(self.known[request], length + count)
        self._wrote(request, count, done)

    def _find_room(self, request: str, count: int, done: Step) -> bool:
        while self._to_take(request, count) > len(self.pool.takeable()):
            victim = self._victim(request)
            if victim is None:
                return False
            self._preempt(victim)
            done.preempted.append(victim)
        return True

    def _to_take(self, request: str, count: int) -> int:
        table, copies = self.pool.tables[request], self.pool.tail_to_copy(request) is not None
        return self._blocks_of(self.pool.length(request) + count) - len(table) + copies

    def _victim(self, request: str) -> str | None:
        later = self.running[self.running.index(request) + 1 :]
        return next((name for name in reversed(later) if self._gives_back(name)), None)

    def _gives_back(self, request: str) -> bool:
        pages = [self.pool.pages[page] for page in self.pool.tables[request]]
        return any(page.owners == {request} and not page.pins for page in pages)

    def _preempt(self, request: str) -> None:
        self.running.remove(request)
        self.credits.end(request)
        self.pool.release(request)
        insort(self.waiting, request, key=list(self.jobs).index)

    def _admit(self, request: str, done: Step) -> bool:
        # check
        claim, available = self.claim(request), len(self.pool.takeable())
        text, hit = self._known_text(request), claim.hit * self.pool.block_size
        loads = self.jobs[request].remote and self.jobs[request].load not in self.pool.begun
        count = len(text) - hit if loads else min(done.left, len(text) - hit)
        fresh = self._blocks_of(hit + count) - claim.hit
        if fresh > available - claim.woken:
            return False
        if self.credited and not claim.is_safe(available, self.credits.promised):
            return False
        # record
        self.waiting.remove(request)
        insort(self.running, request, key=list(self.jobs).index)
        self.credits.grant(request, claim.credit - fresh)
        done.admitted.append(request)
        if loads:
            transfer = self.jobs[request].load
            self.pool.receive(request, *text, transfer=transfer, workers=1, lease=0)
        else:
            self.pool.admit(request, *text[: hit + count])
            self._wrote(request, count, done)
        return True

    def _wrote(self, request: str, count: int, done: Step) -> None:
        done.left -= count
        done.wrote[request] = count
        if self.pool.length(request) == len(self.jobs[request].text):
            self._leave(request)

    def _leave(self, request: str) -> None:
        self.running.remove(request)
        self.credits.end(request)
        self.leaving.append(request)

    def _known_text(self, request: str) -> tuple[Hashable, ...]:
        return self.jobs[request].text[: self.known[request]]

    def _blocks_of(self, tokens: int) -> int:
        return blocks_for(tokens, self.pool.block_size)
