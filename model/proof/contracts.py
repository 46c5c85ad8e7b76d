"""Claims about the slot arithmetic of `reference`, as contracts that CrossHair confirms on all paths.

Contracts of single functions stand in `reference/slots.py` and `reference/capacity.py`.  Here are
claims about several calls together, and about functions with loops or products of variables, where
all paths means all paths within small bounds.
"""

from kvoracle.reference import capacity
from kvoracle.reference.group_records import Group
from kvoracle.reference.slots import PAD_SLOT, kernel_blocks, local_position, padded, slot_of

TABLE = (5, 2)


def kernel_blocks_are_split_in_order(block: int, ratio: int) -> list[int]:
    """An allocation block becomes `ratio` kernel blocks, which follow each other.

    pre: 0 <= block <= 1000
    pre: 1 <= ratio <= 4
    post: len(__return__) == ratio
    post: all(kernel_block // ratio == block for kernel_block in __return__)
    post: all(kernel_block % ratio == place for place, kernel_block in enumerate(__return__))
    """
    return kernel_blocks(block, ratio)


def local_positions_stay_in_their_block(position: int, block_size: int, world: int) -> int:
    """A position is in the same block of the table on its rank and without context parallelism.

    pre: 0 <= position <= 32
    pre: 1 <= block_size <= 4
    pre: 1 <= world <= 3
    post: __return__ // block_size == position // (block_size * world)
    """
    return local_position(position, block_size, world, 1)


def ranks_of(position: int, block_size: int, world: int, interleave: int) -> list[int]:
    """A position is on exactly one rank.

    pre: 1 <= interleave <= block_size <= 3
    pre: block_size % interleave == 0
    pre: 1 <= world <= 3
    pre: 0 <= position < 2 * block_size * world
    post: len(__return__) == 1
    """
    slots = [
        slot_of(TABLE, position, block_size, world=world, rank=rank, interleave=interleave)
        for rank in range(world)
    ]
    return [rank for rank, slot in enumerate(slots) if slot != PAD_SLOT]


def slots_of_two(
    position: int, other: int, block_size: int, world: int, rank: int
) -> tuple[int, int]:
    """Two positions on one rank have two slots.

    pre: 1 <= block_size <= 2
    pre: 0 <= rank < world <= 2
    pre: 0 <= position < other < 2 * block_size * world
    post: __return__[0] != __return__[1] or __return__[0] == PAD_SLOT
    """
    first, second = (
        slot_of(TABLE, place, block_size, world=world, rank=rank) for place in (position, other)
    )
    return first, second


def slots_without_a_split(position: int, block_size: int, ratio: int) -> int:
    """A table of kernel blocks leads to the slots that a table of allocation blocks leads to.

    pre: 1 <= ratio <= block_size <= 4
    pre: block_size % ratio == 0
    pre: 0 <= position < 2 * block_size
    post: __return__ == TABLE[position // block_size] * block_size + position % block_size
    """
    table = [kernel for block in TABLE for kernel in kernel_blocks(block, ratio)]
    return slot_of(table, position, block_size, ratio=ratio)


def padded_to(slots: list[int], length: int) -> list[int]:
    """A buffer begins with its slots, and the rest of it is padding.

    pre: len(slots) <= length <= 3
    post: len(__return__) == length
    post: __return__[: len(slots)] == slots
    post: all(slot == PAD_SLOT for slot in __return__[len(slots) :])
    """
    return padded(slots, length)


def first_block_seen(length: int, block_size: int, window: int) -> int:
    """A window begins in the first block that it sees.

    pre: 0 <= length <= 1000
    pre: 1 <= block_size <= 4
    pre: 1 <= window <= 1000
    post: __return__ * block_size <= max(0, length - window + 1) < (__return__ + 1) * block_size
    """
    return Group(block_size, window).first_seen(length)


def requests_that_fit(blocks: int, block_size: int, tokens: int) -> int:
    """As many requests are admitted as have whole blocks, and one more has not.

    pre: 0 <= blocks <= 100
    pre: 1 <= block_size <= 4
    pre: 1 <= tokens <= 100
    post: __return__ * capacity.blocks_for(tokens, block_size) <= blocks
    post: (__return__ + 1) * capacity.blocks_for(tokens, block_size) > blocks
    """
    return capacity.paged_admissions(blocks, block_size, tokens)


def startup_fits(max_model_len: int, blocks: int, block_size: int) -> bool:
    """An engine may start exactly if its pool has a slot for each token of the longest request.

    pre: 1 <= max_model_len <= 100
    pre: 0 <= blocks <= 100
    pre: 1 <= block_size <= 4
    post: __return__ == (max_model_len <= blocks * block_size)
    """
    return capacity.startup(max_model_len, blocks, block_size).fits
