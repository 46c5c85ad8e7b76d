"""Mutants of transfers: pins, acknowledgements, leases, what arrives and for whom."""

from dataclasses import replace
from typing import Any

import numpy as np

from kvoracle.impl import PagedAllocator
from kvoracle.impl.admission import Admission
from kvoracle.impl.chains import Prompt
from kvoracle.impl.errors import BadCall
from kvoracle.impl.ids import Ids, Rows
from kvoracle.impl.requests import Requests
from kvoracle.impl.statistics import Statistics
from kvoracle.impl.transfers import Transfers
from kvoracle.model.mutants.base import mutant
from kvoracle.model.mutants.core import RoomyPool

# Pins


class _PinsTwice(Transfers):
    def send(self, request: str, name: str, workers: int, lease: int) -> int:
        generation = super().send(request, name, workers, lease)
        self.pool.add_pin(self.by_name[name].blocks)
        return generation


@mutant("LK07")
class SendCountsAnExtraPin(PagedAllocator):
    """A send pins its blocks twice, and its end drops one pin."""

    transfers_class = _PinsTwice


class _PinsNothing(Transfers):
    def _begin(self, name: str, blocks: Ids, workers: int, lease: int, arrival: Any = None) -> Any:
        pinned = blocks if arrival is None else blocks[:0]
        return super()._begin(name, pinned, workers, lease, arrival)


@mutant("UAF16")
class ReceiveWithoutPins(PagedAllocator):
    """The blocks that a transfer writes are not pinned."""

    transfers_class = _PinsNothing


class _NotesHits(Admission):
    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.borrowed: dict[int, int] = {}

    def begin(self, name: str, prompt: Prompt) -> int:
        row = super().begin(name, prompt)
        self.borrowed[int(self.tables.lives[row])] = len(prompt.hit)
        return row


class _MissesHits(Transfers):
    admission: _NotesHits

    def send(self, request: str, name: str, workers: int, lease: int) -> int:
        generation = super().send(request, name, workers, lease)
        life, transfer = int(self.tables.lives[self.requests.row(request)]), self.by_name[name]
        borrowed = self.admission.borrowed.get(life, 0)
        self.pool.drop_pin(transfer.blocks[:borrowed])
        transfer.blocks = transfer.blocks[borrowed:]
        return generation


@mutant("UAF17")
class SendMissesHits(PagedAllocator):
    """A send knows the blocks that its request took, and pins none that were taken for another."""

    admission_class = _NotesHits
    transfers_class = _MissesHits


class _PinsTheFirstDuplicate(Transfers):
    def _begin(self, name: str, blocks: Ids, workers: int, lease: int, arrival: Any = None) -> Any:
        known = [self._first(block) for block in blocks.tolist()]
        return super()._begin(name, np.array(known, np.int32), workers, lease, arrival)

    def _first(self, block: int) -> int:
        index = self.chains.index
        return index._blocks[index._keys[block]][0] if block in index._keys else block


@mutant("RC07")
class PinsTheFirstOfDuplicates(PagedAllocator):
    """A transfer pins the block that is hit for a content and not the one that it reads."""

    transfers_class = _PinsTheFirstDuplicate


class _EvictsPinned(RoomyPool):
    def drop_owner_of(self, block: int) -> None:
        self.owners[block] -= 1
        self._give_back_unheld(np.array([block], np.int32))

    def _unheld(self, ids: Ids | Rows) -> Any:
        held = self.owners[ids] | self.holds[ids]
        return (held | self.pins[ids] * ~self.published[ids]) == 0


@mutant("DF08")
class PinnedBlockEvicted(PagedAllocator):
    """A published block that only a transfer pins can be taken, and is given back again by its end."""

    pool_class = _EvictsPinned


class _SendsWhileLoading(Requests):
    def check_unreserved(self, row: int) -> None:
        if not self.tables.waiting[row]:
            super().check_unreserved(row)


@mutant("SH12")
class SentWhileItIsReceived(PagedAllocator):
    """A transfer reads blocks that another still writes."""

    requests_class = _SendsWhileLoading


class _TakesAnyName(Transfers):
    def _check_new(self, name: str) -> None:
        """Any name is taken."""


@mutant("BI02")
class SecondTransferOfAName(PagedAllocator):
    """A transfer begins under a name that is in flight, and the first is lost."""

    transfers_class = _TakesAnyName


