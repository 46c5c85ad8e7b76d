"""Measure the rows that can be measured here."""

from collections.abc import Sequence
from typing import NamedTuple

from kvoracle.model.bench.catalogue import Absent, absent, chosen
from kvoracle.model.bench.row import Result, Row
from kvoracle.model.errors import UsageError

ROUNDS_MAX = 1_000


class Measured(NamedTuple):
    """What was measured, in how many rounds, and what could not be."""

    rounds: int
    results: list[tuple[Row, Result]]
    absent: list[Absent]


def measure(names: Sequence[str], rounds: int) -> Measured:
    """The rows of these names, all of them without any."""
    if not 1 <= rounds <= ROUNDS_MAX:
        raise UsageError(f"{rounds} rounds cannot be; give 1 to {ROUNDS_MAX}.")
    rows = chosen(names)
    missing = absent(rows)
    left_out = [row for one in missing for row in one.rows]
    results = [(row, row.measure(rounds)) for row in rows if row not in left_out]
    return Measured(rounds, results, missing)
