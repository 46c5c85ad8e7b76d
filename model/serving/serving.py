"""The same traffic on one allocator after the other; what goes wrong is shown where it does."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from kvoracle.model.errors import UsageError
from kvoracle.model.found import describe_found
from kvoracle.model.lockstep import Violation
from kvoracle.model.serving.contestant import Contestant
from kvoracle.model.serving.judge import Judge
from kvoracle.model.serving.measures import Measures
from kvoracle.model.serving.pool import Pool
from kvoracle.model.serving.replay import Conduct, Replay
from kvoracle.model.serving.result import Result, result_of
from kvoracle.model.serving.scheduler import Scheduler
from kvoracle.model.traffic.arrival import Arrival, scaled_down
from kvoracle.model.traffic.read import read_traffic
from kvoracle.model.traffic.reuse import Reuse, reuse_distances

PROGRESS_STEPS = 500


@dataclass(frozen=True)
class Traffic:
    """Where requests are read from, how many, and one in how many of their tokens."""

    path: str
    requests: int
    scale: int

    def arrivals(self) -> Iterator[Arrival]:
        """From the beginning."""
        _, arrivals = read_traffic(Path(self.path))
        first = islice(arrivals, self.requests) if self.requests else arrivals
        return (scaled_down(arrival, self.scale) for arrival in first)

    def count(self) -> int:
        """How many there are; a UsageError where none, or where the file is wrong anywhere."""
        if Path(self.path).exists() and not Path(self.path).is_file():
            raise UsageError(
                f"{self.path} is not a file, which is read more than once; give a file."
            )
        count, latest = 0, 0
        for arrival in self.arrivals():
            count += 1
            if count > 1 and arrival.microseconds < latest:
                said = f"its request {count:,} came before the one above it"
                raise UsageError(f"{self.path} is not in order: {said}; sort it by time.")
            latest = arrival.microseconds
        if not count:
            raise UsageError(f"{self.path} holds no request; give a file with some.")
        return count

    def reuse(self, block_size: int, longest: int) -> Reuse:
        """What caches hit on those of so many tokens at most, one request at a time."""
        served = (one for one in self.arrivals() if one.prompt + max(one.output, 1) <= longest)
        return reuse_distances(served, block_size)


@dataclass(frozen=True)
class Policy:
    """How the scheduler goes about it."""

    budget: int
    credited: bool
    lockstep: bool


@dataclass(frozen=True)
class Serving:
    """What every contestant is given."""

    out: Console
    traffic: Traffic
    came: int
    policy: Policy
    conduct: Conduct
    max_model_len: int
    save: Path

    def serve(self, contestant: Contestant) -> tuple[Result, Measures] | None:
        """One run; None where the allocator did wrong, which is shown."""
        judge = Judge(contestant) if self.policy.lockstep else None
        pool = judge.pool() if judge else contestant.pool()
        scheduler = Scheduler(
            pool,
            self.policy.budget,
            credited=self.policy.credited,
            max_model_len=self.max_model_len,
        )
        with Live(console=self.out, auto_refresh=False, transient=True) as live:
            progress = _progress(live, contestant, self.came)
            replay = Replay(self.traffic.arrivals(), scheduler, self.conduct, progress)
            try:
                measures = replay.run()
                reuse = self._reuse(scheduler) if pool.finds_prefixes else None
                _check_hits(measures, reuse)
            except Violation as violation:
                live.stop()
                self._show_violation(contestant, violation, replay, judge)
                return None
        self._show_checked(contestant, pool, judge)
        return result_of(contestant, measures, replay.arrived, reuse), measures

    def _reuse(self, scheduler: Scheduler) -> Reuse:
        return self.traffic.reuse(scheduler.block_size, scheduler.longest)

    def _show_checked(self, contestant: Contestant, pool: Pool, judge: Judge | None) -> None:
        read = pool.contents
        if judge is not None:
            did = f"operations judged: {len(judge.trace.operations):,}"
        else:
            assert read is not None
            did = f"sequences read back: {read.sequences:,}, of {read.tokens_read:,} tokens"
        self.out.print(f"passed     {contestant}: {did}", markup=False)

    def _show_violation(
        self, contestant: Contestant, violation: Violation, replay: Replay, judge: Judge | None
    ) -> None:
        self.out.print(f"VIOLATION  {contestant}: {violation.rule}", style="bold red")
        self.out.print(f"  {violation.message}", markup=False)
        self.out.print(f"  in step {replay.steps:,}, after {replay.arrived:,} requests came")
        failure = judge.failure(violation) if judge else None
        if failure is not None:
            text = describe_found(failure, contestant.target, self.save)
            self.out.print(f"\n{text}\n", markup=False)
        elif judge is not None:
            said = f"no call was wrong: the reference judged {len(judge.trace.operations):,}"
            self.out.print(f"  {said}\n")
        else:
            said = "For a trace of it, serve again with --lockstep, at a --scale or with few --requests."
            self.out.print(f"  {said}\n")


def _check_hits(measures: Measures, reuse: Reuse | None) -> None:
    if reuse is not None and measures.hit_tokens > reuse.unlimited:
        said = f"{measures.hit_tokens:,} tokens were hit, and prompts have {reuse.unlimited:,} in common"
        raise Violation("hit", said)


def _progress(live: Live, contestant: Contestant, came: int) -> Callable[[Replay], None]:
    def show(replay: Replay) -> None:
        if live.console.is_terminal and replay.steps % PROGRESS_STEPS == 0:
            said = f"{replay.arrived:,} of {came:,} requests came, {replay.measures.finished:,} finished"
            line = f"{contestant.name} {contestant.config.block_size}: {said}"
            live.update(Text(line), refresh=True)

    return show
