"""Transfers that workers acknowledge.  What a worker says may arrive late, or twice, or never.

A worker that has stopped reading says so, naming the generation of the transfer; what is said stays
said, and may be heard at any time after.
"""

from kvoracle.model.proof.logic import Formula, Term, all_of, any_of, given, no
from kvoracle.model.proof.relation import Parts, effect, guard, relations
from kvoracle.model.proof.relations.core import pins, transfer_ends
from kvoracle.model.proof.relations.parts import has_nothing_reserved
from kvoracle.model.proof.state import State, put


def send(s: State, request: Term, transfer: Term, workers: Term) -> Parts:
    """A transfer out begins, which some workers read and will acknowledge."""
    yield from has_nothing_reserved(s, request)
    yield from pins(s, request, transfer)
    yield effect("it is no plain pin", plain=put(s.plain, transfer, False))
    yield effect(
        "the workers are awaited",
        awaited=lambda other_transfer, worker: given(
            other_transfer == transfer, workers(worker), s.awaited(other_transfer, worker)
        ),
        acknowledged=lambda other_transfer, worker: all_of(
            other_transfer != transfer, s.acknowledged(other_transfer, worker)
        ),
    )
    yield effect(
        "the workers read",
        reading=lambda other_transfer, generation, worker: any_of(
            s.reading(other_transfer, generation, worker),
            all_of(
                other_transfer == transfer,
                generation == s.generation(transfer) + 1,
                workers(worker),
            ),
        ),
    )


def finish(s: State, transfer: Term, generation: Term, worker: Term) -> Parts:
    """A worker stops reading, and says so."""
    yield guard("the worker reads", s.reading(transfer, generation, worker))
    yield effect("it reads no more", reading=put(s.reading, transfer, generation, worker, False))
    yield effect("it has said so", said=put(s.said, transfer, generation, worker, True))


def acknowledge(s: State, transfer: Term, generation: Term, worker: Term) -> Parts:
    """What a worker said is heard, and the transfer goes on."""
    yield from hears(s, transfer, generation, worker)
    yield effect("it has acknowledged", acknowledged=put(s.acknowledged, transfer, worker, True))


def acknowledge_last(s: State, transfer: Term, generation: Term, worker: Term) -> Parts:
    """What the last worker said is heard, and the transfer ends."""
    yield from hears(s, transfer, generation, worker)
    yield guard(
        "no other is awaited",
        s.every(lambda other_worker: no(_is_missing(s, transfer, worker, other_worker))),
    )
    yield from transfer_ends(s, transfer)


def hears(s: State, transfer: Term, generation: Term, worker: Term) -> Parts:
    """An acknowledgement arrives, of the present generation."""
    yield guard("the worker said it", s.said(transfer, generation, worker))
    yield guard("it speaks of this generation", generation == s.generation(transfer))


def expire(s: State, transfer: Term) -> Parts:
    """The lease of a transfer runs out, and nobody reads any more."""
    yield effect(
        "nobody reads",
        reading=lambda other_transfer, generation, worker: all_of(
            s.reading(other_transfer, generation, worker), other_transfer != transfer
        ),
    )
    yield from transfer_ends(s, transfer)


def _is_missing(s: State, transfer: Term, worker: Term, other_worker: Term) -> Formula:
    """Another worker is awaited and has not acknowledged."""
    return all_of(
        s.awaited(transfer, other_worker),
        no(s.acknowledged(transfer, other_worker)),
        other_worker != worker,
    )


RELATIONS = relations(send, finish, acknowledge, acknowledge_last, expire)
