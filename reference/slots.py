"""Slot arithmetic: where the KV of a token is written, in whole numbers.

A slot is `block * block_size + offset`.  An allocation block of `block_size` slots may be split
into `ratio` kernel blocks, and then a table names kernel blocks.  Under context parallelism each
of `world` ranks holds `block_size` of the `block_size * world` positions that one block of a
table stands for, dealt out `interleave` positions at a time.

Contracts are written as PEP 316 has them, for CrossHair; what breaks one is a ValueError.
Source: "The slot mapping" and "Tail waste has a distribution" of the document; the split and the
context parallel form are vLLM's.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction

PAD_SLOT = -1
"""The slot of a position that this rank does not write, and of the padding of a buffer."""

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


def require_whole(name: str, value: object, low: int = 0, high: int = INT32_MAX) -> None:
    """Refuse all but the whole numbers low .. high."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high}, not {value!r}")


def ceil_div(dividend: int, divisor: int) -> int:
    """The quotient, rounded up.

    pre: 0 <= dividend <= INT64_MAX
    pre: 1 <= divisor <= INT64_MAX
    post: (__return__ - 1) * divisor < dividend <= __return__ * divisor
    """
    require_whole("a dividend", dividend, high=INT64_MAX)
    require_whole("a divisor", divisor, low=1, high=INT64_MAX)
    return -(-dividend // divisor)


def blocks_needed(tokens: int, block_size: int) -> int:
    """How many blocks hold so many tokens.

    pre: 0 <= tokens <= INT64_MAX
    pre: 1 <= block_size <= INT32_MAX
    post: (__return__ - 1) * block_size < tokens <= __return__ * block_size
    """
    require_whole("the block size", block_size, low=1)
    return ceil_div(tokens, block_size)


def tail_waste(tokens: int, block_size: int) -> int:
    """The unwritten slots of the last block.

    pre: 0 <= tokens <= INT64_MAX
    pre: 1 <= block_size <= INT32_MAX
    post: 0 <= __return__ < block_size
    post: (tokens + __return__) % block_size == 0
    """
    return blocks_needed(tokens, block_size) * block_size - tokens


def expected_tail_waste(workload: Mapping[int, int], block_size: int) -> Fraction:
    """The mean tail waste of a workload: `{tokens: how many requests have so many}`."""
    for count in workload.values():
        require_whole("a number of requests", count, high=INT64_MAX)
    requests = sum(workload.values())
    if requests == 0:
        raise ValueError("a workload without requests has no mean")
    waste = sum(count * tail_waste(tokens, block_size) for tokens, count in workload.items())
    return Fraction(waste, requests)


def slot_at(block: int, offset: int, block_size: int) -> int:
    """The slot at an offset of a block.

    pre: 0 <= block <= INT32_MAX
    pre: 1 <= block_size <= INT32_MAX
    pre: 0 <= offset < block_size
    post: 0 <= __return__ <= INT64_MAX
    post: block_and_offset(__return__, block_size) == (block, offset)
    """
    require_whole("a block id", block)
    require_whole("the block size", block_size, low=1)
    require_whole("an offset", offset, high=block_size - 1)
    return block * block_size + offset


def block_and_offset(slot: int, block_size: int) -> tuple[int, int]:
    """The block of a slot and the offset in it; padding is in no block, and refused.

    pre: 1 <= block_size <= INT32_MAX
    pre: 0 <= slot < (INT32_MAX + 1) * block_size
    post: __return__[0] * block_size + __return__[1] == slot
    post: 0 <= __return__[1] < block_size
    """
    require_whole("the block size", block_size, low=1)
    require_whole("a slot", slot, high=(INT32_MAX + 1) * block_size - 1)
    return slot // block_size, slot % block_size


def kernel_block_size(block_size: int, ratio: int) -> int:
    """The slots of one of the `ratio` kernel blocks of an allocation block.

    pre: 1 <= ratio <= block_size <= INT32_MAX
    pre: block_size % ratio == 0
    post: __return__ * ratio == block_size
    """
    require_whole("the block size", block_size, low=1)
    require_whole("the kernel blocks of a block", ratio, low=1)
    if block_size % ratio:
        raise ValueError(f"a block of {block_size} slots does not split into {ratio} kernel blocks")
    return block_size // ratio


def kernel_blocks(block: int, ratio: int) -> list[int]:
    """The kernel blocks of an allocation block: block * ratio .. block * ratio + ratio - 1.

    pre: 1 <= ratio <= INT32_MAX
    pre: 0 <= block < (INT32_MAX + 1) // ratio
    post: len(__return__) == ratio
    post: all(kernel_block // ratio == block for kernel_block in __return__)
    """
    require_whole("the kernel blocks of a block", ratio, low=1)
    require_whole("a block id", block, high=(INT32_MAX + 1) // ratio - 1)
    return list(range(block * ratio, block * ratio + ratio))


def rank_of(position: int, world: int, interleave: int) -> int:
    """The rank that holds a position.

    pre: 0 <= position <= INT64_MAX
    pre: 1 <= world <= INT32_MAX
    pre: 1 <= interleave <= INT32_MAX
    post: 0 <= __return__ < world
    """
    require_whole("a position", position, high=INT64_MAX)
    require_whole("the context parallel world", world, low=1)
    require_whole("the interleave", interleave, low=1)
    return position // interleave % world


def local_position(position: int, block_size: int, world: int, interleave: int) -> int:
    """Which of its rank's positions a position is: how many of that rank come before it.

    pre: 0 <= position <= INT64_MAX
    pre: 1 <= block_size <= INT32_MAX
    pre: 1 <= world <= INT32_MAX
    pre: 1 <= interleave <= INT32_MAX
    pre: block_size % interleave == 0
    post: __return__ // block_size == position // (block_size * world)
    """
    require_whole("a position", position, high=INT64_MAX)
    require_whole("the block size", block_size, low=1)
    require_whole("the context parallel world", world, low=1)
    require_whole("the interleave", interleave, low=1)
    if block_size % interleave:
        raise ValueError(f"an interleave of {interleave} does not divide {block_size} slots")
    virtual_block, virtual_offset = divmod(position, block_size * world)
    turn = virtual_offset // (interleave * world)
    return virtual_block * block_size + turn * interleave + virtual_offset % interleave


def slot_of(
    table: Sequence[int],
    position: int,
    block_size: int,
    *,
    ratio: int = 1,
    world: int = 1,
    rank: int = 0,
    interleave: int = 1,
) -> int:
    """The slot of a position on a rank: `table[p // B] * B + p % B`; PAD_SLOT on other ranks.

    `table` names kernel blocks, which without a split are the allocation blocks.  A position
    beyond the table is a ValueError on every rank.

    pre: 0 <= position <= INT64_MAX
    pre: 1 <= ratio <= block_size <= INT32_MAX and block_size % ratio == 0
    pre: 0 <= rank < world <= INT32_MAX
    pre: 1 <= interleave <= INT32_MAX and block_size % interleave == 0
    pre: all(0 <= block <= INT32_MAX for block in table)
    post: PAD_SLOT <= __return__ <= INT64_MAX
    raises: ValueError
    """
    size = kernel_block_size(block_size, ratio)
    index, offset = divmod(local_position(position, block_size, world, interleave), size)
    require_whole("the context parallel rank", rank, high=world - 1)
    if index >= len(table):
        raise ValueError(f"position {position} is beyond a table of {len(table)} blocks")
    slot = slot_at(table[index], offset, size)
    return slot if rank_of(position, world, interleave) == rank else PAD_SLOT


def padded(slots: Sequence[int], length: int) -> list[int]:
    """The slots, then PAD_SLOT up to the length of a buffer; ValueError where they do not fit.

    pre: len(slots) <= length <= INT32_MAX
    post: len(__return__) == length
    post: __return__[: len(slots)] == list(slots)
    post: all(slot == PAD_SLOT for slot in __return__[len(slots) :])
    """
    require_whole("the length of a slot buffer", length)
    if len(slots) > length:
        raise ValueError(f"{len(slots)} slots do not fit a buffer of {length}")
    return [*slots, *[PAD_SLOT] * (length - len(slots))]
