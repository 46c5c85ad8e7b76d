"""A failure explained: the history of its block, and the block tables around its last operation."""

import msgspec

from kvoracle.model.lockstep import Factory, Lockstep, Violation
from kvoracle.model.run import Failure, start
from kvoracle.reference import PagedKV


class Explanation(msgspec.Struct):
    """What a reader needs beside the trace and the message.

    `events` are (operation index, what happened to the block).  Tables are those of the allocator;
    `tables_after` is empty where the allocator no longer answers.
    """

    events: list[tuple[int, str]] = []
    tables_before: dict[str, list[int]] = {}
    tables_after: dict[str, list[int]] = {}
    reproduced: bool = True


def explain(failure: Failure, factory: Factory) -> Explanation:
    """Run the failing trace once more and watch its block.

    Only for a failure of this process: a trace that crashes or hangs has no explanation.
    """
    explanation = Explanation()
    try:
        lockstep = start(factory, failure.trace)
    except Violation:
        return explanation
    for index, operation in enumerate(failure.trace.operations):
        before = _holders(lockstep.reference, failure.block)
        explanation.tables_before = _tables(lockstep)
        try:
            lockstep.step(operation)
        except Violation as violation:
            explanation.events.append((index, f"here: {violation.message}"))
            explanation.tables_after = _tables(lockstep)
            return explanation
        after = _holders(lockstep.reference, failure.block)
        explanation.events += [(index, event) for event in _events(before, after)]
    explanation.reproduced = False
    return explanation


def _tables(lockstep: Lockstep) -> dict[str, list[int]]:
    tables = {}
    for request in lockstep.reference.tables:
        try:
            tables[request] = list(lockstep.adapter.table(request))
        except Exception:
            return {}
    return tables


def _holders(kv: PagedKV, block: int | None) -> tuple[set[str], set[str], int] | None:
    if block is None or block not in kv.pages:
        return None
    page = kv.pages[block]
    return set(page.owners), set(page.pins), len(page.tokens)


def _events(
    before: tuple[set[str], set[str], int] | None, after: tuple[set[str], set[str], int] | None
) -> list[str]:
    owners_before, pins_before, filled_before = before or (set(), set(), 0)
    owners_after, pins_after, filled_after = after or (set(), set(), 0)
    events = [
        f"{'shared with' if before else 'taken by'} {name}"
        for name in sorted(owners_after - owners_before)
    ]
    events += [f"pinned by {name}" for name in sorted(pins_after - pins_before)]
    if filled_after > filled_before:
        events.append(f"filled to {filled_after} tokens")
    events += [f"dropped by {name}" for name in sorted(owners_before - owners_after)]
    events += [f"no longer pinned by {name}" for name in sorted(pins_before - pins_after)]
    return [*events, "free"] if before and not after else events
