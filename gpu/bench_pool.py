"""The pool that is compared and timed: as large as the source document's, or small for a rehearsal."""

from typing import NamedTuple

import torch


class Size(NamedTuple):
    """A pool: blocks of so many int64 words, which hold the keys and values of all layers.

    `tokens` are those of one step, written and read in one layer.
    """

    blocks: int
    words: int
    layers: int
    heads: int
    head_size: int
    tokens: int

    def make(self, device: str) -> torch.Tensor:
        """Its storage, int64 [blocks, words], holding anything."""
        return torch.empty((self.blocks, self.words), dtype=torch.int64, device=device)

    def caches(self, storage: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The same bytes as [blocks, layers, 2, block size, heads, head size] of another dtype."""
        lead = (len(storage), self.layers, 2, -1)
        return storage.view(dtype).view(*lead, self.heads, self.head_size)


DOCUMENT = Size(blocks=26_785, words=2**18, layers=32, heads=8, head_size=128, tokens=8192)
"""52.32 GiB in blocks of 2 MiB: what the source document gives Llama-3-8B."""

REHEARSAL = Size(blocks=600, words=64, layers=4, heads=1, head_size=8, tokens=64)
