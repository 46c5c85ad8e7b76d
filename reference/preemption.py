"""Preemption: a request gives its pages back and resumes later on what is still there of them."""

from typing import Any

from kvoracle.reference.records import ExtraKeys, Rejected
from kvoracle.reference.transfers import TransferringKV


class PreemptingKV(TransferringKV):
    """A `TransferringKV` that remembers what a preempted request had written."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.preempted: dict[str, tuple[tuple[object, ...], ExtraKeys]] = {}

    def preempt(self, request: str) -> None:
        """End a request and remember its tokens; what was published stays findable."""
        # check
        self._table(request)
        if self.lives[request].waiting:
            raise Rejected("tokens on their way", request)
        if self.length(request) == 0:
            raise Rejected("no tokens", request)
        # record
        self.preempted[request] = (tuple(self.read(request)), self.lives[request].extra_keys)
        self.counted["preemptions"] += 1
        self._give_back(self._end(request))

    def resume(self, request: str) -> int:
        """Begin a preempted request anew; the result is how many of its tokens were hit."""
        # check
        if request not in self.preempted:
            raise Rejected("not preempted", request)
        tokens, extra_keys = self.preempted[request]
        # take
        hit = self._begin_on_hits(request, tokens, extra_keys)
        # record
        del self.preempted[request]
        self._write(request, tokens[hit:])
        # result
        return hit

    def release(self, request: str) -> None:
        """As in `PagedKV`; a preempted request is forgotten."""
        # record
        if self.preempted.pop(request, None) is None:
            super().release(request)

    def _check_new(self, request: str) -> None:
        super()._check_new(request)
        if request in self.preempted:
            raise Rejected("duplicate request", request)
