"""Calls of the kernels with what they must leave behind, worked out with the reference or in plain loops."""

import math
import random
from collections.abc import Iterator, Sequence

import torch

from kvoracle.model.adapters.gpu_case import (
    GUARD,
    GUARD_VALUE,
    Case,
    any_id,
    guarded,
    int64,
    random_bits,
)
from kvoracle.reference.slots import PAD_SLOT, padded, slot_of
from kvoracle.reference.token_pool import TokenPool

DTYPES = (
    *(torch.bfloat16, torch.float16, torch.float32, torch.float64),
    *(torch.float8_e4m3fn, torch.int8),
)
BLOCKS = 5
BLOCK_SIZES = (1, 3, 4, 6, 16)
PAGE_SIZES = (1, 2, 3, 4, 6, 16, 48)
"""Powers of two and others."""


def random_cases(seed: int) -> Iterator[Case]:
    """One of every kind, drawn from a seed."""
    dice = random.Random(seed)
    yield slot_mapping_case(dice)
    yield copy_case(dice, is_disjoint=True)
    yield copy_case(dice, is_disjoint=False)
    yield from kv_cases(dice, dice.choice(DTYPES))
    yield extend_case(dice)
    yield decode_case(dice)


def edge_cases(seed: int) -> Iterator[Case]:
    """What random ones seldom meet."""
    dice = random.Random(seed)
    for requests, most in ((0, 0), (1, 1), (5, 0), (3, 300), (40, 3)):
        yield slot_mapping_case(dice, requests, most)
    for world in (2, 2, 3, 3, 6, 9):
        yield slot_mapping_case(dice, 2, 40, world)
    yield beyond_table_case(dice)
    for dtype in DTYPES:
        yield from kv_cases(dice, dtype)
    yield from kv_cases(dice, torch.int8, many=True)
    for pairs in (
        [],
        [(1, 1)],
        [(0, 1), (1, 0)],
        [(0, 1), (1, 2), (2, 3)],
        [(2, 0), (1, 2), (0, 1)],
    ):
        yield _copy_case(dice, 4, 30, 2, pairs)
    for pairs in ([(0, 1), (0, 2)], [(0, 2), (2, 0), (2, 1)]):
        yield _copy_case(dice, 3, 2500, 1, pairs, torch.float64)
    yield _copy_case(dice, 18, 3, 9, [(block, block + 1) for block in range(16)])
    for requests in (0, 1, 260):
        yield extend_case(dice, requests=requests, grown_max=3)
        yield decode_case(dice, requests=2 * requests)
    yield extend_case(dice, requests=2, grown_max=1200)
    yield extend_case(dice, grown=(513, 1, 1025, 512))
    yield extend_case(dice, grown=(100, 49), page_size=48)


def slot_mapping_case(
    dice: random.Random, requests: int | None = None, tokens_max: int = 9, world: int = 0
) -> Case:
    """Requests of random lengths at random positions, with every option."""
    requests = dice.randint(1, 6) if requests is None else requests
    interleave, ratio = dice.choice([(1, 1), (2, 1), (2, 2), (4, 2), (1, 4)])
    block_size = math.lcm(interleave, ratio) * dice.choice([1, 2, 3, 5, 20])
    world = world or dice.choice([1, 1, 2, 3])
    rank = dice.randrange(world)
    options = {"ratio": ratio, "world": world, "rank": rank, "interleave": interleave}
    width = dice.randint(8, 20) * ratio
    tables = [[any_id(dice) for _ in range(width)] for _ in range(requests)]
    counts = [dice.randint(0, tokens_max) for _ in range(requests)]
    reach = width // ratio * block_size * world
    starts, positions, slots = [0], [], []
    for table, count in zip(tables, counts, strict=True):
        first = dice.randint(0, max(reach - count, 0))
        for position in range(first, first + count):
            beyond = position >= reach
            slot = slot_of(table, position, block_size, **options) if not beyond else PAD_SLOT
            positions.append(position)
            slots.append(slot)
        starts.append(len(positions))
    positions += [dice.randrange(reach) for _ in range(dice.randint(0, 3))]
    buffer, whole = guarded(len(slots) + dice.randint(0, 5), torch.int64)
    expected = whole.clone()
    expected[GUARD : GUARD + len(buffer)] = torch.tensor(
        padded(slots, len(buffer)), dtype=torch.int64
    )
    wide = torch.full((requests, width + GUARD), GUARD_VALUE, dtype=torch.int32)
    wide[:, :width] = torch.tensor(tables, dtype=torch.int32).reshape(requests, width)
    starts_tensor = torch.tensor(starts, dtype=torch.int32)
    arguments = (wide[:, :width], starts_tensor, int64(positions), buffer, block_size)
    about = f"{requests} requests, {len(slots)} tokens"
    return Case("slot_mapping", about, arguments, options, [whole], [expected])


