"""What formulas are made of: connectives and positions, for Python values and for a solver's terms alike.

What is plainly true or false is decided here, so a formula over Python values is a bool, and a
solver is only ever asked about what is open.
"""

import importlib
from functools import cache
from typing import Any, NamedTuple

from kvoracle.model.errors import UsageError

Term = Any
"""A value: a Python one, or a solver's term."""

Formula = Any
"""Something true or false: a bool, or a solver's term."""


@cache
def z3() -> Any:
    """The solver; without it a UsageError says how to get it."""
    try:
        return importlib.import_module("z3")
    except ImportError as error:
        raise UsageError(
            "A proof needs a solver that is not here; pip install 'kvoracle[formal]'."
        ) from error


def all_of(*claims: Formula) -> Formula:
    """Every one of the claims."""
    still_open = [claim for claim in claims if claim is not True]
    if any(claim is False for claim in still_open):
        return False
    return z3().And(still_open) if still_open else True


def any_of(*claims: Formula) -> Formula:
    """At least one of the claims."""
    still_open = [claim for claim in claims if claim is not False]
    if any(claim is True for claim in still_open):
        return True
    return z3().Or(still_open) if still_open else False


def no(claim: Formula) -> Formula:
    """The opposite of a claim."""
    return not claim if isinstance(claim, bool) else z3().Not(claim)


def implies(condition: Formula, claim: Formula) -> Formula:
    """The claim, wherever the condition holds."""
    return any_of(no(condition), claim)


def same(left: Formula, right: Formula) -> Formula:
    """Both claims or neither."""
    return all_of(implies(left, right), implies(right, left))


def given(condition: Formula, then: Term, otherwise: Term) -> Term:
    """One value where the condition holds, another where it does not."""
    if isinstance(condition, bool):
        return then if condition else otherwise
    return z3().If(condition, then, otherwise)


class Position(NamedTuple):
    """A position in a request, as a block's index and an offset in the block.

    `index * block_size + offset` is never multiplied out: with a block size that is a variable, that
    product is what solvers are bad at.  `slots.py` proves that nothing is lost by it.
    """

    index: Term
    offset: Term

    def is_at(self, other: "Position") -> Formula:
        return all_of(self.index == other.index, self.offset == other.offset)

    def is_before(self, other: "Position") -> Formula:
        within = all_of(self.index == other.index, self.offset < other.offset)
        return any_of(self.index < other.index, within)

    def is_not_after(self, other: "Position") -> Formula:
        within = all_of(self.index == other.index, self.offset <= other.offset)
        return any_of(self.index < other.index, within)

    def after(self, size: Term) -> "Position":
        """The next position."""
        is_last = self.offset + 1 == size
        return Position(
            given(is_last, self.index + 1, self.index), given(is_last, 0, self.offset + 1)
        )

    def before(self, size: Term) -> "Position":
        """The position before."""
        is_first = self.offset == 0
        return Position(
            given(is_first, self.index - 1, self.index), given(is_first, size - 1, self.offset - 1)
        )
