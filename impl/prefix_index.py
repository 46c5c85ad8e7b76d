"""The prefix index: the key of a full block, chained to the key of the block before it, to block ids.

The default key is SHA-256 over the parent's key and the block's tokens as int64, so that two
contents share a key only by a collision of SHA-256.  Another function may be given, to force one.
"""

import hashlib
from collections.abc import Callable

from kvoracle.impl.ids import Ids, Tokens

KeyOf = Callable[[bytes, bytes], bytes]


def sha256_key(parent: bytes, tokens: bytes) -> bytes:
    """The key of a block from its parent's key and its own tokens."""
    return hashlib.sha256(parent + tokens).digest()


class PrefixIndex:
    """Which blocks hold which content.  Blocks of equal content are all kept, the first one hit."""

    def __init__(self, block_size: int, key_of: KeyOf = sha256_key) -> None:
        self.block_size = block_size
        self.key_of = key_of
        self._blocks: dict[bytes, list[int]] = {}
        self._keys: dict[int, bytes] = {}

    def keys(self, parent: bytes, tokens: Tokens) -> list[bytes]:
        """The keys of the full blocks of `tokens`, which begin at a block edge: int64 [tokens]."""
        text, width = tokens.tobytes(), 8 * self.block_size
        keys = []
        for first in range(0, len(text) - width + 1, width):
            parent = self.key_of(parent, text[first : first + width])
            keys.append(parent)
        return keys

    def match(self, keys: list[bytes]) -> list[int]:
        """The blocks of the longest run of keys, from the first on, that are all here."""
        hit: list[int] = []
        for key in keys:
            blocks = self._blocks.get(key)
            if blocks is None:
                break
            hit.append(blocks[0])
        return hit

    def add(self, key: bytes, block: int) -> None:
        """Publish a block."""
        self._blocks.setdefault(key, []).append(block)
        self._keys[block] = key

    def forget(self, ids: Ids) -> None:
        """Drop the entries of blocks."""
        for block in ids.tolist():
            key = self._keys.pop(block)
            blocks = self._blocks[key]
            blocks.remove(block)
            if not blocks:
                del self._blocks[key]
