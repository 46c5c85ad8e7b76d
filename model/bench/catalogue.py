"""Every row by name, which of them can be measured here, and how to get the engines of the others."""

from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from kvoracle.model.bench import decode, prompt, scale, take, tokens
from kvoracle.model.bench.row import Race, Row
from kvoracle.model.errors import UsageError
from kvoracle.model.registry import ALLOCATORS

ROWS: dict[str, Row] = {
    row.name: row for row in (*decode.ROWS, *take.ROWS, *prompt.ROWS, *tokens.ROWS, *scale.ROWS)
}
TITLES = {"vllm": "vLLM", "sglang": "SGLang"}
MODULES = {"vllm": "vllm.v1.core.kv_cache_manager", "sglang": "sglang.srt.mem_cache.allocator"}
"""The module of each engine that what is timed here is in."""


class Absent(NamedTuple):
    """An engine that cannot be imported here, and the rows that are left out for that."""

    engine: str
    why: str
    rows: list[Row]

    def __str__(self) -> str:
        count = f"{len(self.rows)} row{'s' if len(self.rows) > 1 else ''}"
        install = ALLOCATORS[self.engine].install
        return f"{TITLES[self.engine]} {self.why}: {count} left out; {install}"


def chosen(names: Sequence[str]) -> list[Row]:
    """The rows of these names; all of them without any."""
    for name in names:
        if name not in ROWS:
            raise UsageError(f"There is no row {name!r}; give one of {', '.join(ROWS)}.")
    return [ROWS[name] for name in dict.fromkeys(names or ROWS)]


def absent(rows: Sequence[Row]) -> list[Absent]:
    """The engines that rows need and that cannot be imported here."""
    races = [row for row in rows if isinstance(row, Race)]
    engines = dict.fromkeys(race.engine for race in races)
    reasons = {name: why for name in engines if (why := _why_absent(name)) is not None}
    return [
        Absent(name, why, [race for race in races if race.engine == name])
        for name, why in reasons.items()
    ]


def _why_absent(name: str) -> str | None:
    try:
        import_module(MODULES[name])
    except ModuleNotFoundError as error:
        return f"is not installed here ({error})"
    except (Exception, SystemExit) as error:
        return f"cannot be imported here ({error})"
    return None
