"""The prefix index: the key of a full block, chained to the key of the block before it, to block ids.

The default key is SHA-256 over the parent's key and the bytes of the block's tokens, so that two
contents share a key only by a collision of SHA-256.  Another function may be given, to force one.
"""

import hashlib
from collections.abc import Callable, Mapping

from kvoracle.impl.contents import root_key
from kvoracle.impl.ids import Ids

KeyOf = Callable[[bytes, bytes], bytes]


def sha256_key(parent: bytes, text: bytes) -> bytes:
    """The key of a block from its parent's key and the bytes of its own tokens."""
    return hashlib.sha256(parent + text).digest()


class PrefixIndex:
    """Which blocks hold which content.  Blocks of equal content are all kept, the first one hit."""

    def __init__(self, key_of: KeyOf = sha256_key) -> None:
        self.key_of = key_of
        self._blocks: dict[bytes, list[int]] = {}
        self._keys: dict[int, bytes] = {}

    def root(self, extra_keys: Mapping[str, str], epoch: int) -> bytes:
        """The parent of the first block of every request with these extra keys in this epoch."""
        return root_key(extra_keys, epoch)

    def keys(self, parent: bytes, texts: list[bytes]) -> list[bytes]:
        """The keys of blocks that follow `parent`, from the bytes of their tokens."""
        key_of, keys = self.key_of, []
        for text in texts:
            parent = key_of(parent, text)
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
            if len(blocks) > 1:
                blocks.remove(block)
            else:
                del self._blocks[key]

    def clear(self) -> None:
        """Drop every entry."""
        self._blocks.clear()
        self._keys.clear()
