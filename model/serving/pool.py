"""An allocator as the scheduler uses it: every call timed, every token stored and read back."""

from collections.abc import Callable, Sequence
from time import thread_time_ns
from typing import Any, NamedTuple

from kvoracle.model.adapters.base import Adapter, call
from kvoracle.model.lockstep import Violation
from kvoracle.model.operations import Done, Outcome, OutOfBlocks
from kvoracle.model.serving.contents import Contents
from kvoracle.model.serving.request import Text

Call = Callable[..., Outcome]
"""Carries out an operation, given by its verb and fields."""


class Found(NamedTuple):
    """What a prompt would hit: tokens, and how many of the whole blocks that hold them are idle."""

    tokens: int = 0
    idle: int = 0


NOT_SAID = Found()
"""Where the allocator does not say, nothing is counted on."""


def directly(adapter: Adapter) -> Call:
    """Calls of the allocator itself; what it raises is a Violation."""
    return lambda verb, *fields: asked(
        f"asked to {verb} {fields[0]!r}", call, adapter, verb, *fields
    )


def asked(about: str, report: Callable[..., Any], *fields: object) -> Any:
    """What the allocator answers; what it raises instead is a Violation."""
    try:
        return report(*fields)
    except (Exception, SystemExit) as error:
        said = f"{about} it raised {type(error).__name__}: {error}"
        raise Violation("exception", said) from error


class Pool:
    """One pool; `nanoseconds` of processor time were spent in its allocator.

    Without `contents` nothing is stored, because whoever carries out the calls does that.
    """

    def __init__(self, adapter: Adapter, carry_out: Call, contents: Contents | None) -> None:
        self.adapter = adapter
        self.config = adapter.config
        self.contents = contents
        self.nanoseconds = 0
        self.finds_prefixes = self.config.prefix_cache and hasattr(adapter, "admit")
        self._grows_each = hasattr(adapter, "append_each")
        self._carry_out = carry_out
        self._loads: dict[str, tuple[Sequence[int], Text[int]]] = {}

    # Questions

    @property
    def free(self) -> int:
        """How many blocks can be taken."""
        free: int = asked("asked for its free blocks", self.adapter.free_blocks)
        return free

    def table(self, request: str) -> Sequence[int]:
        """The blocks of a request, in order."""
        table: Sequence[int] = asked("asked for a table", self.adapter.table, request)
        return table

    def would_hit(self, request: str, text: "Text[int]") -> Found:
        """What a prompt would find."""
        if not self.finds_prefixes:
            return NOT_SAID
        began = thread_time_ns()
        found = asked("asked what a prompt would hit", self.adapter.would_hit, request, text)
        self.nanoseconds += thread_time_ns() - began
        return NOT_SAID if found is None else Found(*found)

    # Calls

    def begin(self, request: str, tokens: "Text[int]") -> int | None:
        """A new request with so much of its prompt; the tokens that were hit, None for no room."""
        if not self.finds_prefixes:
            self._done("create", request)
            if self.grow(request, 0, tokens):
                return 0
            self._done("release", request)
            return None
        outcome = self._done("admit", request, tokens, {})
        if outcome is None:
            return None
        hit = outcome.hit or 0
        self._store(request, hit, tokens[hit:], outcome)
        return hit

    def load(self, request: str, tokens: "Text[int]", transfer: str) -> int | None:
        """A new request whose prompt, but for what it hits, a transfer writes; as `begin`."""
        outcome = self._done("receive", request, tokens, transfer, 1, 0, {})
        if outcome is None:
            return None
        hit = outcome.hit or 0
        if self.contents is not None:
            rest = tokens[hit:]
            self._loads[transfer] = (self._slots(request, hit, len(rest), outcome), rest)
        return hit

    def loaded(self, transfer: str) -> None:
        """The transfer has written everything."""
        if self.contents is not None:
            self.contents.write(*self._loads.pop(transfer))
        self._done("acknowledge", transfer, 0, 0)

    def grow(self, request: str, length: int, tokens: "Text[int]") -> bool:
        """More tokens for a request that has `length`; whether there was room."""
        outcome = self._done("append", request, tokens)
        if outcome is not None:
            self._store(request, length, tokens, outcome)
        return outcome is not None

    def grow_each(self, requests: list[str], lengths: list[int], tokens: list[int]) -> set[str]:
        """One more token for each of several requests; those that found no room."""
        if not self._grows_each:
            grown = zip(requests, lengths, tokens, strict=True)
            return {name for name, n, token in grown if not self.grow(name, n, Text("q", [token]))}
        outcome = self._done("append_each", requests, tokens)
        if outcome is None:
            return set(requests)
        if self.contents is None:
            return set(outcome.refused)
        self.contents.copy(outcome.copies)
        slots: list[int] = []
        written: list[int] = []
        refused = set(outcome.refused)
        for name, length, token in zip(requests, lengths, tokens, strict=True):
            if name not in refused:
                slots += outcome.slots.get(name) or self._slots_by_table(name, length, 1)
                written.append(token)
        self.contents.write(slots, written)
        return refused

    def release(self, request: str) -> None:
        """A request ends."""
        self._done("release", request)

    def pin(self, request: str, transfer: str) -> None:
        """A transfer begins to read a request."""
        self._done("pin", request, transfer)

    def unpin(self, transfer: str) -> None:
        """It has ended."""
        self._done("unpin", transfer)

    def check(self, request: str, text: "Text[int]") -> None:
        """A Violation where a request does not read back its text."""
        if self.contents is not None:
            self.contents.check(request, self.table(request), text)

    # How

    def _done(self, verb: str, *fields: object) -> Done | None:
        """The outcome; None for no room.  Anything else is a Violation: nothing here is misuse."""
        began = thread_time_ns()
        outcome = self._carry_out(verb, *fields)
        self.nanoseconds += thread_time_ns() - began
        if isinstance(outcome, Done):
            return outcome
        if isinstance(outcome, OutOfBlocks):
            return None
        raise Violation("outcome", f"{verb} of {fields[0]!r} was rejected: {outcome.reason}")

    def _store(self, request: str, length: int, tokens: "Text[int]", outcome: Done) -> None:
        if self.contents is not None:
            self.contents.copy(outcome.copies)
            self.contents.write(self._slots(request, length, len(tokens), outcome), tokens)

    def _slots(self, request: str, length: int, count: int, outcome: Done) -> Sequence[int]:
        slots = outcome.slots.get(request)
        return self._slots_by_table(request, length, count) if slots is None else slots

    def _slots_by_table(self, request: str, length: int, count: int) -> Sequence[int]:
        """Where the allocator names no slots, its table does."""
        table, size = self.table(request), self.config.block_size
        if len(table) * size < length + count:
            said = f"the table of {request!r} has {len(table)} blocks: too few for {length + count}"
            raise Violation("table", f"{said} tokens")
        return [table[p // size] * size + p % size for p in range(length, length + count)]
