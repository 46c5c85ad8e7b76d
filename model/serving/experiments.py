"""The source document's experiments, "prove the block accounting to yourself": predicted, then served.

A prediction is arithmetic on blocks.  The pool has 32,768 token slots.  Time is counted in steps, and
a step has room for 65,536 tokens, so that requests which come together advance together.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from msgspec import structs
from rich.console import Console

from kvoracle import __version__
from kvoracle.model.columns import show_columns
from kvoracle.model.errors import UsageError
from kvoracle.model.lockstep import Violation
from kvoracle.model.registry import Target, resolve
from kvoracle.model.serving.contestant import RESERVES_WHOLE, contestant
from kvoracle.model.serving.measures import Measures
from kvoracle.model.serving.pool import Pool
from kvoracle.model.serving.replay import Conduct, Replay
from kvoracle.model.serving.request import Text
from kvoracle.model.serving.scheduler import Scheduler
from kvoracle.model.traffic.arrival import Arrival
from kvoracle.reference import capacity

BLOCKS, BLOCK_SIZE, LARGE_BLOCK_SIZE = 2_048, 16, 32
SLOTS = BLOCKS * BLOCK_SIZE
MAX_MODEL_LEN, TOO_LONG = 32_768, 131_072
PROMPT, SHORT, LONG = 4_000, 16, 1_000
"""Tokens of a prompt, of a short answer and of a long one."""
BUDGET = 65_536
COUNTS = range(1, 17)
"""How many requests come at once."""
SPREAD = range(PROMPT + 1, PROMPT + LARGE_BLOCK_SIZE + 1)
"""Lengths with each remainder by 32 once, and each by 16 twice."""
PIECE = 20
"""Tokens: shared prefixes end at its multiples, most of which end no block."""
SHARED = range(PIECE, 8 * PIECE + 1, PIECE)
HEADS = ("experiment", "what", "predicted", "observed", "verdict")

Value = int | float | str


@dataclass(frozen=True)
class Row:
    """A number by arithmetic, and the same as it was served."""

    what: str
    predicted: Value
    observed: Value

    @property
    def holds(self) -> bool:
        """Whether they are equal."""
        return self.predicted == self.observed


@dataclass
class Experiment:
    """What is asked, and what came of it."""

    name: str
    about: str
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was left out, and what went wrong."""
    series: dict[str, list[int]] = field(default_factory=dict)
    """A number for each of `COUNTS`, for a plot."""

    def compare(self, what: str, predicted: Value, observed: Value) -> None:
        """One more row."""
        self.rows.append(Row(what, predicted, observed))


def experiments(target: Target) -> list[Experiment]:
    """All of them, on an allocator; what it does wrong is a row that does not hold."""
    if target.name == RESERVES_WHOLE:
        raise UsageError(f"{RESERVES_WHOLE} is what the others are compared with; name another.")
    found = []
    for name, (about, carry_out) in EXPERIMENTS.items():
        experiment = Experiment(name, about)
        try:
            carry_out(target, experiment)
        except Violation as violation:
            experiment.compare("violations", "none", violation.rule)
            experiment.notes.append(violation.message)
        found.append(experiment)
    return found


def show_experiments(out: Console, target: Target, found: list[Experiment]) -> bool:
    """A row a number; the result is whether all are as predicted."""
    out.print(f"kvoracle {__version__} serve --document", style="bold")
    pool = f"{BLOCKS:,} blocks of {BLOCK_SIZE}, max_model_len {MAX_MODEL_LEN:,}"
    about = {experiment.name: experiment.about for experiment in found}
    for name, value in {"allocator": target.name, "pool": pool, **about}.items():
        out.print(f"  {name:<14} {value}", markup=False)
    out.print()
    show_columns(out, HEADS, [row for one in found for row in _in_words(one)], left=(0, 1, 4))
    for experiment in found:
        for note in experiment.notes:
            out.print(f"{experiment.name}: {note}", markup=False)
    rows = [row for experiment in found for row in experiment.rows]
    held = sum(row.holds for row in rows)
    out.print(
        f"{held} of {len(rows)} as predicted; every sequence is read back when it ends or is preempted."
    )
    return held == len(rows)


def _in_words(experiment: Experiment) -> Iterable[list[str]]:
    for number, row in enumerate(experiment.rows):
        name = "" if number else experiment.name
        verdict = "as predicted" if row.holds else "DIFFERS"
        yield [name, row.what, _value(row.predicted), _value(row.observed), verdict]


def _value(value: Value) -> str:
    return value if isinstance(value, str) else f"{round(value, 2):,}"


# The experiments


