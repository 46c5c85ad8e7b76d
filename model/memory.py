"""The KV memory that lockstep writes and reads: the interface, and a plain Python one.

A slot is `block * block_size + offset`.  What is stored is a stamp; a device memory offers the same
methods over tensors whose bits are a function of the stamp.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Stamp(NamedTuple):
    """Who wrote a slot: which request, at which of its positions, which token, in which epoch."""

    request: str
    position: int
    token: int
    epoch: int


class KVMemory(Protocol):
    """What lockstep asks of a memory of `blocks` blocks of `block_size` slots."""

    def write(self, slots: Sequence[int], stamps: Sequence[Stamp]) -> None:
        """Store each stamp at its slot."""

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks (source, destination), every source read before any is written."""

    def read(self, block: int) -> Sequence[Stamp | None]:
        """The `block_size` stamps of a block; None where nothing was ever written."""

    def finish(self) -> None:
        """A run is over, without a failure: look at what no read has seen."""


class ListMemory:
    """The plain Python KV memory: one list of stamps a block."""

    def __init__(self, blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.blocks: list[list[Stamp | None]] = [[None] * block_size for _ in range(blocks)]

    def write(self, slots: Sequence[int], stamps: Sequence[Stamp]) -> None:
        for slot, stamp in zip(slots, stamps, strict=True):
            block, offset = divmod(slot, self.block_size)
            self.blocks[block][offset] = stamp

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        sources = [list(self.blocks[source]) for source, _ in pairs]
        for (_, destination), stamps in zip(pairs, sources, strict=True):
            self.blocks[destination] = stamps

    def read(self, block: int) -> list[Stamp | None]:
        return self.blocks[block]

    def finish(self) -> None:
        """There is nothing else here."""
