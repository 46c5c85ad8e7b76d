"""What a mutant is, and the list of them in the order of their definition."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from kvoracle.model.adapters.base import Adapter
from kvoracle.model.adapters.impl import ImplAdapter
from kvoracle.model.registry import Target, target_of

Allocator = TypeVar("Allocator", bound=type[Any])


class Mutant(NamedTuple):
    """An allocator broken in one way: its name, the bugs it stands for, and what it does wrong.

    `adapter` is that of the allocator unbroken; it makes an `allocator_class`, or the mutant is an
    adapter itself.
    """

    name: str
    bugs: tuple[str, ...]
    wrong: str
    allocator: type[Any]
    adapter: type[Adapter] = ImplAdapter

    @property
    def target(self) -> Target:
        """The mutant as an allocator to test."""
        adapter = self.allocator
        if not issubclass(adapter, Adapter):
            adapter = type(adapter.__name__, (self.adapter,), {"allocator_class": adapter})
        return target_of(f"mutant:{self.name}", adapter)


MUTANTS: list[Mutant] = []


def mutant(*bugs: str, adapter: type[Adapter] = ImplAdapter) -> Callable[[Allocator], Allocator]:
    """Register an allocator class as a mutant; its docstring says what it does wrong."""

    def register(allocator: Allocator) -> Allocator:
        name = "".join(f"-{c.lower()}" if c.isupper() else c for c in allocator.__name__)
        wrong = (allocator.__doc__ or "").strip()
        MUTANTS.append(Mutant(name.lstrip("-"), bugs, wrong, allocator, adapter))
        return allocator

    return register
