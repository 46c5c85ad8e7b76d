"""Run a trace in lockstep, count what happened, and say where it failed."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kvoracle.model.drain import drain
from kvoracle.model.grouped_lockstep import GroupedLockstep
from kvoracle.model.lockstep import Factory, Lockstep, MakeMemory, Violation
from kvoracle.model.memory import ListMemory
from kvoracle.model.operations import Done, Operation, Outcome, OutOfBlocks
from kvoracle.model.trace import Expected, Trace

EXPECTED_OUTCOME = "expected outcome"
SETTING_UP = -1
"""The index of a failure that came before the first operation."""


class Tally(msgspec.Struct):
    """What a campaign did: operations by verb and kind of outcome, witnesses, and runs."""

    outcomes: dict[tuple[str, str], int] = {}
    witnesses: dict[str, int] = {}
    runs: int = 0

    @property
    def operations(self) -> int:
        """How many operations were carried out and checked; what was not tried is not counted."""
        return sum(count for (_, kind), count in self.outcomes.items() if kind != "not tried")

    def add(self, other: "Tally") -> None:
        """Count what another tally counted too."""
        _add(self.outcomes, other.outcomes)
        _add(self.witnesses, other.witnesses)
        self.runs += other.runs


def _add(total: dict[Any, int], more: dict[Any, int]) -> None:
    for key, count in more.items():
        total[key] = total.get(key, 0) + count


class Failure(msgspec.Struct):
    """A trace whose last operation is the one that went wrong, and how."""

    trace: Trace
    rule: str
    message: str
    block: int | None = None

    @property
    def index(self) -> int:
        """The index of the operation that went wrong; SETTING_UP when there is none."""
        return len(self.trace.operations) - 1


def kind_of(outcome: Outcome | None) -> str:
    """The column of the outcome table."""
    if outcome is None:
        return "not tried"
    if isinstance(outcome, Done):
        return "ok"
    return "out of blocks" if isinstance(outcome, OutOfBlocks) else "rejected"


def run(
    trace: Trace,
    factory: Factory,
    tally: Tally | None = None,
    before_step: Callable[[int], None] | None = None,
    make_memory: MakeMemory = ListMemory,
    before_drain: Callable[[Trace], None] | None = None,
) -> Failure | None:
    """Carry out a trace; the result is its first failure, the trace cut there, or None.

    With `before_drain`, which is told the longer trace, everything ends after it and the whole pool
    is taken.
    """
    counted: Counter[tuple[str, str]] = Counter()
    index = SETTING_UP
    lockstep = None
    try:
        lockstep = start(factory, trace, make_memory)
        judged = Judged(lockstep, trace)
        index = 0
        while index < len(judged.trace.operations):
            if before_step is not None:
                before_step(index)
            counted[judged.trace.operations[index].verb, kind_of(judged.step(index))] += 1
            index += 1
            if index == len(trace.operations) and before_drain is not None:
                judged.trace = extended(trace, drain(lockstep.reference))
                before_drain(judged.trace)
        lockstep.memory.finish()
    except Violation as violation:
        failed = judged.trace if lockstep else trace
        return Failure(cut(failed, index), violation.rule, violation.message, violation.block)
    finally:
        if tally is not None:
            seen = lockstep.witnessed if lockstep else {}
            tally.add(Tally(dict(counted), dict(seen), 1))
    return None


def start(factory: Factory, trace: Trace, make_memory: MakeMemory = ListMemory) -> Lockstep:
    """Set up an empty pool on both sides; an allocator that cannot be made is a Violation.

    A factory may bring the memory to run on: its `make_memory`.
    """
    try:
        adapter = factory(trace.config)
    except (Exception, SystemExit) as error:
        said = f"the allocator cannot be made with {trace.config}: {type(error).__name__}: {error}"
        raise Violation("exception", said) from error
    if not hasattr(adapter, "config"):
        adapter.config = trace.config
    kind = GroupedLockstep if "groups" in adapter.options else Lockstep
    return kind(adapter, getattr(factory, "make_memory", make_memory))


class Judged:
    """Lockstep along a trace, its expected outcomes included.

    They are compared until the first operation that was not tried: from there on the allocator is
    in another state than the file speaks of.
    """

    def __init__(self, lockstep: Lockstep, trace: Trace) -> None:
        self.lockstep = lockstep
        self.trace = trace
        self._compares = bool(trace.expected) and lockstep.adapter.headroom == 0

    def step(self, index: int) -> Outcome | None:
        """Carry out the index-th operation, with every check."""
        operation = self.trace.operations[index]
        outcome = self.lockstep.step(operation)
        self._compares = self._compares and outcome is not None
        if self._compares:
            assert outcome is not None
            actual = Expected.of(outcome, len(self.lockstep.reference.takeable()))
            if actual != self.trace.expected[index]:
                said = f"gave {_in_words(actual)}, and the file says {_in_words(self.trace.expected[index])}"
                raise Violation(EXPECTED_OUTCOME, said)
        return outcome


def extended(trace: Trace, more: Iterable[Operation]) -> Trace:
    """The trace and more operations."""
    operations = [*trace.operations, *more]
    return msgspec.structs.replace(trace, operations=operations, expected=[])


def cut(trace: Trace, index: int) -> Trace:
    """The trace up to and with an operation."""
    expected = trace.expected[: index + 1]
    operations = trace.operations[: index + 1]
    return msgspec.structs.replace(trace, operations=operations, expected=expected)


def with_expected(trace: Trace, factory: Factory) -> Trace:
    """The trace with the outcome and the free blocks of every operation filled in."""
    lockstep = start(factory, trace)
    expected = []
    for operation in trace.operations:
        outcome = lockstep.step(operation)
        if outcome is None:
            raise ValueError(f"{operation} is misuse that this allocator does not reject")
        expected.append(Expected.of(outcome, len(lockstep.reference.takeable())))
    return msgspec.structs.replace(trace, expected=expected)


def _in_words(expected: Expected) -> str:
    reason = f" ({expected.reason})" if expected.reason else ""
    refused = f", refused {', '.join(expected.refused)}" if expected.refused else ""
    return f"{expected.outcome}{reason}{refused}, {expected.free} blocks free"
