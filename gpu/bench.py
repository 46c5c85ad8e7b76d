"""The block copy on a GPU: a whole large pool compared after lists of every kind, then times.

    python -m kvoracle.gpu.bench [--rehearse] [--json FILE]

Times are of CUDA graphs replayed over blocks that rotate through the pool, so that no copy finds its
bytes in the cache, against what a user would pick instead, in the same run.  Where there is no GPU it
says so and ends well; `--rehearse` does everything in small on the CPU, and its times mean nothing.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import torch

from kvoracle.gpu.block_copy import Copies, Pool, as_pool, copy_prepared, upload
from kvoracle.gpu.copy_plan import Pair
from kvoracle.gpu.slot_mapping import slot_mapping

LAYERS = 32
PAIRS = (1, 16, 64, 256)
ROTATIONS, PAIRS_ROTATED = 8, 128
"""Sets of blocks that take turns in one graph: so many, or with fewer pairs enough for so many pairs."""
CHUNK = 64
"""Blocks that are compared at once."""
ROUNDS = 21
GIB = 2**30
Work = Callable[[int], object]
"""What is timed; its argument says whose turn it is."""


class Size(NamedTuple):
    """A pool: blocks, and int64 words in each."""

    blocks: int
    words: int


DOCUMENT = Size(26_785, 2**18)
"""52.32 GiB in blocks of 2 MiB: what the source document gives Llama-3-8B."""
REHEARSAL = Size(600, 64)


class Goal(NamedTuple):
    """A ratio, and the most that it should be."""

    name: str
    ratio: float
    most: float

    @property
    def is_met(self) -> bool:
        """Whether it is."""
        return self.ratio <= self.most


def compare_whole_pool(storage: torch.Tensor) -> list[str]:
    """Copy by lists of every kind, comparing every word after each; what was wrong."""
    blocks = len(storage)
    origin = torch.arange(blocks, device=storage.device)
    _fill(storage)
    wrong = []
    for name, pairs in _lists(blocks):
        sources, destinations = torch.tensor(pairs, device=storage.device).T
        origin[destinations] = origin[sources]
        copy_prepared(as_pool([storage]), upload(pairs, storage.device))
        differing = _blocks_not_from(storage, origin)
        if differing:
            wrong.append(f"{name}: {len(differing)} blocks are wrong, {differing[0]} first")
    return wrong


def measure(storage: torch.Tensor) -> dict[str, float]:
    """Microseconds of everything, by name."""
    times = {"smallest kernel": _microseconds(lambda _: storage[0, :1].zero_(), storage, ROTATIONS)}
    pool = as_pool([storage])
    layers = storage.view(len(storage), LAYERS, -1)
    for count in PAIRS:
        rotations = max(ROTATIONS, PAIRS_ROTATED // count)
        turns = [_turn(storage, count, turn) for turn in range(rotations)]
        flat = [(pairs[0][0], pairs[0][1]) for pairs, _ in turns]
        works: dict[str, Work] = {
            "disjoint": _copying(pool, [copies for _, copies in turns]),
            "any pairs": _copying(
                pool, [copies._replace(is_disjoint=False) for _, copies in turns]
            ),
            "copy_": _same_bytes(storage, flat, count),
            "fancy index": _fancy(storage, [copies for _, copies in turns]),
            "layer loop": _layer_loop(layers, [copies for _, copies in turns]),
        }
        for name, work in works.items():
            times[f"{name}, {count} pairs"] = _microseconds(work, storage, rotations)
    mapping = _mapping(storage.device)
    times["slot mapping, 8192 tokens"] = _microseconds(mapping, storage, ROTATIONS)
    return times


def goals(times: dict[str, float]) -> list[Goal]:
    """What the kernels are to reach, as ratios within this run."""
    found = []
    smallest = times["smallest kernel"]
    for count in PAIRS:
        ours = times[f"disjoint, {count} pairs"]
        if count >= 64:
            found.append(Goal(f"copy_, {count} pairs", ours / times[f"copy_, {count} pairs"], 1.10))
            fancy = times[f"fancy index, {count} pairs"]
            found.append(Goal(f"fancy index, {count} pairs", ours / fancy, 1 / 1.7))
        else:
            loop = times[f"layer loop, {count} pairs"]
            found.append(Goal(f"layer loop, {count} pairs", ours / loop, 1 / 10))
            floor = times[f"copy_, {PAIRS[-1]} pairs"] * count / PAIRS[-1]
            most = floor + 2 * smallest
            found.append(Goal(f"floor and 2 smallest kernels, {count} pairs", ours / most, 1.0))
        any_pairs = times[f"any pairs, {count} pairs"]
        found.append(Goal(f"any pairs, {count} pairs", any_pairs / ours, 1.15))
    mapping = times["slot mapping, 8192 tokens"] / smallest
    return [*found, Goal("slot mapping, of the smallest kernel", mapping, 2.0)]


def memory_allocated(storage: torch.Tensor) -> int:
    """Bytes that a prepared copy allocates at its peak; 0 where nobody counts them."""
    pool, copies = as_pool([storage]), upload([(0, 1), (1, 2)], storage.device)
    if storage.device.type != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    copy_prepared(pool, copies)
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated() - before)


def report(device: str, size: Size, json_file: Path | None) -> bool:
    """Do everything and print it; whether every byte was right and no memory allocated."""
    storage = torch.empty(tuple(size), dtype=torch.int64, device=device)
    named = torch.cuda.get_device_name() if device == "cuda" else "CPU, interpreted: a rehearsal"
    print(f"device     {named}\npool       {storage.nbytes / GIB:.2f} GiB in {size.blocks} blocks")
    wrong, allocated = compare_whole_pool(storage), memory_allocated(storage)
    print("\n".join(["compared   " + ("every word is right" if not wrong else "WRONG"), *wrong]))
    print(f"allocated  {allocated} bytes")
    times = measure(storage)
    for name, microseconds in times.items():
        print(f"{microseconds:>12.2f} us  {name}")
    reached = goals(times) if device == "cuda" else []
    for goal in reached:
        state = "met" if goal.is_met else "missed"
        print(f"{goal.ratio:>12.2f}     {goal.name}: at most {goal.most:.2f}, {state}")
    if json_file is not None:
        result = {
            "device": named,
            "blocks": size.blocks,
            "wrong": wrong,
            "allocated_bytes": allocated,
            "microseconds": times,
            "goals": [{**goal._asdict(), "is_met": goal.is_met} for goal in reached],
        }
        json_file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return not wrong and allocated == 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rehearse", action="store_true", help="small, on the CPU")
    parser.add_argument("--json", type=Path, help="a file for the numbers")
    options = parser.parse_args()
    if options.rehearse:
        return 0 if report("cpu", REHEARSAL, options.json) else 1
    if not torch.cuda.is_available():
        print("skipped: no CUDA device is here (--rehearse runs small on the CPU)")
        return 0
    fits = int(torch.cuda.mem_get_info()[0] * 0.9) // (DOCUMENT.words * 8)
    size = DOCUMENT._replace(blocks=min(DOCUMENT.blocks, fits))
    return 0 if report("cuda", size, options.json) else 1


def _lists(blocks: int) -> Iterator[tuple[str, list[Pair]]]:
    """Pairs of every kind, spread over the pool."""
    step = max(blocks // 8, 1)
    spread = list(range(0, 8 * step, step))
    yield "disjoint pairs", [(block, block + 1) for block in spread]
    yield "fan-out", [(2, block + 3) for block in spread]
    yield "a chain", list(pairwise(spread))
    yield "a cycle", list(zip(spread, spread[1:] + spread[:1], strict=True))
    reader = [(spread[0], blocks - 1)]
    yield "a cycle and its readers", [*zip(spread[1:] + spread[:1], spread, strict=True), *reader]


def _fill(storage: torch.Tensor) -> None:
    """Every word its own number."""
    numbers = torch.arange(storage.shape[1], device=storage.device)
    for block in range(len(storage)):
        torch.add(numbers, block * storage.shape[1], out=storage[block])


def _blocks_not_from(storage: torch.Tensor, origin: torch.Tensor) -> list[int]:
    """The blocks that do not hold what their origin was filled with."""
    numbers = torch.arange(storage.shape[1], device=storage.device)
    found = []
    for first in range(0, len(storage), CHUNK):
        part = storage[first : first + CHUNK] - numbers
        right = origin[first : first + CHUNK, None] * storage.shape[1]
        found += [first + int(block) for block in (part != right).any(1).nonzero()]
    return found


def _turn(storage: torch.Tensor, count: int, turn: int) -> tuple[list[Pair], Copies]:
    """Disjoint pairs of blocks that follow each other; other blocks each turn."""
    first = turn * 2 * count % max(len(storage) - 2 * count, 1)
    pairs = [(first + number, first + count + number) for number in range(count)]
    return pairs, upload(pairs, storage.device)


def _copying(pool: Pool, turns: list[Copies]) -> Work:
    return lambda turn: copy_prepared(pool, turns[turn])


def _same_bytes(storage: torch.Tensor, turns: list[Pair], count: int) -> Work:
    def copy(turn: int) -> None:
        source, destination = turns[turn]
        storage[destination : destination + count].copy_(storage[source : source + count])

    return copy


def _fancy(storage: torch.Tensor, turns: list[Copies]) -> Work:
    def copy(turn: int) -> None:
        sources, destinations = turns[turn].pairs.unbind(1)
        storage[destinations] = storage[sources]

    return copy


def _layer_loop(layers: torch.Tensor, turns: list[Copies]) -> Work:
    def copy(turn: int) -> None:
        sources, destinations = turns[turn].pairs.unbind(1)
        for layer in layers.unbind(1):
            layer[destinations] = layer[sources]

    return copy


def _mapping(device: torch.device) -> Work:
    table = torch.zeros((256, 2048), dtype=torch.int32, device=device)
    starts = torch.arange(0, 8193, 32, dtype=torch.int32, device=device)
    positions = torch.arange(8192, device=device) % 32
    slots = torch.empty(8192, dtype=torch.int64, device=device)
    return lambda _: slot_mapping(table, starts, positions, slots, 16)


def _microseconds(work: Work, storage: torch.Tensor, rotations: int) -> float:
    """Of one piece of work, the median of rounds in which all turns follow each other."""

    def all_turns() -> None:
        for turn in range(rotations):
            work(turn)

    if storage.device.type != "cuda":
        started = time.perf_counter()
        work(0)
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
        rounds.append(start.elapsed_time(end) * 1000 / rotations)
    return float(statistics.median(rounds))


if __name__ == "__main__":
    raise SystemExit(main())
