"""A campaign: engines over an allocator in supervised processes, canaries first."""

import time
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

import msgspec

from kvoracle.model import witnesses
from kvoracle.model.canaries import CANARIES, with_canary
from kvoracle.model.child import HANG_SECONDS, Child, ChildError, Send, run_isolated
from kvoracle.model.engines import ENGINES, Share
from kvoracle.model.registry import Target
from kvoracle.model.run import Failure, Tally, run
from kvoracle.model.session import Pulse, Session
from kvoracle.model.shrink import shrink

WITNESSES_NEED_OPERATIONS = 100_000
CANARY_OPERATIONS_MAX = 20_000
SHRINK_RUNS_ISOLATED_MAX = 300
SHRINK_HANG_SECONDS = 2.0


class Plan(msgspec.Struct, frozen=True):
    """What to do: for each engine its budget in operations or in seconds, None being without end."""

    engines: dict[str, tuple[int | None, float | None]]
    seed: int
    workers: int = 1
    hang_seconds: float = HANG_SECONDS


class Result(msgspec.Struct):
    """What a campaign did and found.  `canaries` are the operations to catch each; None survived."""

    tallies: dict[str, Tally]
    canaries: dict[str, int | None] = {}
    failure: Failure | None = None
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def tally(self) -> Tally:
        """All engines together."""
        total = Tally()
        for tally in self.tallies.values():
            total.add(tally)
        return total

    @property
    def survivors(self) -> list[str]:
        """The canaries that were not caught."""
        return [name for name, operations in self.canaries.items() if operations is None]

    def unmet(self, target: Target) -> list[str]:
        """The witnesses that this allocator's operations can reach and that were never reached."""
        met = self.tally.witnesses
        return [name for name in witnesses.required(target) if not met.get(name)]

    def is_long(self) -> bool:
        """Whether a witness that was never reached is a failure."""
        return self.tally.operations >= WITNESSES_NEED_OPERATIONS

    def succeeded(self, target: Target) -> bool:
        """Nothing found, every canary caught and, in a long run, every witness reached."""
        blind = bool(self.survivors) or (self.is_long() and bool(self.unmet(target)))
        return self.failure is None and not blind


def conduct(target: Target, plan: Plan, on_progress: Callable[[Result], None]) -> Result:
    """Carry out a plan; Ctrl-C ends it with what was done so far."""
    return _Supervisor(target, plan, on_progress).result


class _Supervisor:
    def __init__(self, target: Target, plan: Plan, on_progress: Callable[[Result], None]) -> None:
        self.target = target
        self._hang_seconds = min(plan.hang_seconds, SHRINK_HANG_SECONDS)
        self.result = Result({engine: Tally() for engine in plan.engines})
        self._finder: Child | None = None
        self._latest: dict[tuple[Child, str], Tally] = {}
        started = time.monotonic()
        self._children = [
            Child(_work, target, plan, Share(worker, plan.workers), hang_seconds=plan.hang_seconds)
            for worker in range(plan.workers)
        ]
        try:
            while self._running():
                self._listen()
                self.result.seconds = time.monotonic() - started
                on_progress(self.result)
        except KeyboardInterrupt:
            self.result.interrupted = True
            self._wind_down()
        finally:
            for child in self._running():
                child.kill()
        self.result.seconds = time.monotonic() - started

    def _running(self) -> list[Child]:
        return [child for child in self._children if child.is_running]

    def _listen(self) -> None:
        wait([child.pipe for child in self._running()], timeout=0.1)
        for child in self._running():
            for message in child.messages():
                self._take(child, message)
            death = child.failure()
            if death is not None and self.result.failure is None:
                self._found(self._shrunk_apart(death))

    def _take(self, child: Child, message: Any) -> None:
        if isinstance(message, ChildError):
            raise message
        kind, *rest = message
        if kind == "tally":
            self._latest[child, rest[0]] = rest[1]
            self._add_up()
        elif kind == "canary":
            self.result.canaries[rest[0]] = rest[1]
        elif kind == "found" and self.result.failure is None:
            self._found(rest[0])
            self._finder = child
        elif kind == "shrunk" and self._finder is child:
            self.result.failure = rest[0]

    def _add_up(self) -> None:
        self.result.tallies = {engine: Tally() for engine in self.result.tallies}
        for (_, engine), tally in self._latest.items():
            self.result.tallies[engine].add(tally)

    def _found(self, failure: Failure) -> None:
        self.result.failure = failure
        for child in self._running():
            child.pulse.ask_to_stop()

    def _shrunk_apart(self, death: Failure) -> Failure:
        """A crash or a hang shrinks with every run in a process of its own."""
        return shrink(
            death,
            lambda trace: run_isolated(trace, self.target, self._hang_seconds),
            SHRINK_RUNS_ISOLATED_MAX if death.rule == "crash" else SHRINK_RUNS_ISOLATED_MAX // 20,
        )

    def _wind_down(self) -> None:
        for child in self._running():
            child.pulse.ask_to_stop()
        deadline = time.monotonic() + 5
        while self._running() and time.monotonic() < deadline:
            self._listen()


def _work(send: Send, pulse: Pulse, target: Target, plan: Plan, share: Share) -> None:
    """What one process of a campaign does."""
    if share.first == 0:
        _try_canaries(send, pulse, target, plan.seed)
    for engine, (operations, seconds) in plan.engines.items():
        session = Session(
            None if operations is None else -(-operations // share.step),
            seconds,
            pulse,
            lambda tally, engine=engine: send(("tally", engine, tally)),  # type: ignore[misc]
        )
        failure = ENGINES[engine](target, plan.seed, share, session)
        send(("tally", engine, session.tally))
        if failure is not None:
            send(("found", failure))
            send(("shrunk", shrink(failure, lambda trace: _run(trace, target, pulse))))
            return


def _run(trace: Any, target: Target, pulse: Pulse) -> Failure | None:
    return run(trace, target.factory, before_step=pulse.beat)


def _try_canaries(send: Send, pulse: Pulse, target: Target, seed: int) -> None:
    for canary in CANARIES:
        session = Session(operations_max=CANARY_OPERATIONS_MAX, pulse=pulse)
        spoiled = target._replace(factory=with_canary(target.factory, canary))
        caught = ENGINES["walk"](spoiled, seed, Share(), session) is not None
        send(("canary", canary.__name__, session.tally.operations if caught else None))
