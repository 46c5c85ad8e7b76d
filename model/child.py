"""A child process for allocators that may crash or hang: either becomes a failure like any other."""

import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from kvoracle.model.registry import Target
from kvoracle.model.run import Failure, run
from kvoracle.model.session import Pulse
from kvoracle.model.trace import Configuration, Trace

HANG_SECONDS = 10.0
"""An operation that takes longer than this hangs."""

Send = Callable[[Any], None]
Work = Callable[..., None]
_CONTEXT: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")


class Child:
    """A process running `work(send, pulse, *arguments)`, and what it sent."""

    def __init__(self, work: Work, *arguments: Any, hang_seconds: float = HANG_SECONDS) -> None:
        self.pulse = Pulse()
        self.hang_seconds = hang_seconds
        self.pipe, child_end = _CONTEXT.Pipe(duplex=False)
        self._process = _CONTEXT.Process(
            target=_main, args=(work, child_end, self.pulse, os.getpid(), arguments), daemon=True
        )
        self._process.start()
        child_end.close()
        self._beats_seen = self.pulse.beats
        self._beat_at = time.monotonic()
        self._is_silent = False
        self.is_running = True

    def messages(self) -> list[Any]:
        """What arrived since the last call; the process may have ended meanwhile."""
        arrived = []
        try:
            while self.is_running and not self._is_silent and self.pipe.poll():
                message = self.pipe.recv()
                if message == _GOODBYE:
                    self._end()
                else:
                    arrived.append(message)
        except (EOFError, OSError):
            self._is_silent = True
        return arrived

    def failure(self) -> Failure | None:
        """The crash or the hang of the process, if it had one; it is over then."""
        if not self.is_running:
            return None
        if self._is_silent:
            self._end()
            code = self._process.exitcode
            return self._last("crash", f"the allocator ended the process ({_how_it_ended(code)})")
        if self.pulse.beats != self._beats_seen:
            self._beats_seen = self.pulse.beats
            self._beat_at = time.monotonic()
        elif time.monotonic() - self._beat_at > self.hang_seconds:
            self.kill()
            said = f"the allocator did not answer within {self.hang_seconds:g} seconds"
            return self._last("hang", said)
        return None

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._end()

    def _end(self) -> None:
        self._process.join()
        self.is_running = False

    def _last(self, rule: str, message: str) -> Failure:
        trace = self.pulse.last_words() or Trace(Configuration(1, 1), [])
        return Failure(trace, rule, message)


def run_isolated(
    trace: Trace, target: Target, hang_seconds: float = HANG_SECONDS
) -> Failure | None:
    """Run a trace in a child process; a crash or a hang is a failure of its last operation."""
    child = Child(_run_once, trace, target, hang_seconds=hang_seconds)
    failure: Failure | None = None
    try:
        while child.is_running:
            child.pipe.poll(0.05)
            for message in child.messages():
                if isinstance(message, ChildError):
                    raise message
                failure = message
            failure = child.failure() or failure
    finally:
        if child.is_running:
            child.kill()
    return failure


def _run_once(send: Send, pulse: Pulse, trace: Trace, target: Target) -> None:
    pulse.begin(trace)
    send(run(trace, target.factory, before_step=pulse.beat))


_GOODBYE = "goodbye"


class ChildError(RuntimeError):
    """The process failed for a reason of its own: a defect of kvoracle."""


def _main(
    work: Work, pipe: Connection, pulse: Pulse, parent: int, arguments: tuple[Any, ...]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def send(message: Any) -> None:
        if os.getppid() != parent:
            os._exit(0)  # the supervisor is gone: nobody wants to know
        pipe.send(message)

    try:
        work(send, pulse, *arguments)
    except Exception:
        send(ChildError(traceback.format_exc()))
    send(_GOODBYE)
    sys.stdout.flush()
    os._exit(0)  # not waiting for threads that an allocator may have left behind


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    known = {signal.value: signal.name for signal in signal.Signals}
    return known.get(-code, f"signal {-code}")
