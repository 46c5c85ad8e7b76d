"""Generations of transfer names: a number for each transfer begun, which tells a late word from a new one.

A generation is the number of its name, from 1 on, and the life of that name, so that one number a
name tells of each generation whether it was ever given out.
"""

LIVES_MAX = 2**32


class Generations:
    """The generations given out, unique over all names."""

    def __init__(self) -> None:
        self._latest: dict[str, int] = {}

    def give(self, name: str) -> int:
        """The generation of the next life of a name."""
        known = len(self._latest)
        self._latest[name] = 1 + self._latest.get(name, (known + 1) * LIVES_MAX)
        return self._latest[name]

    def latest(self, name: str) -> int:
        """The generation of the latest life of a name; 0 for one that had none."""
        return self._latest.get(name, 0)

    def was_given(self, name: str, generation: int) -> bool:
        """Whether a generation was ever given out for a name."""
        latest = self.latest(name)
        return latest // LIVES_MAX * LIVES_MAX < generation <= latest
