"""Run both engines against every mutant: how many operations each takes to be caught, and by what."""

from multiprocessing.connection import wait
from pathlib import Path
from typing import NamedTuple

import msgspec

from kvoracle.model.child import Child, ChildError, Send
from kvoracle.model.engines import ENGINES, Share, hunt
from kvoracle.model.mutants import MUTANTS, Mutant
from kvoracle.model.run import Failure, run, with_expected
from kvoracle.model.session import Pulse
from kvoracle.model.shrink import shrink
from kvoracle.model.trace import write

OPERATIONS_MAX = 60_000
HUNT_SECONDS_MAX = 600.0


class Caught(NamedTuple):
    """What one engine made of one mutant; `failure` is shrunk, and None for a survivor."""

    mutant: str
    engine: str
    operations: int
    failure: Failure | None


def catch(name: str, engine: str, seed: int) -> Caught:
    """Hunt one mutant with one engine."""
    target = mutant_named(name).target
    failure, tally = hunt(engine, target, seed, OPERATIONS_MAX)
    if failure is not None:
        failure = shrink(failure, lambda trace: run(trace, target.factory))
    return Caught(name, engine, tally.operations, failure)


def catch_all(seed: int, workers: int) -> list[Caught]:
    """Hunt every mutant with every engine: one engine after the other, so that every worker has as
    many hunts of the slow one."""
    jobs = [(mutant.name, engine, seed) for engine in ENGINES for mutant in MUTANTS]
    caught: dict[int, Caught] = {}
    children = [
        Child(_catch_share, jobs, Share(n, workers), hang_seconds=HUNT_SECONDS_MAX)
        for n in range(workers)
    ]
    try:
        while running := [child for child in children if child.is_running]:
            wait([child.pipe for child in running], timeout=1)
            for child in running:
                caught.update(_received(child))
    finally:
        for child in children:
            if child.is_running:
                child.kill()
    return [caught[index] for index in range(len(jobs))]


def _catch_share(send: Send, pulse: Pulse, jobs: list[tuple[str, str, int]], share: Share) -> None:
    for index in range(share.first, len(jobs), share.step):
        pulse.beat(index)
        send((index, catch(*jobs[index])))


def _received(child: Child) -> list[tuple[int, Caught]]:
    messages = child.messages()
    for message in messages:
        if isinstance(message, ChildError):
            raise message
    death = child.failure()
    if death is not None:
        raise ChildError(f"hunting mutants: {death.message}")
    return messages


def save(caught: list[Caught], folder: Path) -> list[Path]:
    """Write the shortest minimal trace of each mutant, with the outcomes that are right."""
    shortest: dict[str, Failure] = {}
    for one in caught:
        if one.failure is not None:
            best = shortest.setdefault(one.mutant, one.failure)
            if len(one.failure.trace.operations) < len(best.trace.operations):
                shortest[one.mutant] = one.failure
    paths = []
    for name, failure in shortest.items():
        mutant = mutant_named(name)
        trace = msgspec.structs.replace(
            with_expected(failure.trace, mutant.adapter),
            flags=list(mutant.bugs),
            notes={"mutant": name, "wrong": mutant.wrong, "rule": failure.rule},
            origin={},
        )
        paths.append(folder / f"{name}.json")
        write(trace, paths[-1])
    return paths


def mutant_named(name: str) -> Mutant:
    """The mutant of a name; KeyError when there is none."""
    return {mutant.name: mutant for mutant in MUTANTS}[name]