def beyond_table_case(dice: random.Random) -> Case:
    """Positions beyond the width of the table, next to which another request's blocks lie."""
    big = torch.tensor([[any_id(dice) for _ in range(4)] for _ in range(2)], dtype=torch.int32)
    buffer, whole = guarded(6, torch.int64)
    expected = whole.clone()
    right = [slot_of([int(big[row, 0])], 3, 4) for row in range(2)]
    expected[GUARD : GUARD + 6] = int64([right[0], -1, -1, right[1], -1, -1])
    positions = int64([3, 4, 11, 3, 4, 2**40])
    starts = torch.tensor([0, 3, 6], dtype=torch.int32)
    arguments = (big[:, :1], starts, positions, buffer, 4)
    return Case("slot_mapping", "beyond the table", arguments, {}, [whole], [expected])


def copy_case(dice: random.Random, *, is_disjoint: bool) -> Case:
    """Random pairs with distinct destinations, in one of the layouts."""
    blocks = dice.randint(4, 12)
    ids = list(range(blocks))
    destinations = dice.sample(ids, dice.randint(1, blocks // 2 if is_disjoint else blocks))
    sources = [block for block in ids if block not in destinations] if is_disjoint else ids
    pairs = [(dice.choice(sources), destination) for destination in destinations]
    return _copy_case(dice, blocks, dice.choice([3, 8, 24, 30]), dice.randint(1, 3), pairs)


def _copy_case(
    dice: random.Random,
    blocks: int,
    size: int,
    layers: int,
    pairs: list[tuple[int, int]],
    dtype: torch.dtype | None = None,
) -> Case:
    dtype = dtype or dice.choice(DTYPES)
    layout = dice.choice(["contiguous", "per layer", "interleaved", "apart"])
    if layout == "contiguous":
        storages = [_somewhere((blocks + 1, layers, size), dtype, dice)]
        planes = [storages[0][:blocks]]
    elif layout == "per layer":
        storages = [_somewhere((blocks + 1, size), dtype, dice) for _ in range(layers)]
        planes = [storage[:blocks] for storage in storages]
    elif layout == "interleaved":
        storages = [_somewhere((blocks + 1, 2, size), dtype, dice) for _ in range(layers)]
        planes = [storage[:blocks, part] for storage in storages for part in (0, 1)]
    else:
        storages = [_somewhere((2, blocks + 1, size), dtype, dice) for _ in range(layers)]
        planes = [storage[part, :blocks] for storage in storages for part in (0, 1)]
    expected = [storage.clone() for storage in storages]
    for before, after in zip(storages, expected, strict=True):
        for source, destination in pairs:
            _block(after, destination, layout).copy_(_block(before, source, layout))
    about = f"{layout}, {layers} layers, pairs {pairs}"
    return Case("copy_blocks", about, (planes, pairs), {}, storages, expected)


def kv_cases(dice: random.Random, dtype: torch.dtype, *, many: bool = False) -> Iterator[Case]:
    """Tokens written at random slots, and a sequence read back, of one dtype; many: several tiles."""
    block_size = 16 if many else dice.choice(BLOCK_SIZES)
    row = (5, 230) if many else (dice.randint(1, 3), dice.choice([3, 8]))
    cache = random_bits((BLOCKS, 2, block_size, *row), dtype, dice)
    if dice.random() < 0.5:
        # a slot's key and value side by side
        cache = cache.transpose(1, 2).contiguous().transpose(1, 2)
    count = 70 if many else dice.randint(1, min(11, BLOCKS * block_size))
    slots = [
        slot if dice.random() < 0.8 else -dice.randint(1, 99)
        for slot in dice.sample(range(BLOCKS * block_size), count)
    ]
    key, value = (random_bits((count, parts, *row), dtype, dice) for parts in (2, 3))
    expected = [cache.clone(), key.clone(), value.clone()]
    for token, slot in enumerate(slots):
        if slot >= 0:
            place = expected[0][slot // block_size, :, slot % block_size]
            place[0], place[1] = key[token, 1], value[token, 1]
    arguments = (key[:, 1], value[:, 1], cache[:, 0], cache[:, 1], int64(slots))
    yield Case("kv_write", f"{dtype}", arguments, {}, [cache, key, value], expected)
    read = count if many else dice.randint(0, 4 * block_size)
    yield _gather_case(dice, expected[0].clone(), read)


def _gather_case(dice: random.Random, cache: torch.Tensor, count: int) -> Case:
    """A sequence read through a table of some blocks of a cache, each anywhere in it."""
    block_size, row = cache.shape[2], cache.shape[3:]
    table = [dice.randrange(BLOCKS) for _ in range(-(-count // block_size) + dice.randint(0, 1))]
    outs = [random_bits((count + 1, parts, *row), cache.dtype, dice) for parts in (2, 3)]
    expected = [out.clone() for out in outs]
    for token in range(count):
        for part, right in enumerate(expected):
            right[token, 1] = cache[table[token // block_size], part, token % block_size]
    views = [out[:count, 1] for out in outs]
    arguments = (cache[:, 0], cache[:, 1], torch.tensor(table, dtype=torch.int32), *views)
    about, unchanged = f"{cache.dtype}, {count} tokens", cache.clone()
    return Case("paged_gather", about, arguments, {}, [*outs, cache], [*expected, unchanged])


def extend_case(
    dice: random.Random,
    requests: int | None = None,
    grown_max: int = 20,
    grown: Sequence[int] | None = None,
    page_size: int = 0,
) -> Case:
    """Requests that stand somewhere in their pages, and grow, by so many tokens if that is said."""
    requests = dice.randint(1, 6) if requests is None else requests
    grown = grown or [dice.randint(0, grown_max) for _ in range(requests)]
    page_size = page_size or dice.choice(PAGE_SIZES)
    before = [dice.randint(0, 3 * page_size) for _ in grown]
    after = [length + more for length, more in zip(before, grown, strict=True)]
    pool, last, free = _token_pool(dice, page_size, before, after)
    right = pool.alloc_extend(before, after, last)
    slots, whole = guarded(len(right), torch.int64)
    expected = whole.clone()
    expected[GUARD : GUARD + len(right)] = int64(right)
    arguments = (int64(before), int64(after), int64(last), int64(free), slots, page_size)
    about = f"{len(grown)} requests, pages of {page_size}"
    return Case("alloc_extend", about, arguments, {}, [whole], [expected])


def decode_case(dice: random.Random, requests: int | None = None) -> Case:
    """Requests that stand somewhere in their pages, and grow by one token each."""
    requests = dice.randint(1, 6) if requests is None else requests
    page_size = dice.choice(PAGE_SIZES)
    lengths = [dice.randint(0, 3 * page_size) for _ in range(requests)]
    pool, last, free = _token_pool(dice, page_size, lengths, [length + 1 for length in lengths])
    right = pool.alloc_decode(lengths, last)
    slots, whole = guarded(len(right), torch.int64)
    expected = whole.clone()
    expected[GUARD : GUARD + len(right)] = int64(right)
    arguments = (int64(lengths), int64(last), int64(free), slots, page_size)
    about = f"{requests} requests, pages of {page_size}"
    return Case("alloc_decode", about, arguments, {}, [whole], [expected])


def _token_pool(
    dice: random.Random, page_size: int, before: list[int], after: list[int]
) -> tuple[TokenPool, list[int], list[int]]:
    """A reference pool in which requests stand at `before`: their last slots, and what is free."""
    pages = sum(-(-length // page_size) for length in after) + 3
    order = dice.sample(range(1, pages + 1), pages)
    taken = iter(order)
    pool = TokenPool(pages, page_size, choose=lambda count: [next(taken) for _ in range(count)])
    zeros = [0] * len(before)
    slots = pool.alloc_extend(zeros, before, zeros)
    ends = [sum(before[: number + 1]) for number in range(len(before))]
    last = [slots[end - 1] if count else 0 for end, count in zip(ends, before, strict=True)]
    return pool, last, order[pages - pool.available // page_size :]


def _somewhere(shape: tuple[int, ...], dtype: torch.dtype, dice: random.Random) -> torch.Tensor:
    """Random bits that need not begin where wide words do."""
    before = dice.choice([0, 0, 1, 2])
    return random_bits((before + math.prod(shape),), dtype, dice)[before:].view(shape)


def _block(storage: torch.Tensor, block: int, layout: str) -> torch.Tensor:
    return storage[:, block] if layout == "apart" else storage[block]
