"""A frozen integer-only random source: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).

Its numbers never change with a Python or library upgrade, so a seed means the same walk for ever.
"""

import re

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


class Random64:
    """A stream of 64-bit integers from a 64-bit seed."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def next(self) -> int:
        """The next integer in 0 .. 2**64 - 1."""
        self._state = (self._state + _GOLDEN) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def below(self, bound: int) -> int:
        """An integer in 0 .. bound - 1; the bias of the modulus is below bound / 2**64."""
        return self.next() % bound


def combine(seed: int, index: int) -> int:
    """The seed of the index-th run of a campaign."""
    return Random64(Random64(seed).next() + index).next()


def parse_seed(text: str) -> int:
    """A seed from decimal digits, `0x...`, or a git hash of 7 to 40 hexadecimal digits.

    Raises ValueError for anything else.
    """
    lowered = text.strip().lower()
    if re.fullmatch(r"[0-9]{1,20}", lowered):
        return int(lowered) & _MASK
    hexadecimal = re.fullmatch(r"0x([0-9a-f]{1,40})|([0-9a-f]{7,40})", lowered)
    if hexadecimal is None:
        raise ValueError(text)
    return int(hexadecimal[1] or hexadecimal[2], 16) & _MASK
