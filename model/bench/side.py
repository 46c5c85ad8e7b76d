"""What is timed, and what all of it has in common."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kvoracle.model.adapters.impl import ImplAdapter

BLOCKS = 26_785
BLOCK_SIZE = 16
VOCABULARY = 128_000

Prompt = NDArray[np.int32]

new_impl = ImplAdapter.allocator_class
"""This project's allocator, empty: `new_impl(blocks, block_size, prefix_cache=...)`."""


class Side(Protocol):
    """One allocator at one kind of work."""

    @property
    def units(self) -> int:
        """How many units of work `work` does."""

    def begin(self) -> None:
        """Bring the allocator into the state in which the work begins; this is not timed."""

    def work(self) -> None:
        """Do the work; this is timed."""


class Racer(Side, Protocol):
    """A side that has a peer."""

    def num_free(self) -> int:
        """How much can be taken: as much as on the other side, before the work and after it."""


def prompts(count: int, length: int) -> list[Prompt]:
    """Prompts that have no block in common, the same in every run."""
    drawn = np.random.default_rng(1).integers(0, VOCABULARY, (count, length), np.int32)
    return list(drawn)
