"""The independent list oracle: what every request must read, with no notion of a block.

It shares nothing with `PagedKV` but the names of its operations, so that the two can disagree.
"""

from collections.abc import Sequence
from typing import Any


class ListOracle:
    """Request name to the list of its tokens; operations that move no token do nothing here.

    A list stands for one life of its request: what is in flight names the list, not the request.
    """

    def __init__(self) -> None:
        self.sequences: dict[str, list[object]] = {}
        self.aside: dict[str, list[object]] = {}
        """What was looked up or preempted, by the request that it is for."""
        self.steps: dict[str, list[tuple[list[object], object]]] = {}
        self.loads: dict[str, tuple[list[object], list[object]]] = {}

    def create(self, request: str) -> None:
        self.sequences[request] = []

    def admit(self, request: str, *tokens: object, **_: Any) -> None:
        self.sequences[request] = list(tokens)

    def look_up(self, request: str, *tokens: object, **_: Any) -> None:
        self.aside[request] = list(tokens)

    def use(self, request: str) -> None:
        self.sequences[request] = self.aside.pop(request)

    def cancel(self, request: str) -> None:
        del self.aside[request]

    def append(self, request: str, *tokens: object) -> None:
        self.sequences[request] += tokens

    def append_each(self, requests: Sequence[str], tokens: Sequence[object]) -> None:
        for request, token in zip(requests, tokens, strict=True):
            self.append(request, token)

    def reserve(self, request: str, count: int) -> None:
        """Room holds no token."""

    def commit(self, request: str, *tokens: object) -> None:
        self.append(request, *tokens)

    def trim(self, request: str) -> None:
        """Room holds no token."""

    def fork(self, parent: str, child: str) -> None:
        self.sequences[child] = list(self.sequences[parent])

    def begin_step(self, step: str, requests: Sequence[str], tokens: Sequence[object]) -> None:
        lives = [self.sequences[request] for request in requests]
        self.steps[step] = list(zip(lives, tokens, strict=True))

    def end_step(self, step: str) -> None:
        for sequence, token in self.steps.pop(step):
            sequence.append(token)

    def fail_step(self, step: str) -> None:
        begun = list(self.steps)
        for failed in begun[begun.index(step) :]:
            del self.steps[failed]

    def pin(self, request: str, transfer: str) -> None:
        """A pin moves no token."""

    def unpin(self, transfer: str) -> None:
        """The end of a transfer out moves no token."""

    def send(self, request: str, transfer: str, workers: int, lease: int) -> None:
        """A transfer out moves no token here."""

    def receive(self, request: str, *tokens: object, transfer: str, **_: Any) -> None:
        self.sequences[request] = []
        self.loads[transfer] = (self.sequences[request], list(tokens))

    def find(self, transfer: str, count: int) -> None:
        """So many tokens of a load are there already."""
        sequence, tokens = self.loads[transfer]
        sequence += tokens[:count]

    def arrive(self, transfer: str) -> None:
        """The rest of a load has arrived."""
        sequence, tokens = self.loads.pop(transfer)
        sequence += tokens[len(sequence) :]

    def tick(self) -> None:
        """Time moves no token."""

    def release(self, request: str) -> None:
        if self.aside.pop(request, None) is None:
            del self.sequences[request]

    def release_each(self, requests: Sequence[str]) -> None:
        for request in requests:
            self.release(request)

    def preempt(self, request: str) -> None:
        self.aside[request] = list(self.sequences.pop(request))

    def resume(self, request: str) -> None:
        self.sequences[request] = self.aside.pop(request)

    def evict(self, request: str, first: int) -> None:
        """Forgetting what is published moves no token."""

    def reset(self) -> None:
        """Forgetting what is published moves no token."""

    def change_weights(self) -> None:
        """Forgetting what is published moves no token."""

    def read(self, request: str) -> list[object]:
        return self.sequences[request]
