"""What is true of every state, each claim by its name.

Together they are inductive: a state in which all hold is followed only by such states.
"""

from collections.abc import Callable
from itertools import pairwise

from kvoracle.model.proof.logic import Formula, Position, Term, all_of, any_of, implies, no, same
from kvoracle.model.proof.state import State

Claim = Callable[[State], Formula]


def blocks_have_a_slot(s: State) -> Formula:
    """The block size is at least 1."""
    return s.size() >= 1


def free_blocks_have_no_holder(s: State) -> Formula:
    """A free block is owned, pinned, held and published by nobody."""
    return s.every(
        lambda block, request, transfer, step: implies(
            s.free(block),
            no(
                any_of(
                    s.owns(request, block),
                    s.pinned(transfer, block),
                    s.holds(step, block),
                    s.published(block),
                )
            ),
        )
    )


def allocated_blocks_have_a_holder(s: State) -> Formula:
    """A block that is not free has a holder: nothing leaks."""
    return s.every(lambda block: any_of(s.free(block), s.published(block), s.is_in_use(block)))


def owned_blocks_are_in_the_table(s: State) -> Formula:
    """Who owns a block is live and names it in its table."""
    return s.every(
        lambda request, block: implies(
            s.owns(request, block),
            all_of(s.in_table(request, s.depth(block)), s.table(request, s.depth(block)) == block),
        )
    )


def blocks_in_a_table_are_owned(s: State) -> Formula:
    """Whom a table names, its request owns."""
    return s.every(
        lambda request, index: implies(
            s.in_table(request, index), s.owns(request, s.table(request, index))
        )
    )


def tables_name_no_block_twice(s: State) -> Formula:
    """A block is at one index in every table."""
    return s.every(
        lambda request, index: implies(
            s.in_table(request, index), s.depth(s.table(request, index)) == index
        )
    )


def pins_and_records_agree(s: State) -> Formula:
    """A block is pinned exactly by the outstanding transfers whose record names it."""
    return s.every(
        lambda transfer, block: same(
            s.pinned(transfer, block),
            all_of(s.outstanding(transfer), s.record(transfer, block)),
        )
    )


def transfers_pin_something(s: State) -> Formula:
    """A transfer that is outstanding has something to read."""
    return s.every(
        lambda transfer: implies(
            s.outstanding(transfer), s.some(lambda block: s.pinned(transfer, block))
        )
    )


def ends_are_in_order(s: State) -> Formula:
    """Horizon, written, promised and reserved follow each other, each inside a block."""

    def ordered(request: Term) -> Formula:
        ends = (s.horizon(request), s.length(request), s.promised(request), s.room(request))
        return all_of(
            s.first(request) >= 0,
            s.first(request) <= ends[0].index,
            *(s.in_block(end.offset) for end in ends),
            *(left.is_not_after(right) for left, right in pairwise(ends)),
        )

    return s.every(lambda request: implies(s.live(request), ordered(request)))


def tables_are_as_long_as_needed(s: State) -> Formula:
    """A table has blocks for the room that is reserved, and no more."""
    return s.every(
        lambda request: implies(
            s.live(request),
            all_of(
                implies(s.room_offset(request) == 0, s.count(request) == s.room_index(request)),
                implies(s.room_offset(request) > 0, s.count(request) == s.room_index(request) + 1),
            ),
        )
    )


def only_the_tail_is_partial(s: State) -> Formula:
    """Blocks before the tail are full, the tail is filled to the end, those after it are empty."""

    def filled(request: Term, index: Term) -> Formula:
        end, fill = s.length(request), s.fill(s.table(request, index))
        return all_of(
            implies(index < end.index, fill == s.size()),
            implies(index == end.index, fill == end.offset),
            implies(index > end.index, fill == 0),
        )

    return s.every(
        lambda request, index: implies(s.in_table(request, index), filled(request, index))
    )


def reserved_room_is_exclusive(s: State) -> Formula:
    """The block in which there is room beyond what is written, and those after it, have one holder."""
    return s.every(
        lambda request, other_request, transfer, index: implies(
            all_of(
                s.in_table(request, index),
                index >= s.length_index(request),
                no(s.is_settled(request)),
            ),
            all_of(
                implies(s.owns(other_request, s.table(request, index)), other_request == request),
                no(s.pinned(transfer, s.table(request, index))),
            ),
        )
    )


def requests_read_what_was_appended(s: State) -> Formula:
    """What is read through a table is what was appended, in order."""
    return s.every(
        lambda request, index, offset: implies(
            all_of(
                s.in_table(request, index),
                s.in_block(offset),
                Position(index, offset).is_before(s.length(request)),
            ),
            s.stored(s.table(request, index), offset) == s.appended(request, index, offset),
        )
    )


