"""Steps in flight: what a step reads and writes is held until it has ended, whatever ends before it.

A step gives each of its requests room for one token.  Nothing is written or published until the
step ends; until then a request has two lengths, the settled one and the one that its steps will
have written.  Copies that a step needs run with it, so it holds their sources too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kvoracle.reference.records import Hold, Life, Rejected
from kvoracle.reference.reservations import ReservingKV

STEPS_MAX = 3


@dataclass
class Step:
    """Tokens to be written, each to a request in one of its lives, and every page concerned."""

    writes: list[tuple[str, Life, object]]
    pages: list[int]


class SteppedKV(ReservingKV):
    """A `ReservingKV` with up to three steps in flight, which end in the order of their beginning."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.steps: dict[str, Step] = {}

    def begin_step(self, step: str, requests: Sequence[str], tokens: Sequence[object]) -> list[str]:
        """Room for one token a request, in order; the result names those that found no page."""
        # check
        if step in self.steps:
            raise Rejected("duplicate step", step)
        if len(self.steps) == STEPS_MAX:
            raise Rejected("too many steps in flight", step)
        self._check_batch(requests)
        for request in requests:
            if self.lives[request].waiting:
                raise Rejected("tokens on their way", request)
        if len(requests) != len(tokens):
            raise Rejected("one token for each request", ", ".join(requests))
        for request in requests:
            self._check_length(request, self.length(request) + self.lives[request].in_flight + 1)
        # take
        known_copies = len(self.copied)
        refused = [request for request in requests if not self._has_room_for_one_more(request)]
        # record
        writes = [
            (request, self.lives[request], token)
            for request, token in zip(requests, tokens, strict=True)
            if request not in refused
        ]
        pages = [page for request, _, _ in writes for page in self.tables[request]]
        pages += [source for source, _ in self.copied[known_copies:]]
        self.steps[step] = Step(writes, pages)
        for page in pages:
            self.pages[page].holds.add(("step", step))
        # result
        return refused

    def end_step(self, step: str) -> None:
        """The oldest step has run: its tokens are written, for requests that are still there."""
        # check
        self._step(step)
        if step != next(iter(self.steps)):
            raise Rejected("an earlier step is in flight", step)
        # record
        for request, life, token in self.steps[step].writes:
            if self.lives.get(request) is life:
                life.in_flight -= 1
                self._write(request, [token])
        self._end_step(step)

    def fail_step(self, step: str) -> None:
        """A step failed, and with it those begun after it: nothing is written, the room stays."""
        # check
        self._step(step)
        # record
        begun = list(self.steps)
        for failed in reversed(begun[begun.index(step) :]):
            for _, life, _ in self.steps[failed].writes:
                life.in_flight -= 1
            self._end_step(failed)

    def holds(self) -> Iterator[tuple[Hold, Sequence[int]]]:
        yield from super().holds()
        for name, step in self.steps.items():
            yield ("step", name), step.pages

    def _has_room_for_one_more(self, request: str) -> bool:
        life = self.lives[request]
        try:
            self._make_room(request, life.in_flight + 1)
        except MemoryError:
            return False
        life.in_flight += 1
        return True

    def _step(self, step: str) -> None:
        if step not in self.steps:
            raise Rejected("unknown step", step)

    def _end_step(self, step: str) -> None:
        pages = self.steps.pop(step).pages
        for page in pages:
            self.pages[page].holds.discard(("step", step))
        self._give_back(pages)
