"""The seeded walk: a 64-bit seed becomes a trace, the same for ever.

Each walk draws its own weights: some operations are switched off and the rest are wildly uneven
(swarm testing, Groce et al., ISSTA 2012).  Pools are small and sequences end at k*B - 1, k*B and
k*B + 1, because that is where allocators break.
"""

from collections.abc import Callable, Sequence
from typing import cast

import msgspec

from kvoracle.model.fields import kinds
from kvoracle.model.operations import (
    OPERATIONS,
    Acknowledge,
    Admit,
    AnyOperation,
    Append,
    BeginStep,
    Cancel,
    ChangeWeights,
    Commit,
    Create,
    EndStep,
    FailStep,
    Fork,
    LookUp,
    Operation,
    Preempt,
    Receive,
    Release,
    Reserve,
    Resume,
    Send,
    Tick,
    Trim,
    Unpin,
    Use,
)
from kvoracle.model.oracle import oracle_of
from kvoracle.model.random64 import Random64
from kvoracle.model.trace import OPTIONS, Configuration, Group, Trace
from kvoracle.reference import Oracle, Rejected, group_records
from kvoracle.reference.groups import GroupedKV

REQUEST_NAMES = tuple("abcdefgh")
TRANSFER_NAMES = ("t1", "t2", "t3", "t4")
MANY_REQUEST_NAMES = (*REQUEST_NAMES, "aa", "ab", "A", "t1", "é", "r" * 200, *"ijklmnopqr")
MANY_TRANSFER_NAMES = (*TRANSFER_NAMES, "a", "t", "tt", "T1", *"uvwxyz")
STEP_NAMES = ("s1", "s2", "s3", "s4")
EXTRA_KEYS: tuple[dict[str, str], ...] = (
    {"adapter": "x"},
    {"adapter": "y"},
    {"adapter": "xy"},
    {"adapter": "x", "salt": "y"},
    {"salt": "x"},
    {"salt": "y"},
    {"image": "x"},
    {"adapter": "x", "image": "y"},
)
ANY_BLOCK_SIZE = range(1, 4097)
ANY_EXTRA_KEYS = frozenset({"adapter", "salt", "image"})
REDRAWS = 4
PROMPT_MAX = 4_096
"""Tokens of a prompt; longer ones take the reference seconds, and show nothing more."""
GROUP_SIZES = ((1, 2, 4), (1, 2, 4), (1, 3), (2, 3, 4))
TARGETS = frozenset({"reserving", "looked up", "preempted", "step", "transfer"})
ENDERS: dict[type[Operation], str] = {
    Release: "request",
    Unpin: "transfer",
    Acknowledge: "transfer",
    Cancel: "looked up",
    EndStep: "step",
}
"""What gives room, and what it ends."""
LIVE = {
    "request": "tables",
    "looked up": "lookups",
    "preempted": "preempted",
    "step": "steps",
    "transfer": "transfers",
}
"""Where the reference keeps what there is of a kind; that of groups of layers knows fewer kinds."""

RARE: frozenset[type[Operation]] = frozenset({ChangeWeights, FailStep, Tick})
"""What undoes much at once."""
TOGETHER: tuple[frozenset[type[Operation]], ...] = (
    frozenset({LookUp, Use, Cancel}),
    frozenset({Reserve, Commit, Trim}),
    frozenset({BeginStep, EndStep, FailStep}),
    frozenset({Send, Receive, Acknowledge, Tick}),
    frozenset({Preempt, Resume}),
)
"""Operations that make sense together, and are switched on and off together."""


def walk(
    seed: int,
    operations: Sequence[type[Operation]] = OPERATIONS,
    block_sizes: range = ANY_BLOCK_SIZE,
    steps: int | None = None,
    *,
    extra_keys: frozenset[str] = ANY_EXTRA_KEYS,
    options: frozenset[str] = frozenset(OPTIONS),
) -> Trace:
    """The trace of a seed, of these operations, on a block size that the allocator takes.

    Its length is drawn too (20 to 199 operations, now and then 2,000) unless `steps` gives it.
    """
    random = Random64(seed)
    config = _geometry(random, block_sizes)
    if Admit in operations:
        config = msgspec.structs.replace(config, prefix_cache=random.below(4) > 0)
    config = msgspec.structs.replace(config, **_options(random, config, options))
    if "groups" in options:
        config = _with_groups(random, config)
    weights = _weights(random, operations)
    drawing = _Drawing(random, config, extra_keys)
    drawn_steps = 2_000 if random.below(64) == 0 else 20 + random.below(180)
    steps = drawn_steps if steps is None else steps
    trace = Trace(config, [drawing.operation(weights) for _ in range(steps)])
    trace.origin = {"engine": "walk", "seed": seed}
    return trace


