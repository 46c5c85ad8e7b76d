"""The Hypothesis engine: a rule-based state machine for any allocator, one rule an operation.

    from kvoracle.model.machine import check_seed

    @pytest.mark.parametrize("seed", range(25))
    def test_my_allocator(seed):
        check_seed(MyAdapter, seed)

Every rule is always applicable: a name that is not live is misuse, which is part of the contract.
Every setting is stated, so that the profile Hypothesis loads under CI changes nothing.
"""

import contextlib
from collections.abc import Callable
from typing import Any, cast

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from kvoracle.model.adapters.base import Adapter
from kvoracle.model.check import as_target
from kvoracle.model.fields import kinds
from kvoracle.model.found import describe_found
from kvoracle.model.lockstep import Lockstep, Violation
from kvoracle.model.operations import Admit, Create, LookUp, Operation, Receive
from kvoracle.model.registry import Target
from kvoracle.model.run import Failure, Tally, kind_of, run, start
from kvoracle.model.shrink import shrink
from kvoracle.model.trace import Configuration, Group, Trace
from kvoracle.model.walk import EXTRA_KEYS, REQUEST_NAMES, STEP_NAMES, TRANSFER_NAMES

STEPS = 100
"""Operations a run: shorter ones miss rare configurations."""

BeforeStep = Callable[[Trace], None]


def machine_settings(examples: int, steps: int = STEPS) -> settings:
    """Every setting stated.  Shrinking is ours, on the trace, so Hypothesis only generates."""
    return settings(
        backend="hypothesis",
        database=None,
        deadline=None,
        derandomize=False,
        max_examples=examples,
        phases=(Phase.generate,),
        print_blob=False,
        report_multiple_bugs=False,
        stateful_step_count=steps,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )


