"""The prefix cache: full blocks stay findable by what they hold and by all that came before it."""

from kvoracle.model.proof.logic import Position, Term, all_of, given, implies, no
from kvoracle.model.proof.relation import Parts, effect, give_back, guard, relations
from kvoracle.model.proof.relations.parts import START, begins, ends_move, is_new
from kvoracle.model.proof.state import Function, State, put


def publish(s: State, request: Term, block: Term) -> Parts:
    """A full block of a request becomes findable by the request's tokens up to its end."""
    yield guard("the request owns it", s.owns(request, block))
    yield guard("it is full", s.fill(block) == s.size())
    yield guard("today's weights computed it", s.epoch_of(request) == s.epoch())
    yield effect("it is published", published=put(s.published, block, True))
    yield effect(
        "its entry says what it holds",
        entry=lambda other_block, index, offset: given(
            other_block == block,
            s.appended(request, index, offset),
            s.entry(other_block, index, offset),
        ),
        entry_key=put(s.entry_key, block, s.key(request)),
    )


def hit(s: State, request: Term, end_index: Term, hits: Term, prompt: Term, key: Term) -> Parts:
    """A request begins on published blocks that hold the first tokens of its prompt."""
    yield from is_new(s, request)
    yield from all_are_hits(s, end_index, hits, prompt, key)
    yield from begins(s, request, 0, START)
    yield from ends_move(s, request, Position(end_index, 0))
    yield effect("its key is given", key=put(s.key, request, key))
    yield effect("its weights are today's", epoch_of=put(s.epoch_of, request, s.epoch()))
    yield effect(
        "its table is the hits",
        count=put(s.count, request, end_index),
        table=lambda other_request, index: given(
            other_request == request, hits(index), s.table(other_request, index)
        ),
    )
    yield effect(
        "it owns the hits",
        owns=lambda other_request, block: given(
            other_request == request,
            all_of(s.depth(block) >= 0, s.depth(block) < end_index, hits(s.depth(block)) == block),
            s.owns(other_request, block),
        ),
    )
    yield effect(
        "it has written what was hit",
        appended=lambda other_request, index, offset: given(
            other_request == request,
            prompt(index, offset),
            s.appended(other_request, index, offset),
        ),
    )


def all_are_hits(s: State, end_index: Term, hits: Term, prompt: Term, key: Term) -> Parts:
    """Each block was published as the prompt's at its index."""

    def at_each_index(name: str, claim: Function) -> Parts:
        yield guard(
            name,
            s.every(
                lambda index, offset: implies(
                    all_of(index >= 0, index < end_index, s.in_block(offset)),
                    claim(index, offset),
                )
            ),
        )

    yield guard("some tokens are hit, or none", end_index >= 0)
    yield from at_each_index("it is published", lambda index, _: s.published(hits(index)))
    yield from at_each_index("it is at its index", lambda index, _: s.depth(hits(index)) == index)
    yield from at_each_index(
        "its key is the same", lambda index, _: s.entry_key(hits(index)) == key
    )
    yield from at_each_index(
        "its tokens are the prompt's",
        lambda index, offset: s.entry(hits(index), index, offset) == prompt(index, offset),
    )
    yield guard(
        "the tokens before it are the prompt's",
        s.every(
            lambda before_index, index, offset: implies(
                all_of(
                    before_index >= 0,
                    before_index < index,
                    index < end_index,
                    s.in_block(offset),
                ),
                s.entry(hits(index), before_index, offset) == prompt(before_index, offset),
            )
        ),
    )


def evict(s: State, block: Term) -> Parts:
    """An idle block loses its entry and is free to be taken."""
    yield guard("it is idle", no(s.is_in_use(block)))
    yield effect("its entry goes", published=put(s.published, block, False))
    yield effect("it is free", free=put(s.free, block, True))


def withdraw(s: State, block: Term) -> Parts:
    """A block loses its entry on request, in use or not."""
    yield effect("its entry goes", published=put(s.published, block, False))
    yield from give_back("it is given back", lambda other_block: other_block == block)


def change_weights(s: State) -> Parts:
    """Every entry goes: what it says was computed with weights of yesterday."""
    yield effect("the weights are new", epoch=lambda: s.epoch() + 1)
    yield effect("every entry goes", published=lambda _: False)
    yield from give_back("idle blocks are given back", s.published)


RELATIONS = relations(publish, hit, evict, withdraw, change_weights)
