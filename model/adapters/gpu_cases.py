"""Calls of the kernels with what they must leave behind, worked out with the reference or in plain loops.

What a call may write lies between guards and is compared whole, so that one write too many is seen.
Sparse cases lie in 40 GB of address space of which only what is touched exists.
"""

import mmap
import random
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch

from kvoracle.gpu.checks import as_on_a_gpu
from kvoracle.reference.slots import PAD_SLOT, padded, slot_of
from kvoracle.reference.token_pool import TokenPool

DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn, torch.int8)
ID_MAX = 2**31 - 1
GUARD = 7
"""Elements before and after what is written; an odd number, so that nothing is aligned by luck."""
GUARD_VALUE = 77
SPARSE_BYTES = 40 * 10**9
MAP_NORESERVE = 0x4000


class Case(NamedTuple):
    """A call of a kernel's function; `outputs`, once it ran, must be `expected` bit for bit.

    Its values are not looked at beforehand where it is not `checked`: as on a GPU, where the kernel
    alone must keep to its tensors.
    """

    function: str
    about: str
    arguments: tuple[Any, ...]
    keywords: dict[str, int]
    outputs: list[torch.Tensor]
    expected: list[torch.Tensor]
    checked: bool = True

    def on(self, device: str) -> "Case":
        """The same call on another device, its tensors lying in their storages as here."""
        moved: dict[int, torch.UntypedStorage] = {}

        def move(value: Any) -> Any:
            if isinstance(value, list) and value and isinstance(value[0], torch.Tensor):
                return [move(one) for one in value]
            if not isinstance(value, torch.Tensor):
                return value
            here = value.untyped_storage()
            if here.data_ptr() not in moved:
                every_byte = torch.empty(0, dtype=torch.uint8).set_(here)
                moved[here.data_ptr()] = every_byte.to(device, copy=True).untyped_storage()
            there = moved[here.data_ptr()]
            view = torch.empty(0, dtype=value.dtype, device=device)
            return view.set_(there, value.storage_offset(), value.shape, value.stride())

        return self._replace(
            arguments=tuple(map(move, self.arguments)), outputs=[move(one) for one in self.outputs]
        )

    def run(self, function: Callable[..., None]) -> None:
        """Make the call."""
        with nullcontext() if self.checked else as_on_a_gpu():
            function(*self.arguments, **self.keywords)

    def difference(self) -> str | None:
        """The first element that is wrong, in words; None where all are right."""
        actuals = [output.cpu() for output in self.outputs]
        for number, (actual, right) in enumerate(zip(actuals, self.expected, strict=True)):
            wrong = (_bytes_of(actual) != _bytes_of(right)).nonzero()
            if len(wrong):
                index = int(wrong[0]) // actual.element_size()
                found, wanted = actual.flatten()[index].item(), right.flatten()[index].item()
                return f"output {number} has {found} at {index}, and {wanted} is right"
        return None


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
    for requests, most in ((0, 0), (1, 1), (5, 0), (3, 300)):
        yield slot_mapping_case(dice, requests, most)
    for world in (2, 2, 3, 3):
        yield slot_mapping_case(dice, 2, 40, world)
    yield beyond_table_case(dice)
    for dtype in DTYPES:
        yield from kv_cases(dice, dtype)
    for pairs in (
        [],
        [(1, 1)],
        [(0, 1), (1, 0)],
        [(0, 1), (1, 2), (2, 3)],
        [(2, 0), (1, 2), (0, 1)],
    ):
        yield _copy_case(dice, 4, 30, 2, pairs)
    yield _copy_case(dice, 3, 2500, 1, [(0, 2), (2, 0), (2, 1)])
    for requests in (0, 1, 130):
        yield extend_case(dice, requests=requests, grown_max=3)
        yield decode_case(dice, requests=2 * requests)
    yield extend_case(dice, requests=2, grown_max=1200)


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