def _two_prompts(target: Target, experiment: Experiment) -> None:
    one = Arrival(0, PROMPT, SHORT)
    paged = capacity.paged_admissions(BLOCKS, BLOCK_SIZE, one.tokens)
    prompts = 2 * capacity.blocks_for(PROMPT, BLOCK_SIZE) * BLOCK_SIZE
    whole = capacity.contiguous_admissions(SLOTS, MAX_MODEL_LEN)
    kinds = {
        "paged": (target, BLOCK_SIZE, paged, prompts),
        "contiguous": (resolve(RESERVES_WHOLE), MAX_MODEL_LEN, whole, MAX_MODEL_LEN),
    }
    series = {"requests": [*COUNTS]}
    for kind, (allocator, size, fit, held) in kinds.items():
        both = _served(allocator, [one] * 2)
        wait = 0 if fit >= 2 else 1 + SHORT
        series[kind] = [_most(_served(allocator, [one] * count), "running") for count in COUNTS]
        experiment.compare(f"{kind}: admitted at once", min(fit, 2), _first(both, "running"))
        experiment.compare(f"{kind}: slots held by prompts", held, _first(both, "used") * size)
        experiment.compare(f"{kind}: steps that the second waits", wait, both.waits[1])
        experiment.compare(f"{kind}: at once of {COUNTS[-1]}", fit, series[kind][-1])
    experiment.series = series


