"""This project's own optimized allocator."""

from collections.abc import Mapping, Sequence
from dataclasses import fields

from kvoracle import impl
from kvoracle.model.adapters.base import NO_KEYS, Adapter
from kvoracle.model.operations import REASONS, Done, Outcome, OutOfBlocks, Rejected
from kvoracle.model.trace import Configuration

NEVER_GIVEN = 0
COUNTS = [field.name for field in fields(impl.Statistics) if field.name != "usage"]


class ImplAdapter(Adapter):
    """`kvoracle.impl.PagedAllocator`: single-request verbs and batches on one pool."""

    refuses = REASONS
    extra_keys = frozenset({"adapter", "salt", "image"})
    options = frozenset({"watermark", "max_model_len", "match_unit"})
    reuses_in_order = True
    allocator_class: type[impl.PagedAllocator] = impl.PagedAllocator

    def __init__(self, config: Configuration) -> None:
        super().__init__(config)
        self.allocator = self.allocator_class(
            config.blocks,
            config.block_size,
            prefix_cache=config.prefix_cache,
            watermark=config.watermark,
            max_model_len=config.max_model_len,
            match_unit=config.match_unit,
        )
        self._begun: dict[str, list[int]] = {}

    def outcome_of(self, error: Exception) -> Outcome | None:
        if isinstance(error, impl.BadCall):
            return Rejected(error.reason)
        return OutOfBlocks() if isinstance(error, impl.OutOfBlocks) else None

    def create(self, request: str) -> None:
        self.allocator.create(request)

    def admit(
        self, request: str, prompt: Sequence[int], extra_keys: Mapping[str, str] = NO_KEYS
    ) -> Outcome:
        return _grown(request, self.allocator.admit(request, prompt, extra_keys))

    def would_hit(
        self,
        request: str,  # noqa: ARG002
        prompt: Sequence[int],
        extra_keys: Mapping[str, str] = NO_KEYS,
    ) -> tuple[int, int] | None:
        """None where the admission would be rejected."""
        try:
            return self.allocator.would_hit(prompt, extra_keys)
        except impl.BadCall:
            return None

    def look_up(
        self, request: str, prompt: Sequence[int], extra_keys: Mapping[str, str] = NO_KEYS
    ) -> Outcome:
        return Done(hit=self.allocator.look_up(request, prompt, extra_keys))

    def use(self, request: str) -> Outcome:
        return _grown(request, self.allocator.use(request))

    def cancel(self, request: str) -> None:
        self.allocator.cancel(request)

    def append(self, request: str, tokens: Sequence[int]) -> Outcome:
        return _grown(request, self.allocator.append(request, tokens))

    def append_each(self, requests: Sequence[str], tokens: Sequence[int]) -> Outcome:
        return batch_outcome(requests, self.allocator.append_batch(requests, tokens))

    def can_append(self, request: str, count: int) -> bool | None:
        """Whether an append of so many tokens would find room; None where it would be rejected."""
        try:
            return self.allocator.can_append(request, count)
        except impl.BadCall:
            return None

    def reserve(self, request: str, count: int) -> Outcome:
        return Done(copies=self.allocator.reserve(request, count).copies)

    def commit(self, request: str, tokens: Sequence[int]) -> Outcome:
        return _grown(request, self.allocator.commit(request, tokens))

    def trim(self, request: str) -> None:
        self.allocator.trim(request)

    def begin_step(self, step: str, requests: Sequence[str], tokens: Sequence[int]) -> Outcome:
        return batch_outcome(requests, self.allocator.begin_step(step, requests, tokens))

    def end_step(self, step: str) -> None:
        self.allocator.end_step(step)

    def fail_step(self, step: str) -> None:
        self.allocator.fail_step(step)

    def fork(self, parent: str, child: str) -> None:
        self.allocator.fork(parent, child)

    def pin(self, request: str, transfer: str) -> None:
        self.allocator.pin(request, transfer)
        self._note_begun(transfer)

    def unpin(self, transfer: str) -> None:
        self.allocator.unpin(transfer)

    def send(self, request: str, transfer: str, workers: int, lease: int) -> None:
        self.allocator.send(request, transfer, workers, lease)
        self._note_begun(transfer)

    def receive(
        self,
        request: str,
        prompt: Sequence[int],
        transfer: str,
        workers: int,
        lease: int,
        extra_keys: Mapping[str, str] = NO_KEYS,
    ) -> Outcome:
        growth = self.allocator.receive(request, prompt, transfer, workers, lease, extra_keys)
        self._note_begun(transfer)
        return _grown(request, growth)

    def acknowledge(self, transfer: str, worker: int, life: int) -> None:
        """`life` counts back from the latest transfer of that name, which is 0."""
        begun = self._begun.get(transfer, [])
        generation = begun[-1 - life] if life < len(begun) else NEVER_GIVEN
        self.allocator.acknowledge(transfer, worker, generation)

    def tick(self) -> None:
        self.allocator.tick()

    def release(self, request: str) -> None:
        self.allocator.release(request)

    def release_each(self, requests: Sequence[str]) -> None:
        self.allocator.release_batch(requests)

    def preempt(self, request: str) -> None:
        self.allocator.preempt(request)

    def resume(self, request: str) -> Outcome:
        return _grown(request, self.allocator.resume(request))

    def evict(self, request: str, first: int) -> None:
        self.allocator.evict(request, first)

    def change_weights(self) -> None:
        self.allocator.change_weights()

    def reset(self) -> None:
        self.allocator.reset_prefix_cache()

    def table(self, request: str) -> Sequence[int]:
        table: list[int] = self.allocator.table(request).tolist()
        return table

    def free_blocks(self) -> int:
        return self.allocator.num_free

    def holders(self) -> dict[int, int]:
        pool = self.allocator.pool
        counts = (pool.owners + pool.pins + pool.holds).tolist()
        return {block: count for block, count in enumerate(counts) if count != 0}

    def generations(self) -> dict[int, int]:
        """Block id to how often it was taken."""
        return dict(enumerate(self.allocator.generations.tolist()))

    def statistics(self) -> dict[str, int]:
        """What the allocator counts, by name."""
        counted = self.allocator.statistics()
        return {name: getattr(counted, name) for name in COUNTS}

    def _note_begun(self, transfer: str) -> None:
        self._begun.setdefault(transfer, []).append(self.allocator.generation_of(transfer))


def _grown(request: str, growth: impl.Growth) -> Outcome:
    return Done(copies=growth.copies, slots={request: growth.slots.tolist()}, hit=growth.hit)


def batch_outcome(requests: Sequence[str], growth: impl.BatchGrowth) -> Outcome:
    """What a batch did, by request."""
    slots = dict(zip(requests, growth.slots.tolist(), strict=True))
    return Done(
        copies=growth.copies,
        slots={request: [slot] for request, slot in slots.items() if slot >= 0},
        refused=[request for request, slot in slots.items() if slot < 0],
    )
