"""The scheduler of `reference/scheduler.py` on any allocator, made for whole traces.

It decides what that one decides, step by step (tests/cover/test_serving_scheduler.py), and asks the
allocator as little as it can: what a waiting prompt would hit only once something has changed that
could let it in, and for the next token of all requests at once where there is room for all of them.
"""

from bisect import insort
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from kvoracle.model.serving.pool import Found, Pool
from kvoracle.model.serving.request import Request, Text
from kvoracle.reference import scheduler as reference

BY_ARRIVAL = attrgetter("number")


@dataclass
class Step(reference.Step):
    """What one step did."""

    hits: dict[str, int] = field(default_factory=dict)
    """What those that were admitted found written, in tokens."""


@dataclass
class Transfer:
    """What it reads or writes, and for whom."""

    blocks: frozenset[int]
    request: Request


class Share(NamedTuple):
    """What a request gets of a step's budget, and the blocks that this takes."""

    request: Request
    tokens: int
    taken: int


class Scheduler:
    """Who waits, runs and leaves on one pool; at most `budget` tokens a step.

    `credited` admits a request only where it can finish whatever the others do.  One that is longer
    than `max_model_len`, or than the pool, is refused when it arrives.
    """

    def __init__(self, pool: Pool, budget: int, *, credited: bool, max_model_len: int = 0) -> None:
        self.pool = pool
        self.budget = budget
        self.credited = credited
        self.block_size = pool.config.block_size
        room = pool.room_when_empty * self.block_size
        self.longest = min(max_model_len, room) if max_model_len else room
        """Tokens of a request that can be served."""
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.leaving: dict[str, Request] = {}
        self.transfers: dict[str, Transfer] = {}
        self.promised = 0
        """The credits of all requests together, in blocks."""
        self._refused: Request | None = None
        """Who was refused last, unless something has changed since that could let it in: blocks were
        given back, or a prompt was loaded.  A prompt that is computed leaves nothing of the budget to
        whoever waits until it is whole."""

    # What happens

    def arrive(self, request: Request) -> bool:
        """A request comes; the result is whether it could ever be served."""
        request.known = request.prompt
        if request.longest > self.longest:
            return False
        insort(self.waiting, request, key=BY_ARRIVAL)
        return True

    def cancel(self, request: Request) -> None:
        """A request that waits or runs ends early."""
        if request in self.waiting:
            self.waiting.remove(request)
        else:
            self._leave(request)
        self._refused = None

    def clean(self, request: Request) -> None:
        """What ended is cleaned up: its blocks are given back."""
        if not request.is_loading:
            self.pool.check(request.name, request.text[: request.length])
        del self.leaving[request.name]
        self.pool.release(request.name)
        self._refused = None

    def send(self, request: Request, transfer: str) -> bool:
        """A transfer of a running request begins; the result is whether there is room for that."""
        if request.is_loading:
            return False
        is_partial = request.length % self.block_size > 0
        copies = int(is_partial and not request.tail_pins)
        if self.credited and self.promised + copies > self.pool.room:
            return False
        self._begin_transfer(transfer, request)
        self.pool.pin(request.name, transfer)
        if is_partial:
            request.tail_pins.add(transfer)
        self._grant(request, copies)
        return True

    def sent(self, transfer: str) -> None:
        """A transfer has ended; who would have copied its tail need not."""
        self.pool.unpin(transfer)
        request = self.transfers.pop(transfer).request
        if transfer in request.tail_pins:
            request.tail_pins.remove(transfer)
            self._grant(request, -int(not request.tail_pins))
        self._refused = None

    def loaded(self, transfer: str) -> None:
        """A remote prompt has arrived; whoever it was for may be gone."""
        self.pool.loaded(transfer)
        self.transfers.pop(transfer).request.is_loading = False
        self._refused = None

    def step(self) -> Step:
        """Write what the budget and the pool allow."""
        done = Step(self.budget)
        self._advance_all(done)
        if not done.preempted and not done.waited:
            while self.waiting and done.left and self._admit(self.waiting[0], done):
                pass
        return done

    # How the running ones go on

    def _advance_all(self, done: Step) -> None:
        """In the order of arrival: at once as many as there is room for, then room for one more."""
        rest = [request for request in self.running if not request.is_loading]
        while rest and done.left:
            shares = self._that_fit(rest, done.left)
            self._grow_all(shares, done)
            rest = rest[len(shares) :]
            if rest and done.left:
                self._advance(rest.pop(0), done)
                rest = [request for request in rest if request in self.running]

    def _that_fit(self, requests: list[Request], left: int) -> list[Share]:
        """The first ones whose shares of the budget find room together."""
        room, shares = self.pool.room, []
        for request in requests:
            if not left:
                break
            share = self._share(request, left)
            room -= share.taken
            if room < 0:
                break
            left -= share.tokens
            shares.append(share)
        return shares

    def _advance(self, request: Request, done: Step) -> None:
        share = self._share(request, done.left)
        while share.taken > self.pool.room:
            victim = self._victim(request)
            if victim is None:
                done.waited.append(request.name)
                return
            self._preempt(victim)
            done.preempted.append(victim.name)
        self._grow_all([share], done)

    def _share(self, request: Request, left: int) -> Share:
        tokens = min(left, max(request.known - request.length, 1))
        needed = -(-(request.length + tokens) // self.block_size)
        return Share(request, tokens, needed - request.blocks + bool(request.tail_pins))

    def _grow_all(self, shares: list[Share], done: Step) -> None:
        """Those for which there is room; the single tokens in one call."""
        ones = [share for share in shares if share.tokens == 1]
        for share in shares:
            if share.tokens > 1:
                request, end = share.request, share.request.length + share.tokens
                text = request.text[request.length : end]
                self.pool.grow(request.name, request.length, text)
        if ones:
            self.pool.grow_each(
                [share.request.name for share in ones],
                [share.request.length for share in ones],
                [share.request.text[share.request.length] for share in ones],
            )
        for share in shares:
            self._grown(share, done)

    def _grown(self, share: Share, done: Step) -> None:
        request = share.request
        self._grant(request, -share.taken)
        request.blocks += share.taken - bool(request.tail_pins)
        request.tail_pins.clear()
        request.length += share.tokens
        request.known = max(request.known, request.length)
        self._wrote(request, share.tokens, done)

    # How room is made

    def _victim(self, request: Request) -> Request | None:
        later = self.running[self.running.index(request) + 1 :]
        return next((other for other in reversed(later) if self._gives_back(other)), None)

    def _gives_back(self, request: Request) -> bool:
        """Whether some block of a request is held by nobody else."""
        others = [*self.running, *self.leaving.values()]
        held = {b for other in others if other is not request for b in self.pool.table(other.name)}
        pinned = {block for transfer in self.transfers.values() for block in transfer.blocks}
        return bool({*self.pool.table(request.name)} - held - pinned)

    def _preempt(self, request: Request) -> None:
        if not request.is_loading:
            self.pool.check(request.name, request.text[: request.length])
        self.running.remove(request)
        self._grant(request, -request.credit)
        self.pool.release(request.name)
        request.leave_pool()
        insort(self.waiting, request, key=BY_ARRIVAL)
        self._refused = None

    # Who is let in

    def _admit(self, request: Request, done: Step) -> bool:
        if request is self._refused:
            return False
        text = request.text[: request.known]
        loads = request.remote and not request.has_loaded
        found, end = None, len(text)
        if self._must_know_hits(end, loads, done):
            found = self.pool.would_hit(request.name, text)
            end = end if loads else min(found.tokens + done.left, end)
            if not self._may_begin(request, found, end):
                self._refused = request
                return False
        if not self._begin(request, text[:end], loads, found, done):
            self._refused = request
            return False
        return True

    def _must_know_hits(self, end: int, loads: bool, done: Step) -> bool:
        """Not where the whole prompt is begun and the allocator itself says whether it fits."""
        is_cut = end > done.left and not loads
        return self.credited or is_cut or not self.pool.finds_prefixes

    def _may_begin(self, request: Request, found: Found, end: int) -> bool:
        hit, room = found.tokens // self.block_size, self.pool.room - found.idle
        if self._blocks_of(end) - hit > room:
            return False
        needed = self._blocks_of(request.longest) - hit
        return not self.credited or self.promised + needed <= room

    def _begin(
        self, request: Request, text: "Text[int]", loads: bool, found: Found | None, done: Step
    ) -> bool:
        if loads:
            hit = self.pool.load(request.name, text, request.load, found)
        else:
            hit = self.pool.begin(request.name, text, found)
        if hit is None:
            return False
        end = len(text)
        self.waiting.remove(request)
        insort(self.running, request, key=BY_ARRIVAL)
        request.length, request.blocks = end, self._blocks_of(end)
        self._grant(request, self._blocks_of(request.longest) - request.blocks)
        done.admitted.append(request.name)
        done.hits[request.name] = hit
        if loads:
            request.is_loading = request.has_loaded = True
            self._begin_transfer(request.load, request, hit // self.block_size)
        else:
            self._wrote(request, end - hit, done)
        return True

    # Who ends

    def _wrote(self, request: Request, count: int, done: Step) -> None:
        done.left -= count
        done.wrote[request.name] = count
        if request.length == request.longest:
            self._leave(request)

    def _leave(self, request: Request) -> None:
        self.running.remove(request)
        self._grant(request, -request.credit)
        request.tail_pins.clear()
        self.leaving[request.name] = request

    def _begin_transfer(self, name: str, request: Request, first: int = 0) -> None:
        self.transfers[name] = Transfer(frozenset(self.pool.table(request.name)[first:]), request)

    def _grant(self, request: Request, count: int) -> None:
        request.credit += count
        self.promised += count

    def _blocks_of(self, tokens: int) -> int:
        return -(-tokens // self.block_size)
