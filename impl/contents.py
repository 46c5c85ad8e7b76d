"""What blocks are identified by: the bytes of their tokens, and the root that their chain begins at."""

import hashlib
import operator
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

AnyTokens = NDArray[np.int32] | NDArray[np.int64]

EXTRA_KEYS = ("adapter", "salt", "image")
"""What a request may name beside its tokens, and what then keeps its blocks apart from others'."""


NARROW, WIDE = np.dtype(np.int32), np.dtype(np.int64)


def as_tokens(values: ArrayLike) -> AnyTokens:
    """Token ids as int32 or int64 [tokens]; ValueError for anything but one row of whole numbers."""
    tokens = np.asarray(values)
    if tokens.dtype in (NARROW, WIDE) and tokens.ndim == 1:
        return tokens
    if tokens.ndim != 1 or (len(tokens) > 0 and tokens.dtype.kind not in "iu"):
        raise ValueError(f"tokens are one row of whole numbers, not {tokens.dtype} {tokens.shape}")
    if tokens.dtype == np.uint64 and len(tokens) > 0 and tokens.max() > np.iinfo(np.int64).max:
        raise ValueError("a token id does not fit into int64")
    if tokens.dtype.kind in "iu" and np.can_cast(tokens.dtype, np.int32):
        return tokens.astype(np.int32, copy=False)
    return tokens.astype(np.int64, copy=False)


def as_whole(value: int, what: str) -> int:
    """A whole number, or ValueError."""
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{what} is a whole number, not {value!r}") from None


def as_count(value: int, least: int, what: str) -> int:
    """A whole number from `least` on, or ValueError."""
    count = as_whole(value, what)
    if count < least:
        raise ValueError(f"{what} is at least {least}, not {count}")
    return count


def packed(tokens: AnyTokens) -> bytes:
    """Tokens as bytes: 4 each where all of them fit, else 8 each with one byte before them, so that
    the length tells which."""
    narrow = _narrowed(tokens)
    return b"\0" + tokens.tobytes() if narrow is None else narrow.tobytes()


def unpacked(text: bytes) -> AnyTokens:
    """The tokens that were packed."""
    if len(text) % 4 == 0:
        return np.frombuffer(text, np.int32)
    return np.frombuffer(text, np.int64, offset=1)


def block_texts(tokens: AnyTokens, block_size: int) -> list[bytes]:
    """The packed tokens of each full block of `tokens`, contiguous and from a block edge on."""
    full = tokens[: len(tokens) // block_size * block_size]
    narrow = _narrowed(full)
    if narrow is None:
        return [packed(block) for block in full.reshape(-1, block_size)]
    texts: list[bytes] = narrow.view(f"V{4 * block_size}").tolist()
    return texts


def check_extra_keys(extra_keys: Mapping[str, str]) -> dict[str, str]:
    """The extra keys that say something; ValueError for unknown names and what is no text."""
    for name, value in extra_keys.items():
        if name not in EXTRA_KEYS or not isinstance(value, str):
            raise ValueError(f"extra keys map {', '.join(EXTRA_KEYS)} to text, not {name!r}")
    return {name: extra_keys[name] for name in EXTRA_KEYS if extra_keys.get(name)}


def root_key(extra_keys: Mapping[str, str], epoch: int) -> bytes:
    """The parent of a request's first block.  Every part says its name and its length, so that no
    two identities read alike."""
    identity = b"epoch %d" % epoch
    for name in EXTRA_KEYS:
        if extra_keys.get(name):
            value = extra_keys[name].encode("utf-8", "surrogatepass")
            identity += b" %s %d %s" % (name.encode(), len(value), value)
    return hashlib.sha256(identity).digest()


def _narrowed(tokens: AnyTokens) -> NDArray[np.int32] | None:
    """Tokens as int32 where all of them fit."""
    narrow = tokens.astype(np.int32, copy=False)
    fit = narrow is tokens or not np.count_nonzero(narrow != tokens)
    return narrow if fit else None
