"""A file of traffic in any of the formats, which its first line tells apart."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

from kvoracle.model.errors import UsageError
from kvoracle.model.traffic.arrival import Arrival
from kvoracle.model.traffic.azure import COLUMNS, azure
from kvoracle.model.traffic.lengths import lengths
from kvoracle.model.traffic.lines import Line, lines
from kvoracle.model.traffic.mooncake import mooncake

Reader = Callable[[Iterable[Line]], Iterator[Arrival]]

FORMATS: dict[str, Reader] = {"mooncake": mooncake, "azure": azure, "lengths": lengths}


def read_traffic(path: Path) -> tuple[str, Iterator[Arrival]]:
    """The format and the requests, which are read as they are asked for."""
    rest = lines(path)
    first = next(rest, None)
    if first is None:
        raise UsageError(f"{path} is empty; give a Mooncake or Azure trace, or a list of lengths.")
    name = _format(first.text)
    return name, FORMATS[name](chain([first], rest))


def _format(first_line: str) -> str:
    if first_line.startswith("{"):
        return "mooncake"
    if any(column in first_line for column in COLUMNS):
        return "azure"
    return "lengths"
