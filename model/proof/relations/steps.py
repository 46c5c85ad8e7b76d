"""Steps in flight: begun long before they write, and whatever they touch is held until they end.

A step is begun, joined by requests, and lands one token for each of them, or is failed, which undoes
the promises; then it ends.  A copy that a step needs runs with the step.
"""

from kvoracle.model.proof.logic import Formula, Term, all_of, any_of, given, implies, no
from kvoracle.model.proof.relation import Parts, effect, give_back, guard, relations
from kvoracle.model.proof.relations.parts import (
    computed_for,
    ends_move,
    has_shared_tail,
    is_appended,
    is_live,
    take_copy,
)
from kvoracle.model.proof.state import Function, State, put, put_position


def begin_step(s: State, step: Term) -> Parts:
    """A step begins, the youngest of those in flight."""
    yield guard("the step is new", no(s.flying(step)))
    yield effect("the step is in flight", flying=put(s.flying, step, True))
    yield effect(
        "it is the youngest",
        number=put(s.number, step, s.latest() + 1),
        latest=lambda: s.latest() + 1,
    )


def join(s: State, step: Term, request: Term, token: Term) -> Parts:
    """A step is to write a token into room that a request has."""
    yield from is_live(s, request)
    yield guard("there is room", s.promised(request).is_before(s.room(request)))
    yield guard("the step is the youngest", _is_youngest(s, step))
    yield guard("one token a step", no(s.writes(step, request)))
    block = s.table(request, s.promised_index(request))
    yield from promises(s, step, request, block, token)
    end = s.promised(request).after(s.size())
    yield from ends_move(s, request, end, ("promised",))
    yield from holds_all(s, step, lambda block: s.owns(request, block))


def join_copy(s: State, step: Term, request: Term, fresh_block: Term, token: Term) -> Parts:
    """A step is to copy a tail that is shared or pinned, and write a token into the copy."""
    tail = s.tail(request)
    yield from is_live(s, request)
    yield from has_shared_tail(s, request)
    yield from promises(s, step, request, fresh_block, token)
    yield from take_copy(s, fresh_block, request)
    yield effect("the copy will be as full", fill=put(s.fill, fresh_block, s.fill(tail)))
    yield effect(
        "the copy is pending",
        pending=put(s.pending, fresh_block, True),
        source=put(s.source, fresh_block, tail),
        copier=put(s.copier, fresh_block, step),
    )
    end = s.promised(request).after(s.size())
    yield from ends_move(s, request, end, ("promised", "room"))
    yield from holds_all(
        s, step, lambda block: any_of(s.owns(request, block), block == fresh_block)
    )


def promises(s: State, step: Term, request: Term, target_block: Term, token: Term) -> Parts:
    """The step will write this token at the end of what is promised."""
    end = s.promised(request)
    yield guard("the step is in flight", s.flying(step))
    yield effect("the step writes to it", writes=put(s.writes, step, request, True))
    yield effect(
        "it writes here",
        write_block=put(s.write_block, step, request, target_block),
        writer=put(s.writer, request, *end, step),
        to_write=put(s.to_write, step, request, token),
        **put_position(s, "write", step, request, end),
    )


def holds_all(s: State, step: Term, blocks: Function) -> Parts:
    """A step holds whatever it may touch."""
    yield effect(
        "the step holds what it touches",
        holds=lambda other_step, block: any_of(
            s.holds(other_step, block), all_of(other_step == step, blocks(block))
        ),
    )


def run_copy(s: State, block: Term) -> Parts:
    """A pending copy runs."""
    yield guard("the copy is pending", s.pending(block))
    yield effect(
        "the data is copied",
        content=lambda other_block, offset: s.content(
            given(other_block == block, s.source(block), other_block), offset
        ),
    )
    yield effect("the copy is done", pending=put(s.pending, block, False))


def land(s: State, step: Term, request: Term) -> Parts:
    """The oldest step has run, and its token for a request is written."""
    end, at = s.length(request), s.writes_at(step, request)
    block = s.write_block(step, request)
    token = s.to_write(step, request)
    yield guard("the step writes to it", s.writes(step, request))
    yield guard("the step is the oldest", _is_oldest(s, step))
    yield guard("its copies have run", _copies_have_run(s, step))
    yield effect("the step has written to it", writes=put(s.writes, step, request, False))
    yield effect("the block is fuller", fill=put(s.fill, block, at.offset + 1))
    yield effect("the token is in the block", content=put(s.content, block, at.offset, token))
    yield from computed_for(s, request, block)
    yield from is_appended(s, request, token)
    yield from ends_move(s, request, end.after(s.size()), ("length",))


def fail(s: State, step: Term, request: Term, token: Term) -> Parts:
    """The youngest step has failed: what it wrote is anything, and does not count."""
    at = s.writes_at(step, request)
    yield guard("the step writes to it", s.writes(step, request))
    yield guard("the step is the youngest", _is_youngest(s, step))
    yield guard("its copies have run", _copies_have_run(s, step))
    yield effect("the step has written to it", writes=put(s.writes, step, request, False))
    yield effect(
        "anything is in the block",
        content=put(s.content, s.write_block(step, request), at.offset, token),
    )
    yield from ends_move(s, request, s.promised(request).before(s.size()), ("promised",))


def stray(s: State, step: Term, block: Term, offset: Term, token: Term) -> Parts:
    """A step in flight writes for a request that has ended."""
    yield guard("the step writes there", s.strays(step, block, offset))
    yield effect("anything is in the block", content=put(s.content, block, offset, token))


def end_step(s: State, step: Term) -> Parts:
    """A step ends, and lets go what it held."""
    yield guard("all is written", s.every(lambda request: no(s.writes(step, request))))
    yield guard("its copies have run", _copies_have_run(s, step))
    yield effect("the step is over", flying=put(s.flying, step, False))
    yield effect(
        "its own holds go",
        holds=lambda other_step, block: all_of(s.holds(other_step, block), other_step != step),
        strays=lambda other_step, block, offset: all_of(
            s.strays(other_step, block, offset), other_step != step
        ),
    )
    yield from give_back("its blocks are given back", lambda block: s.holds(step, block))


def _is_youngest(s: State, step: Term) -> Formula:
    return s.every(
        lambda other_step: implies(s.flying(other_step), s.number(other_step) <= s.number(step))
    )


def _is_oldest(s: State, step: Term) -> Formula:
    return s.every(
        lambda other_step: implies(s.flying(other_step), s.number(step) <= s.number(other_step))
    )


def _copies_have_run(s: State, step: Term) -> Formula:
    return s.every(lambda block: implies(s.pending(block), s.copier(block) != step))


RELATIONS = relations(begin_step, join, join_copy, run_copy, land, fail, stray, end_step)