class AllocatorMachine(RuleBasedStateMachine):
    """Subclassed by `machine_for`, which adds a rule for each operation that the allocator can do."""

    target: Target
    collected: "Collected"

    def __init__(self) -> None:
        super().__init__()
        self.trace = Trace(Configuration(1, 1), [])
        self.lockstep: Lockstep
        self.violation: Violation | None = None
        self.tokens = 0

    @initialize(
        blocks=st.one_of(
            st.integers(2, 5), st.integers(2, 5), st.integers(2, 8), st.integers(9, 40)
        ),
        block_size=st.runner().flatmap(lambda machine: machine.sizes()),
        prefix_cache=st.runner().flatmap(lambda machine: machine.caching()),
        watermark=st.runner().flatmap(lambda machine: machine.option("watermark")),
        match_unit=st.runner().flatmap(lambda machine: machine.option("match_unit")),
        max_blocks=st.runner().flatmap(lambda machine: machine.option("max_model_len")),
        groups=st.runner().flatmap(lambda machine: machine.groups()),
        prompt_blocks=st.integers(1, 2),
        prompt_rest=st.integers(0, 1),
    )
    def make_pool(
        self,
        blocks: int,
        block_size: int,
        prefix_cache: bool,
        watermark: int,
        match_unit: int,
        max_blocks: int,
        groups: tuple[Group, ...],
        prompt_blocks: int,
        prompt_rest: int,
    ) -> None:
        config = Configuration(
            blocks,
            block_size,
            prefix_cache,
            watermark,
            max_blocks * (blocks * block_size - 1),
            match_unit,
        )
        config = config.with_groups(groups) if groups else config
        self.trace = Trace(config, [])
        self.trace.origin = dict(self.collected.origin)
        try:
            self.lockstep = start(self.target.factory, self.trace)
        except Violation as violation:
            self._fail(violation)
            raise
        prompt = self.fresh(prompt_blocks * config.block_size + prompt_rest)
        for request in REQUEST_NAMES[:2]:
            self.step(Admit(request, prompt) if prefix_cache else Create(request))

    @invariant()
    def agrees_with_the_reference(self) -> None:
        if self.violation is not None:
            raise self.violation

    def step(self, operation: Operation) -> None:
        """Carry out and check one operation; a difference is kept for the invariant."""
        self.trace.operations.append(operation)  # type: ignore[arg-type]
        if self.collected.before_step is not None:
            self.collected.before_step(self.trace)
        try:
            outcome = self.lockstep.step(operation)
        except Violation as violation:
            self._fail(violation)
        else:
            self.collected.count(operation.verb, kind_of(outcome))

    def _fail(self, violation: Violation) -> None:
        self.violation = violation
        self.collected.failure = Failure(
            self.trace, violation.rule, violation.message, violation.block
        )

    def teardown(self) -> None:
        if not self.trace.operations:
            return
        self.collected.tally.add(Tally({}, dict(self.lockstep.witnessed), 1))
        if self.violation is None:
            try:
                self.lockstep.memory.finish()
            except Violation as violation:
                self._fail(violation)
                raise

    def sizes(self) -> st.SearchStrategy[int]:
        return st.sampled_from(self.target.block_sizes[:4])

    def caching(self) -> st.SearchStrategy[bool]:
        return st.booleans() if Admit in self.target.operations else st.just(False)

    def option(self, name: str) -> st.SearchStrategy[int]:
        """Whether an optional field of the configuration is used."""
        return st.sampled_from((0,) * 7 + (1,)) if name in self.target.options else st.just(0)

    def groups(self) -> st.SearchStrategy[tuple[Group, ...]]:
        if "groups" not in self.target.options:
            return st.just(())
        one = st.builds(Group, st.sampled_from((1, 2, 4)), st.sampled_from((0, 0, 1, 2, 3, 5, 6)))
        return st.lists(one, min_size=1, max_size=3).map(tuple)

    def extra_keys(self) -> st.SearchStrategy[dict[str, str]]:
        known = [keys for keys in EXTRA_KEYS if keys.keys() <= self.target.extra_keys]
        return st.sampled_from([{}] * 3 * (1 + len(known)) + known)

    def known_prompts(self) -> tuple[tuple[int, ...], ...]:
        """What was begun or is held: the prompts that may hit something."""
        begun = [o.prompt for o in self.trace.operations if isinstance(o, Admit | LookUp | Receive)]
        held = [cast(list[int], tokens) for tokens in self.lockstep.lists.sequences.values()]
        return (*begun, *map(tuple, held)) or ((),)

    def draw_fields(self, operation: type[Operation]) -> st.SearchStrategy[Any]:
        fields = {name: _STRATEGIES[kind](self) for name, kind in kinds(operation).items()}
        if "requests" not in fields or "tokens" not in fields:
            return st.builds(operation, **fields)
        del fields["tokens"]
        return st.fixed_dictionaries(fields).map(
            lambda drawn: operation(**drawn, tokens=self.fresh(len(drawn["requests"])))
        )

    def fresh(self, count: int) -> tuple[int, ...]:
        """Tokens that no other operation of this run wrote."""
        self.tokens += count
        return tuple(range(self.tokens - count + 1, self.tokens + 1))

    def live(self) -> tuple[str, ...]:
        return tuple(self.lockstep.reference.tables)

    def unused(self) -> tuple[str, ...]:
        return tuple(name for name in REQUEST_NAMES if name not in self.lockstep.reference.tables)


class Collected:
    """What the machines of one seed found and counted."""

    def __init__(self, seed_number: int, before_step: BeforeStep | None) -> None:
        self.origin: dict[str, str | int] = {"engine": "hypothesis", "seed": seed_number}
        self.before_step = before_step
        self.failure: Failure | None = None
        self.tally = Tally()

    def count(self, verb: str, kind: str) -> None:
        self.tally.outcomes[verb, kind] = self.tally.outcomes.get((verb, kind), 0) + 1


def _mostly(names: tuple[str, ...], every: tuple[str, ...]) -> st.SearchStrategy[str]:
    """A name that makes sense, and one time in sixteen any name, for the sake of misuse."""
    if not names:
        return st.sampled_from(every)
    likely = 15 * len(names)
    draw = st.integers(0, likely + len(names) - 1)
    return draw.map(lambda i: names[i % len(names)] if i < likely else every[i % len(every)])


