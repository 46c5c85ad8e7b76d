"""Lockstep for groups of layers: one table a group, windows, and one agreed hit.

The allocator reports the tables of a request one after the other, and gives the slots of new tokens
in the same way; slots say which blocks were taken, since a table no longer names those that left a
window before the call was over.  All groups share one KV memory, as they share the bytes of the pool:
what one group writes into a block another no longer finds there.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import cast

from kvoracle.model.adapters.base import Adapter
from kvoracle.model.lockstep import Lockstep, MakeMemory, Stamps, stamp_in_words
from kvoracle.model.memory import ListMemory, Stamp
from kvoracle.model.movement import Plan, Write
from kvoracle.model.operations import Done, Operation
from kvoracle.model.witnesses.groups import NULL_HIT, REUSED
from kvoracle.reference import BrokenInvariant, Oracle
from kvoracle.reference.group_records import NULL_BLOCK, Choices, Group, Place
from kvoracle.reference.groups import GroupedKV


class GroupedLockstep(Lockstep, Choices):
    """As `Lockstep`, with `GroupedKV` for the reference, which asks it what the allocator chose."""

    def __init__(self, adapter: Adapter, make_memory: MakeMemory = ListMemory) -> None:
        super().__init__(adapter, make_memory)
        self._group_of: dict[int, int] = {}
        """The group that took each block last."""
        self._hit = 0

    def _make_reference(self) -> Oracle:
        self.kv = GroupedKV(
            self.config.blocks,
            [Group(group.block_size, group.window) for group in self.config.layer_groups],
            choices=self,
            caching=self.config.prefix_cache,
            finds_longest=self.adapter.finds_longest_hits,
            value_of=attrgetter("token"),
        )
        # Whoever looks at the reference from outside asks it for what both kinds have.
        return cast(Oracle, self.kv)

    def _can_grow(self, request: str) -> bool:
        return request in self.kv.tables

    # What the allocator chose

    def hit(self, request: str, lengths: list[int]) -> int:
        """The reference has room: now the allocator is called.  How much of a prompt it hit."""
        hit = self._check_granted(request).hit
        if hit is not None and hit not in lengths:
            said = f"says that {hit} tokens of the prompt are written"
            right = " or ".join(map(str, lengths[-3:]))
            raise self._violation("hit", f"{said}: {right} are, in all groups")
        self._hit = lengths[-1] if hit is None else hit
        if any(group.first_seen(self._hit) > 0 for group in self.kv.groups):
            self.witnessed[NULL_HIT] += 1
        return self._hit

    def hit_blocks(self, request: str, candidates: Mapping[Place, list[int]]) -> list[int]:
        """What the tables name.  A hit that left its window in the same call they no longer name: it
        is any block with that content that was not taken for something else."""
        tables = self._tables(request, self._length_after(request))
        taken = {block for _, _, block in self._places_written(request)}
        named = [tables[group][position] for group, position in candidates]
        return [
            block or next((page for page in pages if page not in taken), pages[0])
            for block, pages in zip(named, candidates.values(), strict=True)
        ]

    def fresh_blocks(
        self, request: str, places: list[Place], _takeable: Sequence[int]
    ) -> list[int]:
        """What the slots of new tokens are in."""
        self._check_granted(request)
        written = {
            (group, position): block for group, position, block in self._places_written(request)
        }
        for group, position in places:
            block = written[group, position]
            if self._group_of.setdefault(block, group) != group:
                self.witnessed[REUSED] += 1
            self._group_of[block] = group
        return [written[place] for place in places]

    def _places_written(self, request: str) -> Iterator[tuple[int, int, int]]:
        """The group, position and block of each slot that the allocator gives a request."""
        begun = self.lists.sequences.get(request)
        first = self._hit if begun is None else len(begun)
        shares = self._group_slots(request, self._length_after(request) - first)
        for number, slots in enumerate(shares):
            size = self.kv.groups[number].block_size
            for position, slot in enumerate(slots, start=first):
                yield number, position // size, slot // size

    def _length_after(self, request: str) -> int:
        """What a request will hold after this call, which grows or begins it."""
        tokens = self._operation.writes().get(request)
        if tokens is None:  # it resumes
            return len(self.kv.preempted[request].tokens)
        return len(self.lists.sequences.get(request, ())) + len(tokens)

    def _group_slots(self, request: str, count: int) -> list[list[int]]:
        """The slots of so many new tokens of a request in each group."""
        assert isinstance(self.answer, Done)
        slots = self.answer.slots.get(request, [])
        if len(slots) != count * len(self.kv.groups):
            said = f"{len(slots)} slots for the {count} new tokens of {request!r}"
            raise self._violation("slots", f"{said} in {len(self.kv.groups)} groups")
        shares = [slots[first : first + count] for first in range(0, len(slots), count)]
        for group, share in zip(self.kv.groups, shares, strict=True):
            for slot in share:
                if slot // group.block_size not in self.kv.usable:
                    said = f"slot {slot} of {request!r}, in blocks of {group.block_size}"
                    raise self._violation("slots", f"{said}, is outside the pool")
        return shares

    def _tables(self, request: str, length: int) -> list[list[int]]:
        """The tables of a request of a length, as the allocator reports them one after the other."""
        entries = self._table(request)
        counts = [group.blocks(length) for group in self.kv.groups]
        if len(entries) != sum(counts):
            said = f"the tables of {request!r} are {entries} one after the other"
            raise self._violation("table", f"{said}: {counts} blocks are needed")
        ends = [sum(counts[: number + 1]) for number in range(len(counts))]
        return [entries[end - count : end] for end, count in zip(ends, counts, strict=True)]

    # What moves and what is checked

    def _stamp(self, operation: Operation) -> Stamps:
        return {
            request: tuple(
                Stamp(request, position, token, 0)
                for position, token in enumerate(
                    tokens, start=len(self.lists.sequences.get(request, ()))
                )
            )
            for request, tokens in operation.writes().items()
        }

    def _move(self, _operation: Operation, _stamped: Stamps, actual: Done, _hit: int) -> None:
        if actual.copies:
            raise self._violation("copy", f"orders the copies {actual.copies}: none is needed")
        for request, _, tokens in self.kv.written:
            stamps = cast(tuple[Stamp, ...], tokens)
            shares = self._group_slots(request, len(stamps))
            self.movement.carry_out(Plan((), list(self._writes(shares, stamps))))
        self.kv.written.clear()

    def _writes(self, shares: list[list[int]], stamps: Sequence[Stamp]) -> Iterator[Write]:
        for number, (group, slots) in enumerate(zip(self.kv.groups, shares, strict=True)):
            places = [divmod(slot, group.block_size) for slot in slots]
            physical = [block * self.config.block_size + offset for block, offset in places]
            yield Write(physical, [_of_group(number, stamp) for stamp in stamps])

    def _check(self) -> None:
        try:
            self.kv.check()
        except BrokenInvariant as error:
            raise self._violation("reference", str(error)) from error
        for request, expected in self.kv.tables.items():
            tables = self._tables(request, self.kv.length(request))
            if tables != expected:
                raise self._wrong_tables(request, tables, expected)
            self._check_contents(request)
            if [stamp.token for stamp in self.kv.read(request)] != self.lists.read(request):  # type: ignore[attr-defined]
                raise self._violation("reference", f"{request!r} differs from the list oracle")
        self._check_counts()

    def _check_contents(self, request: str) -> None:
        """What each group still sees of a request reads back as it was written."""
        for number, table in enumerate(self.kv.tables[request]):
            for block in table:
                if block == NULL_BLOCK:
                    continue
                right = [_of_group(number, s) for s in self.kv.pages[block].tokens]  # type: ignore[arg-type]
                found = self.memory.read(block)[: len(right)]
                if found != right:
                    position = table.index(block) * self.kv.groups[number].block_size
                    raise self._wrong_stamps(request, block, number, position, found, right)

    def _check_statistics(self) -> None:
        """The reference counts nothing for groups."""

    def _wrong_tables(
        self, request: str, tables: list[list[int]], expected: list[list[int]]
    ) -> Exception:
        said = f"the tables of {request!r} are {tables}: {expected} are right"
        right = {block for table in expected for block in table}
        wrong = (block for table in tables for block in table if block not in right)
        return self._violation("table", said, next(wrong, None))

    def _wrong_stamps(  # what reads wrong, and where
        self,
        request: str,
        block: int,
        group: int,
        first: int,
        found: Sequence[Stamp | None],
        right: Sequence[Stamp],
    ) -> Exception:
        offset = next(i for i, stamp in enumerate(right) if found[i] != stamp)
        said = f"{request!r} reads {_in_words(found[offset])} at position {first + offset}"
        where = f"group {group}, block {block}, offset {offset}"
        wanted = _in_words(right[offset])
        return self._violation("contents", f"{said} ({where}): {wanted} is right", block)


def _of_group(group: int, stamp: Stamp) -> Stamp:
    """A stamp as a group keeps it.  No weights change here, so the epoch tells groups apart."""
    return stamp._replace(epoch=group)


def _in_words(stamp: Stamp | None) -> str:
    group = f" in group {stamp.epoch}" if stamp else ""
    return f"{stamp_in_words(stamp)}{group}"
