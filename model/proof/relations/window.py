"""Sliding windows: what lies before a request's horizon is never read again, and its blocks go."""

from kvoracle.model.proof.logic import Term
from kvoracle.model.proof.relation import Parts, effect, give_back, guard, relations
from kvoracle.model.proof.state import State, put, put_position


def slide(s: State, request: Term) -> Parts:
    """The horizon moves on by one token that is written."""
    horizon = s.horizon(request)
    yield guard("the token is written", horizon.is_before(s.length(request)))
    moved = put_position(s, "horizon", request, horizon.after(s.size()))
    yield effect("the horizon moves", **moved)


def reclaim(s: State, request: Term, block: Term) -> Parts:
    """The first block of a table goes, since all of it lies before the horizon."""
    yield guard("the request owns it", s.owns(request, block))
    yield guard("it is the first", s.depth(block) == s.first(request))
    yield guard("the horizon is behind it", s.depth(block) < s.horizon_index(request))
    yield effect("the ownership goes", owns=put(s.owns, request, block, False))
    yield effect("the table begins later", first=put(s.first, request, s.first(request) + 1))
    yield from give_back("it is given back", lambda other_block: other_block == block)


RELATIONS = relations(slide, reclaim)
