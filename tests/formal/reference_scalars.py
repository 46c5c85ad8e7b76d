"""The reference's slot arithmetic; a refusal and what is out of bounds are None."""

from scalar_bounds import TABLE, bounded

from kvoracle.reference import slots


@bounded
def blocks_needed(tokens: int, block_size: int) -> int | None:
    return slots.blocks_needed(tokens, block_size)


@bounded
def tail_waste(tokens: int, block_size: int) -> int | None:
    return slots.tail_waste(tokens, block_size)


@bounded
def block_and_offset(slot: int, block_size: int) -> tuple[int, int] | None:
    return slots.block_and_offset(slot, block_size)


@bounded
def kernel_blocks(block: int, ratio: int) -> list[int] | None:
    return slots.kernel_blocks(block, ratio)


@bounded
def slot_of(position: int, block_size: int, rank: int) -> int | None:
    return slots.slot_of(TABLE, position, block_size, world=2, rank=rank)
