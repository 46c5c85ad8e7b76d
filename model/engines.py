"""The two engines.  Each hands one trace after another to a session until the session is over."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

from kvoracle.model.machine import explore_seed
from kvoracle.model.random64 import combine
from kvoracle.model.registry import Target
from kvoracle.model.run import Failure, Tally, run
from kvoracle.model.session import Session
from kvoracle.model.walk import walk

EXAMPLES_A_SEED = 10


class Share(NamedTuple):
    """One process's share of a campaign's runs: first, first + step, first + 2 * step, ..."""

    first: int = 0
    step: int = 1


def walks(target: Target, seed: int, share: Share, session: Session) -> Failure | None:
    """Seeded walks."""
    for index in itertools.count(*share):
        if session.is_over():
            break
        trace = walk(
            combine(seed, index),
            target.operations,
            target.block_sizes,
            extra_keys=target.extra_keys,
            options=target.options,
        )
        session.begin(trace)
        failure = run(
            trace,
            target.factory,
            session.tally,
            session.beat,
            before_drain=session.begin,
        )
        if failure is not None:
            return failure
    return None


def hypothesis_machines(
    target: Target, seed: int, share: Share, session: Session
) -> Failure | None:
    """The state machine under one Hypothesis seed after the other."""
    for index in itertools.count(*share):
        if session.is_over():
            break
        collected = explore_seed(
            target, combine(seed, index), EXAMPLES_A_SEED, before_step=session.begin_and_beat
        )
        session.tally.add(collected.tally)
        if collected.failure is not None:
            return collected.failure
    return None


Engine = Callable[[Target, int, Share, Session], Failure | None]
ENGINES: dict[str, Engine] = {"walk": walks, "hypothesis": hypothesis_machines}


def hunt(
    engine: str, target: Target, seed: int, operations_max: int
) -> tuple[Failure | None, Tally]:
    """Run one engine in this process for so many operations, or until it finds something."""
    session = Session(operations_max=operations_max)
    failure = ENGINES[engine](target, seed, Share(), session)
    return failure, session.tally
