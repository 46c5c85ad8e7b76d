"""An allocator as the scheduler uses it: every call timed, every token stored and read back.

A text is of identities; the allocator is told the tokens that they stand for, which many share.
"""

from collections.abc import Callable, Sequence
from time import thread_time_ns
from typing import Any, NamedTuple

import numpy as np

from kvoracle.model.adapters.base import Adapter, call
from kvoracle.model.foretelling import is_pair
from kvoracle.model.lockstep import Violation
from kvoracle.model.operations import Done, Outcome, OutOfBlocks, Rejected
from kvoracle.model.serving.contents import Contents
from kvoracle.model.serving.request import Text
from kvoracle.model.serving.texts import token_of, tokens_of

Call = Callable[..., Any]
"""Carries out an operation, given by its verb and fields."""
MESSAGE_MAX = 300


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
        raise Violation("exception", said[:MESSAGE_MAX]) from error


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
        free = asked("asked for its free blocks", self.adapter.free_blocks)
        if type(free) is not int:
            raise Violation("report", f"asked for its free blocks it says {free!r:.60}")
        return free

    @property
    def room(self) -> int:
        """How many are sure to be given."""
        return self.free - self.adapter.headroom

    @property
    def room_when_empty(self) -> int:
        """The same, of a pool in which nobody is."""
        return self.config.blocks - self.adapter.headroom

    def table(self, request: str) -> Sequence[int]:
        """The blocks of a request, in order."""
        table = asked(f"asked for the table of {request!r}", self.adapter.table, request)
        if not isinstance(table, Sequence) or not {*map(type, table)} <= {int}:
            raise Violation(
                "report", f"the table of {request!r} is {table!r:.60}: block ids are wanted"
            )
        return table

    def would_hit(self, request: str, text: "Text[int]") -> Found:
        """What a prompt would find."""
        if not self.finds_prefixes:
            return NOT_SAID
        began = thread_time_ns()
        about = f"asked what {request!r} would hit"
        found = asked(about, self.adapter.would_hit, request, tokens_of(text), {})
        self.nanoseconds += thread_time_ns() - began
        if not is_pair(found):
            raise Violation(
                "report", f"{about} it says {found!r:.60}: that is not {is_pair.__doc__}"
            )
        return NOT_SAID if found is None else Found(*found)

    # Calls

    def begin(self, request: str, text: "Text[int]", found: Found | None = None) -> int | None:
        """A new request with so much of its prompt; the tokens that were hit, None for no room.

        `found` is what it was said to hit, if that was asked; then there is room.
        """
        if not self.finds_prefixes:
            self._done("create", request)
            self.grow(request, 0, text)
            return 0
        outcome = self._done("admit", request, tokens_of(text), {})
        if outcome is None:
            self._check_refusal(request, found)
            return None
        hit = self._hit(request, text, found, outcome)
        self._store(request, hit, text[hit:], outcome)
        return hit

    def load(
        self, request: str, text: "Text[int]", transfer: str, found: Found | None = None
    ) -> int | None:
        """A new request whose prompt, but for what it hits, a transfer writes; as `begin`."""
        outcome = self._done("receive", request, tokens_of(text), transfer, 1, 0, {})
        if outcome is None:
            self._check_refusal(request, found)
            return None
        hit = self._hit(request, text, found, outcome)
        if self.contents is not None:
            rest = text[hit:]
            self._loads[transfer] = (self._slots(request, hit, len(rest), outcome), rest)
        return hit

    def loaded(self, transfer: str) -> None:
        """The transfer has written everything."""
        if self.contents is not None:
            self.contents.write(*self._loads.pop(transfer))
        self._done("acknowledge", transfer, 0, 0)

    def grow(self, request: str, length: int, text: "Text[int]") -> None:
        """More of its text for a request that has `length` of it, for which there is room."""
        outcome = self._done("append", request, tokens_of(text))
        if outcome is None:
            raise self._refusal(request)
        self._store(request, length, text, outcome)

    def grow_each(self, requests: list[str], lengths: list[int], text: list[int]) -> None:
        """One more token for each of several requests, for all of which there is room."""
        if not self._grows_each:
            for name, length, identity in zip(requests, lengths, text, strict=True):
                self.grow(name, length, Text("q", [identity]))
            return
        outcome = self._done("append_each", requests, list(map(token_of, text)))
        if outcome is None or outcome.refused:
            raise self._refusal(requests[0] if outcome is None else outcome.refused[0])
        if self.contents is None:
            return
        self.contents.copy(outcome.copies)
        slots: list[int] = []
        for name, length in zip(requests, lengths, strict=True):
            slots += outcome.slots.get(name) or self._slots_by_table(name, length, 1)
        self.contents.write(slots, text)

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
        outcome: Outcome = self._carry_out(verb, *fields)
        self.nanoseconds += thread_time_ns() - began
        if isinstance(outcome, Done):
            return outcome
        if isinstance(outcome, OutOfBlocks):
            return None
        if isinstance(outcome, Rejected):
            raise Violation("outcome", f"{verb} of {fields[0]!r} was rejected: {outcome.reason}")
        raise Violation("report", f"{verb} of {fields[0]!r} came to {outcome!r:.60}: no outcome")

    def _check_refusal(self, request: str, found: Found | None) -> None:
        if found is not None:
            raise self._refusal(request)

    def _refusal(self, request: str) -> Violation:
        said = (
            f"{request!r} is refused, though what it takes is within the {self.room} blocks of room"
        )
        return Violation("outcome", said)

    def _hit(self, request: str, text: "Text[int]", found: Found | None, outcome: Done) -> int:
        told = NOT_SAID if found is None else found
        hit = told.tokens if outcome.hit is None else outcome.hit
        if type(hit) is not int or not 0 <= hit < len(text):
            said = (
                f"{request!r} begins with {len(text)} tokens and is said to hit {hit!r:.60} of them"
            )
            raise Violation("hit", f"{said}: the last is always computed")
        if told is not NOT_SAID and hit != told.tokens:
            raise Violation(
                "predicate", f"{request!r} would hit {told.tokens} tokens, and hit {hit}"
            )
        return hit

    def _store(self, request: str, length: int, text: "Text[int]", outcome: Done) -> None:
        if self.contents is not None:
            self.contents.copy(outcome.copies)
            self.contents.write(self._slots(request, length, len(text), outcome), text)

    def _slots(self, request: str, length: int, count: int, outcome: Done) -> Sequence[int]:
        slots = outcome.slots.get(request)
        return self._slots_by_table(request, length, count) if slots is None else slots

    def _slots_by_table(self, request: str, length: int, count: int) -> Sequence[int]:
        """Where the allocator names no slots, its table does."""
        about, size = f"asked for the table of {request!r}", self.config.block_size
        table = asked(about, self.adapter.table, request)
        if count == 1:
            block = asked(
                f"{about}, with a block for its token {length},", lambda: table[length // size]
            )
            return [block * size + length % size]
        positions = np.arange(length, length + count)
        blocks = asked(about, lambda: np.asarray(table, np.int64)[positions // size])
        slots: list[int] = (blocks * size + positions % size).tolist()
        return slots
