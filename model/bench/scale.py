"""This project's allocator alone: what a larger pool costs, in time and in memory."""

import tracemalloc
from collections.abc import Callable
from functools import partial

from kvoracle.model.bench.decode import Batch, ImplDecode
from kvoracle.model.bench.prompt import ADMIT_COLD, ImplDesk, Job
from kvoracle.model.bench.row import Limit
from kvoracle.model.bench.side import BLOCK_SIZE, BLOCKS, Side, new_impl
from kvoracle.model.bench.take import ImplTake

LARGE = 4_000_000


class Make:
    """An allocator is made and thrown away."""

    units = 1

    def begin(self) -> None:
        pass

    def work(self) -> None:
        new_impl(BLOCKS, BLOCK_SIZE, prefix_cache=True)


def bytes_a_block(_: list[float]) -> float:
    """What a large pool allocates, by the block; no prefix index, no tables of requests."""
    tracemalloc.start()
    try:
        pool = new_impl(LARGE, BLOCK_SIZE).pool
        return tracemalloc.get_traced_memory()[0] / pool.blocks
    finally:
        tracemalloc.stop()


def milliseconds(seconds: list[float]) -> float:
    """The time of the only side."""
    return 1_000 * seconds[0]


def growth(seconds: list[float]) -> float:
    """How many times as long the second side takes."""
    return seconds[1] / seconds[0]


def _growth(name: str, work: str, new_side: Callable[[int], Side]) -> Limit:
    sides = {f"{blocks:,} blocks": partial(new_side, blocks) for blocks in (BLOCKS, LARGE)}
    versus = f"{work}, {LARGE:,} blocks against {BLOCKS:,}"
    return Limit(name, versus, sides, growth, 1.3, "times")


def _take(blocks: int) -> Side:
    return ImplTake(256, True, blocks)


def _decode(blocks: int) -> Side:
    return ImplDecode(Batch(256, 32), True, blocks)


def _admit(blocks: int) -> Side:
    return Job(ImplDesk(blocks), ADMIT_COLD)


ROWS = (
    _growth("take-4m", "take and give back 256 blocks", _take),
    _growth("decode-4m", "decode step of 256 requests", _decode),
    _growth("admit-4m", "admit a prompt of 4,096 tokens", _admit),
    Limit("memory", "metadata of a block, prefix index aside", {}, bytes_a_block, 40, "bytes"),
    Limit("make", "make a pool of 26,785 blocks", {"impl": Make}, milliseconds, 2, "ms"),
)
