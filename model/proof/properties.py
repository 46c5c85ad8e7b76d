"""What users care about; each follows from the invariants."""

from kvoracle.model.proof.invariants import Claim
from kvoracle.model.proof.logic import Formula, Position, Term, all_of, implies, no
from kvoracle.model.proof.state import State


def no_block_is_in_two_unrelated_hands(s: State) -> Formula:
    """Two requests share a block only at the same index, and where they have written the same there
    and before."""

    def related(
        request: Term, other_request: Term, block: Term, index: Term, offset: Term
    ) -> Formula:
        end = Position(s.depth(block), s.fill(block))
        return all_of(
            s.table(request, s.depth(block)) == s.table(other_request, s.depth(block)),
            implies(
                all_of(
                    index >= 0,
                    s.in_block(offset),
                    Position(index, offset).is_before(end),
                    s.fill(block) > 0,
                ),
                s.appended(request, index, offset) == s.appended(other_request, index, offset),
            ),
        )

    return s.every(
        lambda request, other_request, block, index, offset: implies(
            all_of(s.owns(request, block), s.owns(other_request, block)),
            related(request, other_request, block, index, offset),
        )
    )


def nothing_is_reused_while_held(s: State) -> Formula:
    """No table, no transfer that is read, no step in flight and no entry names a free block."""
    return s.every(
        lambda request, index, transfer, generation, worker, step, block: all_of(
            implies(s.in_table(request, index), no(s.free(s.table(request, index)))),
            implies(
                all_of(s.reading(transfer, generation, worker), s.record(transfer, block)),
                no(s.free(block)),
            ),
            implies(s.writes(step, request), no(s.free(s.write_block(step, request)))),
            implies(s.published(block), no(s.free(block))),
        )
    )


def read_equals_appended(s: State) -> Formula:
    """Every token that is still read is in the table, and it is the one that was appended."""
    return s.every(
        lambda request, index, offset: implies(
            all_of(
                s.live(request),
                s.in_block(offset),
                s.horizon(request).is_not_after(Position(index, offset)),
                Position(index, offset).is_before(s.length(request)),
            ),
            all_of(
                s.in_table(request, index),
                s.stored(s.table(request, index), offset) == s.appended(request, index, offset),
            ),
        )
    )


def nothing_leaks_after_the_last_holder(s: State) -> Formula:
    """A block without a holder is free."""
    return s.every(
        lambda block: implies(
            no(s.is_in_use(block)), implies(no(s.published(block)), s.free(block))
        )
    )


def a_worker_reads_what_was_pinned(s: State) -> Formula:
    """As long as a worker reads, what it reads is as it was when the transfer began."""
    return s.every(
        lambda transfer, generation, worker, block, offset: implies(
            all_of(
                s.reading(transfer, generation, worker),
                s.record(transfer, block),
                offset >= 0,
                offset < s.snapshot_fill(transfer, block),
            ),
            s.content(block, offset) == s.snapshot(transfer, block, offset),
        )
    )


def a_step_writes_where_nobody_else_is(s: State) -> Formula:
    """The block that a step writes is owned by its request alone, and no transfer reads it."""
    return s.every(
        lambda step, request, other_request, transfer: implies(
            s.writes(step, request),
            all_of(
                implies(
                    s.owns(other_request, s.write_block(step, request)), other_request == request
                ),
                no(s.pinned(transfer, s.write_block(step, request))),
            ),
        )
    )


def what_is_findable_is_what_it_says(s: State) -> Formula:
    """A published block holds what its entry says, computed after what its entry says."""
    return s.every(
        lambda block, index, offset: implies(
            all_of(s.published(block), s.in_block(offset)),
            all_of(
                s.entry(block, s.depth(block), offset) == s.content(block, offset),
                implies(
                    all_of(index >= 0, index < s.depth(block)),
                    s.entry(block, index, offset) == s.context(block, index, offset),
                ),
                s.context_epoch(block) == s.epoch(),
            ),
        )
    )


PROPERTIES: tuple[Claim, ...] = (
    no_block_is_in_two_unrelated_hands,
    nothing_is_reused_while_held,
    read_equals_appended,
    nothing_leaks_after_the_last_holder,
    a_worker_reads_what_was_pinned,
    a_step_writes_where_nobody_else_is,
    what_is_findable_is_what_it_says,
)
