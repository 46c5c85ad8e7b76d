"""Every operation as a relation, in groups."""

from kvoracle.model.proof.relations import core, prefix, room, steps, transfers, window

GROUPS = {
    "core": core.RELATIONS,
    "room": room.RELATIONS,
    "prefix cache": prefix.RELATIONS,
    "steps": steps.RELATIONS,
    "transfers": transfers.RELATIONS,
    "window": window.RELATIONS,
}
RELATIONS = tuple(relation for group in GROUPS.values() for relation in group)
