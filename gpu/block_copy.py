"""Block copy: whole blocks of every layer from sources to destinations, as one parallel assignment.

Storage is a list of planes, tensors [blocks, ...] whose blocks are contiguous and lie a stride apart:

    one contiguous storage     [storage]                        storage: [blocks, layers, ...]
    one tensor per layer       [layer, layer, ...]              layer: [blocks, ...]
    K and V interleaved        [layer[:, 0], layer[:, 1], ...]  layer: [blocks, 2, ...]
    K and V apart              [layer[0], layer[1], ...]        layer: [2, blocks, ...]

One launch serves all planes, through a table of their addresses, and makes no temporary.  The fast
kernel gives each pair, plane and tile of a block a program of its own, so no block may be both read
and written.  The kernel for any pairs gives each chain of a `CopyPlan`, plane and tile one, which
goes through the chain in order: what stands in the way of a byte is only ever the same byte of another
block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from kvoracle.gpu.checks import INTEGERS, check_contiguous, check_rows, check_tensor, check_whole
from kvoracle.gpu.copy_plan import Pair, plan_copies
from kvoracle.gpu.kernel import Kernel, ceil_div, power_of_two, tl

TILE = 1024
"""Words of a tile: 8 KiB of int64, which 4 warps move in four 16-byte loads and stores a thread."""


class Pool(NamedTuple):
    """Planes as the kernels take them: blocks of `words` integers, `stride` of them apart.

    `addresses` is int64 [planes], on the device; `alignment` is in bytes, of every block.
    """

    planes: list[torch.Tensor]
    addresses: torch.Tensor
    stride: int
    words: int
    alignment: int


class Copies(NamedTuple):
    """A `CopyPlan` as the kernels take it: int64 [pairs, 2] and int64 [chains + 1], on the device."""

    pairs: torch.Tensor
    starts: torch.Tensor
    is_disjoint: bool


@Kernel
def _copy_disjoint(
    addresses: tl.pointer_type,
    planes: tl.tensor,
    stride: tl.tensor,
    words: tl.tensor,
    tiles: tl.tensor,
    pairs: tl.pointer_type,
    word: tl.constexpr,
    alignment: tl.constexpr,
    tile: tl.constexpr,
) -> None:
    program = tl.program_id(0)
    part = program // tiles
    pair = pairs + (part // planes).to(tl.int64) * 2
    address = tl.load(addresses + part % planes)
    plane = tl.multiple_of(address.to(tl.pointer_type(word)), alignment)
    inside = (program % tiles).to(tl.int64) * tile + tl.arange(0, tile)
    read = plane + tl.load(pair) * stride + inside
    written = plane + tl.load(pair + 1) * stride + inside
    tl.store(written, tl.load(read, mask=inside < words), mask=inside < words)


@Kernel
def _copy_chains(
    addresses: tl.pointer_type,
    planes: tl.tensor,
    stride: tl.tensor,
    words: tl.tensor,
    tiles: tl.tensor,
    pairs: tl.pointer_type,
    starts: tl.pointer_type,
    word: tl.constexpr,
    alignment: tl.constexpr,
    tile: tl.constexpr,
) -> None:
    program = tl.program_id(0)
    part = program // tiles
    chain = starts + part // planes
    address = tl.load(addresses + part % planes)
    plane = tl.multiple_of(address.to(tl.pointer_type(word)), alignment)
    inside = (program % tiles).to(tl.int64) * tile + tl.arange(0, tile)
    first = tl.load(chain)
    last = pairs + (tl.load(chain + 1) - 1) * 2
    carried = tl.load(plane + tl.load(last) * stride + inside, mask=inside < words)
    pair = pairs + first * 2
    for _ in range(tl.load(chain + 1) - 1 - first):
        read = plane + tl.load(pair) * stride + inside
        written = plane + tl.load(pair + 1) * stride + inside
        tl.store(written, tl.load(read, mask=inside < words), mask=inside < words)
        pair += 2
    tl.store(plane + tl.load(last + 1) * stride + inside, carried, mask=inside < words)


def copy_blocks(planes: Sequence[torch.Tensor], pairs: Sequence[Pair]) -> None:
    """`plane[destinations] = plane[sources]` in every plane, for pairs (source, destination).

    planes  tensors [blocks, ...] of one shape, stride and device, each block contiguous
    pairs   block ids; each destination once, else a ValueError
    """
    _check(planes, pairs)
    copy_prepared(as_pool(planes), upload(pairs, planes[0].device))


def copy_blocks_torch(planes: Sequence[torch.Tensor], pairs: Sequence[Pair]) -> None:
    """As `copy_blocks`, in torch alone, with a temporary."""
    _check(planes, pairs)
    plan_copies(pairs)
    sources = torch.tensor([source for source, _ in pairs], dtype=torch.int64)
    destinations = torch.tensor([destination for _, destination in pairs], dtype=torch.int64)
    for words in as_words(planes):
        words[destinations.to(words.device)] = words[sources.to(words.device)]


def as_pool(planes: Sequence[torch.Tensor]) -> Pool:
    """Planes made ready, once for all copies."""
    _check_planes(planes)
    words = as_words(planes)
    stride, size = words[0].stride(0), words[0].element_size()
    starts = [plane.data_ptr() for plane in planes]
    is_aligned = all(number % 16 == 0 for number in [*starts, stride * size])
    addresses = torch.tensor(starts, dtype=torch.int64, device=planes[0].device)
    return Pool(words, addresses, stride, words[0].shape[1], 16 if is_aligned else size)


def upload(pairs: Sequence[Pair], device: torch.device) -> Copies:
    """A plan made ready, on the device."""
    plan = plan_copies(pairs)
    on_device = torch.tensor(plan.pairs, dtype=torch.int64, device=device).reshape(-1, 2)
    starts = torch.tensor(plan.starts, dtype=torch.int64, device=device)
    return Copies(on_device, starts, plan.is_disjoint)


def copy_prepared(pool: Pool, copies: Copies) -> None:
    """One launch: the fast kernel where no block is both read and written.

    The pairs are not checked again: `copy_blocks` does it.
    """
    tile = power_of_two(pool.words, TILE)
    tiles = ceil_div(pool.words, tile)
    arguments = (pool.addresses, len(pool.planes), pool.stride, pool.words, tiles, copies.pairs)
    constants = {
        "reach": pool.planes,
        "word": getattr(tl, str(pool.planes[0].dtype).removeprefix("torch.")),
        "alignment": pool.alignment,
        "tile": tile,
    }
    programs = (len(copies.starts) - 1) * len(pool.planes) * tiles
    if copies.is_disjoint:
        _copy_disjoint.launch(programs, *arguments, **constants)
    else:
        _copy_chains.launch(programs, *arguments, copies.starts, **constants)


def as_words(planes: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Planes as [blocks, words] of the widest integers that the bytes of all of them divide into."""
    rows = [plane.view(len(plane), -1) for plane in planes]
    numbers = [rows[0].shape[1], rows[0].stride(0), *(one.storage_offset() for one in rows)]
    for size in sorted(INTEGERS, reverse=True):
        if all(number * rows[0].element_size() % size == 0 for number in numbers):
            break
    return [one.view(INTEGERS[size]) for one in rows]


def _check(planes: Sequence[torch.Tensor], pairs: Sequence[Pair]) -> None:
    _check_planes(planes)
    for pair in pairs:
        for block in pair:
            check_whole("a block to copy", block, 0, len(planes[0]) - 1)


def _check_planes(planes: Sequence[torch.Tensor]) -> None:
    if not planes:
        raise ValueError("there must be at least one plane of blocks to copy in")
    first = planes[0]
    for plane in planes:
        check_tensor("a plane", plane, first.dtype, first.shape, first.device)
        check_contiguous("a plane", plane, 1)
        check_rows("a plane", plane)
        if plane.stride() != first.stride() or plane.numel() == 0:
            raise ValueError(
                f"planes must not be empty and lie alike; strides are {first.stride()}, {plane.stride()}"
            )