def _concurrency(target: Target, experiment: Experiment) -> None:
    one = Arrival(0, PROMPT, LONG)
    plain = {count: _served(target, [one] * count) for count in COUNTS}
    credited = {count: _served(target, [one] * count, credited=True) for count in COUNTS}
    begin = capacity.paged_admissions(BLOCKS, BLOCK_SIZE, PROMPT)
    finish = capacity.paged_admissions(BLOCKS, BLOCK_SIZE, one.tokens)
    preempting = (count for count in COUNTS if plain[count].preemptions)
    experiment.compare("fewest requests with a preemption", finish + 1, next(preempting, "none"))
    for count in range(finish, begin + 1):
        each = min(capacity.blocks_for(one.tokens, BLOCK_SIZE), BLOCKS // count)
        held, preemptions = _most(plain[count], "used"), plain[count].preemptions
        experiment.compare(f"{count} requests: most blocks held", count * each, held)
        # Who is preempted finds room only when those that can finish have done so.
        experiment.compare(f"{count} requests: preemptions", count - finish, preemptions)
    preemptions = sum(measures.preemptions for measures in credited.values())
    most = max(_most(measures, "running") for measures in credited.values())
    experiment.compare("credits: preemptions", 0, preemptions)
    experiment.compare("credits: at once", finish, most)
    experiment.series = {
        "requests": [*COUNTS],
        "used": [_most(measures, "used") for measures in plain.values()],
        "used with credits": [_most(measures, "used") for measures in credited.values()],
        "preemptions": [measures.preemptions for measures in plain.values()],
        "preemptions with credits": [measures.preemptions for measures in credited.values()],
    }


def _block_size(target: Target, experiment: Experiment) -> None:
    for size in (BLOCK_SIZE, LARGE_BLOCK_SIZE):
        _compare_admissions(target, experiment, size)
        _compare_tails(target, experiment, size)
        if _caches(target, experiment):
            hits = _served(target, _sharing(), block_size=size, cached=True, concurrency=1)
            whole = sum(shared // size * size for shared in SHARED)
            what = f"blocks of {size}: tokens hit of {sum(SHARED)} shared"
            experiment.compare(what, whole, hits.hit_tokens)


def _compare_admissions(target: Target, experiment: Experiment, size: int) -> None:
    one = Arrival(0, PROMPT, SHORT)
    served = _served(target, [one] * COUNTS[-1], block_size=size)
    fit = capacity.paged_admissions(SLOTS // size, size, one.tokens)
    taken = fit * capacity.blocks_for(PROMPT, size)
    experiment.compare(f"blocks of {size}: prompts at once", fit, _most(served, "running"))
    experiment.compare(f"blocks of {size}: taken by their prompts", taken, _first(served, "used"))


def _compare_tails(target: Target, experiment: Experiment, size: int) -> None:
    tails = [_taken(target, tokens, size) * size - tokens for tokens in SPREAD]
    worst, mean = capacity.worst_tail(size), float(capacity.uniform_tail(size))
    experiment.compare(f"blocks of {size}: worst tail, in slots", worst, max(tails))
    experiment.compare(f"blocks of {size}: mean tail, in slots", mean, sum(tails) / len(tails))


def _prompt_twice(target: Target, experiment: Experiment) -> None:
    both = [Arrival(step, PROMPT, SHORT, tuple(range(8))) for step in (0, 1)]
    alone = capacity.blocks_for(PROMPT + SHORT, BLOCK_SIZE)
    if _caches(target, experiment):
        # The last token of a prompt is computed, and with it the block that it is in.
        hit = (PROMPT - 1) // BLOCK_SIZE
        cached = _served(target, both, cached=True)
        later = _served(target, both, cached=True, concurrency=1)
        rate, rate_seen = 100 * hit * BLOCK_SIZE / PROMPT, 100 * cached.hit_tokens / PROMPT
        taken = _most(cached, "used") - alone
        experiment.compare("cache on: tokens hit", hit * BLOCK_SIZE, cached.hit_tokens)
        experiment.compare("cache on: hit rate of the second, in %", rate, rate_seen)
        experiment.compare("cache on: blocks that the second takes", alone - hit, taken)
        what = "cache on: tokens hit once the first has ended"
        experiment.compare(what, hit * BLOCK_SIZE, later.hit_tokens)
    taken = _most(_served(target, both), "used") - alone
    experiment.compare("cache off: blocks that the second takes", alone, taken)


def _startup(target: Target, experiment: Experiment) -> None:
    check = capacity.startup(TOO_LONG, BLOCKS, BLOCK_SIZE)
    needed = _taken(target, TOO_LONG, BLOCK_SIZE, slots=TOO_LONG)
    refused = _served(target, [Arrival(0, TOO_LONG - 1, 1)]).refused
    experiment.compare(f"blocks of {TOO_LONG:,} tokens", check.needed_blocks, needed)
    experiment.compare("such requests refused on arrival", int(not check.fits), refused)
    experiment.compare("most tokens that fit", check.largest_len, _most_tokens(target))


EXPERIMENTS: dict[str, tuple[str, Callable[[Target, Experiment], None]]] = {
    "two prompts": (
        f"prompts of {PROMPT:,} tokens at once, answers of {SHORT}",
        _two_prompts,
    ),
    "concurrency": (
        f"{COUNTS[0]} to {COUNTS[-1]} such prompts at once, answers of {LONG:,}",
        _concurrency,
    ),
    "block size": (
        f"blocks of {BLOCK_SIZE}, and half as many of {LARGE_BLOCK_SIZE}",
        _block_size,
    ),
    "prompt twice": (
        "a prompt, and the same one step later, with a prefix cache and without",
        _prompt_twice,
    ),
    "startup": (
        f"max_model_len {TOO_LONG:,} on this pool",
        _startup,
    ),
}
"""By name: what is asked, and what carries it out."""


# How they are served


def _served(
    target: Target,
    arrivals: list[Arrival],
    *,
    block_size: int = BLOCK_SIZE,
    slots: int = SLOTS,
    cached: bool = False,
    credited: bool = False,
    **conduct: int,
) -> Measures:
    pool = _pool(target, block_size, slots, cached)
    scheduler = Scheduler(pool, BUDGET, credited=credited)
    return Replay(iter(arrivals), scheduler, Conduct(step=1, token=0, **conduct)).run()


def _pool(target: Target, block_size: int, slots: int, cached: bool) -> Pool:
    made = contestant(target, slots, block_size, MAX_MODEL_LEN)
    return replace(made, config=structs.replace(made.config, prefix_cache=cached)).pool()


def _taken(target: Target, tokens: int, block_size: int, slots: int = SLOTS) -> int:
    """The blocks that a request has at its end, before it is cleaned up."""
    request = [Arrival(0, tokens - 1, 1)]
    served = _served(target, request, block_size=block_size, slots=slots, cleanup_steps=1)
    return _most(served, "used")


def _most_tokens(target: Target) -> int:
    """Those of one request that find room, when it grows block by block."""
    pool = _pool(target, BLOCK_SIZE, SLOTS, cached=False)
    name, text, length = "r0", Text("q", range(TOO_LONG)), BLOCK_SIZE
    if pool.begin(name, text[:length]) is None:
        return 0
    while length < TOO_LONG and pool.room:
        pool.grow(name, length, text[length : length + BLOCK_SIZE])
        length += BLOCK_SIZE
    pool.check(name, text[:length])
    return length


def _sharing() -> list[Arrival]:
    """A prompt, and then one for each length of `SHARED` that has so much in common with it."""
    pieces = PROMPT // PIECE
    prompts = [tuple(range(pieces))]
    for number, shared in enumerate(SHARED, start=1):
        common = shared // PIECE
        own = range(number * pieces + common, (number + 1) * pieces)
        prompts.append((*range(common), *own))
    return [Arrival(0, PROMPT, SHORT, prompt, PIECE) for prompt in prompts]


def _caches(target: Target, experiment: Experiment) -> bool:
    """Whether an allocator has a prefix cache; where it has none, that is noted."""
    if "admit" not in target.left_out:
        return True
    note = f"{target.name} has no prefix cache, so hits are left out"
    if note not in experiment.notes:
        experiment.notes.append(note)
    return False


def _first(measures: Measures, name: str) -> int:
    return int(measures.column(name)[0])


def _most(measures: Measures, name: str) -> int:
    return int(measures.column(name).max())
