"""A whole large pool, compared word for word after everything that moves bytes in it, in every dtype.

Before it every word has bits of its own.  Copies, and tokens that are gathered from some blocks and
written into others, leave each block with the bits that one of the blocks began with: its origin.  All
dtypes are views of one storage, so that no second pool is needed.
"""

from collections.abc import Iterator
from itertools import pairwise

import torch

from kvoracle.gpu.bench_pool import Size
from kvoracle.gpu.block_copy import copy_blocks
from kvoracle.gpu.checks import as_integers, in_one_line
from kvoracle.gpu.copy_plan import Pair
from kvoracle.gpu.kv_write import kv_write
from kvoracle.gpu.paged_gather import paged_gather
from kvoracle.gpu.slot_mapping import slot_mapping

DTYPES = (
    *(torch.bfloat16, torch.float16, torch.float32),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.int8),
)

CHUNK = 64
"""Blocks that are filled, and compared, at once: 128 MiB of the document's."""

FACTOR = -0x61C8864680B583EB
"""Words are numbered, times this: all their bytes vary and, as it is odd, no two are alike modulo 2^64."""


def compare_whole_pool(storage: torch.Tensor, size: Size) -> Iterator[tuple[str, list[str]]]:
    """Move blocks and tokens in every dtype, comparing every word after each; each dtype, and what was
    wrong in it.

    storage  int64 [blocks, words] of that size; what it holds is lost
    """
    for dtype in DTYPES:
        wrong: list[str] = []
        try:
            wrong.extend(_wrong_in(storage, size, dtype))
        except Exception as error:
            wrong.append(in_one_line(error))
        yield _name(dtype), wrong


def _wrong_in(storage: torch.Tensor, size: Size, dtype: torch.dtype) -> Iterator[str]:
    blocks = len(storage)
    origin = torch.arange(blocks, device=storage.device)
    _fill(storage)
    for name, pairs in _lists(blocks):
        copy_blocks([storage.view(dtype)], pairs)
        yield from _differing(name, storage, origin, pairs)
    pairs = [(0, blocks - 1), (blocks - 2, 1), (blocks // 2, blocks // 2 + 1)]
    yield from _move_tokens(size.caches(storage, dtype), pairs)
    yield from _differing("tokens", storage, origin, pairs)


def _lists(blocks: int) -> Iterator[tuple[str, list[Pair]]]:
    """Pairs of every kind, spread over the pool to its last block."""
    spread = [number * (blocks - 4) // 7 for number in range(8)]
    turned = spread[1:] + spread[:1]
    yield "disjoint pairs", [(block, block + 3) for block in spread]
    yield "fan-out", [(2, block + 3) for block in spread]
    yield "a chain", list(pairwise([*spread, blocks - 1]))
    yield "a cycle", list(zip(spread, turned, strict=True))
    reader = (spread[0], blocks - 1)
    yield "a cycle and its readers", [*zip(turned, spread, strict=True), reader]


def _move_tokens(caches: torch.Tensor, pairs: list[Pair]) -> Iterator[str]:
    """Copy whole blocks as tokens: gathered, written to slots that are mapped, and read back."""
    device, (block_size, heads, head_size) = caches.device, caches.shape[3:]
    sources, destinations = (
        torch.tensor(blocks, dtype=torch.int32, device=device)
        for blocks in zip(*pairs, strict=True)
    )
    tokens = len(pairs) * block_size
    starts = torch.tensor([0, tokens], dtype=torch.int32, device=device)
    positions, slots = (torch.arange(tokens, device=device) for _ in range(2))
    slot_mapping(destinations[None], starts, positions, slots, block_size)
    shape = (2, tokens, heads, head_size)
    key, value = new = torch.empty(shape, dtype=caches.dtype, device=device)
    back = torch.empty_like(new)
    for layer in range(caches.shape[1]):
        keys, values = caches[:, layer, 0], caches[:, layer, 1]
        paged_gather(keys, values, sources, key, value)
        kv_write(key, value, keys, values, slots)
        paged_gather(keys, values, destinations, *back)
        if not torch.equal(as_integers(new), as_integers(back)):
            yield f"tokens: layer {layer} reads back otherwise"


def _fill(storage: torch.Tensor) -> None:
    firsts, numbers = _bits(storage)
    for part, first in zip(storage.split(CHUNK), firsts.split(CHUNK), strict=True):
        torch.add(first[:, None], numbers, out=part)


def _differing(
    name: str, storage: torch.Tensor, origin: torch.Tensor, pairs: list[Pair]
) -> Iterator[str]:
    """What differs now that these pairs were copied; `origin` is brought up to date."""
    sources, destinations = torch.tensor(pairs, device=storage.device).T
    origin[destinations] = origin[sources]
    firsts, numbers = _bits(storage)
    found: list[int] = []
    rights = firsts[origin].split(CHUNK)
    for number, (part, right) in enumerate(zip(storage.split(CHUNK), rights, strict=True)):
        wrong = (part - numbers != right[:, None]).any(1).nonzero().flatten()
        found += (wrong + number * CHUNK).tolist()
    if found:
        yield f"{name}: {len(found)} blocks are wrong, {found[0]} first"


def _bits(storage: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first word that each block is filled with, and what each word of a block adds to it."""
    blocks, words = storage.shape
    firsts = torch.arange(0, blocks * words, words, device=storage.device) * FACTOR
    return firsts, torch.arange(words, device=storage.device) * FACTOR


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
