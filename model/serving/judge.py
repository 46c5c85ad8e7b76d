"""Serving in lockstep: the reference judges every call, and what goes wrong is a trace."""

from typing import Any

from kvoracle.model.errors import UsageError
from kvoracle.model.lockstep import Lockstep, Violation
from kvoracle.model.operations import OPERATIONS, Outcome
from kvoracle.model.run import Failure, run, start
from kvoracle.model.serving.contestant import Contestant
from kvoracle.model.serving.pool import Pool
from kvoracle.model.serving.request import Text
from kvoracle.model.shrink import shrink
from kvoracle.model.trace import Trace

CLASS_OF = {operation.verb: operation for operation in OPERATIONS}
OPERATIONS_SHRUNK_MAX = 2_000
"""A longer trace is saved as it is: each run of it would take too long."""
RUNS_MAX = 1_000


class Judge:
    """An allocator beside the reference, both empty, and the trace of all that it is asked."""

    def __init__(self, contestant: Contestant) -> None:
        self.contestant = contestant
        self._found: Violation | None = None
        self.trace = Trace(contestant.config, [])
        self.lockstep: Lockstep = start(contestant.target.factory, self.trace)

    def pool(self) -> Pool:
        """The pool, whose calls are judged; the memory that is checked is that of lockstep."""
        return Pool(self.lockstep.adapter, self._carry_out, None)

    def failure(self, violation: Violation) -> Failure | None:
        """What went wrong, as the smallest trace that could be found; None where no call was wrong."""
        if violation is not self._found:
            return None
        failure = Failure(self.trace, violation.rule, violation.message, violation.block)
        if len(self.trace.operations) > OPERATIONS_SHRUNK_MAX:
            return failure
        factory = self.contestant.target.factory
        return shrink(failure, lambda trace: run(trace, factory), RUNS_MAX)

    def _carry_out(self, verb: str, *fields: object) -> Outcome:
        plain = [tuple(value) if isinstance(value, Text | list) else value for value in fields]
        operation: Any = CLASS_OF[verb](*plain)
        self.trace.operations.append(operation)
        try:
            outcome = self.lockstep.step(operation)
        except Violation as violation:
            self._found = violation
            raise
        if outcome is None:
            raise Violation("outcome", f"{verb} is outside what the allocator can be asked")
        return outcome


def check_judgeable(contestant: Contestant) -> None:
    """A UsageError where a pool is too large for the reference."""
    try:
        Trace(contestant.config, [])
    except ValueError as error:
        raise UsageError(f"In lockstep {error}; give fewer slots, or a larger scale.") from error
