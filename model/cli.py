"""The command `kvoracle`.  Exit 0: nothing found; 1: a violation; 2: bad usage or input."""

import os
import re
import secrets
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.exceptions import TyperException

from kvoracle import __version__
from kvoracle.model import exits, found, mutation, registry, report
from kvoracle.model.bench.measure import measure
from kvoracle.model.bench.table import check_writable, show_tables, write_json
from kvoracle.model.campaign import Plan, Result, conduct
from kvoracle.model.capacity_command import capacity
from kvoracle.model.check import unfit
from kvoracle.model.child import HANG_SECONDS, run_isolated
from kvoracle.model.engines import ENGINES
from kvoracle.model.errors import UsageError
from kvoracle.model.explore.command import explore
from kvoracle.model.found import FOUND
from kvoracle.model.gpu_command import MEMORIES, gpu, on_memory
from kvoracle.model.proof.show import proof
from kvoracle.model.random64 import parse_seed
from kvoracle.model.registry import ALLOCATORS, Target, resolve
from kvoracle.model.serve_command import serve
from kvoracle.model.trace import Trace, make_folder, read, trace_files
from kvoracle.model.waste_command import waste

HYPOTHESIS_OPERATIONS_ONE_IN = 20
WORKERS_MAX = 256
HANG_SECONDS_MAX = 86_400

