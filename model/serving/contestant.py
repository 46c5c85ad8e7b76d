"""What traffic is served on: an allocator by name and a block size, in as many slots as the others."""

from dataclasses import dataclass

from kvoracle.model.adapters.base import Adapter
from kvoracle.model.errors import UsageError
from kvoracle.model.registry import Target
from kvoracle.model.serving.contents import Contents
from kvoracle.model.serving.pool import MESSAGE_MAX, Pool, directly
from kvoracle.model.trace import Configuration

RESERVES_WHOLE = "contiguous"
"""The allocator whose block is the reservation of a whole request."""


@dataclass(frozen=True)
class Contestant:
    """An allocator on a pool."""

    target: Target
    config: Configuration

    def __str__(self) -> str:
        return f"{self.name}, {self.config.blocks:,} blocks of {self.config.block_size:,}"

    @property
    def name(self) -> str:
        """The allocator's."""
        return self.target.name

    @property
    def reserves_whole(self) -> bool:
        """Whether what a request holds and does not fill is a reservation, and not a tail."""
        return self.name == RESERVES_WHOLE

    def adapter(self) -> Adapter:
        """A new, empty pool; a UsageError where there can be none, or where it cannot be served on."""
        try:
            adapter = self.target.factory(self.config)
            free = adapter.free_blocks()
        except (Exception, SystemExit) as error:
            said = f"{type(error).__name__}: {error}"[:MESSAGE_MAX]
            raise UsageError(
                f"There is no pool of {self} ({said}); correct the adapter."
            ) from error
        if free is None:
            said = "does not say how many blocks are free, and a scheduler has to know"
            raise UsageError(f"{self.name} {said}; give it `free_blocks`.")
        return adapter

    def pool(self) -> Pool:
        """A new pool, called directly, with contents."""
        adapter, config = self.adapter(), self.config
        contents = Contents(config.blocks, config.block_size, adapter.first_block)
        return Pool(adapter, directly(adapter), contents)


def contestant(target: Target, slots: int, block_size: int, max_model_len: int) -> Contestant:
    """An allocator on a pool of so many slots; a UsageError where it cannot have it."""
    if target.name == RESERVES_WHOLE:
        block_size = max_model_len
    elif block_size not in target.block_sizes:
        raise UsageError(f"{target.name} has no blocks of {block_size} slots; give another size.")
    if "groups" in target.options:
        raise UsageError(f"{target.name} is for groups of layers; serve on another allocator.")
    blocks = slots // block_size
    if blocks < 1 and target.name == RESERVES_WHOLE:
        said = f"{slots:,} slots hold no reservation of {max_model_len:,} for {target.name}"
        raise UsageError(f"{said}; give more slots, or a smaller --max-model-len.")
    if blocks < 1:
        raise UsageError(
            f"{slots:,} slots hold no block of {block_size:,}; give more slots, or smaller blocks."
        )
    return Contestant(target, Configuration(blocks, block_size, "admit" not in target.left_out))
