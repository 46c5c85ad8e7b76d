"""The results of serving, side by side: two tables, or JSON."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from kvoracle import __version__
from kvoracle.model.columns import show_columns
from kvoracle.model.errors import UsageError
from kvoracle.model.serving.result import Result

REQUESTS = (
    *("allocator", "blocks", "of", "finished", "cancelled", "refused", "running", "at most"),
    *("wait", "p99", "preempted", "time"),
)
POOL = (
    *("allocator", "blocks", "of", "used", "at most", "hits", "LRU", "tails", "reserved"),
    *("step", "p99", "allocator"),
)


def show_results(out: Console, results: list[Result]) -> None:
    """What became of the requests, and what it took."""
    if not results:
        return
    out.print()
    show_columns(out, REQUESTS, [_requests(result) for result in results], left=(0,))
    show_columns(out, POOL, [_pool(result) for result in results], left=(0,))
    out.print(
        "Times are simulated, but for the allocator's: its processor time in a step, median and p99,"
        " and in all.\nrunning, used, tails, reserved: means over time. wait: median time until"
        " admission.\nrefused: longer than may be. tails: empty slots of last blocks, of those held."
        " reserved: kept for tokens to come."
    )
    unlimited = results[0].hit_rate_unlimited
    if unlimited is not None:
        out.print(
            "hits: prompt tokens found written. LRU: the same by reuse distances, requests coming one"
            f" at a time; {_percent(unlimited)} if nothing was ever evicted."
        )


def write_json(file: Path, about: dict[str, Any], results: list[dict[str, Any]]) -> None:
    """The same as `as_json` has it, with what was asked."""
    fields = {"kvoracle": __version__, **about, "results": results}
    try:
        file.write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        problem = error.strerror or str(error)
        raise UsageError(f"{file} cannot be written ({problem}); choose another file.") from error


def _requests(result: Result) -> list[str]:
    return [
        result.allocator,
        f"{result.blocks:,}",
        f"{result.block_size:,}",
        f"{result.finished:,}",
        f"{result.cancelled:,}",
        f"{result.refused:,}",
        f"{result.running_mean:.1f}",
        f"{result.running_most:,}",
        _seconds(result.wait_median),
        _seconds(result.wait_p99),
        f"{result.preemptions:,}",
        f"{result.seconds:,.0f} s",
    ]


def _pool(result: Result) -> list[str]:
    return [
        result.allocator,
        f"{result.blocks:,}",
        f"{result.block_size:,}",
        _percent(result.used_mean),
        _percent(result.used_most),
        _percent(result.hit_rate),
        _percent(result.hit_rate_lru),
        _percent(result.tail_waste),
        _percent(result.reserved_waste),
        f"{result.allocator_median:,.0f} µs",
        f"{result.allocator_p99:,.0f} µs",
        f"{result.allocator_seconds:,.1f} s",
    ]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:,.1f} s"