def slot_mapping_case(
    dice: random.Random, requests: int | None = None, tokens_max: int = 9, world: int = 0
) -> Case:
    """Requests of random lengths at random positions, with every option."""
    requests = dice.randint(1, 6) if requests is None else requests
    interleave, ratio = dice.choice([(1, 1), (2, 1), (2, 2), (4, 2), (1, 4)])
    block_size = 4 * dice.randint(1, 4)
    world = world or dice.choice([1, 1, 2, 3])
    rank = dice.randrange(world)
    options = {"ratio": ratio, "world": world, "rank": rank, "interleave": interleave}
    width = dice.randint(8, 20) * ratio
    tables = [[_any_id(dice) for _ in range(width)] for _ in range(requests)]
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
    buffer, whole = _guarded(len(slots) + dice.randint(0, 5), torch.int64)
    expected = whole.clone()
    expected[GUARD : GUARD + len(buffer)] = torch.tensor(
        padded(slots, len(buffer)), dtype=torch.int64
    )
    wide = torch.full((requests, width + GUARD), GUARD_VALUE, dtype=torch.int32)
    wide[:, :width] = torch.tensor(tables, dtype=torch.int32).reshape(requests, width)
    starts_tensor = torch.tensor(starts, dtype=torch.int32)
    arguments = (wide[:, :width], starts_tensor, _int64(positions), buffer, block_size)
    about = f"{requests} requests, {len(slots)} tokens"
    return Case("slot_mapping", about, arguments, options, [whole], [expected])


def beyond_table_case(dice: random.Random) -> Case:
    """Positions beyond the width of the table, next to which another request's blocks lie."""
    big = torch.tensor([[_any_id(dice) for _ in range(4)] for _ in range(2)], dtype=torch.int32)
    buffer, whole = _guarded(6, torch.int64)
    expected = whole.clone()
    right = [slot_of([int(big[row, 0])], 3, 4) for row in range(2)]
    expected[GUARD : GUARD + 6] = _int64([right[0], -1, -1, right[1], -1, -1])
    positions = _int64([3, 4, 11, 3, 4, 2**40])
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
    dice: random.Random, blocks: int, size: int, layers: int, pairs: list[tuple[int, int]]
) -> Case:
    dtype = dice.choice(DTYPES)
    layout = dice.choice(["contiguous", "per layer", "interleaved", "apart"])
    if layout == "contiguous":
        storages = [_random((blocks + 1, layers, size), dtype, dice)]
        planes = [storages[0][:blocks]]
    elif layout == "per layer":
        storages = [_random((blocks + 1, size), dtype, dice) for _ in range(layers)]
        planes = [storage[:blocks] for storage in storages]
    elif layout == "interleaved":
        storages = [_random((blocks + 1, 2, size), dtype, dice) for _ in range(layers)]
        planes = [storage[:blocks, part] for storage in storages for part in (0, 1)]
    else:
        storages = [_random((2, blocks + 1, size), dtype, dice) for _ in range(layers)]
        planes = [storage[part, :blocks] for storage in storages for part in (0, 1)]
    expected = [storage.clone() for storage in storages]
    for before, after in zip(storages, expected, strict=True):
        for source, destination in pairs:
            _block(after, destination, layout).copy_(_block(before, source, layout))
    about = f"{layout}, {layers} layers, pairs {pairs}"
    return Case("copy_blocks", about, (planes, pairs), {}, storages, expected)