def blocks_were_computed_in_this_context(s: State) -> Formula:
    """What is in a request's blocks was computed after just the tokens that it has before them."""
    return s.every(
        lambda request, before_index, index, offset: implies(
            all_of(
                s.in_table(request, index),
                before_index >= 0,
                before_index < index,
                s.in_block(offset),
                s.fill(s.table(request, index)) > 0,
            ),
            s.context(s.table(request, index), before_index, offset)
            == s.appended(request, before_index, offset),
        )
    )


def blocks_were_computed_with_these_keys(s: State) -> Formula:
    """What is in a request's blocks was computed with its extra keys and its weights."""
    return s.every(
        lambda request, block: implies(
            all_of(s.owns(request, block), s.fill(block) > 0),
            all_of(
                s.context_key(block) == s.key(request),
                s.context_epoch(block) == s.epoch_of(request),
            ),
        )
    )


def pinned_blocks_never_change(s: State) -> Formula:
    """What a transfer reads is what it pinned, until it ends."""
    return s.every(
        lambda transfer, block, offset: implies(
            s.pinned(transfer, block),
            all_of(
                no(s.pending(block)),
                s.fill(block) == s.snapshot_fill(transfer, block),
                implies(
                    all_of(offset >= 0, offset < s.fill(block)),
                    s.content(block, offset) == s.snapshot(transfer, block, offset),
                ),
            ),
        )
    )


def published_blocks_are_full(s: State) -> Formula:
    """What is findable is full, and no copy of it is still to run."""
    return s.every(
        lambda block: implies(
            s.published(block), all_of(s.fill(block) == s.size(), no(s.pending(block)))
        )
    )


def published_blocks_hold_what_they_say(s: State) -> Formula:
    """The last tokens of an entry are those in the block."""
    return s.every(
        lambda block, offset: implies(
            all_of(s.published(block), s.in_block(offset)),
            s.entry(block, s.depth(block), offset) == s.content(block, offset),
        )
    )


def entries_say_in_which_context(s: State) -> Formula:
    """The other tokens of an entry, and its key, are those after which the block was computed."""
    return s.every(
        lambda block, index, offset: implies(
            s.published(block),
            all_of(
                s.entry_key(block) == s.context_key(block),
                implies(
                    all_of(index >= 0, index < s.depth(block), s.in_block(offset)),
                    s.entry(block, index, offset) == s.context(block, index, offset),
                ),
            ),
        )
    )


def entries_are_of_todays_weights(s: State) -> Formula:
    """What is findable was computed with the weights of today."""
    return s.every(lambda block: implies(s.published(block), s.context_epoch(block) == s.epoch()))


def steps_are_numbered(s: State) -> Formula:
    """Steps in flight have numbers of their own, up to the latest."""
    return s.every(
        lambda step, other_step: implies(
            s.flying(step),
            all_of(
                s.number(step) <= s.latest(),
                implies(
                    all_of(s.flying(other_step), s.number(step) == s.number(other_step)),
                    step == other_step,
                ),
            ),
        )
    )


def holds_are_of_steps_in_flight(s: State) -> Formula:
    """Who holds a block is in flight."""
    return s.every(lambda step, block: implies(s.holds(step, block), s.flying(step)))


def writes_were_promised(s: State) -> Formula:
    """A step writes to a live request, at a promised position, into the block that its table names."""

    def promised(step: Term, request: Term) -> Formula:
        at = s.writes_at(step, request)
        return all_of(
            s.flying(step),
            s.in_table(request, at.index),
            s.write_block(step, request) == s.table(request, at.index),
            s.length(request).is_not_after(at),
            at.is_before(s.promised(request)),
            s.in_block(at.offset),
            s.writer(request, at.index, at.offset) == step,
        )

    return s.every(
        lambda step, request: implies(
            s.writes(step, request), all_of(s.live(request), promised(step, request))
        )
    )


def promises_have_a_writer(s: State) -> Formula:
    """Every promised position has a step that writes it."""

    def is_promised(request: Term, position: Position) -> Formula:
        return all_of(
            s.live(request),
            s.in_block(position.offset),
            s.length(request).is_not_after(position),
            position.is_before(s.promised(request)),
        )

    return s.every(
        lambda request, index, offset: implies(
            is_promised(request, Position(index, offset)),
            _has_writer(s, request, Position(index, offset)),
        )
    )


def first_and_last_promise_have_a_writer(s: State) -> Formula:
    """That much in particular; a solver does not think of these positions by itself."""
    return s.every(
        lambda request: implies(
            all_of(s.live(request), s.length(request).is_before(s.promised(request))),
            all_of(
                _has_writer(s, request, s.length(request)),
                _has_writer(s, request, s.promised(request).before(s.size())),
            ),
        )
    )


