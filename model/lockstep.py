"""One trace on the reference and on an allocator together, over one KV memory.

For each operation the reference is asked first.  Where it needs blocks it asks back which ones, and
that is the moment at which the allocator is called: the reference is told the allocator's choice and
judges it.  Then stamps move through the allocator's own tables and slots, every sequence is read
back, and every count is compared.  The first difference is a `Violation`.
"""

import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from kvoracle.model import witnesses
from kvoracle.model.adapters.base import Adapter, perform
from kvoracle.model.foretelling import WouldHit, is_pair
from kvoracle.model.memory import KVMemory, ListMemory, Stamp
from kvoracle.model.movement import Movement, Mover, Plan, Write
from kvoracle.model.operations import (
    Admit,
    Append,
    Done,
    Operation,
    Outcome,
    OutOfBlocks,
    Rejected,
)
from kvoracle.model.oracle import oracle_of
from kvoracle.model.trace import Configuration, outcome_in_words
from kvoracle.reference import BrokenInvariant, ListOracle, Oracle, WrongChoice
from kvoracle.reference import Rejected as ReferenceRejected
from kvoracle.reference.invariants import describe

Factory = Callable[[Configuration], Adapter]
MakeMemory = Callable[[int, int], KVMemory]
Stamps = dict[str, tuple[Stamp, ...]]
TEXT_LENGTH_MAX = 500
BLOCK_MAX = 2**63 - 1


class Violation(Exception):
    """The allocator did what the reference does not allow.

    `rule` names the kind of difference; shrinking keeps it.  `block` is the block concerned, if one is.
    """

    def __init__(self, rule: str, message: str, block: int | None = None) -> None:
        printable = "".join(c if c.isprintable() else " " for c in message)
        one_line = " ".join(printable.split()).encode("utf-8", "backslashreplace").decode()
        super().__init__(one_line)
        self.rule = rule
        self.message = one_line
        self.block = block