def kv_cases(dice: random.Random, dtype: torch.dtype) -> Iterator[Case]:
    """Tokens written at random slots, and a sequence read back, of one dtype."""
    blocks, block_size, heads, size = (
        5,
        dice.choice([1, 4, 16]),
        dice.randint(1, 3),
        dice.choice([3, 8]),
    )
    cache = _random((blocks, 2, block_size, heads, size), dtype, dice)
    count = dice.randint(1, min(11, blocks * block_size))
    slots = [
        slot if dice.random() < 0.8 else -dice.randint(1, 99)
        for slot in dice.sample(range(blocks * block_size), count)
    ]
    new = _random((count, 3, heads, size), dtype, dice)
    expected = cache.clone()
    for token, slot in enumerate(slots):
        if slot >= 0:
            expected[slot // block_size, :, slot % block_size] = new[token, :2]
    arguments = (new[:, 0], new[:, 1], cache[:, 0], cache[:, 1], _int64(slots))
    yield Case("kv_write", f"{dtype}", arguments, {}, [cache, new], [expected, new.clone()])
    table = [dice.randrange(blocks) for _ in range(dice.randint(1, 4))]
    count = dice.randint(0, len(table) * block_size)
    out = _random((count + 1, 2, heads, size), dtype, dice)
    right = out.clone()
    for token in range(count):
        right[token] = expected[table[token // block_size], :, token % block_size]
    read = expected.clone()
    out_views = (out[:count, 0], out[:count, 1])
    arguments = (read[:, 0], read[:, 1], torch.tensor(table, dtype=torch.int32), *out_views)
    yield Case("paged_gather", f"{dtype}", arguments, {}, [out, read], [right, expected])


def extend_case(dice: random.Random, requests: int | None = None, grown_max: int = 20) -> Case:
    """Requests that stand somewhere in their pages, and grow."""
    requests = dice.randint(1, 6) if requests is None else requests
    page_size = dice.choice([1, 2, 4, 16])
    before = [dice.randint(0, 3 * page_size) for _ in range(requests)]
    after = [length + dice.randint(0, grown_max) for length in before]
    pool, last, free = _token_pool(dice, page_size, before, after)
    right = pool.alloc_extend(before, after, last)
    slots, whole = _guarded(len(right), torch.int64)
    expected = whole.clone()
    expected[GUARD : GUARD + len(right)] = _int64(right)
    arguments = (_int64(before), _int64(after), _int64(last), _int64(free), slots, page_size)
    about = f"{requests} requests, pages of {page_size}"
    return Case("alloc_extend", about, arguments, {}, [whole], [expected])


def decode_case(dice: random.Random, requests: int | None = None) -> Case:
    """Requests that stand somewhere in their pages, and grow by one token each."""
    requests = dice.randint(1, 6) if requests is None else requests
    page_size = dice.choice([1, 2, 4, 16])
    lengths = [dice.randint(0, 3 * page_size) for _ in range(requests)]
    pool, last, free = _token_pool(dice, page_size, lengths, [length + 1 for length in lengths])
    right = pool.alloc_decode(lengths, last)
    slots, whole = _guarded(len(right), torch.int64)
    expected = whole.clone()
    expected[GUARD : GUARD + len(right)] = _int64(right)
    arguments = (_int64(lengths), _int64(last), _int64(free), slots, page_size)
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


def _unchecked_mapping(dice: random.Random) -> Case:
    """More tokens than positions, a negative position, and a negative block id."""
    table = torch.tensor([[_any_id(dice), -1, 5]], dtype=torch.int32)
    buffer, whole = _guarded(9, torch.int64)
    expected = whole.clone()
    first = slot_of([int(table[0, 0])], 3, 4)
    expected[GUARD : GUARD + 9] = _int64([first, -1, -1, slot_of([0, 0, 5], 9, 4), *[-1] * 5])
    starts = torch.tensor([0, 7], dtype=torch.int32)
    arguments = (table, starts, _int64([3, -4, 4, 9]), buffer, 4)
    about = "more tokens than positions"
    return Case("slot_mapping", about, arguments, {}, [whole], [expected], checked=False)


def _unchecked_write(dice: random.Random) -> Case:
    """Slots beyond the cache."""
    cache = _random((4, 2, 2, 2, 3), torch.int16, dice)
    view, new = cache[:3], _random((3, 2, 2, 3), torch.int16, dice)
    expected = cache.clone()
    expected[1, :, 1] = new[1]
    arguments = (new[:, 0], new[:, 1], view[:, 0], view[:, 1], _int64([6, 3, 10**12]))
    return Case("kv_write", "beyond", arguments, {}, [cache], [expected], checked=False)


def _unchecked_gather(dice: random.Random) -> Case:
    """Block ids outside the cache: zeros are read."""
    cache = _random((3, 2, 2, 2, 3), torch.int16, dice)
    out = _random((8, 2, 2, 3), torch.int16, dice)
    right = torch.zeros_like(out)
    right[2:4] = cache[1].transpose(0, 1)
    table = torch.tensor([-1, 1, 3, ID_MAX], dtype=torch.int32)
    arguments = (cache[:, 0], cache[:, 1], table, out[:, 0], out[:, 1])
    return Case("paged_gather", "outside", arguments, {}, [out], [right], checked=False)


def _unchecked_allocations() -> Iterator[Case]:
    """Fewer free pages, and fewer places for slots, than are needed."""
    extended = (_int64([3, 8]), _int64([9, 9]), _int64([6, 0]))
    decoded = (_int64([4, 3, 8]), _int64([0, 6, 0]))
    for function, lengths, right in (
        ("alloc_extend", extended, [7, 20, 21, 22, 23, -1]),
        ("alloc_decode", decoded, [20, 7, -1]),
    ):
        slots, whole = _guarded(len(right), torch.int64)
        expected = whole.clone()
        expected[GUARD : GUARD + len(right)] = _int64(right)
        arguments = (*lengths, _int64([5]), slots, 4)
        yield Case(function, "too few pages", arguments, {}, [whole], [expected], checked=False)


def _far_write(dice: random.Random) -> Case:
    """Keys and values into the last block of a sparse cache."""
    cache = _sparse((-1, 2, 16, 8, 128), torch.int16)
    last = len(cache) * 16 - 1
    new = _random((2, 2, 8, 128), torch.int16, dice)
    slots = _int64([last, last - 16])
    outputs = [cache[-2:], cache[:2], *_where_it_wraps(cache, -1)]
    expected = [torch.zeros_like(output) for output in outputs]
    expected[0][1, :, 15] = new[0]
    expected[0][0, :, 15] = new[1]
    arguments = (new[:, 0], new[:, 1], cache[:, 0], cache[:, 1], slots)
    return Case("kv_write", "sparse", arguments, {}, outputs, expected)


def _far_gather(dice: random.Random) -> Case:
    """A sequence read from the last block of a sparse cache."""
    cache = _sparse((-1, 2, 16, 8, 128), torch.int16)
    cache[-1].copy_(_random(cache[-1].shape, torch.int16, dice))
    out = torch.zeros((16, 2, 8, 128), dtype=torch.int16)
    right = cache[-1].transpose(0, 1).contiguous()
    table = torch.tensor([len(cache) - 1], dtype=torch.int32)
    arguments = (cache[:, 0], cache[:, 1], table, out[:, 0], out[:, 1])
    return Case("paged_gather", "sparse", arguments, {}, [out], [right])


def _far_copy(dice: random.Random, pairs: list[tuple[int, int]]) -> Case:
    """Copies among the last blocks of a sparse storage; more words than an int32 counts."""
    storage = _sparse((-1, 1024), torch.int64)
    first = len(storage) - 4
    storage[first:].copy_(_random((4, 1024), torch.int64, dice))
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


def _block(storage: torch.Tensor, block: int, layout: str) -> torch.Tensor:
    return storage[:, block] if layout == "apart" else storage[block]


def _guarded(length: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor, and the one that it lies in, with guards on both sides."""
    whole = torch.full((length + 2 * GUARD,), GUARD_VALUE, dtype=dtype)
    return whole[GUARD : GUARD + length], whole


def _random(
    shape: tuple[int, ...] | torch.Size, dtype: torch.dtype, dice: random.Random
) -> torch.Tensor:
    """Random bits, not-a-numbers among them."""
    generator = torch.Generator().manual_seed(dice.getrandbits(32))
    size = torch.empty(0, dtype=dtype).element_size()
    shape = (*shape[:-1], shape[-1] * size)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator).view(dtype)


def _any_id(dice: random.Random) -> int:
    return dice.choice([0, dice.randrange(9), dice.randrange(ID_MAX), ID_MAX])


def _int64(numbers: list[int]) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().flatten().view(torch.uint8)
