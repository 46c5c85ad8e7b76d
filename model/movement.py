"""What moves through the KV memory, and when: at once, or when what moves it has ended.

A step or a transfer in moves its tokens at a time that nobody knows.  The worst time is the last, so
that is when its copies and writes are carried out here: a block that was given to somebody else
meanwhile is then overwritten, and its new owner notices.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kvoracle.model.memory import KVMemory, Stamp

Copy = tuple[int, int]
Mover = tuple[str, str]
"""What moves tokens later: ("step", name) or ("transfer", name)."""


class Write(NamedTuple):
    """Stamps for slots."""

    slots: Sequence[int]
    stamps: Sequence[Stamp]


class Plan(NamedTuple):
    """Copies, then writes."""

    copies: Sequence[Copy]
    writes: Sequence[Write]


class Movement:
    """The memory, and the plans of everything in flight."""

    def __init__(self, memory: KVMemory) -> None:
        self.memory = memory
        self.plans: dict[Mover, Plan] = {}

    def begin(self, mover: Mover, plan: Plan, copies_later: bool) -> None:
        """Something begins that will write later, and copy then or now."""
        if not copies_later:
            self.carry_out(Plan(plan.copies, []))
            plan = Plan([], plan.writes)
        self.plans[mover] = plan

    def carry_out(self, plan: Plan) -> None:
        """All copies, every source read before any block is written; then the writes."""
        if plan.copies:
            self.memory.copy(plan.copies)
        for slots, stamps in plan.writes:
            self.memory.write(slots, stamps)

    def settle(self, live: Iterable[Mover], is_complete: bool) -> None:
        """Carry out the plans of what has ended; of what was lost or failed, with spoilt tokens."""
        for mover in [mover for mover in self.plans if mover not in live]:
            plan = self.plans.pop(mover)
            self.carry_out(plan if is_complete else _spoilt(plan))

    def unwritten(self) -> set[int]:
        """The blocks whose copy has not run yet."""
        return {block for plan in self.plans.values() for _, block in plan.copies}


def _spoilt(plan: Plan) -> Plan:
    writes = [
        Write(slots, [stamp._replace(token=-1, epoch=-1) for stamp in stamps])
        for slots, stamps in plan.writes
    ]
    return Plan(plan.copies, writes)
