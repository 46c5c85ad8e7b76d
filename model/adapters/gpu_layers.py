"""The layers that check the kernels without a GPU, and the broken kernels that they must see."""

import importlib
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import chain
from typing import NamedTuple, TypeVar

from kvoracle.gpu.ahead import ARCHITECTURES, beyond_limits, compile_ahead, measure, table
from kvoracle.gpu.checks import in_one_line
from kvoracle.gpu.functions import KERNELS, TWINS
from kvoracle.gpu.intervals import BOUNDS, Proof
from kvoracle.gpu.kernel import HAS_TRITON, Launch, launching_with
from kvoracle.gpu.mutants import MUTANTS, Mutant
from kvoracle.gpu.production import launches_of
from kvoracle.gpu.sanitizer import Report, Sanitizer, first_of_each
from kvoracle.model.adapters.gpu_case import Case, wrong_calls
from kvoracle.model.adapters.gpu_cases import edge_cases, random_cases
from kvoracle.model.adapters.gpu_hard_cases import sparse_cases, unchecked_cases

Look = TypeVar("Look")
ROUNDS = 10
MUTANT_ROUNDS = 2


class Finding(NamedTuple):
    """What a layer found: problems in words, what it did, and lines to show."""

    problems: list[str]
    did: str
    lines: list[str] = []  # noqa: RUF012


class Layer(NamedTuple):
    """A layer; `needs_triton` where the torch twins are no subject for it."""

    name: str
    about: str
    check: Callable[[], Finding]
    needs_triton: bool = True


class Caught(NamedTuple):
    """A mutant and, by layer, the first thing that each said of it."""

    mutant: str
    function: str
    said: dict[str, str]


def found_by(layer: Layer) -> Finding:
    """What a layer finds; that it could not come to its end is a problem too."""
    try:
        return layer.check()
    except Exception as error:
        return Finding([in_one_line(error)], "stopped")


def all_cases(rounds: int) -> list[Case]:
    """The cases of every kernel."""
    return [
        *(case for seed in range(rounds) for case in random_cases(seed)),
        *edge_cases(rounds),
        *unchecked_cases(rounds),
        *sparse_cases(rounds),
    ]


def against_the_reference() -> Finding:
    """Every kernel in Triton's interpreter, as layer B carries it out, and every torch twin."""
    cases = all_cases(ROUNDS)
    problems = [*_watched().differences, *wrong_calls(cases, TWINS, "torch twin of ")]
    sides = "kernels and torch twins" if HAS_TRITON else "torch twins only"
    return Finding(problems, f"{len(cases)} calls, {sides}")


def sanitized() -> Finding:
    """The same calls, watched."""
    return Finding(first_of_each(_watched().reports), f"{_watched().calls} calls")


class Watched(NamedTuple):
    """The calls of every kernel, made once for A and B: a broken kernel cannot end the process there."""

    calls: int
    differences: list[str]
    reports: list[Report]


@cache
def _watched() -> Watched:
    cases, sanitizer = all_cases(ROUNDS) if HAS_TRITON else [], Sanitizer(ROUNDS)
    with launching_with(sanitizer.carry_out):
        differences = list(wrong_calls(cases, KERNELS))
    return Watched(len(cases), differences, sanitizer.reports)


def gate() -> Finding:
    """The machine code of every kernel."""
    machines, problems = _of_every_kernel(
        lambda launch: [measure(launch, arch) for arch in ARCHITECTURES]
    )
    problems += [problem for machine in machines for problem in beyond_limits(machine)]
    did = f"{len(machines)} kernels compiled for {' and '.join(f'sm_{a}' for a in ARCHITECTURES)}"
    return Finding(problems, did, table(machines))


def intervals() -> Finding:
    """Every 32-bit operation of every kernel."""
    proofs, problems = _of_every_kernel(lambda launch: [(launch, _proof(launch))])
    problems += [said for launch, proof in proofs for said in _overflows(launch, proof)]
    checked = sum(proof.checked for _, proof in proofs)
    return Finding(problems, f"{checked} steps in {len(proofs)} kernels")


