"""The command `kvoracle serve`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console

from kvoracle import __version__
from kvoracle.model import exits, report
from kvoracle.model.bench.table import check_writable
from kvoracle.model.errors import UsageError
from kvoracle.model.found import FOUND
from kvoracle.model.registry import resolve
from kvoracle.model.serving.contestant import RESERVES_WHOLE, Contestant, contestant
from kvoracle.model.serving.experiments import experiments, show_experiments
from kvoracle.model.serving.judge import check_judgeable
from kvoracle.model.serving.plots import check_plots, draw_curve, draw_experiments, draw_results
from kvoracle.model.serving.replay import Conduct
from kvoracle.model.serving.result import as_json
from kvoracle.model.serving.serving import Policy, Serving, Traffic
from kvoracle.model.serving.table import show_results, write_json
from kvoracle.model.traffic.arrival import PREFIX_BLOCK

SLOTS = 428_560
"""The pool of the source document: 26,785 blocks of 16."""
SLOTS_MAX, BLOCK_SIZE_MAX = 2 * 10**8, 65_536
MOST = 10**9
DELAY_MAX = 100_000


TraceArgument = Annotated[
    Path | None, typer.Argument(help="A Mooncake or Azure trace, or a list of lengths.")
]
AllocatorOption = Annotated[
    list[str] | None, typer.Option(help="As in fuzz; several are compared. Without it impl.")
]
BlockSizesOption = Annotated[str, typer.Option(help="The block sizes compared, as 8,16.")]
SlotsOption = Annotated[
    str, typer.Option(help="The pool, in token slots; several are compared, as 1000,2000.")
]
MaxModelLenOption = Annotated[
    int, typer.Option(help="The longest request; what `contiguous` reserves for each.")
]
RequestsOption = Annotated[int, typer.Option(help="Only so many from the beginning; 0 is all.")]
ScaleOption = Annotated[
    int, typer.Option(help="Lengths and slots are divided by this, a power of 2 up to 512.")
]
BudgetOption = Annotated[int, typer.Option(help="Tokens that a step computes at most.")]
CreditOption = Annotated[
    bool, typer.Option("--credits", help="Admit only who can finish whatever others do.")
]
ConcurrencyOption = Annotated[
    int, typer.Option(help="So many requests at once, whenever they came; 0 keeps their times.")
]
StepMsOption = Annotated[float, typer.Option(help="Simulated time of a step, and ...")]
TokenUsOption = Annotated[float, typer.Option(help="... of each token computed in it.")]
CleanupStepsOption = Annotated[
    int, typer.Option(help="Steps for which what ended keeps its blocks.")
]
CancelledOption = Annotated[float, typer.Option(help="Share of requests cancelled on the way.")]
RemoteOption = Annotated[float, typer.Option(help="Share of prompts that are transferred in.")]
LoadStepsOption = Annotated[int, typer.Option(help="Steps that this takes.")]
SeedOption = Annotated[int, typer.Option(help="Of who is cancelled, and who is remote.")]
LockstepOption = Annotated[
    bool, typer.Option("--lockstep", help="Let the reference judge every call (slow).")
]
SaveOption = Annotated[Path, typer.Option(help="The folder for the trace of a violation.")]
JsonFileOption = Annotated[
    Path | None, typer.Option("--json", help="A file for the numbers and their series.")
]
PlotsOption = Annotated[Path | None, typer.Option(help="A folder for pictures.")]
DocumentOption = Annotated[
    bool,
    typer.Option("--document", help="Only the source document's experiments, predicted first."),
]


def serve(
    trace: TraceArgument = None,
    allocator: AllocatorOption = None,
    block_sizes: BlockSizesOption = "16",
    slots: SlotsOption = str(SLOTS),
    max_model_len: MaxModelLenOption = 131_072,
    requests: RequestsOption = 0,
    scale: ScaleOption = 1,
    budget: BudgetOption = 8192,
    credit: CreditOption = False,
    concurrency: ConcurrencyOption = 0,
    step_ms: StepMsOption = 10,
    token_us: TokenUsOption = 40,
    cleanup_steps: CleanupStepsOption = 0,
    cancelled: CancelledOption = 0,
    remote: RemoteOption = 0,
    load_steps: LoadStepsOption = 8,
    seed: SeedOption = 0,
    lockstep: LockstepOption = False,
    save: SaveOption = FOUND,
    json_file: JsonFileOption = None,
    plots: PlotsOption = None,
    document: DocumentOption = False,
) -> None:
    """Serve production traffic on allocators, check every token read, and compare what they do."""
    names = [*dict.fromkeys(allocator or ["impl"])]
    if document and (trace is not None or json_file is not None):
        raise UsageError("--document has requests of its own; leave out the trace and --json.")
    if document:
        raise typer.Exit(_carry_out_experiments(names, plots))
    if trace is None:
        raise UsageError("There is nothing to serve; give a trace, or --document.")
    traffic = Traffic(str(trace), _within("--requests", requests, 0), _scale(scale))
    conduct = Conduct(
        step=round(1000 * _within("--step-ms", step_ms, 0)),
        token=round(_within("--token-us", token_us, 0) * scale),
        concurrency=_within("--concurrency", concurrency, 0),
        cleanup_steps=_within("--cleanup-steps", cleanup_steps, 0, DELAY_MAX),
        cancelled=_share("--cancelled", cancelled),
        remote=_share("--remote", remote),
        load_steps=_within("--load-steps", load_steps, 1, DELAY_MAX),
        seed=seed,
    )
    policy = Policy(max(_within("--budget", budget, 1) // scale, 1), credit, lockstep)
    length = -(-_within("--max-model-len", max_model_len, 1) // scale)
    pools = [size // scale for size in _numbers("--slots", slots, SLOTS_MAX)]
    sizes = _numbers("--block-sizes", block_sizes, BLOCK_SIZE_MAX)
    contestants = [one for pool in pools for one in _contestants(names, sizes, pool, length)]
    for one in contestants:
        _check_can_serve(one, conduct, lockstep)
    came = traffic.count()
    _check_files(plots, json_file, trace)
    out = report.console()
    _announce(out, traffic, came, policy, conduct)
    serving = Serving(out, traffic, came, policy, conduct, length, save)
    rows = [row for row in map(serving.serve, contestants) if row is not None]
    show_results(out, [result for result, _ in rows])
    results = [as_json(result, measures) for result, measures in rows]
    if json_file is not None:
        about = {"traffic": asdict(traffic), "policy": asdict(policy), "conduct": asdict(conduct)}
        write_json(json_file, about, results)
    if plots is not None and rows:
        draw_results(results, plots)
        if len(pools) > 1 and results[0]["hit_rate"] is not None:
            draw_curve(results, traffic.reuse(results[0]["block_size"], length), plots)
    raise typer.Exit(exits.NOTHING_FOUND if len(rows) == len(contestants) else exits.VIOLATION)


def _contestants(
    names: list[str], sizes: list[int], slots: int, max_model_len: int
) -> list[Contestant]:
    """Every allocator with every block size; one that reserves whole requests has but one."""
    return [
        contestant(resolve(name), slots, size, max_model_len)
        for name in names
        for size in (sizes if name != RESERVES_WHOLE else [max_model_len])
    ]


def _carry_out_experiments(names: list[str], plots: Path | None) -> int:
    targets = [resolve(name) for name in names]
    if plots is not None:
        check_plots(plots)
    out, held = report.console(), True
    for target in targets:
        found = experiments(target)
        held &= show_experiments(out, target, found)
        if plots is not None:
            draw_experiments(found, plots / target.name if len(names) > 1 else plots)
    return exits.NOTHING_FOUND if held else exits.VIOLATION


def _check_files(plots: Path | None, json_file: Path | None, trace: Path) -> None:
    if json_file is not None and json_file.exists() and json_file.samefile(trace):
        raise UsageError(f"{json_file} is the trace; choose another file for the numbers.")
    if plots is not None:
        check_plots(plots)
    if json_file is not None:
        check_writable(json_file)


def _announce(out: Console, traffic: Traffic, came: int, policy: Policy, conduct: Conduct) -> None:
    scaled = f", one in {traffic.scale} of their tokens" if traffic.scale > 1 else ""
    times = f"{conduct.concurrency} at once" if conduct.concurrency else "as they came"
    out.print(f"kvoracle {__version__} serve", style="bold")
    rows = {
        "trace": f"{traffic.path}: {came:,} requests{scaled}, {times}",
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


def _check_can_serve(one: Contestant, conduct: Conduct, lockstep: bool) -> None:
    if conduct.remote and "receive" in one.target.left_out:
        raise UsageError(f"{one.name} receives no prompts from elsewhere; leave out --remote.")
    if lockstep:
        check_judgeable(one)
    one.adapter()


Number = TypeVar("Number", int, float)


def _within(option: str, value: Number, least: int, most: int = MOST) -> Number:
    if not least <= value <= most:
        raise UsageError(f"{option} {value:,} cannot be; give {least} to {most:,}.")
    return value


def _share(option: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise UsageError(f"{option} {value:g} is no share; give 0 to 1.")
    return value


def _scale(value: int) -> int:
    if value not in (2**n for n in range(10)):
        raise UsageError(f"--scale {value} cannot be; give a power of 2 from 1 to {PREFIX_BLOCK}.")
    return value


def _numbers(option: str, text: str, most: int) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 10 and 1 <= int(part) <= most for part in parts):
        raise UsageError(f"{option} {text!r} cannot be; give 1 to {most:,}, or several as 8,16,32.")
    return sorted({int(part) for part in parts})