app = typer.Typer(
    help="Verify paged KV-cache allocators against a reference that judges every operation.",
    epilog="Exit codes: 0 nothing found; 1 a violation, or a campaign that did not see enough;"
    " 2 bad usage or input; 130 interrupted.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

HangOption = Annotated[
    float, typer.Option(help="Seconds after which an operation without an answer hangs.")
]
AllocatorOption = Annotated[
    str,
    typer.Option(
        help="A name that `kvoracle allocators` lists, mutant:NAME, or package.module:factory."
    ),
]


@app.command()
def fuzz(
    allocator: AllocatorOption = "impl",
    engine: Annotated[str, typer.Option(help="walk, hypothesis or both.")] = "both",
    budget: Annotated[
        str,
        typer.Option(
            help="How long: 30s, 5m, or 100000ops. Of both engines each gets half of the time,"
            " or Hypothesis, which is slower, one in twenty of the operations."
        ),
    ] = "30s",
    seed: Annotated[
        str | None, typer.Option(help="An integer or a git hash; drawn and shown without it.")
    ] = None,
    workers: Annotated[int, typer.Option(help="How many processes.")] = 1,
    hang_after: HangOption = HANG_SECONDS,
    save: Annotated[Path, typer.Option(help="The folder for the trace of a violation.")] = FOUND,
    memory: Annotated[
        str, typer.Option(help="list, or device: keys and values in tensors (kvoracle[gpu]).")
    ] = MEMORIES[0],
    all_witnesses: Annotated[
        bool, typer.Option("--all-witnesses", help="List every witness, not the rarest only.")
    ] = False,
) -> None:
    """Search an allocator for a violation, and shrink and save the first one found."""
    plan = Plan(_engines(engine, budget), _seed(seed), _workers(workers), _hang_seconds(hang_after))
    target = on_memory(resolve(allocator), memory)
    out = report.console()
    report.announce(out, target, plan, budget)
    with report.Progress(out, target) as progress:
        result = conduct(target, plan, progress.show)
    report.summarize(out, target, result, all_witnesses)
    _show_found(out, target, result, save)
    report.conclude(out, target, result)
    line = report.reproduce_line(allocator, engine, budget, plan)
    if memory != MEMORIES[0]:
        line += f" --memory {memory}"
    out.print(f"Reproduce with: {line}", markup=False)
    raise typer.Exit(_exit_code(target, result))


app.command()(explore)
app.command()(gpu)
app.command()(capacity)
app.command()(waste)
app.command()(serve)


@app.command()
def replay(
    files: Annotated[list[Path], typer.Argument(help="Traces, or folders of them.")],
    allocator: Annotated[
        str | None,
        typer.Option(help="The allocator; without it the one that the trace names, or impl."),
    ] = None,
    hang_after: HangOption = HANG_SECONDS,
) -> None:
    """Run saved traces in lockstep once more."""
    hang_seconds = _hang_seconds(hang_after)
    traces = [(path, read(path)) for path in trace_files(files)]
    targets = {name: resolve(name) for name in {_allocator_of(t, allocator) for _, t in traces}}
    out = report.console()
    passed = failed = skipped = 0
    for path, trace in traces:
        target = targets[_allocator_of(trace, allocator)]
        obstacle = unfit(trace, target)
        if obstacle is not None:
            out.print(f"skipped  {path}: {target.name} {obstacle}", markup=False)
            skipped += 1
            continue
        failure = run_isolated(trace, target, hang_seconds)
        passed, failed = passed + (failure is None), failed + (failure is not None)
        out.print(f"{'passed' if failure is None else 'FAILED'}   {path} on {target.name}")
        if failure is not None:
            out.print(found.describe(failure, target) + "\n", markup=False)
    out.print(f"{passed} passed, {failed} failed, {skipped} skipped")
    if skipped == len(traces):
        raise UsageError("The allocator can do none of the traces; choose another allocator.")
    raise typer.Exit(exits.VIOLATION if failed else exits.NOTHING_FOUND)


@app.command()
def mutants(
    seed: Annotated[str, typer.Option(help="An integer or a git hash.")] = "1",
    workers: Annotated[int, typer.Option(help="How many processes.")] = 2,
    save: Annotated[
        Path | None, typer.Option(help="A folder for the minimal trace of each mutant.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option(help="A Markdown file for what caught each mutant.")
    ] = None,
) -> None:
    """Show that the engines catch bugs: every mutant must be caught by each of them."""
    number, out = _seed(seed), report.console()
    if save is not None:
        make_folder(save)
    if table is not None:
        check_writable(table)
    with out.status("hunting mutants"):
        caught = mutation.catch_all(number, _workers(workers))
    report.show_mutants(out, caught)
    if save is not None:
        for path in mutation.save(caught, save):
            out.print(f"wrote {path}")
    if table is not None:
        table.write_text(report.mutants_page(caught, number), encoding="utf-8")
        out.print(f"wrote {table}")
    survived = [one for one in caught if one.failure is None]
    raise typer.Exit(exits.VIOLATION if survived else exits.NOTHING_FOUND)


@app.command()
def prove(
    without: Annotated[
        str | None,
        typer.Option(
            help="Leave a part of an operation out, 'OPERATION: PART', and see why it is there."
        ),
    ] = None,
    save: Annotated[Path, typer.Option(help="The folder for the trace of what fails.")] = FOUND,
) -> None:
    """Prove the rules for pools of any size, with a solver (docs/proof.md)."""
    is_proven = proof(report.console(), without, save)
    raise typer.Exit(exits.NOTHING_FOUND if is_proven else exits.VIOLATION)


@app.command()
def allocators() -> None:
    """List the allocators: which can be tested here, and how to get the others."""
    out = report.console()
    missing: dict[str, list[str]] = {}
    for name, known in ALLOCATORS.items():
        problem = registry.missing(name)
        state = "available" if problem is None else "missing"
        out.print(f"{state:<10} {name:<17} {known.about}")
        if problem is None:
            left_out = resolve(name).left_out
            if left_out:
                out.print(f"{'':<28} cannot do: {', '.join(left_out)}")
        else:
            missing.setdefault(known.install, []).append(name)
    for install, names in missing.items():
        out.print(f"\nTo get {', '.join(names)}:\n  {install}", markup=False)
    out.print("\nAny other: --allocator package.module:factory (docs/adapters.md).")


@app.command()
def bench(
    only: Annotated[
        list[str] | None, typer.Option(help="A row by its name; repeat it for several.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="How many rounds; their medians are shown.")] = 21,
    json: Annotated[Path | None, typer.Option(help="A file for the numbers.")] = None,
) -> None:
    """Time this project's allocator and the released ones in turns, on the same work."""
    out = report.console()
    if json is not None:
        check_writable(json)
    with out.status("measuring"):
        measured = measure(only or (), rounds)
    show_tables(out, measured)
    if json is not None:
        write_json(json, measured)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; every error of the user's is one sentence and exit code 2."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.path.insert(0, str(Path.cwd()))
    if sys.stdout is None:
        sys.exit(_complain("There is no standard output; send it somewhere."))
    try:
        code = app(args=arguments, prog_name="kvoracle", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = exits.NOBODY_READS
    except OSError as error:
        code = _complain(f"The output cannot be written ({error.strerror}); send it elsewhere.")
    except UsageError as error:
        code = _complain(str(error))
    except TyperException as error:
        code = _complain(f"{error.format_message()} See `kvoracle --help`.")
    except (KeyboardInterrupt, typer.Abort):
        code = exits.INTERRUPTED
    sys.exit(code)


@app.callback(invoke_without_command=True)
def _alone(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        print(f"kvoracle {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(exits.USAGE)


def _complain(sentence: str) -> int:
    print(f"kvoracle: {' '.join(sentence.split())}", file=sys.stderr)
    return exits.USAGE


def _engines(engine: str, budget: str) -> dict[str, tuple[int | None, float | None]]:
    names = list(ENGINES) if engine == "both" else [engine]
    if not set(names) <= set(ENGINES):
        raise UsageError(f"There is no engine {engine!r}; give {', '.join(ENGINES)} or both.")
    operations, seconds = _budget(budget)
    if seconds is not None:
        return {name: (None, seconds / len(names)) for name in names}
    assert operations is not None
    if len(names) == 1:
        return {engine: (operations, None)}
    slow = max(operations // HYPOTHESIS_OPERATIONS_ONE_IN, 1)
    return {
        name: (slow if name == "hypothesis" else max(operations - slow, 1), None) for name in names
    }


def _budget(text: str) -> tuple[int | None, float | None]:
    match = re.fullmatch(r"(\d{1,15})(s|m|h|ops)", text)
    if match is None or int(match[1]) == 0:
        raise UsageError(f"The budget {text!r} is not one; write it as 30s, 5m, 2h or 100000ops.")
    amount, unit = int(match[1]), match[2]
    if unit == "ops":
        return amount, None
    return None, float(amount * {"s": 1, "m": 60, "h": 3600}[unit])


def _seed(text: str | None) -> int:
    if text is None:
        return secrets.randbits(32)
    try:
        return parse_seed(text)
    except ValueError as error:
        raise UsageError(
            f"The seed {text!r} is neither a non-negative integer nor a git hash; give one of them."
        ) from error


def _workers(count: int) -> int:
    if not 1 <= count <= WORKERS_MAX:
        raise UsageError(f"{count} workers cannot be; give 1 to {WORKERS_MAX}.")
    return count


def _hang_seconds(seconds: float) -> float:
    if not 0.1 <= seconds <= HANG_SECONDS_MAX:
        raise UsageError(f"{seconds:g} seconds cannot be waited; give 0.1 to {HANG_SECONDS_MAX}.")
    return seconds


def _show_found(out: Console, target: Target, result: Result, folder: Path) -> None:
    if result.failure is None:
        return
    text = found.describe_found(result.failure, target, folder)
    out.print("\n" + text + "\n", markup=False)


def _exit_code(target: Target, result: Result) -> int:
    if result.failure is None and result.interrupted:
        return exits.INTERRUPTED
    return exits.NOTHING_FOUND if result.succeeded(target) else exits.VIOLATION


def _allocator_of(trace: Trace, asked: str | None) -> str:
    named: Any = trace.origin.get("allocator", "impl")
    return asked or str(named)