def _geometry(random: Random64, block_sizes: range) -> Configuration:
    blocks, size = 2 + random.below(7), 1 + random.below(4)
    rare = random.below(128)
    if rare == 0:
        blocks, size = 300 + random.below(700), (33, 64, 256)[random.below(3)]
    elif rare < 16:
        blocks, size = 9 + random.below(64), (1, 1, 2, 3, 16)[random.below(5)]
    fitting = next((fits for fits in block_sizes if fits >= size), block_sizes[-1])
    return Configuration(blocks, fitting)


def _options(random: Random64, config: Configuration, names: frozenset[str]) -> dict[str, int]:
    """Values for optional fields of the configuration; once in eight each."""
    drawn = {}
    if "watermark" in names and random.below(8) == 0:
        drawn["watermark"] = 1 + random.below(2)
    if "max_model_len" in names and random.below(8) == 0:
        drawn["max_model_len"] = 1 + random.below(config.blocks * config.block_size + 2)
    units = [unit for unit in range(1, config.block_size) if config.block_size % unit == 0]
    if "match_unit" in names and units and config.prefix_cache and random.below(2):
        drawn["match_unit"] = units[random.below(len(units))]
    return drawn


def _with_groups(random: Random64, config: Configuration) -> Configuration:
    """One to three groups, and blocks for one to four runs of tokens in all of them."""
    sizes = GROUP_SIZES[random.below(len(GROUP_SIZES))]
    grouped = config.with_groups(
        tuple(_group(random, sizes[random.below(len(sizes))]) for _ in range(1 + random.below(3)))
    )
    share = _blocks_a_run(grouped)
    return msgspec.structs.replace(grouped, blocks=share + random.below(3 * share + 1))


def _group(random: Random64, size: int) -> Group:
    """Half of them see all tokens, or one; the others less than a block, or some blocks and a part."""
    windows = (0, 0, 1, 1 + random.below(size), size * (1 + random.below(3)))
    kind = random.below(len(windows) + 1)
    return Group(size, windows[kind] if kind < len(windows) else size + 1 + random.below(2 * size))


