"""The step from positions to slots: what a request and an operation mean by a place in memory.

The rest of the proof speaks of an index and an offset.  These claims multiply them out, for every
block size: no two places share a slot, and a position is one index and one offset.
"""

from collections.abc import Callable
from typing import NamedTuple

from kvoracle.model.proof.logic import Formula, Term, all_of, any_of, implies
from kvoracle.model.proof.solver import Answer, constant, follows

SlotOf = Callable[[Term, Term, Term], Term]


def slot_of(block: Term, offset: Term, size: Term) -> Term:
    """The slot of a place."""
    return block * size + offset


class Place(NamedTuple):
    """An offset of a block, or of an index of a table."""

    index: Term
    offset: Term

    @classmethod
    def of(cls, name: str) -> "Place":
        return cls(constant(f"{name}_index"), constant(f"{name}_offset"))


def inside(place: Place, size: Term) -> Formula:
    """The place is one, in blocks of this size."""
    return all_of(size >= 1, place.index >= 0, place.offset >= 0, place.offset < size)


def disjoint_tables_share_no_slot(slot_of: SlotOf = slot_of) -> Answer:
    """Two live positions, in blocks of tables without a common block, have different slots."""
    one, other, size = Place.of("one"), Place.of("other"), constant("size_number")
    premises = [inside(one, size), inside(other, size), one.index != other.index]
    return follows(slot_of(*one, size) != slot_of(*other, size), premises)


def positions_of_one_table_share_no_slot(slot_of: SlotOf = slot_of) -> Answer:
    """Two positions of one request have different slots, since its table names no block twice."""
    one, other, size = Place.of("one"), Place.of("other"), constant("size_number")
    differ = any_of(one.index != other.index, one.offset != other.offset)
    premises = [inside(one, size), inside(other, size), differ]
    return follows(slot_of(*one, size) != slot_of(*other, size), premises)


def a_position_is_one_index_and_one_offset(slot_of: SlotOf = slot_of) -> Answer:
    """Counting index and offset like an odometer is counting positions."""
    place, size = Place.of("one"), constant("size_number")
    position = slot_of(*place, size)
    claim = all_of(
        implies(
            place.offset + 1 < size, slot_of(place.index, place.offset + 1, size) == position + 1
        ),
        implies(place.offset + 1 == size, slot_of(place.index + 1, 0, size) == position + 1),
    )
    return follows(claim, [inside(place, size)])


CLAIMS = (
    disjoint_tables_share_no_slot,
    positions_of_one_table_share_no_slot,
    a_position_is_one_index_and_one_offset,
)
