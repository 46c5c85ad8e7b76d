"""Slot arithmetic on whole batches: one numpy expression for all tokens of a step.

Everything is worked out in int64, since the slots of an int32 block id do not fit int32.  An
allocation block of `block_size` slots may be split into `ratio` kernel blocks, and then tables
name kernel blocks.  Under context parallelism position p belongs to rank `p // interleave % world`
and `interleave` divides `block_size`, so that every rank's positions, counted by themselves, run
through the table as all positions do when there is but one rank.

Bad input is a ValueError in one sentence.
Source: "The slot mapping" and "Tail waste has a distribution" of the document; the split and the
context parallel form are vLLM's.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvoracle.impl.ids import Ids, Slots

PAD_SLOT = -1
"""The slot of a token that this rank does not write, and of the padding of a buffer."""

ID_LIMIT = 2**31
"""Block ids, block sizes and lengths are below it: int32."""

Counts = NDArray[np.int64]
"""Whole numbers that are no ids."""


def whole(name: str, values: ArrayLike, low: int = 0, high: int = ID_LIMIT - 1) -> Counts:
    """A list as int64 [n]; ValueError unless all are whole numbers from low to high."""
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"{name} must be whole numbers in one list, not {values!r:.60}")
    if array.size and (array.min() < low or array.max() > high):
        outside = array.min() if array.min() < low else array.max()
        raise ValueError(f"{name} must be whole numbers from {low} to {high}, not {outside}")
    return array.astype(np.int64)


def blocks_needed(tokens: ArrayLike, block_size: int) -> Counts:
    """How many blocks hold so many tokens: int64 [n] of int [n]."""
    check_whole("the block size", block_size)
    return -(-whole("tokens", tokens, high=2**63 - 1) // block_size)


def tail_waste(tokens: ArrayLike, block_size: int) -> Counts:
    """The unwritten slots of the last blocks: int64 [n] of int [n]."""
    check_whole("the block size", block_size)
    return -whole("tokens", tokens, high=2**63 - 1) % block_size


def expected_tail_waste(tokens: ArrayLike, requests: ArrayLike, block_size: int) -> float:
    """The mean tail waste of a workload in which `requests[i]` requests have `tokens[i]` tokens."""
    weights = whole("numbers of requests", requests, high=2**63 - 1)
    if not weights.any():
        raise ValueError("a workload without requests has no mean")
    return float(np.average(tail_waste(tokens, block_size), weights=weights))


def blocks_and_offsets(slots: ArrayLike, block_size: int) -> tuple[Ids, Counts]:
    """The blocks of slots, int32 [n], and the offsets in them, int64 [n]; no padding among them."""
    check_whole("the block size", block_size)
    slots = whole("slots", slots, high=ID_LIMIT * block_size - 1)
    blocks, offsets = np.divmod(slots, block_size)
    return blocks.astype(np.int32), offsets


def kernel_block_size(block_size: int, ratio: int) -> int:
    """The slots of one of the `ratio` kernel blocks of an allocation block."""
    check_whole("the block size", block_size)
    check_whole("the kernel blocks of a block", ratio)
    if block_size % ratio:
        raise ValueError(f"a block of {block_size} slots does not split into {ratio} kernel blocks")
    return block_size // ratio


def kernel_blocks(blocks: ArrayLike, ratio: int) -> Ids:
    """The kernel blocks of allocation blocks, in order: int32 [n * ratio] of int [n]."""
    check_whole("the kernel blocks of a block", ratio)
    first = whole("block ids", blocks, high=ID_LIMIT // ratio - 1) * ratio
    return (first[:, None] + np.arange(ratio)).ravel().astype(np.int32)


def check_sharding(block_size: int, world: int, rank: int, interleave: int) -> None:
    """Refuse a rank outside the world, and an interleave that does not divide the block size."""
    check_whole("the context parallel world", world)
    check_whole("the context parallel rank", rank, 0, world - 1)
    check_whole("the interleave", interleave)
    if block_size % interleave:
        raise ValueError(f"an interleave of {interleave} does not divide {block_size} slots")


def slot_mapping(
    block_table: Ids,
    num_blocks: NDArray[np.integer],
    rows: ArrayLike,
    positions: ArrayLike,
    block_size: int,
    *,
    ratio: int = 1,
    world: int = 1,
    rank: int = 0,
    interleave: int = 1,
) -> Slots:
    """The slots of tokens on one rank: int64 [tokens], PAD_SLOT where another rank writes.

    `block_table` is int32 [n, width], the first `num_blocks[r]` entries of row r are its table and
    name kernel blocks.  Token i is at `positions[i]` of row `rows[i]`: int [tokens] both.  A
    position beyond its row is a ValueError on every rank.
    """
    size = kernel_block_size(block_size, ratio)
    check_sharding(block_size, world, rank, interleave)
    rows = whole("rows", rows, high=len(block_table) - 1)
    positions = whole("positions", positions, high=2**63 - 1)
    if len(rows) != len(positions):
        raise ValueError(f"{len(rows)} rows were given for {len(positions)} positions")
    turns, places = np.divmod(positions, interleave)
    columns, offsets = np.divmod(turns // world * interleave + places, size)
    beyond = columns >= num_blocks[rows]
    if beyond.any():
        first = beyond.argmax()
        raise ValueError(f"position {positions[first]} is beyond the blocks of row {rows[first]}")
    slots = whole("block ids", block_table[rows, columns]) * size + offsets
    slots[turns % world != rank] = PAD_SLOT
    return slots


def padded(slots: Slots, length: int) -> Slots:
    """The slots, then PAD_SLOT up to the length of a buffer: int64 [length]."""
    check_whole("the length of a slot buffer", length, 0)
    if len(slots) > length:
        raise ValueError(f"{len(slots)} slots do not fit a buffer of {length}")
    buffer = np.full(length, PAD_SLOT, np.int64)
    buffer[: len(slots)] = slots
    return buffer


def check_whole(name: str, value: int, low: int = 1, high: int = ID_LIMIT - 1) -> None:
    """Refuse all but one whole number from low to high."""
    whole(name, [value], low, high)
