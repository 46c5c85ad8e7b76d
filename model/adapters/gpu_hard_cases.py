"""Calls with values that nobody looked at, and calls in memory larger than there is.

Sparse cases lie in 40 GB of address space of which only what is touched exists.
"""

import mmap
import random
from collections.abc import Iterator

import torch

from kvoracle.model.adapters.gpu_case import (
    GUARD,
    GUARD_VALUE,
    ID_MAX,
    Case,
    any_id,
    guarded,
    int64,
    random_bits,
)
from kvoracle.reference.slots import slot_of

SPARSE_BYTES = 40 * 10**9
MAP_NORESERVE = 0x4000


def unchecked_cases(seed: int) -> Iterator[Case]:
    """Values that are refused on the CPU and that a kernel on a GPU must live with."""
    dice = random.Random(seed)
    yield _unchecked_mapping(dice)
    yield _unchecked_write(dice)
    yield _unchecked_gather(dice)
    yield from _unchecked_allocations()


def sparse_cases(seed: int) -> Iterator[Case]:
    """Element offsets beyond 2^32, in memory that does not exist until it is touched."""
    dice = random.Random(seed)
    yield _far_write(dice)
    yield _far_gather(dice)
    yield _far_copy(dice, [(0, 1), (2, 3)])
    yield _far_copy(dice, [(0, 1), (1, 2)])


def _unchecked_mapping(dice: random.Random) -> Case:
    """More tokens than positions, a negative position, and a negative block id."""
    table = torch.tensor([[any_id(dice), -1, 5]], dtype=torch.int32)
    buffer, whole = guarded(9, torch.int64)
    expected = whole.clone()
    first = slot_of([int(table[0, 0])], 3, 4)
    expected[GUARD : GUARD + 9] = int64([first, -1, -1, slot_of([0, 0, 5], 9, 4), *[-1] * 5])
    starts = torch.tensor([0, 7], dtype=torch.int32)
    arguments = (table, starts, int64([3, -4, 4, 9]), buffer, 4)
    about = "more tokens than positions"
    return Case("slot_mapping", about, arguments, {}, [whole], [expected], checked=False)


def _unchecked_write(dice: random.Random) -> Case:
    """Slots beyond the cache."""
    cache = random_bits((4, 2, 2, 2, 3), torch.int16, dice)
    view, new = cache[:3], random_bits((3, 2, 2, 3), torch.int16, dice)
    expected = cache.clone()
    expected[1, :, 1] = new[1]
    arguments = (new[:, 0], new[:, 1], view[:, 0], view[:, 1], int64([6, 3, 10**12]))
    return Case("kv_write", "beyond", arguments, {}, [cache], [expected], checked=False)


def _unchecked_gather(dice: random.Random) -> Case:
    """Block ids outside the cache: zeros are read."""
    cache = random_bits((3, 2, 2, 2, 3), torch.int16, dice)
    out = random_bits((8, 2, 2, 3), torch.int16, dice)
    right = torch.zeros_like(out)
    right[2:4] = cache[1].transpose(0, 1)
    table = torch.tensor([-1, 1, 3, ID_MAX], dtype=torch.int32)
    arguments = (cache[:, 0], cache[:, 1], table, out[:, 0], out[:, 1])
    return Case("paged_gather", "outside", arguments, {}, [out], [right], checked=False)


