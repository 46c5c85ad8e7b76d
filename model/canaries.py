"""Canaries: the allocator under test, sabotaged, which every campaign must catch.

One that survives means that the campaign cannot see, whatever else it says.  They need only what
every adapter has (`append` and `table`), so they sit on any allocator.
"""

from collections.abc import Sequence
from typing import Any

from kvoracle.model.adapters.base import Adapter
from kvoracle.model.lockstep import Factory
from kvoracle.model.operations import Done, Outcome, OutOfBlocks
from kvoracle.model.trace import Configuration


class _Sabotaged:
    """An adapter that passes everything on to another, but for what a subclass spoils."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter: Any = adapter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)


class NamesOneBlockThroughout(_Sabotaged):
    """Every entry of every block table is the first block that was ever taken."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__(adapter)
        self._first: list[int] = []

    def table(self, request: str) -> Sequence[int]:
        table = list(self._adapter.table(request))
        self._first = self._first or table[:1]
        return self._first * len(table)


class RefusesWithRoom(_Sabotaged):
    """Every append but the first finds the pool full."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__(adapter)
        self._appended = False

    def append(self, request: str, tokens: Sequence[int]) -> Outcome | None:
        if self._appended:
            return OutOfBlocks()
        self._appended = True
        outcome: Outcome | None = self._adapter.append(request, tokens)
        return outcome


class WritesOverTheStart(_Sabotaged):
    """New tokens go to the first slots of their request."""

    def append(self, request: str, tokens: Sequence[int]) -> Outcome | None:
        outcome: Outcome | None = self._adapter.append(request, tokens)
        if outcome is not None and not isinstance(outcome, Done):
            return outcome
        table, size = self._adapter.table(request), self._adapter.config.block_size
        slots = [table[p // size] * size + p % size for p in range(len(tokens))]
        return Done(copies=outcome.copies if outcome else [], slots={request: slots})


CANARIES: tuple[type[_Sabotaged], ...] = (
    NamesOneBlockThroughout,
    RefusesWithRoom,
    WritesOverTheStart,
)


def with_canary(factory: Factory, canary: Any) -> Factory:
    """A factory of the same allocator with a canary on it."""

    def make(config: Configuration) -> Adapter:
        sabotaged: Adapter = canary(factory(config))
        return sabotaged

    return make
