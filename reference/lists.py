"""The independent list oracle: what every request must read, with no notion of a block.

It shares nothing with `PagedKV` but the names of its operations, so that the two can disagree.
"""

from collections.abc import Sequence


class ListOracle:
    """Request name to the list of its tokens; operations that move no token do nothing here."""

    def __init__(self) -> None:
        self.sequences: dict[str, list[object]] = {}

    def create(self, request: str) -> None:
        self.sequences[request] = []

    def append(self, request: str, *tokens: object) -> None:
        self.sequences[request] = self.sequences.get(request, []) + list(tokens)

    def fork(self, parent: str, child: str) -> None:
        self.sequences[child] = list(self.sequences[parent])

    def pin(self, request: str, transfer: str) -> None:
        """A pin moves no token."""

    def unpin(self, transfer: str) -> None:
        """The end of a transfer moves no token."""

    def release(self, request: str) -> None:
        del self.sequences[request]

    def release_each(self, requests: Sequence[str]) -> None:
        for request in requests:
            self.release(request)

    def reset(self) -> None:
        """Forgetting what is published moves no token."""

    def read(self, request: str) -> list[object]:
        return self.sequences[request]
