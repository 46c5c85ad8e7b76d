"""Make a failing trace as small as it gets while it fails in the same way.

Operations name things by name, so that taking one away leaves the others meaning what they meant;
delta debugging (Zeller and Hildebrandt, TSE 2002) then needs a few dozen runs.
"""

from collections.abc import Callable, Iterator

import msgspec

from kvoracle.model.fields import LISTS, NAMES, NUMBERS, TOKEN_LISTS, kinds
from kvoracle.model.operations import AnyOperation, Operation
from kvoracle.model.run import EXPECTED_OUTCOME, Failure
from kvoracle.model.trace import OPTIONS, Configuration, Group, Trace

Fails = Callable[[Trace], Failure | None]
RUNS_MAX = 5_000
SHORT = 24
"""Operations up to which every pair is tried, and a block less beside each."""


class _Search:
    """The smallest failure so far, and the number of runs that are left."""

    def __init__(self, failure: Failure, fails: Fails, runs_max: int) -> None:
        self.best = failure
        self.fails = fails
        self.runs_left = runs_max

    def improves(self, candidate: Trace) -> bool:
        """Whether a smaller trace fails by the same rule; it is kept then."""
        if self.runs_left == 0:
            return False
        self.runs_left -= 1
        failure = self.fails(candidate)
        if failure is None or failure.rule != self.best.rule:
            return False
        self.best = failure
        return True

    def improves_with_less(self, candidate: Trace) -> bool:
        """As `improves`; also with a block less, since what was dropped may have held it."""
        if self.improves(candidate):
            return True
        blocks = candidate.config.blocks - 1
        if blocks == 0 or len(candidate.operations) > SHORT:
            return False
        config = msgspec.structs.replace(candidate.config, blocks=blocks)
        return self.improves(msgspec.structs.replace(candidate, config=config))

    def replace(self, index: int, operation: Operation) -> bool:
        operations = list(self.best.trace.operations)
        operations[index] = operation  # type: ignore[call-overload]
        return self.improves(_with(self.best.trace, operations))


def shrink(failure: Failure, fails: Fails, runs_max: int = RUNS_MAX) -> Failure:
    """The smallest failure found within `runs_max` runs; `fails` runs a trace from scratch."""
    if failure.rule == EXPECTED_OUTCOME:
        return failure  # what a file expects holds for its own operations only
    search = _Search(failure, fails, runs_max)
    size_before = None
    while size_before != _size(search.best.trace):
        size_before = _size(search.best.trace)
        _drop_operations(search)
        _simplify_operations(search)
        _merge_names(search)
        _reduce_pool(search)
    _rename(search)
    return search.best


def _drop_operations(search: _Search) -> None:
    """Drop runs of operations, long runs first, then every pair."""
    length = len(search.best.trace.operations) // 2
    while length >= 1:
        first = 0
        while first < len(search.best.trace.operations):
            kept = list(search.best.trace.operations)
            del kept[first : first + length]
            if not search.improves_with_less(_with(search.best.trace, kept)):
                first += length
        length //= 2
    _drop_pairs(search)


def _drop_pairs(search: _Search) -> None:
    """A create and its release go together or not at all."""
    operations = search.best.trace.operations
    if len(operations) > SHORT:
        return
    for second in range(len(operations) - 1, 0, -1):
        for first in range(second):
            kept = [o for i, o in enumerate(operations) if i not in (first, second)]
            if search.improves_with_less(_with(search.best.trace, kept)):
                return


def _simplify_operations(search: _Search) -> None:
    """Fewer tokens, fewer requests in a batch, smaller counts, no extra keys."""
    index = 0
    while index < len(search.best.trace.operations):
        for simpler in _simpler(search.best.trace.operations[index]):
            if search.replace(index, simpler):
                break
        else:
            index += 1


def _simpler(operation: AnyOperation) -> Iterator[Operation]:
    for name, kind in kinds(type(operation)).items():
        if kind in NUMBERS:
            yield from _with_smaller(operation, name, least=1 if kind == "workers" else 0)
        elif kind == "extra keys":
            yield from _with_fewer_keys(operation, name)
    yield from _with_shorter_lists(operation)


