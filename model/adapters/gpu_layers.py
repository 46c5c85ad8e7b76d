"""The layers that check the kernels without a GPU, and the broken kernels that they must see."""

import importlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from kvoracle.gpu.ahead import ARCHITECTURES, beyond_limits, compile_ahead, measure, table
from kvoracle.gpu.functions import KERNELS, TWINS, Functions
from kvoracle.gpu.intervals import BOUNDS, Proof
from kvoracle.gpu.kernel import HAS_TRITON, Launch, launching_with
from kvoracle.gpu.mutants import MUTANTS, Mutant
from kvoracle.gpu.production import production_launches
from kvoracle.gpu.sanitizer import Report, Sanitizer
from kvoracle.model.adapters.gpu_cases import (
    Case,
    edge_cases,
    random_cases,
    sparse_cases,
    unchecked_cases,
)

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
    """What a layer finds; that a kernel cannot even be run or compiled is a problem too."""
    try:
        return layer.check()
    except Exception as error:
        return Finding([f"{type(error).__name__}: {error}"], "stopped")


def all_cases(rounds: int) -> list[Case]:
    """The cases of every kernel."""
    return [
        *(case for seed in range(rounds) for case in random_cases(seed)),
        *edge_cases(rounds),
        *unchecked_cases(rounds),
        *sparse_cases(rounds),
    ]


def against_the_reference() -> Finding:
    """Every kernel in Triton's interpreter, and every torch twin.

    A kernel that layer B saw outside its tensors is not run: it could end this process.
    """
    strays = {report.kernel for report in _watched()[1] if report.kind == "outside"}
    sides = (KERNELS, TWINS) if HAS_TRITON and not strays else (TWINS,)
    problems = [f"{name} was not run: layer B saw it outside its tensors" for name in strays]
    count = 0
    for functions in sides:
        for case in all_cases(ROUNDS):
            count += 1
            case.run(functions[case.function])
            problems += _differences(case)
    return Finding(problems, f"{count} calls" + ("" if HAS_TRITON else ", of the torch twins only"))


def sanitized() -> Finding:
    """The same calls, watched."""
    problems, reports, count = _watched()
    return Finding([*map(str, reports), *problems], f"{count} calls watched")


@cache
def _watched() -> tuple[list[str], list[Report], int]:
    """What was wrong, and what the sanitizer reports, of how many calls."""
    if not HAS_TRITON:
        return [], [], 0
    sanitizer, cases = Sanitizer(ROUNDS), all_cases(ROUNDS)
    problems = []
    with launching_with(sanitizer.carry_out):
        for case in cases:
            case.run(KERNELS[case.function])
            problems += _differences(case)
    return problems, sanitizer.reports, len(cases)


def gate() -> Finding:
    """The machine code of every kernel."""
    launches = production_launches()
    machines = [measure(launch, arch) for launch in launches for arch in ARCHITECTURES]
    problems = [problem for machine in machines for problem in beyond_limits(machine)]
    did = f"{len(machines)} kernels compiled for {' and '.join(f'sm_{a}' for a in ARCHITECTURES)}"
    return Finding(problems, did, table(machines))


def intervals() -> Finding:
    """Every 32-bit operation of every kernel."""
    proofs = {launch.kernel.name: _proof(launch) for launch in production_launches()}
    problems = [f"{name}: {said}" for name, proof in proofs.items() for said in proof.problems]
    checked = sum(proof.checked for proof in proofs.values())
    return Finding(problems, f"{checked} steps in {len(proofs)} kernels")


def mutants() -> Finding:
    """Every broken kernel must be caught."""
    fitting = [mutant for mutant in MUTANTS if mutant.fits]
    caught = [hunt(mutant) for mutant in fitting]
    problems = [f"{one.mutant} ({one.function}) survived" for one in caught if not one.said]
    problems += [f"{one.name} fits {one.function} no longer" for one in MUTANTS if not one.fits]
    did = f"{len(caught) - len(problems)} of {len(caught)} caught"
    return Finding(problems, did, mutant_table(caught))


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
                    case.run(functions[case.function])
                found = [("B", str(report)) for report in sanitizer.reports]
                found += [("A", difference) for difference in _differences(case)]
                seen |= {layer for layer, _ in found}
                yield from found
        for launch in _launches_of(functions, mutant):
            yield from (("C", said) for said in beyond_limits(measure(launch, ARCHITECTURES[0])))
            yield from (("D", said) for said in _proof(launch).problems)


def _launches_of(functions: Functions, mutant: Mutant) -> list[Launch]:
    module = functions[mutant.function].__module__
    launches = production_launches(functions)
    return [launch for launch in launches if launch.kernel.function.__module__ == module]


def _proof(launch: Launch) -> Proof:
    ttir = compile_ahead(launch, ARCHITECTURES[0]).asm["ttir"]
    return Proof(ttir, BOUNDS[launch.kernel.name])


def _differences(case: Case) -> list[str]:
    difference = case.difference()
    return [f"{case.function} ({case.about}): {difference}"] if difference else []


LAYERS = (
    Layer("A", "interpreter against the reference", against_the_reference, needs_triton=False),
    Layer("B", "sanitizer over the interpreter", sanitized),
    Layer("C", "machine code within its limits", gate),
    Layer("D", "no 32-bit operation overflows", intervals),
    Layer("mutants", "broken kernels are seen", mutants),
    Layer("peers", "the engines' kernels under A, B and C", peers),
)
