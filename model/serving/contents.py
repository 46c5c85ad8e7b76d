"""What the slots of a pool hold while traffic is served: identities, in one numpy array."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvoracle.model.lockstep import Violation

NOTHING = -1


class Contents:
    """The identity in each slot of a pool whose usable blocks begin with `first_block`.

    Every token of traffic that differs in its place or prefix has an identity of its own, so a sequence
    that reads back its own text has lost no slot to another one.
    """

    def __init__(self, blocks: int, block_size: int, first_block: int = 0) -> None:
        self.block_size = block_size
        self.first_block = first_block
        self.sequences = self.tokens_read = 0
        """What was read back."""
        self.held = np.full((first_block + blocks, block_size), NOTHING, np.int64)

    def write(self, slots: Sequence[int], text: Sequence[int]) -> None:
        """A part of a text into slots."""
        where = _numbers("slots", slots)
        if where.shape != (len(text),):
            raise Violation("slots", f"{len(where)} slots for {len(text)} new tokens")
        if len(where) and not self._first_slot <= where.min() <= where.max() < self.held.size:
            raise Violation(
                "slots", f"slots {where.min()} to {where.max()} are not all in the pool"
            )
        self.held.reshape(-1)[where] = np.asarray(text, np.int64)

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Whole blocks (source, destination), every source read before any is written."""
        if not pairs:
            return
        blocks = _numbers("copy", pairs)
        if blocks.shape != (len(pairs), 2) or not self._are_usable(blocks):
            raise Violation("copy", f"the copies {pairs!r:.60} are not all within the pool")
        self.held[blocks[:, 1]] = self.held[blocks[:, 0]]

    def check(self, request: str, table: Sequence[int], text: Sequence[int]) -> None:
        """A Violation where a sequence reads something else than its text."""
        right, blocks = np.asarray(text, np.int64), np.asarray(table, np.int64)
        self.sequences += 1
        self.tokens_read += len(right)
        needed = -(-len(right) // self.block_size)
        if len(table) != needed:
            said = f"the table of {request!r} has {len(table)} blocks: {len(right)} tokens need {needed}"
            raise Violation("table", said)
        if not self._are_usable(blocks):
            raise Violation(
                "table", f"blocks {blocks.min()} to {blocks.max()} are not all in the pool"
            )
        read = self.held[blocks].reshape(-1)[: len(right)]
        wrong = (read != right).nonzero()[0]
        if not len(wrong):
            return
        position = int(wrong[0])
        block = table[position // self.block_size]
        said = (
            f"{request!r} reads something else at position {position} (block {block});"
            f" {len(wrong)} of its {len(right)} tokens are not its own"
        )
        raise Violation("contents", said, block)

    @property
    def _first_slot(self) -> int:
        return self.first_block * self.block_size

    def _are_usable(self, blocks: Any) -> bool:
        return bool(((blocks >= self.first_block) & (blocks < len(self.held))).all())


def _numbers(rule: str, values: object) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """What the allocator said, as an array; a Violation where it is none."""
    try:
        return np.asarray(values, np.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise Violation(rule, f"{values!r:.60} are no whole numbers ({error})"[:200]) from error
