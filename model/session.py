"""The part of a campaign that one process does: its budget, its tally, and a pulse for its supervisor."""

import time
from collections.abc import Callable
from multiprocessing.sharedctypes import RawArray, RawValue
from typing import Any

import msgspec

from kvoracle.model.run import SETTING_UP, Tally, cut
from kvoracle.model.trace import Trace, parse

REPORT_EVERY_SECONDS = 0.25
_BOX_BYTES = 1 << 20


class Pulse:
    """Shared memory between a process and its supervisor.

    The process writes the trace it is about to run and, before each operation, its index; when it
    dies or hangs, the supervisor reads there what it was doing.
    """

    def __init__(self) -> None:
        self._beats = RawArray("q", 2)
        self._box: Any = RawArray("c", _BOX_BYTES)
        self._length = RawValue("q", 0)
        self._stop = RawValue("b", 0)

    def begin(self, trace: Trace) -> None:
        """Note the trace that is about to run; one too large for the box leaves it empty."""
        text = msgspec.json.encode(trace)
        self._beats[1] = SETTING_UP
        self._length.value = 0
        if len(text) < _BOX_BYTES:
            memoryview(self._box).cast("B")[: len(text)] = text
            self._length.value = len(text)

    def beat(self, index: int) -> None:
        """Note the operation that is about to run."""
        self._beats[0] += 1
        self._beats[1] = index

    @property
    def beats(self) -> int:
        """Changes as long as the process gets somewhere."""
        return int(self._beats[0])

    def last_words(self) -> Trace | None:
        """The trace of the process up to and with the operation it was at."""
        if self._length.value == 0:
            return None
        text = bytes(self._box[: self._length.value])
        return cut(parse(text, "the trace of a dead process"), int(self._beats[1]))

    def ask_to_stop(self) -> None:
        """Ask the process to end after its current run."""
        self._stop.value = 1

    @property
    def is_asked_to_stop(self) -> bool:
        """Whether the supervisor wants the process to end."""
        return bool(self._stop.value)


class Session:
    """A budget of operations or of seconds, and what was done of it."""

    def __init__(
        self,
        operations_max: int | None = None,
        seconds_max: float | None = None,
        pulse: Pulse | None = None,
        report: Callable[[Tally], None] | None = None,
    ) -> None:
        self.tally = Tally()
        self._operations_max = operations_max
        self._deadline = None if seconds_max is None else time.monotonic() + seconds_max
        self._pulse = pulse or Pulse()
        self._report = report
        self._reported = time.monotonic()

    def is_over(self) -> bool:
        """Whether the budget is used up; asked between runs."""
        now = time.monotonic()
        if self._report is not None and now - self._reported > REPORT_EVERY_SECONDS:
            self._report(self.tally)
            self._reported = now
        if self._deadline is not None and now >= self._deadline:
            return True
        if self._operations_max is not None and self.tally.operations >= self._operations_max:
            return True
        return self._pulse.is_asked_to_stop

    def begin(self, trace: Trace) -> None:
        """A run is about to start."""
        self._pulse.begin(trace)

    def beat(self, index: int) -> None:
        """An operation is about to run."""
        self._pulse.beat(index)

    def begin_and_beat(self, trace: Trace) -> None:
        """The last operation of a trace that is made as it goes is about to run."""
        self._pulse.begin(trace)
        self._pulse.beat(len(trace.operations) - 1)
