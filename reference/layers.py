"""Layers of a model and their blocks in one pool: what a token costs, and what a request holds.

The heads of a layer are dealt out to the tensor parallel ranks; with fewer heads than ranks each
rank has a copy of one.  A latent (MLA) is one head.  A layer with a window keeps the blocks that the
next query sees, its own position and the `window - 1` before it.  Under context parallelism a block
stands for `block_size` positions on each of `world` ranks.

Layers of one kind share tables.  So that all blocks of a pool are alike, the kinds are split into
groups of equally many layers, the last of a kind padded, as vLLM 0.33.0 does; and the block of a
layer with smaller tokens has more of them.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvoracle.reference.capacity import (
    INDEX_ENTRY_BYTES,
    Startup,
    blocks_for,
    blocks_spanned,
    worst_tail,
)


@dataclass(frozen=True)
class Layer:
    """What one layer keeps of a token."""

    kv_heads: int
    head_elements: int
    """The key and the value of one head; of a latent, all of it."""
    window: int = 0
    """How many tokens a query sees, itself included; 0 is all."""


@dataclass(frozen=True)
class Parallel:
    """Over how many ranks heads (`tensor`) and positions (`context`) are dealt out."""

    tensor: int = 1
    context: int = 1

    def heads(self, kv_heads: int) -> int:
        """The heads of one rank; ValueError where they cannot be dealt out evenly."""
        if kv_heads % self.tensor and self.tensor % kv_heads:
            raise ValueError(f"{kv_heads} KV heads cannot be dealt out to {self.tensor} ranks")
        return max(1, kv_heads // self.tensor)


ALONE = Parallel()


@dataclass(frozen=True)
class Kind:
    """All layers of one kind: how many tables a request has for them, and of what blocks."""

    layer: Layer
    layers: int
    tables: int
    block_size: int
    positions: int
    """What one block stands for, on all context parallel ranks together."""

    def blocks(self, tokens: int, step: int = 1) -> int:
        """The most blocks that one table holds of a request whose tokens come `step` at a time."""
        if not self.layer.window:
            return blocks_for(tokens, self.positions)
        seen = min(tokens, self.layer.window - 1 + step)
        return min(blocks_for(tokens, self.positions), blocks_spanned(seen, self.positions))


@dataclass(frozen=True)
class Layout:
    """How a model's layers share one pool, on one rank."""

    kinds: tuple[Kind, ...]
    group_layers: int
    """Layers of a group, padding included."""
    token_bytes: int
    """One token in all layers, without padding."""
    block_bytes: int
    """One block: its tokens in the layers of one group."""
    parallel: Parallel

    @property
    def padding_layers(self) -> int:
        """Places for a layer that no layer has."""
        return sum(kind.tables * self.group_layers - kind.layers for kind in self.kinds)

    def request_blocks(self, tokens: int, step: int = 1) -> int:
        """The most blocks that a request of so many tokens holds at once, in all its tables."""
        return sum(kind.tables * kind.blocks(tokens, step) for kind in self.kinds)

    def reservation_bytes(self, tokens: int) -> int:
        """What a contiguous reservation of so many tokens takes of a rank, in every layer."""
        return blocks_for(tokens, self.parallel.context) * self.token_bytes

    def startup(self, max_model_len: int, blocks: int, step: int) -> Startup:
        """As in `capacity`; with windows in all layers a request may have any length that is asked."""
        most = max(max_model_len, blocks * max(kind.positions for kind in self.kinds))
        largest = _largest(most, lambda tokens: self.request_blocks(tokens, step) <= blocks)
        return Startup(self.request_blocks(max_model_len, step), blocks, largest)

    def index_bytes(self, requests: int, max_model_len: int) -> int:
        """The block tables of so many requests, an entry a block."""
        entries = sum(k.tables * blocks_for(max_model_len, k.positions) for k in self.kinds)
        return requests * entries * INDEX_ENTRY_BYTES

    def worst_tail_bytes(self) -> int:
        """The most that the last blocks of a request leave empty, on all context ranks together."""
        return sum(
            kind.tables * worst_tail(kind.positions) * self.block_bytes // kind.block_size
            for kind in self.kinds
        )

    def tail_bytes(self, tokens: int) -> int:
        """What the last blocks of a request of so many tokens leave empty."""
        return sum(
            kind.tables * (-tokens % kind.positions) * self.block_bytes // kind.block_size
            for kind in self.kinds
        )


def layout(
    layers: Sequence[Layer], block_size: int, element_bytes: int, parallel: Parallel = ALONE
) -> Layout:
    """The layout of `layers`; ValueError where their blocks cannot be made alike."""
    costs = {
        layer: parallel.heads(layer.kv_heads) * layer.head_elements * element_bytes
        for layer in layers
    }
    counts, largest = Counter(layers), max(costs.values())
    for cost in costs.values():
        if largest % cost:
            raise ValueError(f"layers of {cost} and {largest} bytes a token share no block size")
    size = _group_layers(list(counts.values()))
    kinds = [
        Kind(layer, count, blocks_for(count, size), own_size, own_size * parallel.context)
        for layer, count in counts.items()
        for own_size in [block_size * largest // costs[layer]]
    ]
    total = sum(costs[layer] for layer in layers)
    return Layout(tuple(kinds), size, total, size * largest * block_size, parallel)


def _group_layers(counts: Sequence[int]) -> int:
    """The rarest kind's layers, or the commonest's where there are less than half as many more."""
    most, least = max(counts), min(counts)
    return most if 2 * most < 3 * least else least


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `most` that fits, where all smaller ones do too, and 0 does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
