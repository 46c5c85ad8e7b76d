"""Situations that a campaign must have met; one that was never met means a rule never exercised.

Each function looks at the reference just before an operation and names what is about to happen.
"""

from typing import TYPE_CHECKING

from kvoracle.model.operations import Admit, Operation
from kvoracle.model.witnesses import core, flight, groups, prefix
from kvoracle.model.witnesses.base import Needs
from kvoracle.reference import Oracle
from kvoracle.reference.groups import GroupedKV

if TYPE_CHECKING:
    from kvoracle.model.registry import Target

WITNESSES: Needs = {**prefix.WITNESSES, **core.WITNESSES, **flight.WITNESSES}

REJECTIONS = prefix.REJECTIONS | flight.REJECTIONS
"""The witnesses that a call is rejected for, and the reason, which only those that promise to reject
it are tried with; every other one is of a call that is not rejected."""

PARTIAL_BLOCKS = core.PARTIAL_BLOCKS | flight.PARTIAL_BLOCKS
"""The witnesses that blocks of one slot cannot reach."""

_ROOMS = (prefix.LOOKS, core.LOOKS, flight.LOOKS)


def required(target: "Target") -> list[str]:
    """The witnesses that an allocator can reach."""
    able = set(target.operations)
    if "groups" in target.options:
        reachable = [name for name, needs in groups.WITNESSES.items() if needs <= able]
        return [name for name in reachable if name not in target.unreachable]
    names = [
        name
        for name, needs in WITNESSES.items()
        if needs <= able and (target.block_sizes[-1] > 1 or name not in PARTIAL_BLOCKS)
    ]
    if Admit in able:
        names += [prefix.EXTRA_KEYS] * bool(target.extra_keys)
        if "match_unit" in target.options:
            names += [prefix.PARTIAL_HIT, prefix.IDLE_SOURCE]
        names += [prefix.WATERMARK] * ("watermark" in target.options)
    untried = {name for name, reason in REJECTIONS.items() if reason not in target.refuses}
    return [name for name in names if name not in target.unreachable | untried]


def about_to_happen(kv: Oracle | GroupedKV, operation: Operation) -> list[str]:
    """The witnesses of an operation that the reference is about to accept or find too large."""
    if isinstance(kv, GroupedKV):
        look = groups.LOOKS.get(type(operation))
        return list(look(kv, operation)) if look else []
    looks = [room[type(operation)] for room in _ROOMS if type(operation) in room]
    return [name for look in looks for name in look(kv, operation)]
