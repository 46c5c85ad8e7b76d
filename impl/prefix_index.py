"""The prefix index: the key of a full unit of tokens, chained to the key of the unit before it, to the
blocks that hold the tokens up to there.

A block has a key for each full unit in it: one where a unit is a block.  The default key is SHA-256
over the parent's key and the bytes of the unit's tokens, so that two contents share a key only by a
collision of SHA-256.  Another function may be given, to force one.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping

from kvoracle.impl.contents import root_key
from kvoracle.impl.ids import Ids

KeyOf = Callable[[bytes, bytes], bytes]


def sha256_key(parent: bytes, text: bytes) -> bytes:
    """The key of a unit from its parent's key and the bytes of its own tokens."""
    return hashlib.sha256(parent + text).digest()


class PrefixIndex:
    """Which blocks hold which content; blocks of equal content are all kept."""

    def __init__(self, key_of: KeyOf = sha256_key) -> None:
        self.key_of = key_of
        self._blocks: dict[bytes, list[int]] = {}
        self._keys: dict[int, bytes] = {}
        self._earlier: dict[int, list[bytes]] = {}

    def root(self, extra_keys: Mapping[str, str], epoch: int) -> bytes:
        """The parent of the first unit of every request with these extra keys in this epoch."""
        return root_key(extra_keys, epoch)

    def keys(self, parent: bytes, texts: list[bytes]) -> list[bytes]:
        """The keys of units that follow `parent`, from the bytes of their tokens."""
        key_of, keys = self.key_of, []
        for text in texts:
            parent = key_of(parent, text)
            keys.append(parent)
        return keys

    def __contains__(self, key: bytes) -> bool:
        return key in self._blocks

    def match(self, keys: list[bytes], is_held: Callable[[int], bool]) -> list[int]:
        """The blocks of the longest run of keys, from the first on, that are all here.

        Of equal blocks one that is held is hit, since it is no room that the hit takes away.
        """
        hit: list[int] = []
        for key in keys:
            blocks = self._blocks.get(key)
            if blocks is None:
                break
            if len(blocks) == 1:
                hit.append(blocks[0])
            else:
                hit.append(next(filter(is_held, blocks), blocks[0]))
        return hit

    def add(self, keys: list[bytes], blocks: list[int]) -> None:
        """Publish each block under its key, beside those that it has."""
        blocks_of, key_of = self._blocks, self._keys
        for key, block in zip(keys, blocks, strict=True):
            blocks_of.setdefault(key, []).append(block)
            if block in key_of:
                self._earlier.setdefault(block, []).append(key_of[block])
            key_of[block] = key

    def forget(self, ids: Ids) -> None:
        """Drop the entries of blocks."""
        listed = ids.tolist()
        self._drop(map(self._keys.pop, listed), listed)
        if self._earlier:
            for block in listed:
                earlier = self._earlier.pop(block, [])
                self._drop(earlier, [block] * len(earlier))

    def clear(self) -> None:
        """Drop every entry."""
        self._blocks.clear()
        self._keys.clear()
        self._earlier.clear()

    def _drop(self, keys: Iterable[bytes], blocks: list[int]) -> None:
        """Each block is no longer found by the key beside it."""
        blocks_of = self._blocks
        for key, block in zip(keys, blocks, strict=True):
            found = blocks_of[key]
            if len(found) > 1:
                found.remove(block)
            else:
                del blocks_of[key]
