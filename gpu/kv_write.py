"""KV write: the keys and values of new tokens into their slots, in one layer.

A slot is `block * block_size + offset`; a negative one is skipped.  Bytes are moved as integers, so a
program moves a tile of rows and columns of any dtype unchanged.
"""

from __future__ import annotations

import torch

from kvoracle.gpu.checks import (
    as_integers,
    check_contiguous,
    check_rows,
    check_tensor,
    check_values,
    looks_at_values,
)
from kvoracle.gpu.kernel import Kernel, ceil_div, power_of_two, tl

ROWS = 8
COLUMNS = 512
"""Tokens and elements of a tile."""


@Kernel
def _kv_write(
    key: tl.pointer_type,
    value: tl.pointer_type,
    key_stride: tl.tensor,
    value_stride: tl.tensor,
    slots: tl.pointer_type,
    tokens: tl.tensor,
    key_cache: tl.pointer_type,
    value_cache: tl.pointer_type,
    block_stride: tl.tensor,
    slot_stride: tl.tensor,
    capacity: tl.tensor,
    width: tl.tensor,
    tiles: tl.tensor,
    block_size: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
) -> None:
    program = tl.program_id(0)
    token = (program // tiles).to(tl.int64) * rows + tl.arange(0, rows)
    column = (program % tiles).to(tl.int64) * columns + tl.arange(0, columns)
    slot = tl.load(slots + token, mask=token < tokens, other=-1)
    is_written = (slot >= 0) & (slot < capacity)
    place = slot // block_size * block_stride + slot % block_size * slot_stride
    mask = is_written[:, None] & (column < width)[None, :]
    place_of_all = place[:, None] + column[None, :]
    keys = tl.load(key + (token * key_stride)[:, None] + column[None, :], mask=mask)
    tl.store(key_cache + place_of_all, keys, mask=mask)
    values = tl.load(value + (token * value_stride)[:, None] + column[None, :], mask=mask)
    tl.store(value_cache + place_of_all, values, mask=mask)


def kv_write(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Store the keys and values of tokens at their slots.

    key, value              [tokens, heads, head size]; tokens may lie apart
    key_cache, value_cache  [blocks, block size, heads, head size] of the same dtype; blocks and slots
                            may lie apart, in both alike
    slots                   int64 [tokens]: a slot each, none twice; negative ones are skipped
    """
    _check(key, value, key_cache, value_cache, slots)
    key, value, key_cache, value_cache = map(as_integers, (key, value, key_cache, value_cache))
    blocks, block_size, heads, head_size = key_cache.shape
    width = heads * head_size
    columns = power_of_two(width, COLUMNS)
    tiles = ceil_div(width, columns)
    _kv_write.launch(
        ceil_div(len(slots), ROWS) * tiles,
        *(key, value, key.stride(0), value.stride(0), slots, len(slots)),
        *(key_cache, value_cache, key_cache.stride(0), key_cache.stride(1)),
        *(blocks * block_size, width, tiles),
        block_size=block_size,
        rows=ROWS,
        columns=columns,
    )


def kv_write_torch(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """As `kv_write`, in torch alone."""
    _check(key, value, key_cache, value_cache, slots)
    blocks, block_size = key_cache.shape[:2]
    is_written = (slots >= 0) & (slots < blocks * block_size)
    where = slots[is_written]
    for new, cache in ((key, key_cache), (value, value_cache)):
        rows = as_integers(new)[is_written]
        as_integers(cache)[where // block_size, where % block_size] = rows


def check_caches(key_cache: torch.Tensor, value_cache: torch.Tensor) -> None:
    """Refuse caches that differ in more than where they begin."""
    check_tensor("the key cache", key_cache, None, (None, None, None, None))
    check_tensor("the value cache", value_cache, key_cache.dtype, key_cache.shape, key_cache.device)
    for name, cache in (("the key cache", key_cache), ("the value cache", value_cache)):
        check_contiguous(name, cache, 2)
        check_rows(name, cache)
        if cache.numel() == 0 or cache.stride() != key_cache.stride():
            raise ValueError(f"{name} must not be empty, and lie as the key cache does")


def _check(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    check_caches(key_cache, value_cache)
    blocks, block_size, heads, head_size = key_cache.shape
    device = key_cache.device
    check_tensor("slots", slots, torch.int64, (None,), device)
    check_contiguous("slots", slots)
    for name, new in (("keys", key), ("values", value)):
        check_tensor(name, new, key_cache.dtype, (len(slots), heads, head_size), device)
        check_contiguous(name, new, 1)
        check_rows(name, new)
    check_values("slots", slots, -(2**63), blocks * block_size - 1)
    if looks_at_values(slots):
        written = slots[slots >= 0]
        if len(written.unique()) < len(written):
            raise ValueError("slots must not name one slot twice; which token is left is undefined")