def _with_smaller(operation: AnyOperation, name: str, least: int) -> Iterator[Operation]:
    value = getattr(operation, name)
    for smaller in dict.fromkeys((least, value // 2, value - 1)):
        if least <= smaller < value:
            yield msgspec.structs.replace(operation, **{name: smaller})


def _with_fewer_keys(operation: AnyOperation, name: str) -> Iterator[Operation]:
    keys = getattr(operation, name)
    for tag in keys:
        fewer = {other: text for other, text in keys.items() if other != tag}
        yield msgspec.structs.replace(operation, **{name: fewer})


def _with_shorter_lists(operation: AnyOperation) -> Iterator[Operation]:
    """Lists of one operation go together, e.g. the requests of a batch and their tokens."""
    lists = [name for name, kind in kinds(type(operation)).items() if kind in LISTS]
    longest = len(getattr(operation, lists[0])) if lists else 0
    for count in (1, longest // 2, longest - 1):
        if 0 < count < longest:
            for part in (slice(count), slice(longest - count, longest)):
                shorter = {name: getattr(operation, name)[part] for name in lists}
                yield msgspec.structs.replace(operation, **shorter)


def _merge_names(search: _Search) -> None:
    """Let one request do the work of two."""
    names = _names(search.best.trace)
    for kind in names:
        for later in reversed(names[kind][1:]):
            for earlier in names[kind][: names[kind].index(later)]:
                if search.improves(_renamed(search.best.trace, {(kind, later): earlier})):
                    break


def _reduce_pool(search: _Search) -> None:
    """Fewer blocks, smaller blocks, and smaller blocks with as many fewer tokens."""
    for option in (*OPTIONS, "prefix_cache"):
        off = type(getattr(search.best.trace.config, option))()
        config = msgspec.structs.replace(search.best.trace.config, **{option: off})
        if config != search.best.trace.config:
            search.improves(msgspec.structs.replace(search.best.trace, config=config))
    _reduce_groups(search)
    size = search.best.trace.config.block_size
    if not search.best.trace.config.groups and any(
        search.improves(_scaled(search.best.trace, smaller, size)) for smaller in range(1, size)
    ):
        return
    for field in ("block_size", "blocks")[bool(search.best.trace.config.groups) :]:
        for value in range(1, getattr(search.best.trace.config, field)):
            config = _resized(search.best.trace.config, **{field: value})
            if search.improves(msgspec.structs.replace(search.best.trace, config=config)):
                break


def _reduce_groups(search: _Search) -> None:
    """Fewer groups, smaller blocks, smaller windows or none."""

    def improves_with(groups: tuple[Group, ...]) -> bool:
        config = search.best.trace.config.with_groups(groups)
        return search.improves(msgspec.structs.replace(search.best.trace, config=config))

    while any(map(improves_with, _simpler_groups(search.best.trace.config.groups))):
        pass


def _simpler_groups(groups: tuple[Group, ...]) -> Iterator[tuple[Group, ...]]:
    for index, group in enumerate(groups):
        before, after = groups[:index], groups[index + 1 :]
        if len(groups) > 1 or group.window == 0:
            yield before + after
        for size in range(1, group.block_size):
            yield (*before, Group(size, group.window), *after)
        for window in range(group.window):
            yield (*before, Group(group.block_size, window), *after)


def _resized(config: Configuration, **sizes: int) -> Configuration:
    """Another size of pool; a unit of matching that no longer divides the block goes."""
    unit = config.match_unit
    if unit and sizes.get("block_size", config.block_size) % unit:
        sizes["match_unit"] = 0
    return msgspec.structs.replace(config, **sizes)


def _scaled(trace: Trace, smaller: int, size: int) -> Trace:
    """The trace on smaller blocks, every list of tokens as much shorter."""
    operations = []
    for operation in trace.operations:
        shorter = {
            name: getattr(operation, name)[: -(-len(getattr(operation, name)) * smaller // size)]
            for name, kind in kinds(type(operation)).items()
            if kind in TOKEN_LISTS and "requests" not in kinds(type(operation)).values()
        }
        operations.append(msgspec.structs.replace(operation, **shorter))
    config = _resized(trace.config, block_size=smaller)
    return msgspec.structs.replace(_with(trace, operations), config=config)


def _rename(search: _Search) -> None:
    """Requests a, b, c ..., transfers t1, t2 ..., steps s1, s2 ... and tokens 1, 2 ..., in order of
    appearance."""
    trace = search.best.trace
    names = _names(trace)
    plain = {("request", name): _letter(i) for i, name in enumerate(names["request"])}
    for kind in ("transfer", "step"):
        plain |= {(kind, name): f"{kind[0]}{i + 1}" for i, name in enumerate(names[kind])}
    search.improves(_renamed(trace, plain, first_token=1))


def _letter(index: int) -> str:
    return "abcdefghijklmnopqrstuvwxyz"[index] if index < 26 else f"r{index}"


def _names(trace: Trace) -> dict[str, list[str]]:
    """The request, transfer and step names of a trace in order of appearance."""
    names: dict[str, dict[str, None]] = {kind: {} for kind in NAMES.values()}
    for operation in trace.operations:
        for field, kind in kinds(type(operation)).items():
            value = getattr(operation, field)
            if kind in NAMES:
                names[NAMES[kind]].update(dict.fromkeys(value if kind == "requests" else [value]))
    return {kind: list(found) for kind, found in names.items()}


def _renamed(
    trace: Trace, names: dict[tuple[str, str], str], first_token: int | None = None
) -> Trace:
    numbers: dict[int, int] = {}
    operations = []
    for operation in trace.operations:
        changed = {}
        for field, kind in kinds(type(operation)).items():
            value = getattr(operation, field)
            if kind == "requests":
                changed[field] = tuple(names.get(("request", name), name) for name in value)
            elif kind in NAMES:
                changed[field] = names.get((NAMES[kind], value), value)
            elif kind in TOKEN_LISTS and first_token is not None:
                changed[field] = tuple(
                    numbers.setdefault(token, first_token + len(numbers)) for token in value
                )
        operations.append(msgspec.structs.replace(operation, **changed))
    return _with(trace, operations)


def _with(trace: Trace, operations: list[AnyOperation]) -> Trace:
    return msgspec.structs.replace(trace, operations=operations, expected=[])


def _size(trace: Trace) -> tuple[int, int, int]:
    tokens = sum(len(t) for operation in trace.operations for t in operation.writes().values())
    return len(trace.operations), tokens, trace.config.blocks * trace.config.block_size
