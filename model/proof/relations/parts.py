"""Parts that several operations share: beginning a request, taking a block, writing a token."""

from kvoracle.model.proof.logic import Formula, Position, Term, all_of, given, no
from kvoracle.model.proof.relation import Parts, effect, guard
from kvoracle.model.proof.state import Function, State, put, put_position

START = Position(0, 0)
ENDS = ("length", "promised", "room")


def is_live(s: State, request: Term) -> Parts:
    """The request has begun and not ended."""
    yield guard("the request is live", s.live(request))


def is_new(s: State, request: Term) -> Parts:
    """No live request has the name."""
    yield guard("the name is new", no(s.live(request)))


def has_nothing_in_flight(s: State, request: Term) -> Parts:
    """Where the request ends is known."""
    yield guard("nothing is in flight", s.promised(request).is_at(s.length(request)))


def has_nothing_reserved(s: State, request: Term) -> Parts:
    """The request ends where its tokens end, or else its room would be shared."""
    yield guard("nothing is in flight or reserved", s.is_settled(request))


def ends_move(s: State, request: Term, end: Position, names: tuple[str, ...] = ENDS) -> Parts:
    """What is written, promised and reserved ends here."""
    changes: dict[str, Function] = {}
    for name in names:
        changes |= put_position(s, name, request, end)
    yield effect(f"the {' and the '.join(names)} moves", **changes)


def take(s: State, fresh_block: Term, request: Term, index: Term) -> Parts:
    """A free block is taken for an index of a request's table."""
    yield guard("the block is free", s.free(fresh_block))
    yield effect("the block is no longer free", free=put(s.free, fresh_block, False))
    yield effect("the table names the block", table=put(s.table, request, index, fresh_block))
    yield effect("the block knows its index", depth=put(s.depth, fresh_block, index))


def take_room(s: State, fresh_block: Term, request: Term, index: Term) -> Parts:
    """A free block is taken for what a request will write."""
    yield from take(s, fresh_block, request, index)
    yield effect("the request owns the block", owns=put(s.owns, request, fresh_block, True))
    yield effect("the table grows", count=put(s.count, request, index + 1))


def take_copy(s: State, fresh_block: Term, request: Term) -> Parts:
    """A free block takes the place of a tail that must not be written."""
    tail = s.tail(request)
    yield from take(s, fresh_block, request, s.length_index(request))
    yield effect(
        "the request owns the copy instead of the tail",
        owns=put(put(s.owns, request, tail, False), request, fresh_block, True),
    )
    yield effect(
        "what it holds was computed as the tail was",
        context=lambda block, index, offset: s.context(
            given(block == fresh_block, tail, block), index, offset
        ),
        context_key=put(s.context_key, fresh_block, s.context_key(tail)),
        context_epoch=put(s.context_epoch, fresh_block, s.context_epoch(tail)),
    )


def writes(s: State, request: Term, target_block: Term, token: Term) -> Parts:
    """A token is written into a block, at the end of what a request has written."""
    end = s.length(request)
    yield effect("the block is fuller", fill=put(s.fill, target_block, end.offset + 1))
    yield effect(
        "the token is in the block", content=put(s.content, target_block, end.offset, token)
    )
    yield from computed_for(s, request, target_block)
    yield from is_appended(s, request, token)


def computed_for(s: State, request: Term, target_block: Term) -> Parts:
    """The first token of a block says after which tokens, with which keys, the block is computed."""

    def is_begun(block: Term) -> Formula:
        return all_of(block == target_block, s.length_offset(request) == 0)

    yield effect(
        "the block is computed after the request's tokens",
        context=lambda block, index, offset: given(
            is_begun(block), s.appended(request, index, offset), s.context(block, index, offset)
        ),
        context_key=lambda block: given(is_begun(block), s.key(request), s.context_key(block)),
        context_epoch=lambda block: given(
            is_begun(block), s.epoch_of(request), s.context_epoch(block)
        ),
    )


def is_appended(s: State, request: Term, token: Term) -> Parts:
    """The caller's account of what it has written."""
    end = s.length(request)
    yield effect("the token is the request's", appended=put(s.appended, request, *end, token))


def has_shared_tail(s: State, request: Term) -> Parts:
    """The tail is partial, and must not be written in place."""
    tail = s.tail(request)
    yield guard("the tail is partial", s.length_offset(request) > 0)
    alone = all_of(s.is_owned_alone(request, tail), no(s.is_pinned(tail)))
    yield guard("the tail is shared or pinned", no(alone))


def has_tail_of_its_own(s: State, request: Term) -> Parts:
    """The tail is partial, and may be written in place."""
    tail = s.tail(request)
    yield guard("the tail is partial", s.length_offset(request) > 0)
    yield guard("no other request owns the tail", s.is_owned_alone(request, tail))
    yield guard("no transfer pins the tail", no(s.is_pinned(tail)))


def begins(s: State, request: Term, first: Term, horizon: Position) -> Parts:
    """A request becomes live."""
    yield effect("the request is live", live=put(s.live, request, True))
    yield effect("its table begins", first=put(s.first, request, first))
    yield effect("it reads from here on", **put_position(s, "horizon", request, horizon))
