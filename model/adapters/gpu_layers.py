"""The layers that check the kernels without a GPU, one after the other."""

from collections.abc import Callable
from typing import NamedTuple

from kvoracle.gpu.functions import KERNELS, TWINS
from kvoracle.gpu.kernel import HAS_TRITON
from kvoracle.model.adapters.gpu_cases import Case, edge_cases, random_cases, sparse_cases

ROUNDS = 10
NO_TRITON = "Triton is not here: the torch twins were checked instead"


class Layer(NamedTuple):
    """A layer: `check` gives the problems that it found, and what it did."""

    name: str
    about: str
    check: Callable[[], tuple[list[str], str]]


def all_cases(rounds: int) -> list[Case]:
    """The cases of every kernel."""
    return [
        *(case for seed in range(rounds) for case in random_cases(seed)),
        *edge_cases(rounds),
        *sparse_cases(rounds),
    ]


def against_the_reference() -> tuple[list[str], str]:
    """Every kernel in Triton's interpreter."""
    functions = KERNELS if HAS_TRITON else TWINS
    problems, cases = [], all_cases(ROUNDS)
    for case in cases:
        case.run(functions[case.function])
        difference = case.difference()
        if difference is not None:
            problems.append(f"{case.function} ({case.about}): {difference}")
    return problems, f"{len(cases)} calls" + ("" if HAS_TRITON else f"; {NO_TRITON}")


LAYERS = (Layer("A interpreter", "every kernel against the reference", against_the_reference),)