class Lockstep:
    """The reference, the list oracle, an allocator and a KV memory, moved together.

    `step` carries out one operation and returns its outcome, or None when it was not tried: the
    allocator has no such operation, or it is misuse that the allocator does not promise to reject.
    """

    def __init__(self, adapter: Adapter, make_memory: MakeMemory = ListMemory) -> None:
        self.adapter = adapter
        self.config = config = adapter.config
        self.reference = self._make_reference()
        self.lists = ListOracle()
        self.memory = make_memory(adapter.first_block + config.blocks, config.block_size)
        self.movement = Movement(self.memory)
        self.witnessed: Counter[str] = Counter()
        self._operation: Operation
        self.answer: Outcome | None = None
        self._why = ""
        self._foreseen: list[str] = []

    def step(self, operation: Operation) -> Outcome | None:
        """Carry out one operation on both sides and check everything."""
        if not self.adapter.can_try(operation):
            return None
        self._operation = operation
        self.answer = None
        stamped = self._stamp(operation)
        foretold, would_hit = self._foretold(operation), self._would_hit(operation)
        expected = self._expect(operation, stamped)
        if isinstance(expected, Rejected) and expected.reason not in self.adapter.refuses:
            return None
        actual = self._call_allocator()
        self._compare_outcomes(expected, actual)
        self._compare_foretold(foretold, actual)
        if isinstance(expected, Rejected):
            self.witnessed.update(witnesses.REJECTIONS.keys() & self._foreseen)
        if isinstance(expected, Done):
            assert isinstance(actual, Done)
            operation.retell(self.lists, self._result)
            self._compare_would_hit(would_hit, expected.hit or 0)
            self._move(operation, stamped, actual, expected.hit or 0)
        self._check()
        return actual

    def _make_reference(self) -> Oracle:
        """The reference, which asks this lockstep what the allocator chose."""
        return oracle_of(
            self.config,
            first_page=self.adapter.first_block,
            choose=self._choose,
            in_order=self.adapter.reuses_in_order,
            choose_source=self._choose_source,
            max_length=self.adapter.max_model_len or None,
            value_of=attrgetter("token"),
        )

    def _foretold(self, operation: Operation) -> bool | None:
        """What the allocator says beforehand: whether an append will find room."""
        if not isinstance(operation, Append) or not operation.tokens:
            return None
        if not self._can_grow(operation.request):
            return None
        request, count = operation.request, len(operation.tokens)
        foretold: bool | None = self._report(_is_flag, self.adapter.can_append, request, count)
        return foretold

    def _would_hit(self, operation: Operation) -> WouldHit | None:
        """What the allocator says beforehand that a prompt will hit."""
        if not isinstance(operation, Admit) or not operation.prompt:
            return None
        told = self._report(is_pair, self.adapter.would_hit, *operation.arguments())
        return None if told is None else WouldHit(told, frozenset(self.reference.idle()))

    def _compare_would_hit(self, foretold: WouldHit | None, hit: int) -> None:
        if foretold is None:
            return
        request = self._operation.request  # type: ignore[attr-defined]
        whole = self.reference.tables[request][: hit // self.config.block_size]
        said = foretold.contradiction(hit, whole)
        if said is not None:
            raise self._violation("predicate", said)

    def _can_grow(self, request: str) -> bool:
        """Whether an append to a request is no misuse."""
        life = self.reference.lives.get(request)
        return life is not None and not (life.waiting or life.in_flight)

    def _compare_foretold(self, foretold: bool | None, actual: Outcome) -> None:
        if foretold is None or isinstance(actual, Rejected):
            return
        if foretold != isinstance(actual, Done):
            said = "yes" if foretold else "no"
            did = outcome_in_words(actual)
            raise self._violation(
                "predicate", f"asked whether there is room it said {said}, yet: {did}"
            )

    def _stamp(self, operation: Operation) -> Stamps:
        epoch = self.reference.epoch + 1
        return {
            request: tuple(
                Stamp(request, position, token, epoch)
                for position, token in enumerate(tokens, start=self._length_foreseen(request))
            )
            for request, tokens in operation.writes().items()
        }

    def _length_foreseen(self, request: str) -> int:
        """What a request will hold once everything in flight is written."""
        if request not in self.lists.sequences:
            return 0
        return len(self.lists.read(request)) + self.reference.lives[request].in_flight

    def _expect(self, operation: Operation, stamped: Stamps) -> Outcome:
        """What the reference does, told by `_choose` which blocks the allocator took."""
        foreseen = self._foreseen = self._foresee(operation)
        try:
            self._result = operation.perform(self.reference, stamped)
        except ReferenceRejected as error:
            return Rejected(error.reason)
        except MemoryError as error:
            self.witnessed.update(foreseen)
            self._why = f": {error}" if str(error) else ""
            return OutOfBlocks()
        except WrongChoice as error:
            raise self._violation(error.rule, str(error), error.page) from None
        self.witnessed.update(foreseen)
        refused, hit = operation.refused(self._result), operation.hit(self._result)
        return Done(refused=refused, hit=hit)

    def _foresee(self, operation: Operation) -> list[str]:
        try:
            return witnesses.about_to_happen(self.reference, operation)
        except (KeyError, ReferenceRejected):
            return []

    def _choose(self, request: str, positions: list[int]) -> Sequence[int]:
        """The reference has room and asks which blocks the allocator took: now it is called."""
        self._check_granted(request)
        table = self._table(request)
        if len(table) <= positions[-1]:
            raise self._violation(
                "table",
                f"the table of {request!r} is {table}: {positions[-1] + 1} blocks are needed",
            )
        self._check_copied(request, positions[0], table)
        return [table[position] for position in positions]

    def _choose_source(self, request: str, pages: list[int]) -> int:
        """A hit ends inside one of these blocks, and the allocator has copied one of them."""
        copies = self._check_granted(request).copies
        if not copies:
            said = f"{request!r} begins inside a block and orders no copy: one of {pages} is needed"
            raise self._violation("copy", said)
        return copies[0][0]

    def _check_granted(self, request: str) -> Done:
        """What the allocator answers where the reference has room."""
        actual = self._call_allocator()
        need, free = self.reference.demand
        if not isinstance(actual, Done) or request in actual.refused:
            may_refuse = self.reference.may_refuse or free - need < self.adapter.headroom
            if may_refuse and not isinstance(actual, Rejected):
                raise MemoryError
            did = outcome_in_words(actual)
            raise self._violation("outcome", f"{need} of {free} free blocks needed, yet: {did}")
        return actual

    def _check_copied(self, request: str, position: int, table: list[int]) -> None:
        before = self.reference.tables.get(request, [])
        if position < len(before) and table[position] == before[position]:
            tail = describe(self.reference, table[position])
            said = f"{request!r} is about to write {tail} in place: it must be copied first"
            raise self._violation("copy", said, table[position])

    def _call_allocator(self) -> Outcome:
        if self.answer is None:
            try:
                answer = perform(self.adapter, self._operation)
            except (Exception, SystemExit) as error:
                raise self._violation("exception", _raised(error)) from error
            if not isinstance(answer, Outcome):
                raise self._violation(
                    "outcome", f"answered {_text(repr, answer)}, which is no outcome"
                )
            self.answer = answer if answer == Done() else self._well_formed(answer)
        return self.answer

    def _well_formed(self, answer: Outcome) -> Outcome:
        try:
            formed = msgspec.convert(msgspec.to_builtins(answer), type(answer))
        except (TypeError, ValueError, RecursionError) as error:
            said = f"answered {_text(repr, answer)}, whose shape is wrong: {error}"
            raise self._violation("outcome", said) from None
        if isinstance(formed, Done):
            stray = formed.slots.keys() - set(self._operation.grows())
            if stray:
                said = f"gave slots to {sorted(stray)}, which the call does not grow"
                raise self._violation("slots", said)
        return formed

    def _report(
        self, is_right: Callable[[Any], bool], report: Callable[..., Any], *about: Any
    ) -> Any:
        """Let the allocator report; what it raises, and a report of another shape, is a verdict."""
        try:
            answer = report(*about)
        except (Exception, SystemExit) as error:
            said = f"{_raised(error)} when asked for {_asked(report, about)}"
            raise self._violation("exception", said) from error
        if not is_right(answer):
            said = f"asked for {_asked(report, about)}, the allocator says {_text(repr, answer)}"
            raise self._violation("report", f"{said}: that is not {is_right.__doc__}")
        return answer

    def _table(self, request: str) -> list[int]:
        table: list[int] = self._report(_is_table, self._listed_table, request)
        return table

    def _listed_table(self, request: str) -> list[int]:
        return list(self.adapter.table(request))

    def _compare_outcomes(self, expected: Outcome, actual: Outcome) -> None:
        same = type(expected) is type(actual)
        if isinstance(expected, Done) and isinstance(actual, Done):
            same = expected.refused == actual.refused
            if same and actual.hit is not None and actual.hit != expected.hit:
                said = f"says that {actual.hit} tokens of the prompt are written"
                raise self._violation("hit", f"{said}: {expected.hit} are")
        if isinstance(expected, Rejected) and isinstance(actual, Rejected):
            same = expected.reason == actual.reason
        if not same:
            said, should = outcome_in_words(actual), outcome_in_words(expected)
            why = self._why if isinstance(expected, OutOfBlocks) else ""
            raise self._violation("outcome", f"answered {said!r}, and must answer {should!r}{why}")

    def _move(self, operation: Operation, stamped: Stamps, actual: Done, hit: int) -> None:
        """Copies first, then the new tokens, each where the allocator says; now or when they come."""
        self._check_copies(actual.copies)
        mover = operation.mover()
        if mover is not None:
            written = [
                (r, stamps[hit:]) for r, stamps in stamped.items() if r not in actual.refused
            ]
            self.movement.begin(mover, self._plan(actual, written), operation.copies_later)
        elif not operation.completes:
            written = [(r, stamps) for r, _, stamps in self.reference.written]  # type: ignore[misc]
            self.movement.carry_out(self._plan(actual, written))
        self.movement.settle(self._movers(), operation.completes)
        self.reference.copied.clear()
        self.reference.written.clear()

    def _movers(self) -> set[Mover]:
        steps, transfers = self.reference.steps, self.reference.transfers
        return {("step", name) for name in steps} | {("transfer", name) for name in transfers}

    def _check_copies(self, copies: list[tuple[int, int]]) -> None:
        for pair in copies:
            if pair not in self.reference.copied:
                right = self.reference.copied or "none"
                said = f"orders the copy {pair} (source, destination): {right} is needed"
                raise self._violation("copy", said, pair[1])

    def _plan(self, actual: Done, written: list[tuple[str, tuple[Stamp, ...]]]) -> Plan:
        writes = [
            Write(self._slots(request, stamps, actual.slots.get(request)), stamps)
            for request, stamps in written
        ]
        return Plan(actual.copies, writes)

    def _slots(
        self, request: str, stamps: Sequence[Stamp], slots: Sequence[int] | None
    ) -> Sequence[int]:
        if slots is None:
            slots = self._slots_by_table(request, stamps)
        if len(slots) != len(stamps):
            said = f"{len(slots)} slots for the {len(stamps)} new tokens of {request!r}"
            raise self._violation("slots", said)
        for slot in slots:
            if slot // self.config.block_size not in self.reference.usable:
                raise self._violation("slots", f"slot {slot} of {request!r} is outside the pool")
        return slots

    def _slots_by_table(self, request: str, stamps: Sequence[Stamp]) -> list[int]:
        table, size = self._table(request), self.config.block_size
        last = stamps[-1].position
        if len(table) * size <= last:
            said = f"the table of {request!r} is {table}: it has no room for {last + 1} tokens"
            raise self._violation("table", said)
        return [table[s.position // size] * size + s.position % size for s in stamps]

    def _check(self) -> None:
        """Everything, after every operation."""
        try:
            self.reference.check()
        except BrokenInvariant as error:
            raise self._violation("reference", str(error)) from error
        self._check_tables_and_contents()
        self._check_pinned_contents()
        self._check_counts()

    def _check_tables_and_contents(self) -> None:
        read, pages = self.memory.read, self.reference.pages
        unwritten = self.movement.unwritten()
        for request, expected in self.reference.tables.items():
            table = self._table(request)
            if table != expected:
                raise self._wrong_table(request, table, expected)
            tokens: list[object] = []
            for block in table:
                stamps = pages[block].tokens
                if block not in unwritten and read(block)[: len(stamps)] != stamps:
                    raise self._wrong_contents(request, block, table.index(block))
                tokens += [stamp.token for stamp in stamps]  # type: ignore[attr-defined]
            if tokens != self.lists.read(request):
                raise self._violation("reference", f"{request!r} differs from the list oracle")

    def _check_pinned_contents(self) -> None:
        for name, transfer in self.reference.transfers.items():
            for page, contents in zip(transfer.pages, transfer.contents, strict=True):
                if self.memory.read(page)[: len(contents)] != contents:
                    said = f"block {page} changed while transfer {name!r} reads it"
                    raise self._violation("pinned contents", said, page)

    def _check_counts(self) -> None:
        free = self._report(_is_count, self.adapter.free_blocks)
        right = len(self.reference.takeable())
        if free is not None and free != right:
            said = f"the allocator counts {free} free blocks: {right} are free"
            raise self._violation("free count", said)
        held = self.reference.pages.items()
        holders = {
            block: len(page.owners) + len(page.pins) + len(page.holds) for block, page in held
        }
        self._compare_blocks("holder count", "holders", self.adapter.holders, holders)
        taken = self.reference.taken
        self._compare_blocks("generation", "takings", self.adapter.generations, taken)
        self._check_statistics()

    def _compare_blocks(
        self, rule: str, what: str, report: Callable[[], Any], right: dict[int, int]
    ) -> None:
        counted = self._report(_is_counts, report)
        if counted is None:
            return
        for block in sorted(counted.keys() | right.keys()):
            if counted.get(block, 0) != right.get(block, 0):
                said = f"the allocator counts {counted.get(block, 0)} {what} of block {block}"
                raise self._violation(rule, f"{said}: it has {right.get(block, 0)}", block)

    def _check_statistics(self) -> None:
        counted = self._report(_is_named_counts, self.adapter.statistics)
        if counted is None:
            return
        right = self.reference.statistics()
        for name, count in counted.items():
            if count != right.get(name):
                said = f"the allocator says {name} {count}: {right.get(name)} is right"
                raise self._violation("statistics", said)

    def _wrong_table(self, request: str, table: list[int], expected: list[int]) -> Violation:
        wrong = next((block for block in table if block not in expected), None)
        said = f"the table of {request!r} is {table}: {expected} is right"
        return self._violation("table", said, wrong)

    def _wrong_contents(self, request: str, block: int, index: int) -> Violation:
        expected = self.reference.pages[block].tokens
        actual = self.memory.read(block)
        offset = next(i for i, stamp in enumerate(expected) if actual[i] != stamp)
        position = index * self.config.block_size + offset
        found, wanted = stamp_in_words(actual[offset]), stamp_in_words(expected[offset])
        said = (
            f"{request!r} reads {found} at position {position} (block {block}, offset {offset}): "
        )
        return self._violation("contents", f"{said}{wanted} is right", block)

    def _violation(self, rule: str, message: str, block: int | None = None) -> Violation:
        return Violation(rule, message, block)


def _text(show: Callable[[object], str], value: object) -> str:
    """The text of what an allocator made, which may itself raise or be endless."""
    try:
        return show(value)[:TEXT_LENGTH_MAX]
    except Exception:
        return f"a {type(value).__name__} that cannot be shown"


def _is_table(table: list[Any]) -> bool:
    """a list of block ids"""
    return not table or (set(map(type, table)) == {int} and max(table) <= BLOCK_MAX)


def _is_count(count: Any) -> bool:
    """a whole number or None"""
    return count is None or type(count) is int


def _is_flag(flag: Any) -> bool:
    """yes, no or None"""
    return flag is None or type(flag) is bool


def _is_counts(counts: Any) -> bool:
    """a dict of block ids to whole numbers, or None"""
    if type(counts) is dict:
        return set(map(type, counts)) | set(map(type, counts.values())) <= {int}
    return counts is None


def _is_named_counts(counts: Any) -> bool:
    """a dict of names to whole numbers, or None"""
    if type(counts) is dict:
        return set(map(type, counts)) <= {str} and set(map(type, counts.values())) <= {int}
    return counts is None


def _asked(report: Callable[..., Any], about: Sequence[Any]) -> str:
    """What a report was asked for: `free_blocks`, or `the table of 'a'`."""
    if len(about) > 1:
        return f"room for {about[1]} tokens of {about[0]!r}"
    if about:
        return f"the table of {about[0]!r}"
    return f"its {getattr(report, '__name__', 'report').replace('_', ' ')}"


def _raised(error: BaseException) -> str:
    said = f"the allocator raised {type(error).__name__}: {_text(str, error)}".removesuffix(": ")
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    return f"{said} ({Path(last.filename).name}, line {last.lineno})" if last else said


def stamp_in_words(stamp: object) -> str:
    """A stamp as a reader says it."""
    if not isinstance(stamp, Stamp):
        return "a slot that was never written"
    return f"token {stamp.token} that {stamp.request!r} wrote as its position {stamp.position}"
