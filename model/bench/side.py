"""What is timed, and where it gets its allocator from.

The released engines are reached through their adapters, which import them, when a side is made.
"""

import importlib
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kvoracle.model.adapters.impl import ImplAdapter
from kvoracle.model.registry import ALLOCATORS
from kvoracle.model.trace import Configuration

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


def new_vllm(*, prefix_cache: bool = False) -> Any:
    """An adapter with vLLM's `manager`, `pool` and `hasher`, empty."""
    return engine("vllm").VllmAdapter(Configuration(BLOCKS, BLOCK_SIZE, prefix_cache))


def engine(name: str) -> ModuleType:
    """The adapters of a released engine; an ImportError where it is absent."""
    return importlib.import_module(ALLOCATORS[name].path.partition(":")[0])


def prompts(count: int, length: int) -> list[Prompt]:
    """Prompts that have no block in common, the same in every run."""
    drawn = np.random.default_rng(1).integers(0, VOCABULARY, (count, length), np.int32)
    return list(drawn)
