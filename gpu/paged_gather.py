"""Paged gather: the keys and values of a sequence read back through its block table, in one layer."""

from __future__ import annotations

import torch

from kvoracle.gpu.checks import (
    as_integers,
    check_contiguous,
    check_rows,
    check_tensor,
    check_values,
    check_whole,
)
from kvoracle.gpu.kernel import Kernel, ceil_div, power_of_two, tl
from kvoracle.gpu.kv_write import COLUMNS, ROWS, check_caches


@Kernel
def _paged_gather(
    key_cache: tl.pointer_type,
    value_cache: tl.pointer_type,
    block_stride: tl.tensor,
    slot_stride: tl.tensor,
    blocks: tl.tensor,
    table: tl.pointer_type,
    key: tl.pointer_type,
    value: tl.pointer_type,
    key_stride: tl.tensor,
    value_stride: tl.tensor,
    tokens: tl.tensor,
    width: tl.tensor,
    tiles: tl.tensor,
    block_size: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
) -> None:
    program = tl.program_id(0)
    token = (program // tiles).to(tl.int64) * rows + tl.arange(0, rows)
    column = (program % tiles).to(tl.int64) * columns + tl.arange(0, columns)
    is_token = token < tokens
    block = tl.load(table + token // block_size, mask=is_token, other=0).to(tl.int64)
    is_block = is_token & (block >= 0) & (block < blocks)
    place = block * block_stride + token % block_size * slot_stride
    read = is_block[:, None] & (column < width)[None, :]
    written = is_token[:, None] & (column < width)[None, :]
    place_of_all = place[:, None] + column[None, :]
    keys = tl.load(key_cache + place_of_all, mask=read, other=0)
    tl.store(key + (token * key_stride)[:, None] + column[None, :], keys, mask=written)
    values = tl.load(value_cache + place_of_all, mask=read, other=0)
    tl.store(value + (token * value_stride)[:, None] + column[None, :], values, mask=written)


def paged_gather(
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
) -> None:
    """Read the first `len(key)` tokens of a sequence into `key` and `value`.

    key_cache, value_cache  [blocks, block size, heads, head size]; blocks and slots may lie apart, in
                            both alike
    block_table             int32 [blocks of the sequence]: block ids; of one outside the cache zeros
                            are read
    key, value              [tokens, heads, head size] of the same dtype; tokens may lie apart
    """
    _check(key_cache, value_cache, block_table, key, value)
    key_cache, value_cache, key, value = map(as_integers, (key_cache, value_cache, key, value))
    blocks, block_size, heads, head_size = key_cache.shape
    width = heads * head_size
    columns = power_of_two(width, COLUMNS)
    tiles = ceil_div(width, columns)
    _paged_gather.launch(
        ceil_div(len(key), ROWS) * tiles,
        *(key_cache, value_cache, key_cache.stride(0), key_cache.stride(1), blocks, block_table),
        *(key, value, key.stride(0), value.stride(0), len(key), width, tiles),
        block_size=block_size,
        rows=ROWS,
        columns=columns,
    )


def paged_gather_torch(
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
) -> None:
    """As `paged_gather`, in torch alone."""
    _check(key_cache, value_cache, block_table, key, value)
    blocks, block_size = key_cache.shape[:2]
    token = torch.arange(len(key), device=key.device)
    block = block_table[token // block_size].long()
    is_block = (block >= 0) & (block < blocks)
    for cache, out in ((key_cache, key), (value_cache, value)):
        rows = as_integers(cache)[torch.where(is_block, block, 0), token % block_size]
        as_integers(out).copy_(torch.where(is_block[:, None, None], rows, 0))


def _check(
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
) -> None:
    check_caches(key_cache, value_cache)
    blocks, block_size, heads, head_size = key_cache.shape
    device = key_cache.device
    check_tensor("the block table", block_table, torch.int32, (None,), device)
    check_contiguous("the block table", block_table)
    check_values("the block table", block_table, 0, blocks - 1)
    for name, out in (("keys", key), ("values", value)):
        check_tensor(name, out, key_cache.dtype, (len(key), heads, head_size), device)
        check_contiguous(name, out, 1)
        check_rows(name, out)
    check_whole("tokens to gather", len(key), 0, len(block_table) * block_size)