def _blocks_a_run(config: Configuration) -> int:
    """How many blocks `block_size` tokens take in all groups."""
    return sum(config.block_size // group.block_size for group in config.layer_groups)


def _foresight(config: Configuration) -> Oracle:
    if config.groups:
        groups = [group_records.Group(g.block_size, g.window) for g in config.groups]
        kv = GroupedKV(config.blocks, groups, caching=config.prefix_cache)
        # No operation is drawn but those of the allocator, and these it has.
        return cast(Oracle, kv)
    return oracle_of(config)


def _weights(
    random: Random64, operations: Sequence[type[Operation]]
) -> list[tuple[type[Operation], int]]:
    """One entry an operation that is switched on; without `create` and `append` nothing happens."""
    off = frozenset[type[Operation]]().union(
        *(t for t in TOGETHER if t & set(operations) and random.below(2))
    )
    together = frozenset[type[Operation]]().union(*TOGETHER)
    weights: list[tuple[type[Operation], int]] = []
    for operation in operations:
        weight, is_on = 1 << random.below(6), random.below(4) > 0
        if operation in together:
            is_on, weight = operation not in off, 2 * weight
        if operation in RARE:
            weight = max(weight // 8, 1)
        if operation in (Append, Admit, Fork):
            weight = 4 * weight
        if is_on or operation in (Append, Admit, Create):
            weights.append((operation, weight))
    return weights


class _Drawing:
    """Draws operations, knowing from a reference of its own which names are live."""

    def __init__(self, random: Random64, config: Configuration, extra_keys: frozenset[str]) -> None:
        self.below = random.below
        self.block_size = config.block_size
        self.blocks_a_run = _blocks_a_run(config)
        self.foresight = _foresight(config)
        self.keys = [keys for keys in EXTRA_KEYS if keys.keys() <= extra_keys]
        few = random.below(4) > 0
        self.request_names = REQUEST_NAMES if few else MANY_REQUEST_NAMES
        self.transfer_names = TRANSFER_NAMES if few else MANY_TRANSFER_NAMES
        self.prompts: list[tuple[int, ...]] = []
        self.tokens = 0
        self.request = ""
        self.transfer = ""
        self.is_starved = False

    def operation(self, weights: list[tuple[type[Operation], int]]) -> AnyOperation:
        """Draw one operation and foresee what it does."""
        chosen = self._next(weights)
        fields = {name: _DRAWS[kind](self) for name, kind in _KINDS[chosen]}
        operation = chosen(**fields)
        self.is_starved = False
        try:
            operation.perform(self.foresight, operation.writes())
        except MemoryError:
            self.is_starved = True
        except Rejected:
            pass
        return cast(AnyOperation, operation)

    def new_request(self) -> str:
        return self._prefer([name for name in self.request_names if not self._is_live(name)])

    def live_request(self) -> str:
        self.request = self._prefer(list(self.foresight.tables))
        return self.request

    def live_requests(self) -> tuple[str, ...]:
        live = list(self.foresight.tables)
        count = 1 + self.below(len(live)) if live else 1
        first = self.below(max(len(live), 1))
        chosen = (live * 2)[first : first + count] or [REQUEST_NAMES[0]]
        if self.below(16) == 0:
            misuse = self.request_names[self.below(len(self.request_names))]
            chosen.insert(self.below(len(chosen) + 1), misuse)
        self.batch = len(chosen)
        return tuple(chosen)

    def new_transfer(self) -> str:
        unused = [name for name in self.transfer_names if name not in self.foresight.transfers]
        return self._pick(unused, self.transfer_names)

    def live_transfer(self) -> str:
        self.transfer = self._pick(self._live("transfer"), self.transfer_names)
        return self.transfer

    def reserving(self) -> str:
        self.request = self._prefer(self._live("reserving"))
        return self.request

    def looked_up(self) -> str:
        return self._prefer(self._live("looked up"))

    def preempted(self) -> str:
        return self._prefer(self._live("preempted"))

    def new_step(self) -> str:
        unused = [name for name in STEP_NAMES if name not in self.foresight.steps]
        return self._pick(unused, STEP_NAMES)

    def step_in_flight(self) -> str:
        """Mostly the oldest, which is the one that may end."""
        steps = self._live("step")
        return self._pick(steps if self.below(4) == 0 else steps[:1], STEP_NAMES)

    def count(self) -> int:
        return self.below(2 * self.block_size + 2)

    def position(self) -> int:
        table = self.foresight.tables.get(self.request, [])
        return self.below(len(table) + 1)

    def workers(self) -> int:
        return 1 + self.below(3)

    def worker(self) -> int:
        """Mostly one that is awaited."""
        transfer = self.foresight.transfers.get(self.transfer)
        awaited = sorted(transfer.awaited - transfer.acknowledged) if transfer else []
        if awaited and self.below(2) > 0:
            return awaited[self.below(len(awaited))]
        return self.below(4)

    def lease(self) -> int:
        return 1 + self.below(4) if self.below(2) else 0

    def life(self) -> int:
        return 1 if self.below(8) == 0 else 0

    def some_extra_keys(self) -> dict[str, str]:
        """Mostly none, so that prompts still meet."""
        if not self.keys or self.below(4) > 0:
            return {}
        return self.keys[self.below(len(self.keys))]

    def committed(self) -> tuple[int, ...]:
        """As many tokens as there is room for, or fewer, or one too many."""
        life = self.foresight.lives.get(self.request)
        reserved = life.reserved if life else 0
        return self._fresh_tokens(self.below(reserved + 2) if self.below(4) else reserved)

    def some_tokens(self) -> tuple[int, ...]:
        """Up to an edge of a block, near or as far as the pool has room; or any small number.

        With a prefix cache they sometimes repeat what an earlier prompt has at the same positions.
        """
        size, draw = self.block_size, self.below(64)
        length = self.foresight.length(self.request) if self._is_live(self.request) else 0
        if draw == 0:
            return ()
        if draw < 32:
            count = 1 + self.below(2 * size)
        else:
            far = len(self.foresight.takeable()) // self.blocks_a_run + 1 if draw < 40 else 2
            edge = size * (1 + self.below(far)) - 1 + self.below(3)
            count = max(edge - length % size, 1)
        return self._repeated(count) or self._fresh_tokens(count)

    def _repeated(self, count: int) -> tuple[int, ...]:
        if not self.prompts or self.below(4) > 0:
            return ()
        content = self._content(self.request) if self._is_live(self.request) else ()
        prompt = self.prompts[self.below(len(self.prompts))]
        is_start = prompt[: len(content)] == content
        return prompt[len(content) :][:count] if is_start else ()

    def a_prompt(self) -> tuple[int, ...]:
        """A new prompt, or an earlier one or what a live request holds, cut short or made longer; mostly
        one that leaves the pool room for another."""
        known = self.prompts + [self._content(name) for name in self.foresight.tables]
        size = self.block_size
        if not known or self.below(8) == 0:
            prompt = self._fresh_tokens(1 + self.below(3 * size))
        else:
            kept = self._disguised(known[self.below(len(known))])
            kept = kept[: 1 + self.below(max(len(kept), 1))] if self.below(4) == 0 else kept
            added = self.below(2 * size) if self.below(2) else -len(kept) % size
            prompt = kept + self._fresh_tokens(added) or self._fresh_tokens(1)
        if self.below(4) > 0:
            runs = self.foresight.capacity // self.blocks_a_run
            prompt = prompt[: max(size + 1, runs * size * 2 // 3)]
        prompt = prompt[:PROMPT_MAX]
        self.prompts = [prompt, *self.prompts[:3]]
        return prompt

    def _disguised(self, prompt: tuple[int, ...]) -> tuple[int, ...]:
        """Once in eight something that a weak key takes for the same prompt."""
        disguise = self.below(16)
        if disguise == 0:
            return prompt[self.block_size :]
        if disguise == 1:
            return tuple(token + 256 for token in prompt)
        return prompt

    def _content(self, request: str) -> tuple[int, ...]:
        return tuple(cast(list[int], self.foresight.read(request)))

    def token_each(self) -> tuple[int, ...]:
        return self._fresh_tokens(self.batch)

    def _fresh_tokens(self, count: int) -> tuple[int, ...]:
        first = self.tokens + 1
        self.tokens += count
        return tuple(range(first, first + count))

    def _next(self, weights: list[tuple[type[Operation], int]]) -> type[Operation]:
        """By weight; but a pool that is too full is often given room, or nothing else would happen."""
        if not any(map(self._live, ("request", "looked up", "preempted"))):
            return self._first(weights)
        is_full = self.is_starved or not self.foresight.takeable()
        if is_full and self.below(2) == 0:
            enders = [operation for operation, _ in weights if self._can_end(operation)]
            if enders:
                return enders[self.below(len(enders))]
        return self._with_target(weights)

    def _first(self, weights: list[tuple[type[Operation], int]]) -> type[Operation]:
        """With nothing live, begin something."""
        beginnings = [operation for operation, _ in weights if operation in (Create, Admit)]
        return beginnings[self.below(len(beginnings))] if len(beginnings) > 1 else beginnings[0]

    def _can_end(self, operation: type[Operation]) -> bool:
        """Whether there is something that an operation ends, which may hold blocks."""
        kind = ENDERS.get(operation)
        return bool(kind and (self._live(kind)))

    def _with_target(self, weights: list[tuple[type[Operation], int]]) -> type[Operation]:
        """By weight, and drawn again where there is nothing that the operation could be about."""
        for _ in range(REDRAWS):
            chosen = self._weighted(weights)
            if all(kind not in TARGETS or self._live(kind) for _, kind in _KINDS[chosen]):
                break
        return chosen

    def _live(self, kind: str) -> list[str]:
        """What there is of a kind."""
        if kind == "reserving":
            return [request for request, life in self.foresight.lives.items() if life.reserved]
        return list(getattr(self.foresight, LIVE[kind], ()))

    def _weighted(self, weights: list[tuple[type[Operation], int]]) -> type[Operation]:
        mark = self.below(sum(weight for _, weight in weights))
        for operation, weight in weights:
            mark -= weight
            if mark < 0:
                return operation
        raise AssertionError("the mark is below the sum of the weights")

    def _is_live(self, request: str) -> bool:
        return request in self.foresight.tables

    def _prefer(self, names: list[str]) -> str:
        return self._pick(names, self.request_names)

    def _pick(self, preferred: list[str], every: Sequence[str]) -> str:
        """One of the preferred names, and once in sixteen any name, for the sake of misuse."""
        if preferred and self.below(16) > 0:
            return preferred[self.below(len(preferred))]
        return every[self.below(len(every))]


_KINDS = {operation: tuple(kinds(operation).items()) for operation in OPERATIONS}
_DRAWS: dict[str, Callable[[_Drawing], object]] = {
    "new request": _Drawing.new_request,
    "request": _Drawing.live_request,
    "requests": _Drawing.live_requests,
    "new transfer": _Drawing.new_transfer,
    "transfer": _Drawing.live_transfer,
    "tokens": _Drawing.some_tokens,
    "token each": _Drawing.token_each,
    "prompt": _Drawing.a_prompt,
    "reserving": _Drawing.reserving,
    "looked up": _Drawing.looked_up,
    "preempted": _Drawing.preempted,
    "new step": _Drawing.new_step,
    "step": _Drawing.step_in_flight,
    "committed": _Drawing.committed,
    "extra keys": _Drawing.some_extra_keys,
    "count": _Drawing.count,
    "position": _Drawing.position,
    "workers": _Drawing.workers,
    "worker": _Drawing.worker,
    "lease": _Drawing.lease,
    "life": _Drawing.life,
}
