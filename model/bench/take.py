"""Take blocks and give them back: the pools alone, with no requests."""

from kvoracle.model.bench.row import Race
from kvoracle.model.bench.side import BLOCK_SIZE, BLOCKS, new_impl
from kvoracle.model.bench.vllm import Manager

BLOCKS_A_ROUND = 4_096


class ImplTake:
    """`BlockPool.take` and `drop_owner`."""

    def __init__(self, count: int, prefix_cache: bool, blocks: int = BLOCKS) -> None:
        self.count = count
        self.units = BLOCKS_A_ROUND // count
        self.pool = new_impl(blocks, BLOCK_SIZE, prefix_cache=prefix_cache).pool

    def begin(self) -> None:
        pass

    def work(self) -> None:
        take, drop, count = self.pool.take, self.pool.drop_owner, self.count
        for _ in range(self.units):
            drop(take(count))

    def num_free(self) -> int:
        return self.pool.num_free


class ImplTakeOne(ImplTake):
    """`BlockPool.take_one` and `drop_owner_of`, which need no array."""

    def __init__(self) -> None:
        super().__init__(1, prefix_cache=False)

    def work(self) -> None:
        take, drop = self.pool.take_one, self.pool.drop_owner_of
        for _ in range(self.units):
            drop(take())


class VllmTake:
    """`BlockPool.get_new_blocks` and `free_blocks`."""

    def __init__(self, count: int, prefix_cache: bool) -> None:
        self.count = count
        self.units = BLOCKS_A_ROUND // count
        self.vllm = Manager(prefix_cache=prefix_cache)

    def begin(self) -> None:
        pass

    def work(self) -> None:
        pool, count = self.vllm.pool, self.count
        take, drop = pool.get_new_blocks, pool.free_blocks
        for _ in range(self.units):
            drop(take(count))

    def num_free(self) -> int:
        return self.vllm.num_free()


def _race(name: str, caching: bool, goal: float) -> Race:
    return Race(
        name,
        f"take and give back 256 blocks, caching {'on' if caching else 'off'}",
        "vllm",
        lambda: ImplTake(256, caching),
        lambda: VllmTake(256, caching),
        goal,
    )


ROWS = (
    _race("take-256", caching=False, goal=6),
    _race("take-256-cached", caching=True, goal=12),
    Race(
        "take-1",
        "take and give back 1 block",
        "vllm",
        ImplTakeOne,
        lambda: VllmTake(1, prefix_cache=False),
        1,
    ),
)
