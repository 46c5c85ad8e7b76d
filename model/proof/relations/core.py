"""The core: create, append in its three forms, fork, pin, unpin, release."""

from kvoracle.model.proof.logic import Term, all_of, any_of, given, no
from kvoracle.model.proof.relation import Parts, effect, give_back, guard, relations
from kvoracle.model.proof.relations.parts import (
    START,
    begins,
    ends_move,
    has_nothing_reserved,
    has_shared_tail,
    has_tail_of_its_own,
    is_appended,
    is_live,
    is_new,
    take_copy,
    take_room,
    writes,
)
from kvoracle.model.proof.state import State, put


def create(s: State, request: Term, key: Term) -> Parts:
    """A request begins with an empty table."""
    yield from is_new(s, request)
    yield from begins(s, request, 0, START)
    yield from ends_move(s, request, START)
    yield effect("its table is empty", count=put(s.count, request, 0))
    yield effect("its key is given", key=put(s.key, request, key))
    yield effect("its weights are today's", epoch_of=put(s.epoch_of, request, s.epoch()))


def append_in_place(s: State, request: Term, token: Term) -> Parts:
    """A token is written into a partial tail."""
    tail = s.tail(request)
    yield from is_live(s, request)
    yield from has_nothing_reserved(s, request)
    yield from has_tail_of_its_own(s, request)
    yield from writes(s, request, tail, token)
    yield from ends_move(s, request, s.length(request).after(s.size()))


def append_fresh(s: State, request: Term, fresh_block: Term, token: Term) -> Parts:
    """A token is written into a fresh block, since no tail is partial."""
    yield from is_live(s, request)
    yield from has_nothing_reserved(s, request)
    yield guard("no tail is partial", s.length_offset(request) == 0)
    yield from take_room(s, fresh_block, request, s.length_index(request))
    yield from writes(s, request, fresh_block, token)
    yield from ends_move(s, request, s.length(request).after(s.size()))


def append_copy(s: State, request: Term, fresh_block: Term, token: Term) -> Parts:
    """A token is written into a copy of a tail that is shared or pinned."""
    tail, end = s.tail(request), s.length(request)
    yield from is_live(s, request)
    yield from has_shared_tail(s, request)
    yield from take_copy(s, fresh_block, request)
    yield effect("the copy is fuller by one", fill=put(s.fill, fresh_block, s.fill(tail) + 1))
    yield effect(
        "the data is copied and the token written",
        content=lambda block, offset: given(
            block == fresh_block,
            given(offset == end.offset, token, s.content(tail, offset)),
            s.content(block, offset),
        ),
    )
    yield from is_appended(s, request, token)
    yield from ends_move(s, request, end.after(s.size()))


def fork(s: State, request: Term, child_request: Term) -> Parts:
    """A request begins that shares every block of another."""
    yield from is_live(s, request)
    yield from has_nothing_reserved(s, request)
    yield from is_new(s, child_request)
    yield from begins(s, child_request, s.first(request), s.horizon(request))
    yield from ends_move(s, child_request, s.length(request))
    yield effect(
        "the child's table is the parent's",
        table=lambda other_request, index: s.table(
            given(other_request == child_request, request, other_request), index
        ),
        count=put(s.count, child_request, s.count(request)),
    )
    yield effect(
        "the child owns every block",
        owns=lambda other_request, block: s.owns(
            given(other_request == child_request, request, other_request), block
        ),
    )
    yield effect(
        "the child has written what the parent has",
        appended=lambda other_request, index, offset: s.appended(
            given(other_request == child_request, request, other_request), index, offset
        ),
    )
    yield effect("the child's key is the parent's", key=put(s.key, child_request, s.key(request)))
    yield effect(
        "the child's weights are the parent's",
        epoch_of=put(s.epoch_of, child_request, s.epoch_of(request)),
    )


def pin(s: State, request: Term, transfer: Term) -> Parts:
    """A transfer begins that may read every block of a request."""
    yield from has_nothing_reserved(s, request)
    yield from pins(s, request, transfer)
    yield effect("nobody will acknowledge it", plain=put(s.plain, transfer, True))


def pins(s: State, request: Term, transfer: Term) -> Parts:
    """A transfer begins, with a record of what it may read."""
    yield from is_live(s, request)
    yield guard("there is something to pin", s.first(request) < s.count(request))
    yield guard("the transfer is new", no(s.outstanding(transfer)))
    yield effect("the transfer is outstanding", outstanding=put(s.outstanding, transfer, True))
    yield effect(
        "the record names every block",
        record=lambda other_transfer, block: given(
            other_transfer == transfer, s.owns(request, block), s.record(other_transfer, block)
        ),
    )
    yield effect(
        "every block is pinned",
        pinned=lambda other_transfer, block: any_of(
            s.pinned(other_transfer, block),
            all_of(other_transfer == transfer, s.owns(request, block)),
        ),
    )
    yield effect(
        "its snapshot is taken",
        snapshot=lambda other_transfer, block, offset: given(
            other_transfer == transfer,
            s.content(block, offset),
            s.snapshot(other_transfer, block, offset),
        ),
        snapshot_fill=lambda other_transfer, block: given(
            other_transfer == transfer, s.fill(block), s.snapshot_fill(other_transfer, block)
        ),
    )
    yield effect(
        "its generation is new",
        generation=put(s.generation, transfer, s.generation(transfer) + 1),
    )


def unpin(s: State, transfer: Term) -> Parts:
    """A transfer that nobody acknowledges ends."""
    yield guard("it is a plain pin", s.plain(transfer))
    yield from transfer_ends(s, transfer)


def transfer_ends(s: State, transfer: Term) -> Parts:
    """A transfer ends, and its pins with it."""
    yield effect("the transfer is over", outstanding=put(s.outstanding, transfer, False))
    yield effect(
        "its own pins go",
        pinned=lambda other_transfer, block: all_of(
            s.pinned(other_transfer, block), other_transfer != transfer
        ),
    )
    yield from give_back("its blocks are given back", lambda block: s.pinned(transfer, block))


def release(s: State, request: Term) -> Parts:
    """A request ends, in whatever state it is."""
    yield effect("the request is over", live=put(s.live, request, False))
    yield effect(
        "its ownership goes",
        owns=lambda other_request, block: all_of(
            s.owns(other_request, block), other_request != request
        ),
    )
    yield effect(
        "no step writes to it",
        writes=lambda step, other_request: all_of(
            s.writes(step, other_request), other_request != request
        ),
        strays=lambda step, block, offset: any_of(
            s.strays(step, block, offset),
            all_of(
                s.writes(step, request),
                s.write_block(step, request) == block,
                s.write_offset(step, request) == offset,
            ),
        ),
    )
    yield from give_back("its blocks are given back", lambda block: s.owns(request, block))


RELATIONS = relations(create, append_in_place, append_fresh, append_copy, fork, pin, unpin, release)
