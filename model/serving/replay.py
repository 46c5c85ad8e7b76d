"""Traffic replayed on one pool: requests come when they came, or as soon as others have gone."""

from bisect import insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from operator import itemgetter
from random import Random

from kvoracle.model.lockstep import Violation
from kvoracle.model.serving.measures import Measures
from kvoracle.model.serving.request import Request
from kvoracle.model.serving.scheduler import Scheduler, Step
from kvoracle.model.serving.texts import Texts
from kvoracle.model.traffic.arrival import Arrival


@dataclass(frozen=True)
class Conduct:
    """How traffic behaves, and how long things take; times are simulated microseconds."""

    step: int = 10_000
    token: int = 40
    """A step takes `step`, and `token` more for each token that it computes."""
    concurrency: int = 0
    """So many requests are there at once, whenever they came; 0 goes by the times of the trace."""
    cleanup_steps: int = 0
    """What ended keeps its blocks for so many steps."""
    cancelled: float = 0.0
    """The share of requests that are cancelled, somewhere before their end."""
    remote: float = 0.0
    """The share of prompts that are transferred in."""
    load_steps: int = 8
    """How long that takes."""
    seed: int = 0


class Replay:
    """One run of traffic through a scheduler."""

    def __init__(
        self,
        arrivals: Iterator[Arrival],
        scheduler: Scheduler,
        conduct: Conduct,
        on_progress: Callable[["Replay"], None] = lambda _: None,
    ) -> None:
        self.scheduler = scheduler
        self.conduct = conduct
        self.measures = Measures()
        self.clock = 0
        self.steps = 0
        self.arrived = 0
        self._on_progress = on_progress
        self._arrivals = arrivals
        self._next = next(arrivals, None)
        self._began = self._next.microseconds if self._next else 0
        self._texts = Texts()
        self._random = Random(conduct.seed)
        self._came: dict[str, int] = {}
        """When those that were not admitted yet came."""
        self._live: dict[str, Request] = {}
        self._cancels: dict[str, int] = {}
        """At what length a request is cancelled."""
        self._due: list[tuple[int, Callable[[], None]]] = []
        """What happens after so many steps."""

    def run(self) -> Measures:
        """To the end; a Violation where the allocator does wrong, or where nothing moves any more."""
        while self._next or self._live or self._due:
            self._let_arrive()
            self._step()
        free, blocks = self.scheduler.pool.free, self.scheduler.pool.config.blocks
        if free != blocks:
            raise Violation("leak", f"everybody has left, and {free} of {blocks} blocks are free")
        return self.measures

    def _let_arrive(self) -> None:
        while self._next and self._is_here(self._next):
            self._arrive(self._next)
            self._next = next(self._arrivals, None)

    def _is_here(self, arrival: Arrival) -> bool:
        if self.conduct.concurrency:
            return len(self._live) < self.conduct.concurrency
        came = arrival.microseconds - self._began
        if not self._live and not self._due:
            self.clock = max(self.clock, came)
        return came <= self.clock

    def _arrive(self, arrival: Arrival) -> None:
        arrival = replace(arrival, output=max(arrival.output, 1))
        number, self.arrived = self.arrived, self.arrived + 1
        request = Request(
            f"r{number}",
            number,
            arrival.prompt,
            arrival.output,
            self._texts.maker(arrival),
            self._random.random() < self.conduct.remote,
        )
        if not self.scheduler.arrive(request):
            self.measures.refused += 1
            return
        self._came[request.name] = self._time_of(arrival)
        self._live[request.name] = request
        if self._random.random() < self.conduct.cancelled:
            self._cancels[request.name] = self._random.randrange(1, request.longest)

    def _time_of(self, arrival: Arrival) -> int:
        return self.clock if self.conduct.concurrency else arrival.microseconds - self._began

    def _step(self) -> None:
        scheduler = self.scheduler
        scheduler.pool.nanoseconds = 0
        self._let_happen()
        done = scheduler.step()
        self._follow_up(done)
        self._check_moves(done)
        took = self.conduct.step + self.conduct.token * (scheduler.budget - done.left)
        self.measures.record(self.clock, took, scheduler.pool.nanoseconds, scheduler)
        self.clock += took
        self.steps += 1
        self._on_progress(self)

    def _let_happen(self) -> None:
        """What is due before this step."""
        while self._due and self._due[0][0] <= self.steps:
            _, happen = self._due.pop(0)
            happen()

    def _follow_up(self, done: Step) -> None:
        """Count what a step did, and see to what comes of it."""
        self.measures.preemptions += len(done.preempted)
        for name in done.admitted:
            self._admitted(self._live[name], done.hits[name])
        for name in self._cancels.keys() & done.wrote.keys():
            self._cancel_if_so_far(self._live[name])
        for name in [name for name in self.scheduler.leaving if name in self._live]:
            self._left(self._live.pop(name))

    def _admitted(self, request: Request, hit: int) -> None:
        came = self._came.pop(request.name, None)
        if came is None:
            self.measures.recomputed_tokens += request.known - hit
            return
        self.measures.waits.append(self.clock - came)
        self.measures.prompt_tokens += request.prompt
        self.measures.hit_tokens += hit
        if request.is_loading:
            self._after(self.conduct.load_steps, lambda: self.scheduler.loaded(request.load))

    def _cancel_if_so_far(self, request: Request) -> None:
        if request.length >= self._cancels[request.name] and request in self.scheduler.running:
            self.scheduler.cancel(request)
            self.measures.cancelled += 1

    def _left(self, request: Request) -> None:
        self._cancels.pop(request.name, None)
        self.measures.finished += request.length == request.longest
        if self.conduct.cleanup_steps:
            self._after(self.conduct.cleanup_steps, lambda: self.scheduler.clean(request))
        else:
            self.scheduler.clean(request)

    def _after(self, steps: int, happen: Callable[[], None]) -> None:
        insort(self._due, (self.steps + steps, happen), key=itemgetter(0))

    def _check_moves(self, done: Step) -> None:
        """Where nothing happens and nothing is on its way, nothing will; and credits hold."""
        pool, scheduler = self.scheduler.pool, self.scheduler
        lacking = [*done.preempted, *done.waited]
        if scheduler.credited and lacking:
            said = f"{', '.join(lacking[:4])} found no block, which they were admitted with credits for"
            raise Violation("predicate", f"{said}: a count, or what a prompt would hit, was wrong")
        if done.wrote or done.admitted or done.preempted or self._due or not self._live:
            return
        running = f"{len(scheduler.running)} requests run, {len(scheduler.waiting)} wait"
        free = f"{pool.free} of {pool.config.blocks} blocks are free"
        raise Violation("stuck", f"{running} and nothing is on its way, {free}, and nothing moves")
