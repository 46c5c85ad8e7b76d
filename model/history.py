"""A failure explained: the history of its block, and the block tables around its last operation."""

from typing import NamedTuple

import msgspec

from kvoracle.model.lockstep import Factory, Lockstep, Violation, stamp_in_words
from kvoracle.model.run import Failure, Judged, start
from kvoracle.reference import Oracle


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
        before = _state(lockstep.reference, failure.block)
        explanation.tables_before = _tables(lockstep)
        try:
            judged.step(index)
        except Violation as violation:
            last = len(failure.trace.operations) - 1
            explanation.reproduced = index == last and violation.rule == failure.rule
        after = _state(lockstep.reference, failure.block)
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


class _State(NamedTuple):
    """An allocated block: how often it was taken, who holds it, what it holds, if it is findable."""

    taken: int
    owners: set[str]
    pins: set[str]
    holds: set[str]
    stamps: list[object]
    is_published: bool

    @property
    def is_in_use(self) -> bool:
        return bool(self.owners or self.pins or self.holds)


def _state(kv: Oracle, block: int | None) -> _State | None:
    if block is None or block not in kv.pages:
        return None
    page = kv.pages[block]
    return _State(
        kv.taken[block],
        set(page.owners),
        set(page.pins),
        {f"{kind} {name}" for kind, name in page.holds},
        list(page.tokens),
        block in kv.index,
    )


def _events(before: _State | None, after: _State | None) -> list[str]:
    if before and after and before.taken < after.taken:
        return [*_events(before, None)[:-1], *_events(None, after)]
    old = before or _State(0, set(), set(), set(), [], False)
    new = after or _State(0, set(), set(), set(), [], False)
    is_begun = "shared with" if old.owners else "hit by" if before else "taken by"
    events = [f"{is_begun} {name}" for name in sorted(new.owners - old.owners)]
    events += [f"pinned by {name}" for name in sorted(new.pins - old.pins)]
    events += [f"held by {name}" for name in sorted(new.holds - old.holds)]
    events += [
        f"holds {stamp_in_words(stamp)} at offset {offset}"
        for offset, stamp in enumerate(new.stamps)
        if offset >= len(old.stamps)
    ]
    events += ["published"] if new.is_published and not old.is_published else []
    events += [f"dropped by {name}" for name in sorted(old.owners - new.owners)]
    events += [f"no longer pinned by {name}" for name in sorted(old.pins - new.pins)]
    events += [f"no longer held by {name}" for name in sorted(old.holds - new.holds)]
    events += ["no longer published"] if old.is_published and not new.is_published else []
    if after is None:
        return [*events, "free"] if before else events
    return [*events, "idle"] if old.is_in_use and not new.is_in_use else events
