"""What the kernels take on one large pool, and others beside them: microseconds by name.

Times are of CUDA graphs replayed over blocks that rotate through the pool, so that no copy finds its
bytes in the cache.  Beside our kernels stands what a user would pick instead: torch, and rivals that
are handed in.  On the CPU everything is done once, interpreted, and its times mean nothing.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from kvoracle.gpu.bench_pool import Size
from kvoracle.gpu.block_copy import Copies, as_pool, copy_prepared, upload
from kvoracle.gpu.checks import check_whole
from kvoracle.gpu.copy_plan import Pair
from kvoracle.gpu.functions import KERNELS
from kvoracle.gpu.kernel import Launch, carry_out_where_it_is, launching_with

PAIRS = (1, 16, 64, 256)
ROTATIONS, PAIRS_ROTATED = 8, 128
"""Turns in one graph: so many, or with fewer pairs enough for so many pairs."""
ROUNDS = 21
GROWTH = 32
"""Tokens by which each request grows in a step."""
PAGE_SIZE, TABLE_WIDTH = 16, 2048

Work = Callable[[int], object]
"""What is timed; its argument says whose turn it is."""


class Rival(NamedTuple):
    """Another project's function, called as ours of the name `function` is.

    `why_not` says why it cannot be called here, if so.
    """

    name: str
    function: str
    call: Callable[..., None]
    why_not: str = ""


class Call(NamedTuple):
    """A call to be timed: the name of our function, of how much, and its arguments at each turn."""

    function: str
    about: str
    turns: list[tuple[Any, ...]]


class Timed(NamedTuple):
    """Work under a name, in so many turns."""

    name: str
    work: Work
    turns: int


def measure(storage: torch.Tensor, size: Size, rivals: Sequence[Rival] = ()) -> dict[str, float]:
    """Microseconds of everything, by name.

    storage  int64 [blocks, words] of that size; what it holds is lost
    """
    present = [rival for rival in rivals if not rival.why_not]
    device = storage.device.type
    works = _works(storage, size, present)
    return {one.name: _microseconds(one, device) for one in works}


def calls(storage: torch.Tensor, size: Size) -> Iterator[Call]:
    """A step of the serving engine that the pool is for, one call after the other."""
    device, requests = storage.device, size.tokens // GROWTH
    table = torch.zeros((requests, TABLE_WIDTH), dtype=torch.int32, device=device)
    starts = torch.arange(0, size.tokens + 1, GROWTH, dtype=torch.int32, device=device)
    positions = torch.arange(size.tokens, device=device) % GROWTH
    slots, free = (torch.arange(size.tokens, device=device) for _ in range(2))
    tokens = f"{size.tokens} tokens"
    mapped = (table, starts, positions, slots, PAGE_SIZE)
    yield Call("slot_mapping", tokens, [mapped] * ROTATIONS)
    before = torch.arange(1000, 1000 + requests, device=device)
    extended = (before, before + GROWTH, before, free, slots, PAGE_SIZE)
    yield Call("alloc_extend", tokens, [extended] * ROTATIONS)
    decoded = (before, before, free, slots[:requests], PAGE_SIZE)
    yield Call("alloc_decode", f"{requests} requests", [decoded] * ROTATIONS)
    written, gathered = zip(*_writes_and_reads(storage, size), strict=True)
    yield Call("kv_write", tokens, list(written))
    yield Call("paged_gather", tokens, list(gathered))


def _writes_and_reads(
    storage: torch.Tensor, size: Size
) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Arguments of kv_write and paged_gather at each turn: new tokens lie in the end of the pool."""
    caches = size.caches(storage, torch.bfloat16)
    keys, values, block_size = caches[:, 0, 0], caches[:, 0, 1], caches.shape[3]
    blocks = size.tokens // block_size
    new = (ROTATIONS, 2, size.tokens, size.heads, size.head_size)
    ends = storage.view(torch.bfloat16).view(-1)[-torch.Size(new).numel() :].view(new)
    for turn, (key, value) in enumerate(ends):
        table = torch.arange(blocks, dtype=torch.int32, device=storage.device) + turn * blocks
        slots = torch.arange(size.tokens, device=storage.device) + turn * size.tokens
        yield (key, value, keys, values, slots), (keys, values, table, key, value)


