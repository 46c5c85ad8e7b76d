"""The command `kvoracle explore`."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from kvoracle import __version__
from kvoracle.model import exits, found, report
from kvoracle.model.errors import UsageError
from kvoracle.model.explore import checkpoint
from kvoracle.model.explore.conduct import Limits, cover_all, search_all
from kvoracle.model.explore.scope import FEATURES, Scope
from kvoracle.model.explore.search import Search
from kvoracle.model.explore.tour import Coverage
from kvoracle.model.operations import Operation
from kvoracle.model.registry import Target, resolve
from kvoracle.model.run import Failure, run
from kvoracle.model.shrink import shrink

MOST = {
    "blocks": 8,
    "block_size": 16,
    "requests": 6,
    "transfers": 4,
    "tokens": 32,
    "values": 4,
    "steps": 3,
}
"""Beyond these a search would not end in a lifetime."""


def explore(
    allocator: Annotated[str, typer.Option(help="As in fuzz; none: the reference alone.")] = "impl",
    blocks: Annotated[int, typer.Option(help="Blocks of the pool.")] = 4,
    block_size: Annotated[int, typer.Option(help="Slots of a block.")] = 2,
    requests: Annotated[int, typer.Option(help="Requests at once.")] = 3,
    transfers: Annotated[int, typer.Option(help="Transfers at once.")] = 2,
    tokens: Annotated[int, typer.Option(help="Tokens of one request.")] = 6,
    values: Annotated[int, typer.Option(help="Different token values, with cache.")] = 1,
    steps: Annotated[int, typer.Option(help="Steps in flight at once, with steps.")] = 1,
    match_unit: Annotated[int, typer.Option(help="Unit of prefix matching; 0: a block.")] = 0,
    features: Annotated[
        str, typer.Option(help=f"What is explored, of {', '.join(FEATURES)}.")
    ] = "core,sharing",
    states_max: Annotated[int, typer.Option(help="Stop, incomplete, at so many states.")] = 500_000,
    file: Annotated[
        Path | None, typer.Option("--checkpoint", help="A file to save the search in as it goes.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on with the search of --checkpoint.")] = False,
    workers: Annotated[int, typer.Option(help="Processes for the allocator's part.")] = 1,
) -> None:
    """Visit every state of a small pool, and carry out every operation of each on an allocator."""
    scope = Scope(
        *(blocks, block_size, requests, transfers, tokens, values, steps, match_unit),
        tuple(dict.fromkeys(["core", *features.split(",")])),
    )
    _check(scope, states_max, workers)
    if resume and file is None:
        raise UsageError("--resume goes on with a search on file; give it with --checkpoint.")
    target = None if allocator == "none" else resolve(allocator)
    search = checkpoint.load(file, scope) if resume and file else Search(scope)
    out = report.console()
    _announce(out, scope, target)
    _search(out, search, Limits(states_max, file))
    if search.graph.broken is not None:
        raise typer.Exit(exits.VIOLATION)
    failure = None if target is None else _cover(out, search, target, workers)
    raise typer.Exit(exits.VIOLATION if failure or not search.is_complete else exits.NOTHING_FOUND)


def _check(scope: Scope, states_max: int, workers: int) -> None:
    unknown = set(scope.features) - FEATURES.keys()
    if unknown:
        raise UsageError(
            f"There is no feature {sorted(unknown)[0]!r}; choose from {', '.join(FEATURES)}."
        )
    for name, most in MOST.items():
        least = 0 if name == "transfers" else 1
        if not least <= getattr(scope, name) <= most:
            option = name.replace("_", "-")
            raise UsageError(
                f"--{option} {getattr(scope, name)} cannot be explored; give {least} to {most}."
            )
    if scope.match_unit < 0 or (scope.match_unit and scope.block_size % scope.match_unit):
        raise UsageError(
            f"--match-unit must divide {scope.block_size}; or give 0 for whole blocks."
        )
    if states_max < 1:
        raise UsageError("--states-max must be at least 1.")
    if not 1 <= workers <= 64:
        raise UsageError("--workers must be 1 to 64.")


def _announce(out: Console, scope: Scope, target: Target | None) -> None:
    out.print(f"kvoracle {__version__} explore", style="bold")
    out.print(f"  allocator  {target.name if target else 'none: the reference alone'}")
    out.print(f"  pool       {scope.blocks} blocks of {scope.block_size}")
    out.print(
        f"  at once    {scope.requests} requests of up to {scope.tokens} tokens,"
        f" {scope.transfers} transfers, {scope.steps} steps"
    )
    out.print(f"  features   {', '.join(scope.features)}")
    if scope.caches:
        out.print(f"  contents   {scope.values} token values")
    out.print()


def _search(out: Console, search: Search, limits: Limits) -> None:
    started = time.monotonic()
    with Live(console=out, auto_refresh=False, transient=True) as live:

        def show(search: Search) -> None:
            if out.is_terminal:
                live.update(Text(_progress(search, time.monotonic() - started)), refresh=True)

        try:
            search_all(search, limits, show)
        except KeyboardInterrupt:
            live.stop()
            out.print("Interrupted.  Until then:")
            _show_search(out, search, time.monotonic() - started)
            raise
    _show_search(out, search, time.monotonic() - started)


def _progress(search: Search, seconds: float) -> str:
    graph = search.graph
    return (
        f"generated {graph.transitions:,}  distinct {len(graph.found):,}"
        f"  queue {len(search.queue):,}  depth {graph.depths[-1]}"
        f"  {graph.transitions / max(seconds, 0.001):,.0f} transitions/s"
    )


def _show_search(out: Console, search: Search, seconds: float) -> None:
    graph = search.graph
    rows = {
        "states": f"{len(graph.found):,} distinct, of {graph.transitions:,} generated",
        "transitions": f"{graph.transitions:,}, and {graph.refusals:,} refusals for want of blocks",
        "of which": ", ".join(f"{verb} {count:,}" for verb, count in graph.by_verb.most_common()),
        "depth": f"{graph.depths[-1]}; at most {graph.most_out} operations out of a state",
        "time": f"{seconds:.1f} s, {graph.transitions / max(seconds, 0.001):,.0f} transitions a second",
        "complete": "yes: every state was expanded" if search.is_complete else _why(search),
    }
    for name, value in rows.items():
        out.print(f"{name:<12} {value}")
    out.print("\ninvariants   " + ("all hold in every state" if graph.broken is None else "BROKEN"))
    if graph.broken is not None:
        out.print(f"  {graph.broken.message}", markup=False)
        _show_path(out, graph.broken.path)
    out.print("\nwitnesses    met, and how many operations the shortest way to each takes")
    for witness, number in sorted(graph.witnessed.items(), key=lambda one: graph.depths[one[1]]):
        out.print(f"{graph.depths[number] + 1:>11}  {witness}")
    out.print()


def _why(search: Search) -> str:
    if search.graph.broken is not None:
        return "NO: stopped at the broken invariant"
    return f"NO: {len(search.queue):,} states were not expanded; raise --states-max"


def _show_path(out: Console, path: list[Operation]) -> None:
    for index, operation in enumerate(path):
        out.print(f"  {index:>3}  {found.in_words(operation)}", markup=False)


def _cover(out: Console, search: Search, target: Target, workers: int) -> Failure | None:
    started = time.monotonic()
    with Live(console=out, auto_refresh=False, transient=True) as live:

        def show(coverage: Coverage) -> None:
            if out.is_terminal:
                live.update(Text(f"{coverage.covered:,} edges on {target.name}"), refresh=True)

        coverage = cover_all(search.graph, search.scope, target, workers, show)
    out.print(
        f"on {target.name}: {coverage.covered:,} of {coverage.edges:,} edges"
        f" in {coverage.operations:,} operations and {time.monotonic() - started:.1f} s"
    )
    if coverage.beyond:
        out.print(f"  {coverage.beyond:,} states among them only its own choices lead to")
    if coverage.elsewhere:
        out.print(f"  {coverage.elsewhere:,} states besides, which its choices do not lead to")
    failure = coverage.failure
    if failure is not None:
        if failure.rule not in ("crash", "hang"):
            failure = shrink(failure, lambda trace: run(trace, target.factory))
        out.print("\n" + found.describe_found(failure, target), markup=False)
    else:
        out.print("Nothing found.")
    return failure