_STRATEGIES: dict[str, Callable[[AllocatorMachine], st.SearchStrategy[Any]]] = {
    "new request": lambda machine: _mostly(machine.unused(), REQUEST_NAMES),
    "request": lambda machine: _mostly(machine.live(), REQUEST_NAMES),
    "requests": lambda machine: st.lists(
        st.sampled_from((*machine.live(), *machine.live(), REQUEST_NAMES[-1])),
        min_size=1,
        max_size=8,
        unique_by=lambda name: name if name != REQUEST_NAMES[-1] else object(),
    ).map(tuple),
    "new transfer": lambda _: st.sampled_from(TRANSFER_NAMES),
    "transfer": lambda machine: _mostly(
        tuple(machine.lockstep.reference.transfers), TRANSFER_NAMES
    ),
    "tokens": lambda machine: st.one_of(
        st.integers(0, machine.trace.config.block_size),
        st.integers(0, 3 * machine.trace.config.block_size + 1),
    ).map(machine.fresh),
    "token each": lambda _: st.nothing(),
    "reserving": lambda machine: _mostly(
        tuple(name for name, life in machine.lockstep.reference.lives.items() if life.reserved),
        REQUEST_NAMES,
    ),
    "looked up": lambda machine: _mostly(tuple(machine.lockstep.reference.lookups), REQUEST_NAMES),
    "preempted": lambda machine: _mostly(
        tuple(machine.lockstep.reference.preempted), REQUEST_NAMES
    ),
    "new step": lambda _: st.sampled_from(STEP_NAMES),
    "step": lambda machine: _mostly(tuple(machine.lockstep.reference.steps)[:1], STEP_NAMES),
    "committed": lambda machine: st.integers(0, machine.trace.config.block_size + 1).map(
        machine.fresh
    ),
    "extra keys": lambda machine: machine.extra_keys(),
    "count": lambda machine: st.integers(0, 2 * machine.trace.config.block_size + 1),
    "position": lambda _: st.integers(0, 4),
    "workers": lambda _: st.integers(1, 3),
    "worker": lambda _: st.integers(0, 3),
    "lease": lambda _: st.integers(0, 4),
    "life": lambda _: st.sampled_from((0,) * 7 + (1,)),
    "prompt": lambda machine: st.builds(
        lambda known, first, high, kept, added: (
            tuple(token + high for token in known[first:kept])
            + machine.fresh(added or (not known[first:kept]))
        ),
        st.sampled_from(machine.known_prompts()),
        st.sampled_from((0,) * 7 + (machine.trace.config.block_size,)),
        st.sampled_from((0,) * 7 + (256,)),
        st.one_of(st.none(), st.none(), st.integers(0, 3 * machine.trace.config.block_size)),
        st.integers(0, 2 * machine.trace.config.block_size),
    ),
}


def machine_for(target: Target) -> type[AllocatorMachine]:
    """The state machine of an allocator."""
    body: dict[str, Any] = {"target": target}
    for operation in target.operations:
        body[operation.verb] = _rule_of(operation)
    return type("AllocatorMachine", (AllocatorMachine,), body)


def _rule_of(operation: type[Operation]) -> Any:
    def apply(machine: AllocatorMachine, drawn: Operation) -> None:
        machine.step(drawn)

    apply.__name__ = operation.verb
    strategy = st.runner().flatmap(lambda machine: machine.draw_fields(operation))
    return rule(drawn=strategy)(apply)


def explore_seed(
    target: Target,
    seed_number: int,
    examples: int,
    steps: int = STEPS,
    before_step: BeforeStep | None = None,
) -> Collected:
    """Run the machine of one seed; the failure found, if any, is not yet shrunk."""
    machine = machine_for(target)
    machine.collected = Collected(seed_number, before_step)
    with contextlib.suppress(Violation):
        run_state_machine_as_test(
            seed(seed_number)(machine), settings=machine_settings(examples, steps)
        )
    return machine.collected


def check_seed(
    allocator: str | type[Adapter], seed_number: int, examples: int = 20, steps: int = STEPS
) -> Tally:
    """For pytest: an AssertionError with the shrunk, replayable failure, if the seed finds one."""
    target = as_target(allocator)
    collected = explore_seed(target, seed_number, examples, steps)
    if collected.failure is not None:
        failure = shrink(collected.failure, lambda trace: run(trace, target.factory))
        raise AssertionError(describe_found(failure, target))
    return collected.tally
