"""Transfers that several workers acknowledge: out of the pool, and into it.

An acknowledgement may come late, twice, from nowhere, or from an earlier life of the transfer's
name; only one that is awaited counts.  A transfer with a lease ends by itself when its time is up,
and then nobody touches its pages any more.
"""

from collections.abc import Sequence
from typing import Any

from kvoracle.reference.records import Load, Rejected, Transfer, extra_keys_of
from kvoracle.reference.steps import SteppedKV


class TransferringKV(SteppedKV):
    """A `SteppedKV` with transfers that are acknowledged, and a clock for their leases."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.begun: dict[str, int] = {}
        """How often each transfer's name was used."""
        self.time = 0

    def send(self, request: str, transfer: str, workers: int, lease: int) -> list[int]:
        """Begin a transfer out of every page of a request; `workers` workers will acknowledge it."""
        # check
        self._check_unreserved(request)
        self._check_new_transfer(transfer)
        if not self.tables[request]:
            raise Rejected("nothing to pin", request)
        # record
        self._begin_acknowledged(transfer, self.tables[request], workers, lease)
        # result
        return list(self.tables[request])

    def receive(
        self,
        request: str,
        *tokens: object,
        transfer: str,
        workers: int,
        lease: int,
        extra_keys: dict[str, str] | None = None,
    ) -> int:
        """Begin a request with a prompt whose tokens beyond its hits are transferred in.

        It waits until they have all arrived; until then nothing of them can be read or hit.
        """
        # check
        self._check_new(request)
        self._check_new_transfer(transfer)
        if not tokens:
            raise Rejected("no tokens", request)
        self._check_length(request, len(tokens))
        # take
        hit = self._begin_on_hits(request, tokens, extra_keys_of(extra_keys or {}))
        # record
        life = self.lives[request]
        life.waiting = True
        pages = self.tables[request][hit // self.block_size :]
        self._begin_acknowledged(transfer, pages, workers, lease)
        self.transfers[transfer].load = Load(request, life, tokens[hit:])
        # result
        return hit

    def acknowledge(self, transfer: str, worker: int, life: int) -> bool:
        """A worker says that it is done with a transfer, in the present life of its name (0) or in
        the one before (1); the result is whether a load has now arrived."""
        # check
        self._check_acknowledgement(transfer, worker, life)
        # record
        ended = self.transfers[transfer]
        ended.acknowledged.add(worker)
        if ended.acknowledged != ended.awaited:
            return False
        has_arrived = self._stop_waiting(ended.load)
        if ended.load is not None and has_arrived:
            self._write(ended.load.request, ended.load.tokens)
        self._end_transfer(transfer)
        # result
        return has_arrived

    def tick(self) -> list[str]:
        """Time passes; the result names the transfers whose lease has run out."""
        # record
        self.time += 1
        over = [name for name, one in self.transfers.items() if one.deadline == self.time]
        for name in over:
            self._stop_waiting(self.transfers[name].load)
            self._end_transfer(name)
        # result
        return over

    def _check_acknowledgement(self, transfer: str, worker: int, life: int) -> None:
        if self.begun.get(transfer, 0) <= life:
            raise Rejected("unknown transfer", transfer)
        if life > 0:
            raise Rejected("stale handle", transfer)
        if transfer not in self.transfers:
            raise Rejected("unknown transfer", transfer)
        if self.transfers[transfer].is_pin:
            raise Rejected("wrong kind of transfer", transfer)
        if worker not in self.transfers[transfer].awaited:
            raise Rejected("unknown worker", transfer)
        if worker in self.transfers[transfer].acknowledged:
            raise Rejected("already acknowledged", transfer)

    def _begin_acknowledged(
        self, transfer: str, pages: list[int], workers: int, lease: int
    ) -> None:
        begun = self._begin_transfer(transfer, pages)
        begun.awaited = set(range(workers))
        begun.deadline = self.time + lease if lease else None

    def _begin_transfer(self, transfer: str, pages: Sequence[int]) -> Transfer:
        self.begun[transfer] = self.begun.get(transfer, 0) + 1
        return super()._begin_transfer(transfer, pages)

    def _stop_waiting(self, load: Load | None) -> bool:
        """Whether the request of a load is still there; if so it no longer waits."""
        if load is None or self.lives.get(load.request) is not load.life:
            return False
        load.life.waiting = False
        return True
