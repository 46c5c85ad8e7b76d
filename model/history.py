"""A failure explained: the history of its block, and the block tables around its last operation."""

from typing import NamedTuple

import msgspec

from kvoracle.model.lockstep import Factory, Lockstep, Violation, stamp_in_words
from kvoracle.model.run import Failure, Judged, start
from kvoracle.reference import PagedKV


class Explanation(msgspec.Struct):
    """What a reader needs beside the trace and the message.

    `events` are (operation index, what happened to the block).  Tables are those of the allocator;
    `tables_after` is empty where the allocator no longer answers.  `answer` is what it answered last.
    """

    events: list[tuple[int, str]] = []
    tables_before: dict[str, list[int]] = {}
    tables_after: dict[str, list[int]] = {}
    answer: str = ""
    reproduced: bool = False


def explain(failure: Failure, factory: Factory) -> Explanation:
    """Run the failing trace once more and watch its block.

    Only for a failure of this process: a trace that crashes or hangs has no explanation.
    """
    explanation = Explanation()
    try:
        lockstep = start(factory, failure.trace)
    except Violation:
        explanation.reproduced = True
        return explanation
    judged = Judged(lockstep, failure.trace)
    for index in range(len(failure.trace.operations)):
        before = _holders(lockstep.reference, failure.block)
        explanation.tables_before = _tables(lockstep)
        try:
            judged.step(index)
        except Violation as violation:
            last = len(failure.trace.operations) - 1
            explanation.reproduced = index == last and violation.rule == failure.rule
        after = _holders(lockstep.reference, failure.block)
        explanation.events += [(index, event) for event in _events(before, after)]
        if explanation.reproduced:
            break
    explanation.tables_after = _tables(lockstep)
    explanation.answer = "" if lockstep.answer is None else str(lockstep.answer)
    return explanation


def _tables(lockstep: Lockstep) -> dict[str, list[int]]:
    tables = {}
    for request in lockstep.reference.tables:
        try:
            tables[request] = list(lockstep.adapter.table(request))
        except (Exception, SystemExit):
            return {}
    return tables


class _Holders(NamedTuple):
    owners: set[str]
    pins: set[str]
    stamps: list[object]


def _holders(kv: PagedKV, block: int | None) -> _Holders | None:
    if block is None or block not in kv.pages:
        return None
    page = kv.pages[block]
    return _Holders(set(page.owners), set(page.pins), list(page.tokens))


def _events(before: _Holders | None, after: _Holders | None) -> list[str]:
    owners_before, pins_before, stamps_before = before or ((), (), ())
    owners_after, pins_after, stamps_after = after or ((), (), ())
    owners_before, pins_before = set(owners_before), set(pins_before)
    owners_after, pins_after = set(owners_after), set(pins_after)
    events = [
        f"{'shared with' if before else 'taken by'} {name}"
        for name in sorted(owners_after - owners_before)
    ]
    events += [f"pinned by {name}" for name in sorted(pins_after - pins_before)]
    events += [
        f"holds {stamp_in_words(stamp)} at offset {offset}"
        for offset, stamp in enumerate(stamps_after)
        if offset >= len(stamps_before)
    ]
    events += [f"dropped by {name}" for name in sorted(owners_before - owners_after)]
    events += [f"no longer pinned by {name}" for name in sorted(pins_before - pins_after)]
    return [*events, "free"] if before and not after else events
