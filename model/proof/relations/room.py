"""Reserved room: there before the tokens are, written by commit, given back by trim."""

from kvoracle.model.proof.logic import Formula, Term, all_of, any_of, given, implies, no
from kvoracle.model.proof.relation import Parts, effect, give_back, guard, relations
from kvoracle.model.proof.relations.parts import (
    ends_move,
    has_nothing_in_flight,
    has_shared_tail,
    is_live,
    take_copy,
    take_room,
    writes,
)
from kvoracle.model.proof.state import State, put


def reserve_in_tail(s: State, request: Term) -> Parts:
    """One more token has room in the last block."""
    tail, settled = s.tail(request), s.is_settled(request)
    yield guard("the last block has room", s.room_offset(request) > 0)
    yield guard("no other request owns it", implies(settled, s.is_owned_alone(request, tail)))
    yield guard("no transfer pins it", implies(settled, no(s.is_pinned(tail))))
    yield from ends_move(s, request, s.room(request).after(s.size()), ("room",))


def reserve_fresh(s: State, request: Term, fresh_block: Term) -> Parts:
    """One more token has room in a fresh block."""
    yield from is_live(s, request)
    yield guard("the last block is full", s.room_offset(request) == 0)
    yield from take_room(s, fresh_block, request, s.room_index(request))
    yield effect("the block is empty", fill=put(s.fill, fresh_block, 0))
    yield from ends_move(s, request, s.room(request).after(s.size()), ("room",))


def reserve_copy(s: State, request: Term, fresh_block: Term) -> Parts:
    """One more token has room in a copy of a tail that is shared or pinned."""
    tail = s.tail(request)
    yield from is_live(s, request)
    yield from has_shared_tail(s, request)
    yield from take_copy(s, fresh_block, request)
    yield effect("the copy is as full", fill=put(s.fill, fresh_block, s.fill(tail)))
    yield effect(
        "the data is copied",
        content=lambda block, offset: s.content(given(block == fresh_block, tail, block), offset),
    )
    yield from ends_move(s, request, s.room(request).after(s.size()), ("room",))


def commit(s: State, request: Term, token: Term) -> Parts:
    """A token is written into the room reserved for it."""
    yield from is_live(s, request)
    yield from has_nothing_in_flight(s, request)
    yield guard("there is room", s.length(request).is_before(s.room(request)))
    yield from writes(s, request, s.tail(request), token)
    end = s.length(request).after(s.size())
    yield from ends_move(s, request, end, ("length", "promised"))


def trim(s: State, request: Term) -> Parts:
    """The room that no token needs is given back."""
    end = s.length(request)
    needed = given(end.offset > 0, end.index + 1, end.index)

    def is_spare(block: Term) -> Formula:
        return all_of(s.owns(request, block), s.depth(block) >= needed)

    yield from has_nothing_in_flight(s, request)
    yield effect("the table ends where the tokens end", count=put(s.count, request, needed))
    yield effect(
        "its ownership of the rest goes",
        owns=lambda other_request, block: all_of(
            s.owns(other_request, block), any_of(other_request != request, no(is_spare(block)))
        ),
    )
    yield from give_back("the rest is given back", is_spare)
    yield from ends_move(s, request, end, ("room",))


RELATIONS = relations(reserve_in_tail, reserve_fresh, reserve_copy, commit, trim)
