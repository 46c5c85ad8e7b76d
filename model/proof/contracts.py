"""Claims about the arithmetic of `reference`, which CrossHair confirms on all paths within small bounds.

Contracts of single functions stand in `reference/slots.py` and `reference/capacity.py`.  Here are
claims about several calls together, and about functions with loops or products of variables, where
no solver goes through all paths without bounds.  The assertions that a claim begins with give the bounds.

Assertions, because under a PEP 316 contract CrossHair takes for granted that whatever a function
calls keeps its own contract.
"""

from kvoracle.reference.capacity import blocks_for, paged_admissions, startup
from kvoracle.reference.group_records import Group
from kvoracle.reference.slots import PAD_SLOT, kernel_blocks, local_position, padded, slot_of

TABLE = (5, 2)


def kernel_blocks_are_split_in_order(block: int, ratio: int) -> None:
    """An allocation block becomes `ratio` kernel blocks, which follow each other."""
    assert 0 <= block <= 1000
    assert 1 <= ratio <= 4
    split = kernel_blocks(block, ratio)
    assert len(split) == ratio
    assert all(kernel_block == block * ratio + place for place, kernel_block in enumerate(split))


def local_positions_stay_in_their_block(position: int, block_size: int, world: int) -> None:
    """A position is in the same block of the table with and without context parallelism."""
    assert 0 <= position <= 24
    assert 1 <= block_size <= 4
    assert 1 <= world <= 3
    local = local_position(position, block_size, world, 1)
    assert local // block_size == position // (block_size * world)


def positions_are_on_one_rank(position: int, block_size: int, world: int, interleave: int) -> None:
    """Each position belongs to exactly one rank."""
    assert 1 <= interleave <= block_size <= 3
    assert 1 <= world <= 3
    assert block_size % interleave == 0
    if not 0 <= position < len(TABLE) * block_size * world:
        return
    slots = [
        slot_of(TABLE, position, block_size, world=world, rank=rank, interleave=interleave)
        for rank in range(world)
    ]
    assert slots.count(PAD_SLOT) == world - 1


def local_slots_are_injective(position: int, other: int, block_size: int, rank: int) -> None:
    """Two positions on one rank of two have two slots."""
    assert 1 <= block_size <= 2
    assert 0 <= rank < 2
    assert 0 <= position < other < 8
    if other >= len(TABLE) * block_size * 2:
        return
    slot = slot_of(TABLE, position, block_size, world=2, rank=rank)
    assert slot == PAD_SLOT or slot != slot_of(TABLE, other, block_size, world=2, rank=rank)


def a_split_changes_no_slot(position: int, block_size: int, ratio: int) -> None:
    """A table of kernel blocks leads to the slots that a table of allocation blocks leads to."""
    assert 1 <= ratio <= block_size <= 4
    assert block_size % ratio == 0
    assert 0 <= position < 8
    if position >= len(TABLE) * block_size:
        return
    table = [kernel for block in TABLE for kernel in kernel_blocks(block, ratio)]
    right = TABLE[position // block_size] * block_size + position % block_size
    assert slot_of(table, position, block_size, ratio=ratio) == right


def padding_fills_the_buffer(count: int, length: int) -> None:
    """A buffer begins with its slots, and the rest of it is padding."""
    assert 0 <= count <= length <= 4
    buffer = padded(range(count), length)
    assert buffer == [*range(count), *[PAD_SLOT] * (length - count)]


def windows_begin_in_the_first_block_seen(length: int, block_size: int, window: int) -> None:
    """The first token that the query at position `length` sees is in the first block that it sees."""
    assert 0 <= length <= 1000
    assert 1 <= block_size <= 4
    assert 1 <= window <= 1000
    first = Group(block_size, window).first_seen(length)
    assert first * block_size <= max(0, length - window + 1) < (first + 1) * block_size


def as_many_requests_as_fit(blocks: int, block_size: int, tokens: int) -> None:
    """As many requests are admitted as have whole blocks, and one more has not."""
    assert 0 <= blocks <= 100
    assert 1 <= block_size <= 4
    assert 1 <= tokens <= 100
    admitted = paged_admissions(blocks, block_size, tokens)
    assert admitted * blocks_for(tokens, block_size) <= blocks
    assert (admitted + 1) * blocks_for(tokens, block_size) > blocks


def pools_fit_what_they_have_slots_for(max_model_len: int, blocks: int, block_size: int) -> None:
    """An engine may start exactly if its pool has a slot for each token of the longest request."""
    assert 1 <= max_model_len <= 100
    assert 0 <= blocks <= 100
    assert 1 <= block_size <= 4
    assert startup(max_model_len, blocks, block_size).fits == (max_model_len <= blocks * block_size)
