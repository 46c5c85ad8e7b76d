"""Transfers: blocks pinned while a worker reads or writes them, until the last acknowledgement."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from numpy.typing import ArrayLike

from kvoracle.impl.admission import Admission
from kvoracle.impl.chains import Prompt
from kvoracle.impl.contents import as_count, as_whole
from kvoracle.impl.errors import BadCall
from kvoracle.impl.generations import Generations
from kvoracle.impl.growth import Growth
from kvoracle.impl.ids import Ids


@dataclass(slots=True)
class _Arrival:
    """What a transfer in writes: the prompt of a row, in the life that it was begun for."""

    row: int
    life: int
    prompt: Prompt


@dataclass(slots=True)
class _Transfer:
    """One transfer; of a pin, `workers` is 0.  It ends by itself at tick `deadline`."""

    blocks: Ids
    generation: int
    workers: int = 0
    deadline: int | None = None
    arrival: _Arrival | None = None
    acknowledged: set[int] = field(default_factory=set)


class Transfers:
    """The transfers of one allocator, the oldest first."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.requests = admission.requests
        self.pool = admission.pool
        self.tables = admission.tables
        self.chains = admission.chains
        self.generations = Generations()
        self.clock = 0
        self.by_name: dict[str, _Transfer] = {}

    def pin(self, request: str, name: str) -> Ids:
        """Begin a transfer that reads every block of a request until `unpin`."""
        return self._begin_reading(request, name, 0, 0).blocks.copy()

    def unpin(self, name: str) -> None:
        """End a transfer that `pin` began."""
        transfer = self.by_name.get(name)
        if transfer is None:
            raise BadCall("unknown transfer", name)
        if transfer.workers:
            raise BadCall("wrong kind of transfer", name)
        self._end(name)

    def send(self, request: str, name: str, workers: int, lease: int) -> int:
        """Begin a transfer that reads every block of a request until every worker is done."""
        workers, lease = _checked(workers, lease)
        return self._begin_reading(request, name, workers, lease).generation

    def receive(
        self,
        request: str,
        prompt: ArrayLike,
        name: str,
        workers: int,
        lease: int,
        extra_keys: Mapping[str, str],
    ) -> Growth:
        """Begin a request whose tokens, but for the hits, are written by every worker."""
        workers, lease = _checked(workers, lease)
        self.requests.check_new(request)
        self._check_new(name)
        found = self.admission.find(request, prompt, extra_keys)
        row = self.admission.begin(request, found)
        self.admission.count(found)
        growth = self.admission.growth(row, found)
        self.tables.lengths[row] = growth.hit
        self.tables.reserved[row] = found.length - growth.hit
        self.tables.waiting[row] = 1
        self.chains.begin_with_hit(row, found)
        arrival = _Arrival(row, int(self.tables.lives[row]), found)
        written = self.tables.table(row)[len(found.hit) :].copy()
        self._begin(name, written, workers, lease, arrival)
        return growth

    def acknowledge(self, name: str, worker: int, generation: int) -> None:
        """One worker is done; the last one ends the transfer."""
        if not self.generations.was_given(name, generation):
            raise BadCall("unknown transfer", name)
        if generation != self.generations.latest(name):
            raise BadCall("stale handle", name)
        transfer = self.by_name.get(name)
        if transfer is None:
            raise BadCall("unknown transfer", name)
        if not transfer.workers:
            raise BadCall("wrong kind of transfer", name)
        worker = as_whole(worker, "a worker")
        if not 0 <= worker < transfer.workers:
            raise BadCall("unknown worker", name)
        if worker in transfer.acknowledged:
            raise BadCall("already acknowledged", name)
        transfer.acknowledged.add(worker)
        if len(transfer.acknowledged) == transfer.workers:
            self._end(name)
            self._arrive(transfer)

    def tick(self) -> None:
        """Advance the clock, and end the transfers whose lease is over."""
        self.clock += 1
        over = [name for name, transfer in self.by_name.items() if self._is_over(transfer)]
        for name in over:
            arrival = self._end(name).arrival
            if arrival is not None and self._is_awaited(arrival):
                self.tables.waiting[arrival.row] = 0

    def _begin_reading(self, request: str, name: str, workers: int, lease: int) -> _Transfer:
        row = self.requests.row(request)
        self.requests.check_unreserved(row)
        self._check_new(name)
        blocks = self.tables.table(row).copy()
        if len(blocks) == 0:
            raise BadCall("nothing to pin", request)
        self.tables.suspect[row] = 1
        return self._begin(name, blocks, workers, lease)

    def _begin(
        self, name: str, blocks: Ids, workers: int, lease: int, arrival: _Arrival | None = None
    ) -> _Transfer:
        deadline = self.clock + lease if lease else None
        transfer = _Transfer(blocks, self.generations.give(name), workers, deadline, arrival)
        self.by_name[name] = transfer
        self.pool.add_pin(blocks)
        return transfer

    def _check_new(self, name: str) -> None:
        if name in self.by_name:
            raise BadCall("duplicate transfer", name)

    def _end(self, name: str) -> _Transfer:
        transfer = self.by_name.pop(name)
        self.pool.drop_pin(transfer.blocks)
        return transfer

    def _arrive(self, transfer: _Transfer) -> None:
        """What the transfer wrote is there, if its request still is."""
        arrival = transfer.arrival
        if arrival is not None and self._is_awaited(arrival):
            self.tables.waiting[arrival.row] = 0
            self.tables.reserved[arrival.row] = 0
            self.tables.lengths[arrival.row] = arrival.prompt.length
            self.chains.write_prompt(arrival.row, arrival.prompt)

    def _is_over(self, transfer: _Transfer) -> bool:
        return transfer.deadline is not None and transfer.deadline <= self.clock

    def _is_awaited(self, arrival: _Arrival) -> bool:
        return int(self.tables.lives[arrival.row]) == arrival.life


def _checked(workers: int, lease: int) -> tuple[int, int]:
    return as_count(workers, 1, "the number of workers"), as_count(lease, 0, "a lease")
