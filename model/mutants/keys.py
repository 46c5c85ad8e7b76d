"""Mutants of what a block is known by: its tokens, those before them, and the extra keys."""

import hashlib
from collections.abc import Mapping
from typing import Any

from numpy.typing import ArrayLike

from kvoracle.impl import PagedAllocator
from kvoracle.impl.admission import Admission
from kvoracle.impl.chains import Prompt
from kvoracle.impl.prefix_index import KeyOf, PrefixIndex, sha256_key
from kvoracle.model.mutants.base import mutant


def _of_low_bytes(parent: bytes, text: bytes) -> bytes:
    first, width = (1, 8) if len(text) % 4 else (0, 4)
    return sha256_key(parent, text[first::width])


def _of_few_bits(parent: bytes, text: bytes) -> bytes:
    return bytes([sha256_key(parent, text)[0] % 16])


def _without_parent(_: bytes, text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


class _TruncatesTokens(PrefixIndex):
    def __init__(self, _: KeyOf) -> None:
        super().__init__(_of_low_bytes)


@mutant("HC03")
class KeyOfLowBytes(PagedAllocator):
    """Token ids are cut to eight bits in the key of a block."""

    index_class = _TruncatesTokens


class _HasFewKeys(PrefixIndex):
    def __init__(self, _: KeyOf) -> None:
        super().__init__(_of_few_bits)


@mutant("HC01", "HC02", "HC09")
class WeakKeyNeverVerified(PagedAllocator):
    """Blocks of one weak key are taken to hold one content, and their tokens are not compared."""

    index_class = _HasFewKeys


class _IgnoresTheParent(PrefixIndex):
    def __init__(self, _: KeyOf) -> None:
        super().__init__(_without_parent)


@mutant("HC08")
class KeyWithoutParent(PagedAllocator):
    """A block is known by its own tokens, whatever came before it."""

    index_class = _IgnoresTheParent


class _TagsNothing(PrefixIndex):
    def root(self, extra_keys: Mapping[str, str], epoch: int) -> bytes:
        return hashlib.sha256(f"{epoch} {''.join(extra_keys.values())}".encode()).digest()


@mutant("HC04")
class ExtraKeysUntagged(PagedAllocator):
    """Adapter, salt and image share one place in the key of a block."""

    index_class = _TagsNothing


class _IgnoresTheAdapter(PrefixIndex):
    def root(self, extra_keys: Mapping[str, str], epoch: int) -> bytes:
        others = {name: value for name, value in extra_keys.items() if name != "adapter"}
        return super().root(others, epoch)


@mutant("HC06")
class KeyWithoutAdapter(PagedAllocator):
    """The adapter of a request is not in the key of its blocks."""

    index_class = _IgnoresTheAdapter


class _KeepsIdentity(Admission):
    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.known: dict[str, list[bytes]] = {}

    def find(self, name: str, prompt: ArrayLike, extra_keys: Mapping[str, str]) -> Prompt:
        found = super().find(name, prompt, extra_keys)
        known = self.known.setdefault(name, found.keys)[: len(found.keys)]
        found.keys = known + found.keys[len(known) :]
        return found


@mutant("SH09")
class IdentityOfAnEarlierPrompt(PagedAllocator):
    """The blocks of a request are published under the keys of an earlier prompt of its name."""

    admission_class = _KeepsIdentity
