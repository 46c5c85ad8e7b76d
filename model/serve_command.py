"""The command `kvoracle serve`."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from kvoracle import __version__
from kvoracle.model import report
from kvoracle.model.bench.table import check_writable
from kvoracle.model.errors import UsageError
from kvoracle.model.found import FOUND, describe_found
from kvoracle.model.lockstep import Violation
from kvoracle.model.registry import resolve
from kvoracle.model.serving.contestant import Contestant, contestant
from kvoracle.model.serving.judge import Judge
from kvoracle.model.serving.measures import Measures
from kvoracle.model.serving.pool import Pool
from kvoracle.model.serving.replay import Conduct, Replay
from kvoracle.model.serving.result import Result, result_of
from kvoracle.model.serving.scheduler import Scheduler
from kvoracle.model.serving.table import show_results, write_json
from kvoracle.model.traffic.arrival import PREFIX_BLOCK, Arrival, scaled_down
from kvoracle.model.traffic.read import read_traffic
from kvoracle.model.traffic.reuse import Reuse, reuse_distances

EXIT_NOTHING_FOUND, EXIT_VIOLATION = 0, 1
SLOTS = 428_560
"""The pool of the source document: 26,785 blocks of 16."""
SLOTS_MAX = 2 * 10**8
MOST = 10**9
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

    def reuse(self, block_size: int) -> Reuse:
        """What caches hit on it, one request at a time."""
        return reuse_distances(self.arrivals(), block_size)


@dataclass(frozen=True)
class Policy:
    """How the scheduler goes about it."""

    budget: int
    credited: bool
    lockstep: bool


def serve(
    trace: Annotated[Path, typer.Argument(help="A Mooncake or Azure trace, or a list of lengths.")],
    allocator: Annotated[
        list[str] | None, typer.Option(help="As in fuzz; several are compared. Without it impl.")
    ] = None,
    block_sizes: Annotated[str, typer.Option(help="The block sizes compared, as 8,16.")] = "16",
    slots: Annotated[int, typer.Option(help="The pool, in token slots.")] = SLOTS,
    max_model_len: Annotated[
        int, typer.Option(help="The longest request; what `contiguous` reserves for each.")
    ] = 131_072,
    requests: Annotated[int, typer.Option(help="Only so many from the beginning; 0 is all.")] = 0,
    scale: Annotated[
        int, typer.Option(help="Lengths and slots are divided by this, a power of 2 up to 512.")
    ] = 1,
    budget: Annotated[int, typer.Option(help="Tokens that a step computes at most.")] = 8192,
    credit: Annotated[
        bool, typer.Option("--credits", help="Admit only who can finish whatever others do.")
    ] = False,
    concurrency: Annotated[
        int, typer.Option(help="So many requests at once, whenever they came; 0 keeps their times.")
    ] = 0,
    step_ms: Annotated[float, typer.Option(help="Simulated time of a step, and ...")] = 10,
    token_us: Annotated[float, typer.Option(help="... of each token computed in it.")] = 40,
    cleanup_steps: Annotated[
        int, typer.Option(help="Steps for which what ended keeps its blocks.")
    ] = 0,
    cancelled: Annotated[float, typer.Option(help="Share of requests cancelled on the way.")] = 0,
    remote: Annotated[float, typer.Option(help="Share of prompts that are transferred in.")] = 0,
    load_steps: Annotated[int, typer.Option(help="Steps that this takes.")] = 8,
    seed: Annotated[int, typer.Option(help="Of who is cancelled, and who is remote.")] = 0,
    lockstep: Annotated[
        bool, typer.Option("--lockstep", help="Let the reference judge every call (slow).")
    ] = False,
    save: Annotated[Path, typer.Option(help="The folder for the trace of a violation.")] = FOUND,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="A file for the numbers and their series.")
    ] = None,
) -> None:
    """Serve production traffic on allocators, check every token read, and compare what they do."""
    traffic = Traffic(str(trace), _within("--requests", requests, 0), _scale(scale))
    conduct = Conduct(
        step=round(1000 * _within("--step-ms", step_ms, 0)),
        token=round(_within("--token-us", token_us, 0) * scale),
        concurrency=_within("--concurrency", concurrency, 0),
        cleanup_steps=_within("--cleanup-steps", cleanup_steps, 0),
        cancelled=_share("--cancelled", cancelled),
        remote=_share("--remote", remote),
        load_steps=_within("--load-steps", load_steps, 1),
        seed=seed,
    )
    policy = Policy(max(_within("--budget", budget, 1) // scale, 1), credit, lockstep)
    length = -(-_within("--max-model-len", max_model_len, 1) // scale)
    contestants = [
        contestant(resolve(name), _within("--slots", slots, 1, SLOTS_MAX) // scale, size, length)
        for name in dict.fromkeys(allocator or ["impl"])
        for size in (_block_sizes(block_sizes) if name != "contiguous" else [length])
    ]
    if json_file is not None:
        check_writable(json_file)
    out = report.console()
    _announce(out, traffic, policy, conduct)
    serving = _Serving(out, traffic, policy, conduct, length, save)
    rows = [row for row in map(serving.serve, contestants) if row is not None]
    show_results(out, [result for result, _ in rows])
    if json_file is not None:
        about = {"traffic": asdict(traffic), "policy": asdict(policy), "conduct": asdict(conduct)}
        write_json(json_file, about, rows)
    raise typer.Exit(EXIT_NOTHING_FOUND if len(rows) == len(contestants) else EXIT_VIOLATION)


@dataclass(frozen=True)
class _Serving:
    out: Console
    traffic: Traffic
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
            progress = _progress(live, contestant)
            replay = Replay(self.traffic.arrivals(), scheduler, self.conduct, progress)
            try:
                measures = replay.run()
            except Violation as violation:
                live.stop()
                self._show_violation(contestant, violation, replay, judge)
                return None
        if not replay.arrived:
            raise UsageError(f"{self.traffic.path} holds no request; give a file with some.")
        self._show_checked(contestant, pool, judge)
        reuse = self.traffic.reuse(contestant.config.block_size) if pool.finds_prefixes else None
        return result_of(contestant, measures, replay.arrived, reuse), measures

    def _show_checked(self, contestant: Contestant, pool: Pool, judge: Judge | None) -> None:
        read = pool.contents
        if judge is not None:
            did = f"{len(judge.trace.operations):,} operations judged"
        else:
            assert read is not None
            did = f"{read.sequences:,} sequences of {read.tokens_read:,} tokens read back"
        size = f"{contestant.config.blocks:,} blocks of {contestant.config.block_size:,}"
        self.out.print(f"passed     {contestant.name}, {size}: {did}", markup=False)

    def _show_violation(
        self, contestant: Contestant, violation: Violation, replay: Replay, judge: Judge | None
    ) -> None:
        self.out.print(f"VIOLATION  {contestant.name}: {violation.rule}", style="bold red")
        self.out.print(f"  {violation.message}", markup=False)
        self.out.print(f"  in step {replay.steps:,}, after {replay.arrived:,} requests came")
        if judge is None:
            said = "For a trace of it, serve again with --lockstep, at a --scale or with few --requests."
            self.out.print(f"  {said}\n")
            return
        found = describe_found(judge.failure(violation), contestant.target, self.save)
        self.out.print(f"\n{found}\n", markup=False)


def _progress(live: Live, contestant: Contestant) -> Callable[[Replay], None]:
    def show(replay: Replay) -> None:
        if live.console.is_terminal and replay.steps % PROGRESS_STEPS == 0:
            said = f"{replay.arrived:,} requests came, {replay.measures.finished:,} finished"
            line = f"{contestant.name} {contestant.config.block_size}: {said}"
            live.update(Text(line), refresh=True)

    return show


def _announce(out: Console, traffic: Traffic, policy: Policy, conduct: Conduct) -> None:
    scaled = f", one in {traffic.scale} of their tokens" if traffic.scale > 1 else ""
    first = f"the first {traffic.requests:,} requests" if traffic.requests else "all requests"
    times = f"{conduct.concurrency} at once" if conduct.concurrency else "as they came"
    out.print(f"kvoracle {__version__} serve", style="bold")
    rows = {
        "trace": f"{traffic.path}: {first}{scaled}, {times}",
        "steps": f"{policy.budget:,} tokens at most; {conduct.step / 1000:g} ms and"
        f" {conduct.token / traffic.scale:g} µs a token",
        "admission": "by credits" if policy.credited else "as soon as there is room",
        "checked": "every call, by the reference"
        if policy.lockstep
        else "every sequence read back when it ends or is preempted",
    }
    for name, value in rows.items():
        out.print(f"  {name:<10} {value}", markup=False)
    out.print()


Number = TypeVar("Number", int, float)


def _within(option: str, value: Number, least: int, most: int = MOST) -> Number:
    if not least <= value <= most:
        raise UsageError(f"{option} {value:g} cannot be; give {least} to {most:,}.")
    return value


def _share(option: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise UsageError(f"{option} {value:g} is no share; give 0 to 1.")
    return value


def _scale(value: int) -> int:
    if value not in (2**n for n in range(10)):
        raise UsageError(f"--scale {value} cannot be; give a power of 2 from 1 to {PREFIX_BLOCK}.")
    return value


def _block_sizes(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() and 1 <= int(part) <= 65_536 for part in parts):
        raise UsageError(f"The block sizes {text!r} are none; write them as 8,16,32.")
    return sorted({int(part) for part in parts})
