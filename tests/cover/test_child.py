"""Allocators in a process of their own: what crashes or hangs is a failure like any other."""

import faulthandler
import multiprocessing
import os
import re
import signal
import sys
import time

import pytest

from kvoracle.model.adapters.impl import ImplAdapter
from kvoracle.model.child import HANG_SECONDS, ChildError, run_isolated
from kvoracle.model.operations import Append, Create, Release
from kvoracle.model.registry import target_of
from kvoracle.model.run import SETTING_UP, run
from kvoracle.model.trace import Configuration, Expected, Trace

OPERATIONS = [Create("a"), Append("a", (1,)), Append("a", (2,)), Release("a")]
TRACE = Trace(Configuration(4, 2), OPERATIONS)


class FailsOnTheSecondAppend(ImplAdapter):
    appends = 0

    def append(self, request, tokens):
        self.appends += 1
        if self.appends == 2:
            self.fail()
        return super().append(request, tokens)

    def fail(self):
        raise RuntimeError("the second append")


class IsKilled(FailsOnTheSecondAppend):
    def fail(self):
        os.kill(os.getpid(), signal.SIGKILL)


class BreaksMemory(FailsOnTheSecondAppend):
    def fail(self):
        faulthandler.disable()
        os.kill(os.getpid(), signal.SIGSEGV)


class Aborts(FailsOnTheSecondAppend):
    def fail(self):
        faulthandler.disable()
        os.abort()


class IsStoppedByARealTimeSignal(FailsOnTheSecondAppend):
    def fail(self):
        os.kill(os.getpid(), signal.SIGRTMIN + 6)


class Leaves(FailsOnTheSecondAppend):
    def fail(self):
        os._exit(3)


class LeavesInPeace(FailsOnTheSecondAppend):
    def fail(self):
        os._exit(0)


class Exits(FailsOnTheSecondAppend):
    def fail(self):
        sys.exit(3)


class Sleeps(FailsOnTheSecondAppend):
    def fail(self):
        time.sleep(60)


class Spins(FailsOnTheSecondAppend):
    def fail(self):
        while True:
            pass


class SleepsThroughSignals(FailsOnTheSecondAppend):
    def fail(self):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)


class IsSlow(ImplAdapter):
    """Every append takes a while."""

    def append(self, request, tokens):
        time.sleep(0.1)
        return super().append(request, tokens)


class LeavesWhileItIsMade(ImplAdapter):
    def __init__(self, config):
        os._exit(3)


def isolated(adapter, trace=TRACE, hang_seconds=HANG_SECONDS):
    return run_isolated(trace, target_of("it", adapter), hang_seconds)


@pytest.fixture(autouse=True)
def no_child_is_left():
    yield
    assert multiprocessing.active_children() == []


def test_a_right_allocator_passes():
    assert isolated(ImplAdapter) is None


def test_a_failure_is_what_it_is_without_a_child():
    failure = isolated(FailsOnTheSecondAppend)

    assert failure == run(TRACE, FailsOnTheSecondAppend)
    assert failure.rule == "exception"
    assert failure.trace.operations == OPERATIONS[:3]


@pytest.mark.parametrize(
    ("adapter", "how"),
    [
        (IsKilled, "SIGKILL"),
        (BreaksMemory, "SIGSEGV"),
        (Aborts, "SIGABRT"),
        (Leaves, "exit code 3"),
        (LeavesInPeace, "exit code 0"),
    ],
)
def test_a_crash_is_a_failure_of_the_operation_that_was_running(adapter, how):
    failure = isolated(adapter)

    assert (failure.rule, failure.index, failure.block) == ("crash", 2, None)
    assert failure.message == f"the allocator ended the process ({how})"
    assert failure.trace == Trace(TRACE.config, OPERATIONS[:3])


@pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="no real-time signals here")
def test_a_crash_by_a_signal_without_a_name_is_a_failure():
    assert isolated(IsStoppedByARealTimeSignal).rule == "crash"


def test_an_exit_is_an_exception_and_no_crash():
    failure = isolated(Exits)

    assert (failure.rule, failure.index) == ("exception", 2)
    assert re.fullmatch(
        r"the allocator raised SystemExit: 3 \(test_child\.py, line \d+\)", failure.message
    )


@pytest.mark.parametrize("adapter", [Sleeps, Spins, SleepsThroughSignals])
def test_a_hang_is_a_failure_of_the_operation_that_was_running(adapter):
    started = time.monotonic()

    failure = isolated(adapter, hang_seconds=0.3)

    assert time.monotonic() - started < 10
    assert (failure.rule, failure.index, failure.block) == ("hang", 2, None)
    assert failure.message == "the allocator did not answer within 0.3 seconds"
    assert failure.trace == Trace(TRACE.config, OPERATIONS[:3])


def test_an_allocator_that_is_slow_and_gets_somewhere_does_not_hang():
    operations = [Create("a"), *[Append("a", (token,)) for token in range(15)]]

    assert isolated(IsSlow, Trace(Configuration(4, 4), operations), hang_seconds=1.0) is None


def test_a_crash_while_the_allocator_is_made_is_a_failure_before_any_operation():
    failure = isolated(LeavesWhileItIsMade)

    assert (failure.rule, failure.index) == ("crash", SETTING_UP)


def test_what_a_file_expects_is_cut_with_its_operations():
    expected = [Expected("ok", 4), Expected("ok", 3), Expected("ok", 3), Expected("ok", 4)]

    failure = isolated(Leaves, Trace(TRACE.config, OPERATIONS, expected=expected))

    assert failure.trace.expected == expected[:3]


def test_a_child_that_fails_itself_is_an_error_with_its_traceback():
    """No allocator is to blame where there is no target at all."""
    with pytest.raises(ChildError, match="Traceback") as caught:
        run_isolated(TRACE, None, HANG_SECONDS)

    assert "'NoneType' object has no attribute 'factory'" in str(caught.value)
