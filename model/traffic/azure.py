"""Azure's LLM inference traces (2023, 2024): CSV, TIMESTAMP, ContextTokens and GeneratedTokens."""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from kvoracle.model.traffic.arrival import TOKENS_MAX, Arrival
from kvoracle.model.traffic.lines import Line

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def azure(lines: Iterable[Line]) -> Iterator[Arrival]:
    """The requests of a trace; columns beside the three are left alone."""
    first = True
    for line in lines:
        cells = [cell.strip() for cell in line.text.split(",")]
        if first:
            first, width, places = False, len(cells), _places(line, cells)
            continue
        if len(cells) != width:
            raise line.wrong(f"it has {len(cells)} cells and the first line {width}; correct it")
        when, prompt, output = (cells[place] for place in places)
        yield Arrival(_microseconds(line, when), _tokens(line, prompt, 1), _tokens(line, output, 0))


def _places(line: Line, cells: list[str]) -> list[int]:
    missing = [name for name in COLUMNS if name not in cells]
    if missing:
        raise line.wrong(
            f"there is no column {missing[0]}; an Azure trace has {', '.join(COLUMNS)}"
        )
    return [cells.index(name) for name in COLUMNS]


def _microseconds(line: Line, text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise line.wrong(
            f"{text[:60]!r} is not a time; write it as 2023-11-16 18:15:46.68"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // timedelta(microseconds=1)


def _tokens(line: Line, text: str, least: int) -> int:
    if not re.fullmatch(r"\d{1,15}", text) or not least <= int(text) <= TOKENS_MAX:
        raise line.wrong(f"{text[:60]!r} is not a number of tokens; give {least} to {TOKENS_MAX}")
    return int(text)