def _works(storage: torch.Tensor, size: Size, rivals: list[Rival]) -> Iterator[Timed]:
    yield Timed("smallest kernel", lambda _: storage[0, :1].zero_(), ROTATIONS)
    for count in PAIRS:
        turns = [_pairs(storage, count, n) for n in range(max(ROTATIONS, PAIRS_ROTATED // count))]
        for name, work in _ways_to_copy(storage, size, turns, rivals).items():
            yield Timed(f"{name}, {count} pairs", work, len(turns))
    for call in calls(storage, size):
        ours = Rival(call.function, call.function, KERNELS[call.function])
        for one in [ours, *rivals]:
            if one.function == call.function:
                work = _launched(one.call, call.turns)
                yield Timed(f"{one.name}, {call.about}", work, len(call.turns))


def _pairs(storage: torch.Tensor, count: int, turn: int) -> list[Pair]:
    """Disjoint pairs of blocks that follow each other; other blocks each turn."""
    check_whole("the blocks of the pool", len(storage), 2 * count)
    first = turn * 2 * count % (len(storage) - 2 * count + 1)
    return [(first + number, first + count + number) for number in range(count)]


def _ways_to_copy(
    storage: torch.Tensor, size: Size, turns: list[list[Pair]], rivals: list[Rival]
) -> dict[str, Work]:
    copies = [upload(pairs, storage.device) for pairs in turns]
    arguments = [([storage], pairs) for pairs in turns]
    return {
        "disjoint": _copying(storage, copies),
        "any pairs": _copying(storage, [one._replace(is_disjoint=False) for one in copies]),
        **{
            rival.name: _launched(rival.call, arguments)
            for rival in rivals
            if rival.function == "copy_blocks"
        },
        "copy_": _same_bytes(storage, turns),
        "fancy index": _fancy([storage], copies),
        "layer loop": _fancy(storage.view(len(storage), size.layers, -1).unbind(1), copies),
    }


def _launched(call: Callable[..., None], turns: Sequence[tuple[Any, ...]]) -> Work:
    """What a call launches at each turn, without what its caller works out beforehand."""
    launches: list[list[Launch]] = [[] for _ in turns]
    for arguments, made in zip(turns, launches, strict=True):
        with launching_with(made.append):
            call(*arguments)

    def launch(turn: int) -> None:
        for one in launches[turn]:
            carry_out_where_it_is(one)

    return launch


def _copying(storage: torch.Tensor, turns: list[Copies]) -> Work:
    pool = as_pool([storage])
    return lambda turn: copy_prepared(pool, turns[turn])


def _same_bytes(storage: torch.Tensor, turns: list[list[Pair]]) -> Work:
    def copy(turn: int) -> None:
        (source, destination), count = turns[turn][0], len(turns[turn])
        storage[destination : destination + count].copy_(storage[source : source + count])

    return copy


def _fancy(planes: Sequence[torch.Tensor], turns: list[Copies]) -> Work:
    def copy(turn: int) -> None:
        sources, destinations = turns[turn].pairs.unbind(1)
        for plane in planes:
            plane[destinations] = plane[sources]

    return copy


def _microseconds(timed: Timed, device: str) -> float:
    """Of one turn, the median of rounds in which all turns follow each other."""

    def all_turns() -> None:
        for turn in range(timed.turns):
            timed.work(turn)

    if device != "cuda":
        started = time.perf_counter()
        timed.work(0)
        return (time.perf_counter() - started) * 1e6
    all_turns()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        all_turns()
    rounds: list[float] = []
    for _ in range(ROUNDS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        rounds.append(start.elapsed_time(end) * 1000 / timed.turns)
    return float(statistics.median(rounds))
