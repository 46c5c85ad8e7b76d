"""What the slots of a pool hold while traffic is served: token ids, in one numpy array."""

from collections.abc import Sequence

import numpy as np

from kvoracle.model.lockstep import Violation

NOTHING = -1


class Contents:
    """The token in each slot of `blocks` blocks.

    Every token of traffic that differs has an id of its own, so a sequence that reads back its own
    text has lost no slot to another one.
    """

    def __init__(self, blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.sequences = self.tokens_read = 0
        """What was read back."""
        self.tokens = np.full((blocks, block_size), NOTHING, np.int64)

    def write(self, slots: Sequence[int], tokens: Sequence[int]) -> None:
        """A token into each slot."""
        if len(slots) != len(tokens):
            raise Violation("slots", f"{len(slots)} slots for {len(tokens)} new tokens")
        where = np.asarray(slots, np.int64)
        if len(where) and not 0 <= where.min() <= where.max() < self.tokens.size:
            raise Violation(
                "slots", f"slots {where.min()} to {where.max()} are not all in the pool"
            )
        self.tokens.reshape(-1)[where] = np.asarray(tokens, np.int64)

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Whole blocks (source, destination), every source read before any is written."""
        if pairs:
            sources, destinations = (list(ids) for ids in zip(*pairs, strict=True))
            self.tokens[destinations] = self.tokens[sources]

    def check(self, request: str, table: Sequence[int], text: Sequence[int]) -> None:
        """A Violation where a sequence reads something else than its text."""
        right = np.asarray(text, np.int64)
        self.sequences += 1
        self.tokens_read += len(right)
        if len(table) * self.block_size < len(right):
            said = (
                f"the table of {request!r} has {len(table)} blocks: too few for {len(right)} tokens"
            )
            raise Violation("table", said)
        read = self.tokens[np.asarray(table, np.int64)].reshape(-1)[: len(right)]
        wrong = (read != right).nonzero()[0]
        if not len(wrong):
            return
        position = int(wrong[0])
        block = table[position // self.block_size]
        said = (
            f"{request!r} reads token {read[position]} at position {position} (block {block}):"
            f" {right[position]} is right, and {len(wrong)} of {len(right)} tokens are wrong"
        )
        raise Violation("contents", said, block)
