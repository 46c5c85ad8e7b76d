"""What a user sees of the benchmark: races, limits, and what is absent; and the same as JSON."""

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from kvoracle import __version__
from kvoracle.model.bench.catalogue import TITLES
from kvoracle.model.bench.measure import Measured
from kvoracle.model.bench.row import Limit, Race, Result
from kvoracle.model.errors import UsageError

RACES = ("row", "work", "ours", "theirs", "ratio", "goal", "")
LIMITS = ("row", "work", "measured", "limit", "")
WORDS = ("row", "work", "")


def show_tables(out: Console, measured: Measured) -> None:
    """A table of the races, one of the limits, how many goals are met, and the engines to get."""
    races = [_race(row, result) for row, result in measured.results if isinstance(row, Race)]
    limits = [_limit(row, result) for row, result in measured.results if isinstance(row, Limit)]
    out.print(f"kvoracle {__version__} bench", style="bold")
    out.print(f"  rounds     {measured.rounds}, in turns on one core; medians of processor time")
    out.print(f"  against    {', '.join(_peers(measured)) or 'nothing'}\n")
    _show_columns(out, RACES, races)
    _show_columns(out, LIMITS, limits)
    if measured.results:
        met = sum(result.met for _, result in measured.results)
        out.print(f"{met} of {len(measured.results)} goals met")
    for absent in measured.absent:
        out.print(str(absent), markup=False)


def check_writable(file: Path) -> None:
    """A UsageError, before the work rather than after it, where a file cannot be written."""
    try:
        file.open("a", encoding="utf-8").close()
    except OSError as error:
        problem = error.strerror or str(error)
        raise UsageError(f"{file} cannot be written ({problem}); choose another file.") from error


def write_json(file: Path, measured: Measured) -> None:
    """The same as JSON; a limit has neither time."""
    fields = {
        "rounds": measured.rounds,
        "against": _peers(measured),
        "rows": [_fields(row, result) for row, result in measured.results],
        "left_out": [row.name for absent in measured.absent for row in absent.rows],
    }
    file.write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")


def _peers(measured: Measured) -> list[str]:
    engines = dict.fromkeys(row.engine for row, _ in measured.results if isinstance(row, Race))
    return [f"{TITLES[engine]} {version(engine)}" for engine in engines]


def _race(row: Race, result: Result) -> list[str]:
    assert result.ours_seconds is not None
    assert result.peer_seconds is not None
    times = [_duration(result.ours_seconds), _duration(result.peer_seconds)]
    return [row.name, row.work, *times, f"{result.value:.1f}", f"{row.goal:g}", _verdict(result)]


def _limit(row: Limit, result: Result) -> list[str]:
    measured, limit = f"{result.value:.2f} {row.unit}", f"{row.goal:g} {row.unit}"
    return [row.name, row.work, measured, limit, _verdict(result)]


def _verdict(result: Result) -> str:
    return "" if result.met else "missed"


def _duration(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f} µs" if seconds < 1e-3 else f"{seconds * 1e3:,.2f} ms"


def _fields(row: Race | Limit, result: Result) -> dict[str, Any]:
    against = {"against": row.engine} if isinstance(row, Race) else {"unit": row.unit}
    return {"name": row.name, "work": row.work, **against, "goal": row.goal, **result._asdict()}


def _show_columns(out: Console, heads: Sequence[str], rows: list[list[str]]) -> None:
    """Words to the left, numbers to the right; then an empty line."""
    if not rows:
        return
    lines = [list(heads), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for number, line in enumerate(lines):
        cells = [
            cell.ljust(width) if head in WORDS else cell.rjust(width)
            for head, cell, width in zip(heads, line, widths, strict=True)
        ]
        style = "bold" if number == 0 else "yellow" if line[-1] else None
        out.print("  ".join(cells).rstrip(), style=style, markup=False)
    out.print()