def _unchecked_allocations() -> Iterator[Case]:
    """Pages of 4 of which only one is free."""
    few, back = "fewer pages and places than are needed", "requests that shrink or grow without end"
    kept = GUARD_VALUE
    for function, about, lengths, right in (
        ("alloc_extend", few, ([3, 8], [9, 9], [6, 0]), [7, 20, 21, 22, 23, -1]),
        ("alloc_extend", back, ([9, 0], [3, 3], [6, 0]), [20, 21, 22, kept]),
        (
            "alloc_extend",
            back,
            ([3, 0, 9, 3], [5, -8, 3, 2**40], [6, 0, 0, 9]),
            [7, 20, 10, -1, -1],
        ),
        ("alloc_decode", few, ([4, 3, 8], [0, 6, 0]), [20, 7, -1]),
        ("alloc_decode", "lengths below 0", ([-4, -3], [0, 6]), [20, 7]),
    ):
        slots, whole = guarded(len(right), torch.int64)
        expected = whole.clone()
        expected[GUARD : GUARD + len(right)] = int64(right)
        arguments = (*map(int64, lengths), int64([5]), slots, 4)
        yield Case(function, about, arguments, {}, [whole], [expected], checked=False)
    slots, whole = guarded(2, torch.int64)
    guards = [whole[:GUARD], whole[-GUARD:]]
    huge = ([-(2**63), 0], [2**63 - 1, 2], [6, 0])
    arguments = (*map(int64, huge), int64([5]), slots, 4)
    kept_guards = [guard.clone() for guard in guards]
    about = "a growth that wraps"
    yield Case("alloc_extend", about, arguments, {}, guards, kept_guards, checked=False)


def _far_write(dice: random.Random) -> Case:
    """Keys and values into the last block of a sparse cache."""
    cache = _sparse((-1, 2, 16, 8, 128), torch.int16)
    last = len(cache) * 16 - 1
    new = random_bits((2, 2, 8, 128), torch.int16, dice)
    slots = int64([last, last - 16])
    outputs = [cache[-2:], cache[:2], *_where_it_wraps(cache, -1)]
    expected = [torch.zeros_like(output) for output in outputs]
    expected[0][1, :, 15] = new[0]
    expected[0][0, :, 15] = new[1]
    arguments = (new[:, 0], new[:, 1], cache[:, 0], cache[:, 1], slots)
    return Case("kv_write", "sparse", arguments, {}, outputs, expected)


def _far_gather(dice: random.Random) -> Case:
    """A sequence read from the last block of a sparse cache."""
    cache = _sparse((-1, 2, 16, 8, 128), torch.int16)
    cache[-1].copy_(random_bits(cache[-1].shape, torch.int16, dice))
    out = torch.zeros((16, 2, 8, 128), dtype=torch.int16)
    right = cache[-1].transpose(0, 1).contiguous()
    table = torch.tensor([len(cache) - 1], dtype=torch.int32)
    arguments = (cache[:, 0], cache[:, 1], table, out[:, 0], out[:, 1])
    return Case("paged_gather", "sparse", arguments, {}, [out], [right])


def _far_copy(dice: random.Random, pairs: list[tuple[int, int]]) -> Case:
    """Copies among the last blocks of a sparse storage; more words than an int32 counts."""
    storage = _sparse((-1, 1024), torch.int64)
    first = len(storage) - 4
    storage[first:].copy_(random_bits((4, 1024), torch.int64, dice))
    outputs = [storage[first:], storage[:4], *_where_it_wraps(storage, first)]
    expected = [output.clone() for output in outputs]
    for source, destination in pairs:
        expected[0][destination] = storage[first + source]
    far = [(first + source, first + destination) for source, destination in pairs]
    return Case("copy_blocks", f"sparse, {pairs}", ([storage], far), {}, outputs, expected)


def _where_it_wraps(cache: torch.Tensor, block: int) -> list[torch.Tensor]:
    """The blocks around the places that an offset cut to 32 bits would lead to."""
    offset = cache[block].storage_offset() % 2**32
    near = offset // cache.stride(0)
    return [cache[max(near - 1, 0) : near + 3]]


def _sparse(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Zeros of about SPARSE_BYTES that take memory only where they are touched."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    memory = mmap.mmap(-1, SPARSE_BYTES, flags=flags)
    flat = torch.frombuffer(memory, dtype=dtype)
    row = 1
    for length in shape[1:]:
        row *= length
    return flat[: len(flat) // row * row].view(shape)