@mutant("RC09")
class SharersToldByReferences(PagedAllocator):
    """The requests that share a tail are taken to be as many as its owners, pins and holds."""

    def statistics(self) -> Statistics:
        right, waste = super().statistics(), 0.0
        for row in self.requests.by_name.values():
            length = int(self.tables.lengths[row])
            if length % self.block_size:
                tail = self.tables.ids[row, length // self.block_size]
                owners = int(self.pool.owners[tail])
                references = owners + int(self.pool.pins[tail] + self.pool.holds[tail])
                waste += -length % self.block_size * (1 / references - 1 / owners)
        return replace(right, tail_waste=int(right.tail_waste + waste))


# Ends


class _EndsTheOldest(Transfers):
    def _end(self, name: str) -> Any:
        oldest = next(iter(self.by_name.values()))
        transfer = self.by_name.pop(name)
        self.pool.drop_pin(oldest.blocks)
        return transfer


@mutant("LK09")
class EndUnpinsAnother(PagedAllocator):
    """The end of a transfer drops the pins of the one that began first."""

    transfers_class = _EndsTheOldest


class _ForgetsOwners(Transfers):
    def acknowledge(self, name: str, worker: int, generation: int) -> None:
        transfer = self.by_name.get(name)
        is_send = transfer is not None and transfer.workers and transfer.arrival is None
        if is_send and not self.pool.owners[transfer.blocks].any():  # type: ignore[union-attr]
            raise BadCall("unknown transfer", name)
        super().acknowledge(name, worker, generation)


@mutant("LK08")
class SendForgottenWithItsRequest(PagedAllocator):
    """A send is forgotten when its request ends, and its acknowledgements are for nobody."""

    transfers_class = _ForgetsOwners


class _DropsLate(Transfers):
    def _end(self, name: str) -> Any:
        arrival = self.by_name[name].arrival
        if arrival is None or self._is_awaited(arrival):
            return super()._end(name)
        return self.by_name.pop(name)


@mutant("LK12")
class CompletionOfAnAbortedLoadDropped(PagedAllocator):
    """The end of a receive is ignored when its request is gone, and its blocks stay pinned."""

    transfers_class = _DropsLate


@mutant("UAF02")
class AbortEndsTheLoad(PagedAllocator):
    """A request that is released while it waits for a transfer takes the pins of that with it."""

    def release(self, request: str) -> None:
        row = self.requests.by_name.get(request)
        transfers = self.transfers.by_name.values()
        loads = [t.blocks for t in transfers if t.arrival and t.arrival.row == row]
        super().release(request)
        for blocks in loads:
            self.pool.drop_pin(blocks)


class _UnpinsTheTable(Transfers):
    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.read: dict[str, str] = {}

    def _begin_reading(self, request: str, name: str, workers: int, lease: int) -> Any:
        transfer = super()._begin_reading(request, name, workers, lease)
        self.read[name] = request
        return transfer

    def _end(self, name: str) -> Any:
        row = self.requests.by_name.get(self.read.pop(name, ""))
        if row is not None:
            self.by_name[name].blocks = self.tables.table(row).copy()
        return super()._end(name)


@mutant("PR03")
class EndUnpinsTheTableOfNow(PagedAllocator):
    """The end of a transfer unpins what its request has now, and not what was pinned."""

    transfers_class = _UnpinsTheTable


# Arrivals


class _ArrivesForTheRow(Transfers):
    def _is_awaited(self, arrival: Any) -> bool:
        return bool(self.tables.lives[arrival.row])


@mutant("PR03")
class ArrivalForAnEarlierLife(PagedAllocator):
    """What arrives for a request that is gone is written for the next one in its row."""

    transfers_class = _ArrivesForTheRow


class _PublishesTheGone(Transfers):
    def _end(self, name: str) -> Any:
        transfer = self.by_name[name]
        arrival, units = transfer.arrival, self.chains.units
        if arrival is not None and not self._is_awaited(arrival):
            keys = arrival.prompt.keys[units - 1 :: units][len(arrival.prompt.hit) :]
            blocks = transfer.blocks[: len(keys)]
            self.chains._publish([arrival.prompt.root.epoch] * len(keys), blocks, keys)
        return super()._end(name)


@mutant("SH11")
class ArrivalForNobodyPublished(PagedAllocator):
    """What arrives for a request that is gone is published all the same."""

    transfers_class = _PublishesTheGone


@mutant("SH06")
class ReleasedBeforeWrittenYetPublished(PagedAllocator):
    """The blocks of a request that is released before its tokens arrive are published."""

    def release(self, request: str) -> None:
        row = self.requests.by_name.get(request)
        for transfer in self.transfers.by_name.values():
            arrival = transfer.arrival
            if arrival and arrival.row == row and self.transfers._is_awaited(arrival):
                self.chains.write_prompt(row, arrival.prompt)
        super().release(request)


class _EndsWithTheFirst(Transfers):
    def acknowledge(self, name: str, worker: int, generation: int) -> None:
        super().acknowledge(name, worker, generation)
        if name in self.by_name and self.by_name[name].arrival:
            self._arrive(self._end(name))


@mutant("SH08")
class FirstWorkerCompletesTheLoad(PagedAllocator):
    """A receive is over when the first of its workers is done, and the others still write."""

    transfers_class = _EndsWithTheFirst


class _ArrivesWhenOver(Transfers):
    def tick(self) -> None:
        before = dict(self.by_name)
        super().tick()
        for name, transfer in before.items():
            if name not in self.by_name:
                self._arrive(transfer)


@mutant("AT07")
class FailedLoadTakenAsDone(PagedAllocator):
    """What a receive was to write counts as written when its lease is over."""

    transfers_class = _ArrivesWhenOver


class _TakesTheLate(Transfers):
    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.over: dict[str, Any] = {}

    def tick(self) -> None:
        before = dict(self.by_name)
        super().tick()
        self.over |= {name: t for name, t in before.items() if name not in self.by_name}

    def acknowledge(self, name: str, worker: int, generation: int) -> None:
        late = self.over.pop(name, None)
        if late is None or late.generation != generation:
            super().acknowledge(name, worker, generation)
        else:
            self._arrive(late)


@mutant("UAF13")
class WordAfterTheLeaseAccepted(PagedAllocator):
    """A worker that is done after the lease is believed, although the blocks were given back."""

    transfers_class = _TakesTheLate