def _has_writer(s: State, request: Term, position: Position) -> Formula:
    step = s.writer(request, *position)
    return all_of(s.writes(step, request), s.writes_at(step, request).is_at(position))


def older_steps_write_first(s: State) -> Formula:
    """Of two steps that write to a request, the older one writes the earlier position."""
    return s.every(
        lambda request, step, other_step: implies(
            all_of(
                s.writes(step, request),
                s.writes(other_step, request),
                s.number(step) < s.number(other_step),
            ),
            s.writes_at(step, request).is_before(s.writes_at(other_step, request)),
        )
    )


def steps_hold_what_they_touch(s: State) -> Formula:
    """A step holds each block up to the one that it writes."""
    return s.every(
        lambda step, request, index: implies(
            all_of(
                s.writes(step, request),
                s.in_table(request, index),
                index <= s.write_index(step, request),
            ),
            s.holds(step, s.table(request, index)),
        )
    )


def pending_copies_are_held(s: State) -> Formula:
    """Source and destination of a pending copy are held by its step; the source has the data."""
    return s.every(
        lambda block: implies(
            s.pending(block),
            all_of(
                s.holds(s.copier(block), block),
                s.holds(s.copier(block), s.source(block)),
                no(s.pending(s.source(block))),
                s.fill(block) <= s.fill(s.source(block)),
                s.fill(block) < s.size(),
            ),
        )
    )


def pending_copies_come_before_the_write(s: State) -> Formula:
    """Whoever owns a pending block waits for its step, and has written nothing since it began."""
    return s.every(
        lambda block, request: implies(
            all_of(s.pending(block), s.owns(request, block)),
            all_of(
                s.writes(s.copier(block), request),
                s.writes_at(s.copier(block), request).is_at(s.length(request)),
            ),
        )
    )


def strays_hit_nobody(s: State) -> Formula:
    """Where a step writes for a request that has ended, the step still holds the block, and nobody
    reads it."""
    return s.every(
        lambda step, block, offset, request, transfer: implies(
            s.strays(step, block, offset),
            all_of(
                s.holds(step, block),
                no(s.owns(request, block)),
                no(s.pinned(transfer, block)),
                no(s.published(block)),
            ),
        )
    )


def strays_miss_what_is_copied(s: State) -> Formula:
    """Such a write is behind whatever is still to be copied from the block."""
    return s.every(
        lambda step, block, offset: implies(
            all_of(s.pending(block), s.strays(step, s.source(block), offset)),
            offset >= s.fill(block),
        )
    )


def readers_are_awaited(s: State) -> Formula:
    """A worker that reads does so for an outstanding transfer, which awaits its acknowledgement."""
    return s.every(
        lambda transfer, generation, worker: implies(
            s.reading(transfer, generation, worker),
            all_of(
                s.outstanding(transfer),
                no(s.plain(transfer)),
                generation == s.generation(transfer),
                s.awaited(transfer, worker),
                no(s.acknowledged(transfer, worker)),
            ),
        )
    )


def what_was_said_is_so(s: State) -> Formula:
    """A worker that said that it is done with a generation reads it no more, nor ever again."""
    return s.every(
        lambda transfer, generation, worker: implies(
            s.said(transfer, generation, worker),
            all_of(
                no(s.reading(transfer, generation, worker)), generation <= s.generation(transfer)
            ),
        )
    )


INVARIANTS: tuple[Claim, ...] = (
    blocks_have_a_slot,
    free_blocks_have_no_holder,
    allocated_blocks_have_a_holder,
    owned_blocks_are_in_the_table,
    blocks_in_a_table_are_owned,
    tables_name_no_block_twice,
    pins_and_records_agree,
    transfers_pin_something,
    ends_are_in_order,
    tables_are_as_long_as_needed,
    only_the_tail_is_partial,
    reserved_room_is_exclusive,
    requests_read_what_was_appended,
    blocks_were_computed_in_this_context,
    blocks_were_computed_with_these_keys,
    pinned_blocks_never_change,
    published_blocks_are_full,
    published_blocks_hold_what_they_say,
    entries_say_in_which_context,
    entries_are_of_todays_weights,
    steps_are_numbered,
    holds_are_of_steps_in_flight,
    writes_were_promised,
    promises_have_a_writer,
    first_and_last_promise_have_a_writer,
    older_steps_write_first,
    steps_hold_what_they_touch,
    pending_copies_are_held,
    pending_copies_come_before_the_write,
    strays_hit_nobody,
    strays_miss_what_is_copied,
    readers_are_awaited,
    what_was_said_is_so,
)