def _of_every_kernel(look: Callable[[Launch], list[Look]]) -> tuple[list[Look], list[str]]:
    """What is seen of every kernel, and of which it cannot be seen and why."""
    problems: list[str] = []
    launches: list[Launch] = []
    for name, function in KERNELS.items():
        launches += _tried(name, partial(launches_of, name, function), problems)
    seen = [_tried(one.kernel.name, partial(look, one), problems) for one in launches]
    return list(chain.from_iterable(seen)), problems


def _tried(name: str, work: Callable[[], list[Look]], problems: list[str]) -> list[Look]:
    """What some work gives; nothing, and a problem more, where it raises."""
    try:
        return work()
    except Exception as error:
        problems.append(f"{name}: {in_one_line(error)}")
        return []


def mutants() -> Finding:
    """Every broken kernel must be caught."""
    fitting = [mutant for mutant in MUTANTS if mutant.fits]
    caught = [hunt(mutant) for mutant in fitting]
    survived = [f"{one.mutant} ({one.function}) survived" for one in caught if not one.said]
    unfit = [
        f"{one.name} cannot be planted: {one.function} has no {one.old!r} to change"
        for one in MUTANTS
        if not one.fits
    ]
    did = f"{len(caught) - len(survived)} of {len(MUTANTS)} caught"
    return Finding([*survived, *unfit], did, mutant_table(caught))


def peers() -> Finding:
    """The installed engines' kernels.  What is seen of them fails nothing here."""
    module = importlib.import_module("kvoracle.model.adapters.gpu_peers")
    skipped = sum(module.version_of(peer.engine) is None for peer in module.PEERS)
    lines = [line for peer in module.PEERS for line in module.in_lines(peer)]
    return Finding([], f"{len(module.PEERS) - skipped} kernels, {skipped} skipped", lines)


def mutant_table(caught: list[Caught]) -> list[str]:
    """A line for each: which layers caught it, and what the first of B, D, C and A said."""
    lines = [f"{'mutant':<32}{'function':<14}{'by':<6}what was said"]
    for one in caught:
        said = next((one.said[layer] for layer in "BDCA" if layer in one.said), "SURVIVED")
        lines.append(f"{one.mutant:<32}{one.function:<14}{''.join(sorted(one.said)):<6}{said}")
    return lines


def hunt(mutant: Mutant) -> Caught:
    """The first thing that each layer says of a mutant."""
    said: dict[str, str] = {}
    for layer, problem in complaints(mutant):
        said.setdefault(layer, problem)
    return Caught(mutant.name, mutant.function, said)


def complaints(mutant: Mutant) -> Iterator[tuple[str, str]]:
    """What each layer says of a mutant.  A and B share one run, in which no access goes astray; it ends
    when both have said something."""
    sanitizer = Sanitizer(MUTANT_ROUNDS)
    seen: set[str] = set()
    with mutant.functions() as functions:
        for case in all_cases(MUTANT_ROUNDS):
            if case.function == mutant.function and len(seen) < 2:
                with launching_with(sanitizer.carry_out):
                    found = [("A", said) for said in wrong_calls([case], functions)]
                found += [("B", str(report)) for report in sanitizer.reports]
                seen |= {layer for layer, _ in found}
                yield from found
        raised: list[str] = []
        work = partial(launches_of, mutant.function, functions[mutant.function])
        for launch in _tried(mutant.function, work, raised):
            for layer, look in (("C", _machine_problems), ("D", _overflows)):
                said = _tried(launch.kernel.name, partial(look, launch), raised)
                yield from ((layer, one) for one in said)
        yield from (("C", one) for one in raised)


def _machine_problems(launch: Launch) -> list[str]:
    return beyond_limits(measure(launch, ARCHITECTURES[0]))


def _overflows(launch: Launch, proof: Proof | None = None) -> list[str]:
    return [f"{launch.kernel.name}, {said}" for said in (proof or _proof(launch)).problems]


def _proof(launch: Launch) -> Proof:
    ttir = compile_ahead(launch, ARCHITECTURES[0]).asm["ttir"]
    return Proof(ttir, BOUNDS[launch.kernel.name])


LAYERS = (
    Layer("A", "interpreter against the reference", against_the_reference, needs_triton=False),
    Layer("B", "sanitizer over the interpreter", sanitized),
    Layer("C", "machine code within its limits", gate),
    Layer("D", "no 32-bit operation overflows", intervals),
    Layer("mutants", "broken kernels are seen", mutants),
    Layer("peers", "the engines' kernels under A, B and C", peers),
)
