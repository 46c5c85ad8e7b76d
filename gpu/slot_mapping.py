"""Slot mapping: where each token of a step is written, from the block tables of its requests.

    slot = table[request, position // block_size] * block_size + position % block_size

The tokens of all requests lie one request after the other.  A program takes a tile of them and finds
the request of each by halving `query_starts`, so that one long prompt is spread over many programs.
"""

from __future__ import annotations

import torch

from kvoracle.gpu.checks import (
    ID_LIMIT,
    check_contiguous,
    check_rows,
    check_tensor,
    check_values,
    check_whole,
    looks_at_values,
)
from kvoracle.gpu.kernel import Kernel, ceil_div, power_of_two, tl

PAD_SLOT = -1
"""The slot of a token that is not written here, and of the padding of a buffer."""

TILE = 256


@Kernel
def _slot_mapping(
    table: tl.pointer_type,
    row_stride: tl.tensor,
    width: tl.tensor,
    starts: tl.pointer_type,
    requests: tl.tensor,
    positions: tl.pointer_type,
    count: tl.tensor,
    slots: tl.pointer_type,
    capacity: tl.tensor,
    size: tl.constexpr,
    world: tl.constexpr,
    rank: tl.constexpr,
    interleave: tl.constexpr,
    halvings: tl.constexpr,
    tile: tl.constexpr,
) -> None:
    token = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    is_token = (token < tl.load(starts + requests)) & (token < count) & (token < capacity)
    low = tl.full([tile], 0, tl.int32)
    high = low + requests
    for _ in range(halvings):
        middle = (low + high) // 2
        is_open = low < high
        has_ended = tl.load(starts + 1 + middle, mask=is_open, other=0) <= token
        low = tl.where(is_open & has_ended, middle + 1, low)
        high = tl.where(is_open & (has_ended == 0), middle, high)
    position = tl.load(positions + token, mask=is_token, other=0)
    turn = position // interleave
    local = turn // world * interleave + position % interleave
    column = local // size
    is_here = is_token & (turn % world == rank) & (position >= 0) & (column < width)
    entry = table + low.to(tl.int64) * row_stride + column
    block = tl.load(entry, mask=is_here, other=-1).to(tl.int64)
    slot = tl.where(is_here & (block >= 0), block * size + local % size, -1)
    tl.store(slots + token, slot, mask=token < capacity)


def slot_mapping(
    block_table: torch.Tensor,
    query_starts: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    block_size: int,
    *,
    ratio: int = 1,
    world: int = 1,
    rank: int = 0,
    interleave: int = 1,
) -> None:
    """Fill `slots` with the slot of each token, and with PAD_SLOT behind the last one.

    block_table   int32 [requests, width]: block ids, which name kernel blocks; rows may lie apart
    query_starts  int32 [requests + 1]: the first token of each request, then the number of tokens
    positions     int64 [tokens or more]: the position of each token in its request
    slots         int64 [capacity]: filled to its end
    block_size    slots of an allocation block, which is split into `ratio` kernel blocks
    world         ranks, dealt `interleave` positions at a time; other ranks' tokens get PAD_SLOT

    A position beyond the width of the table gets PAD_SLOT: nothing is written, and not into the
    block of another request.
    """
    _check(block_table, query_starts, positions, slots)
    _check_split(block_size, ratio, world, rank, interleave)
    requests, width = block_table.shape
    capacity = len(slots)
    tile = power_of_two(capacity, TILE)
    _slot_mapping.launch(
        ceil_div(capacity, tile),
        *(block_table, block_table.stride(0), width),
        *(query_starts, requests, positions, len(positions), slots, capacity),
        size=block_size // ratio,
        world=world,
        rank=rank,
        interleave=interleave,
        halvings=requests.bit_length(),
        tile=tile,
    )


def slot_mapping_torch(
    block_table: torch.Tensor,
    query_starts: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    block_size: int,
    *,
    ratio: int = 1,
    world: int = 1,
    rank: int = 0,
    interleave: int = 1,
) -> None:
    """As `slot_mapping`, in torch alone."""
    _check(block_table, query_starts, positions, slots)
    _check_split(block_size, ratio, world, rank, interleave)
    size = block_size // ratio
    slots.fill_(PAD_SLOT)
    token = torch.arange(min(len(slots), len(positions)), device=slots.device)
    token = token[token < query_starts[-1]]
    row = torch.searchsorted(query_starts[1:].contiguous(), token.int(), right=True)
    position = positions[token]
    turn = position // interleave
    local = turn // world * interleave + position % interleave
    is_here = (turn % world == rank) & (position >= 0) & (local // size < block_table.shape[1])
    token, row, local = token[is_here], row[is_here], local[is_here]
    block = block_table[row, local // size].long()
    slots[token] = torch.where(block >= 0, block * size + local % size, PAD_SLOT)


def _check(
    block_table: torch.Tensor,
    query_starts: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    device = slots.device
    check_tensor("the block table", block_table, torch.int32, (None, None), device)
    check_contiguous("the block table", block_table, 1)
    check_rows("the block table", block_table)
    check_tensor("query starts", query_starts, torch.int32, (len(block_table) + 1,), device)
    check_tensor("positions", positions, torch.int64, (None,), device)
    check_tensor("slots", slots, torch.int64, (None,), device)
    check_whole("the number of slots", len(slots), 0)
    check_whole("the number of requests", len(block_table), 0, ID_LIMIT // 2 - 1)
    for name, tensor in (
        ("query starts", query_starts),
        ("positions", positions),
        ("slots", slots),
    ):
        check_contiguous(name, tensor)
    if looks_at_values(slots):
        most = min(len(positions), len(slots))
        check_values("the first of the query starts", query_starts[:1], 0, 0)
        check_values("the steps of query starts", query_starts.diff(), 0, ID_LIMIT - 1)
        check_values("the last of the query starts", query_starts[-1:], 0, most)


def _check_split(block_size: int, ratio: int, world: int, rank: int, interleave: int) -> None:
    check_whole("the block size", block_size, 1)
    check_whole("the kernel blocks of a block", ratio, 1)
    check_whole("the context parallel world", world, 1)
    check_whole("the context parallel rank", rank, 0, world - 1)
    check_whole("the interleave", interleave, 1)
    for name, part in (("kernel blocks", ratio), ("turns", interleave)):
        if block_size % part:
            raise ValueError(f"a block of {block_size} slots does not split into {name} of {part}")
