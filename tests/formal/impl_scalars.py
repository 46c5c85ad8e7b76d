"""The fast slot arithmetic on one number at a time; a refusal and what is out of bounds are None."""

import numpy as np
from scalar_bounds import TABLE, bounded

from kvoracle.impl import slots


@bounded
def blocks_needed(tokens: int, block_size: int) -> int | None:
    return int(slots.blocks_needed([tokens], block_size)[0])


@bounded
def tail_waste(tokens: int, block_size: int) -> int | None:
    return int(slots.tail_waste([tokens], block_size)[0])


@bounded
def block_and_offset(slot: int, block_size: int) -> tuple[int, int] | None:
    blocks, offsets = slots.blocks_and_offsets([slot], block_size)
    return int(blocks[0]), int(offsets[0])


@bounded
def kernel_blocks(block: int, ratio: int) -> list[int] | None:
    return slots.kernel_blocks([block], ratio).tolist()


@bounded
def slot_of(position: int, block_size: int, rank: int) -> int | None:
    lengths = np.array([len(TABLE)], np.int32)
    row = np.array([TABLE], np.int32)
    mapped = slots.slot_mapping(row, lengths, [0], [position], block_size, world=2, rank=rank)
    return int(mapped[0])
