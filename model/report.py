"""What a user of the command line sees, made from verdicts."""

import shlex
import time

from rich.console import Console
from rich.live import Live
from rich.text import Text

from kvoracle import __version__
from kvoracle.model import witnesses
from kvoracle.model.campaign import CANARY_OPERATIONS_MAX, WITNESSES_NEED_OPERATIONS, Plan, Result
from kvoracle.model.canaries import CANARIES
from kvoracle.model.mutation import Caught, mutant_named
from kvoracle.model.registry import Target
from kvoracle.model.run import Tally

RAREST = 8
"""How many witnesses are listed where not all are."""
KINDS = ("ok", "out of blocks", "rejected", "not tried")
MUTANT_COLUMNS = ["bugs", "mutant", "engine", "operations", "rule", "trace"]
MUTANTS_INTRODUCTION = (
    "# Mutants\n\nHow each engine catches each mutant with seed {seed}: after how many operations without"
    " a fault, by which rule, and how many operations the smallest trace has. `kvoracle mutants --table"
    " docs/mutants.md` writes this page; the bugs are told in [bugs.md](bugs.md), the traces are in"
    " [seeds/bugs](../seeds/bugs).\n\n"
)


class _Output(Console):
    """A console that leaves it to `main` to say that nobody reads it."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """Where reports go: standard output, never wrapped inside a word, coloured on a terminal only."""
    return _Output(highlight=False, soft_wrap=True)


def announce(out: Console, target: Target, plan: Plan, budget: str) -> None:
    """The parameters, before the first step."""
    out.print(f"kvoracle {__version__} fuzz", style="bold")
    rows = {
        "allocator": target.name,
        "engines": ", ".join(plan.engines),
        "budget": budget,
        "seed": str(plan.seed),
        "workers": str(plan.workers),
        "left out": _left_out(target),
    }
    for name, value in rows.items():
        out.print(f"  {name:<10} {value}")
    out.print()


class Progress:
    """A live line on a terminal; elsewhere a line after 1, 2, 4, 8, ... seconds."""

    def __init__(self, out: Console, target: Target) -> None:
        self._out = out
        self._required = witnesses.required(target)
        self._started = time.monotonic()
        self._next_line_seconds = 1
        self._live = Live(console=out, auto_refresh=False, transient=True)

    def __enter__(self) -> "Progress":
        if self._out.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        if self._next_line_seconds > 1:
            self._out.print()

    def show(self, result: Result) -> None:
        """Show how far a campaign is."""
        if self._out.is_terminal:
            self._live.update(Text(_progress(result, self._required)), refresh=True)
        elif result.seconds >= self._next_line_seconds:
            self._out.print(_progress(result, self._required))
            self._next_line_seconds *= 2


def summarize(out: Console, target: Target, result: Result, every_witness: bool) -> None:
    """Everything that was done, success or not; of the witnesses the rarest only, or all."""
    _show_rows(out, _outcomes(result.tally), left=(0,))
    _show_witnesses(out, target, result, every_witness)
    _show_canaries(out, result)
    for engine, tally in result.tallies.items():
        out.print(f"{engine:<10} {tally.operations:,} operations in {tally.runs:,} runs")
    operations = result.tally.operations
    speed = operations / result.seconds if result.seconds else 0.0
    out.print(
        f"{'checked':<10} {operations:,} operations in {result.seconds:.1f} s"
        f" ({speed:,.0f} a second), everything after each one"
    )


def conclude(out: Console, target: Target, result: Result) -> None:
    """One line that says how it ended."""
    if result.failure is not None:
        out.print("1 violation found.", style="bold red")
    elif result.interrupted:
        out.print("Interrupted: nothing found so far.", style="bold yellow")
    elif result.survivors:
        out.print(f"FAILED: canaries survived: {', '.join(result.survivors)}", style="bold red")
    elif not result.succeeded(target):
        out.print(
            f"FAILED: {len(result.unmet(target))} witnesses never reached in a run of"
            f" {WITNESSES_NEED_OPERATIONS:,} operations or more.",
            style="bold red",
        )
    else:
        out.print("Nothing found.", style="bold green")


def reproduce_line(allocator: str, engine: str, budget: str, plan: Plan) -> str:
    """The command that does the same once more."""
    command = ["kvoracle", "fuzz", "--allocator", allocator, "--engine", engine]
    command += ["--budget", budget, "--seed", str(plan.seed)]
    if plan.workers != 1:
        command += ["--workers", str(plan.workers)]
    return shlex.join(command)


def show_mutants(out: Console, caught: list[Caught]) -> None:
    """A row a mutant with the operations each engine took, then caught/total for each engine."""
    engines = list(dict.fromkeys(one.engine for one in caught))
    rows = [["mutant", "bugs", *engines, "caught by"]]
    for name in dict.fromkeys(one.mutant for one in caught):
        hunts = [one for one in caught if one.mutant == name]
        took = [f"{one.operations:,}" if one.failure else "SURVIVED" for one in hunts]
        rules = dict.fromkeys(one.failure.rule for one in hunts if one.failure)
        rows.append([name, " ".join(mutant_named(name).bugs), *took, next(iter(rules), "-")])
    _show_rows(out, rows, left=(0, 1, 2 + len(engines)))
    for engine in engines:
        hunts = [one for one in caught if one.engine == engine]
        survivors = [one.mutant for one in hunts if one.failure is None]
        count = f"{len(hunts) - len(survivors)}/{len(hunts)} caught"
        tail = f", SURVIVED: {', '.join(survivors)}" if survivors else ""
        out.print(f"{engine:<10} {count}{tail}", style="bold red" if survivors else "bold green")


def mutants_page(caught: list[Caught], seed: int) -> str:
    """A page on the mutants: a row for each and each engine, by name."""
    rows = [
        [" ".join(mutant_named(one.mutant).bugs), f"`{one.mutant}`", one.engine, *_caught_by(one)]
        for one in sorted(caught)
    ]
    lines = ["| " + " | ".join(row) + " |" for row in [MUTANT_COLUMNS, ["---"] * 6, *rows]]
    return MUTANTS_INTRODUCTION.format(seed=seed) + "\n".join(lines) + "\n"


def _caught_by(one: Caught) -> list[str]:
    if one.failure is None:
        return ["SURVIVED", "", ""]
    return [f"{one.operations:,}", one.failure.rule, str(len(one.failure.trace.operations))]


def _left_out(target: Target) -> str:
    if not target.left_out:
        return "nothing"
    return f"{', '.join(target.left_out)} (the allocator cannot do them)"


def _progress(result: Result, required: list[str]) -> str:
    tally = result.tally
    met = sum(1 for name in required if tally.witnesses.get(name))
    return (
        f"{result.seconds:5.0f} s  {tally.operations:>11,} operations  {tally.runs:>8,} runs"
        f"  {met} of {len(required)} witnesses"
    )


def _outcomes(tally: Tally) -> list[list[str]]:
    rows = [["operation", *KINDS]]
    for verb in sorted({verb for verb, _ in tally.outcomes}):
        counts = [tally.outcomes.get((verb, kind), 0) for kind in KINDS]
        rows.append([verb, *[f"{count:,}" if count else "-" for count in counts]])
    return rows


def _show_rows(out: Console, rows: list[list[str]], left: tuple[int, ...]) -> None:
    """Columns as wide as their widest cell, whatever the terminal; then an empty line."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        cells = [
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        out.print("  ".join(cells).rstrip(), style="bold" if number == 0 else None)
    out.print()


def _show_witnesses(out: Console, target: Target, result: Result, every: bool) -> None:
    required, unmet = witnesses.required(target), result.unmet(target)
    met = result.tally.witnesses
    listed = required if every else sorted(required, key=lambda name: met.get(name, 0))[:RAREST]
    if result.failure is not None:
        listed = []
    which = "; the rarest:" if 0 < len(listed) < len(required) else ""
    out.print(f"witnesses  {len(required) - len(unmet)}/{len(required)} reached{which}")
    for name in listed:
        count = met.get(name, 0)
        reached = f"{count:>11,}" if count else f"{'never':>11}"
        out.print(f"{reached}  {name}", style=None if count else "yellow")
    out.print()


def _show_canaries(out: Console, result: Result) -> None:
    caught = [name for name, operations in result.canaries.items() if operations is not None]
    out.print(f"canaries   {len(caught)}/{len(CANARIES)} caught")
    for name, operations in result.canaries.items():
        if operations is None:
            out.print(f"   {name} SURVIVED {CANARY_OPERATIONS_MAX:,} operations", style="bold red")
