"""What a mutant is, and the list of them in the order of their definition."""

from collections.abc import Callable
from typing import NamedTuple

from kvoracle.impl import PagedAllocator
from kvoracle.model.adapters.impl import ImplAdapter
from kvoracle.model.registry import Target, target_of


class Mutant(NamedTuple):
    """An allocator broken in one way: its name, the bugs it stands for, and what it does wrong."""

    name: str
    bugs: tuple[str, ...]
    wrong: str
    allocator: type[PagedAllocator]

    @property
    def target(self) -> Target:
        """The mutant as an allocator to test."""
        body = {"allocator_class": self.allocator}
        adapter = type(self.allocator.__name__, (ImplAdapter,), body)
        return target_of(f"mutant:{self.name}", adapter)


MUTANTS: list[Mutant] = []


def mutant(*bugs: str) -> Callable[[type[PagedAllocator]], type[PagedAllocator]]:
    """Register an allocator class as a mutant; its docstring says what it does wrong."""

    def register(allocator: type[PagedAllocator]) -> type[PagedAllocator]:
        name = "".join(f"-{c.lower()}" if c.isupper() else c for c in allocator.__name__)
        wrong = (allocator.__doc__ or "").strip()
        MUTANTS.append(Mutant(name.lstrip("-"), bugs, wrong, allocator))
        return allocator

    return register
