"""Check an allocator from Python: a counterexample pasted into a test, or a file of one."""

from collections.abc import Sequence

from kvoracle.model.adapters.base import Adapter
from kvoracle.model.errors import UsageError
from kvoracle.model.found import describe
from kvoracle.model.operations import AnyOperation
from kvoracle.model.registry import Target, resolve, target_of
from kvoracle.model.run import run
from kvoracle.model.trace import OPTIONS, Configuration, Group, Trace


def check(
    allocator: str | type[Adapter],
    *,
    blocks: int,
    block_size: int,
    prefix_cache: bool = False,
    watermark: int = 0,
    max_model_len: int = 0,
    match_unit: int = 0,
    groups: Sequence[Group] = (),
    operations: Sequence[AnyOperation],
) -> None:
    """AssertionError, with everything a reader needs, where the allocator breaks a rule.

    `allocator` is a name as on the command line, or an Adapter class.
    """
    config = Configuration(
        blocks, block_size, prefix_cache, watermark, max_model_len, match_unit, tuple(groups)
    )
    check_trace(allocator, Trace(config, list(operations)))


def check_trace(allocator: str | type[Adapter], trace: Trace) -> None:
    """As `check`, for a trace, e.g. one read from a file."""
    target = as_target(allocator)
    obstacle = unfit(trace, target)
    if obstacle is not None:
        raise UsageError(f"{target.name} {obstacle}; this trace says nothing about it.")
    failure = run(trace, target.factory)
    if failure is not None:
        raise AssertionError(describe(failure, target))


def unfit(trace: Trace, target: Target) -> str | None:
    """Why a trace says nothing about an allocator; None when it does."""
    cannot = {operation.verb for operation in trace.operations} & set(target.left_out)
    if cannot:
        return f"cannot do {', '.join(sorted(cannot))}"
    if trace.config.block_size not in target.block_sizes:
        return f"has no blocks of {trace.config.block_size}"
    keys = {tag for o in trace.operations for tag in getattr(o, "extra_keys", ())}
    if keys - target.extra_keys:
        return f"does not tell {', '.join(sorted(keys - target.extra_keys))} keys apart"
    options = {
        name for name in (*OPTIONS, "groups") if getattr(trace.config, name)
    } - target.options
    if options:
        return f"does not honour {', '.join(sorted(options))}"
    if not trace.operations:
        return "is asked for nothing"
    return None


def as_target(allocator: str | type[Adapter]) -> Target:
    """The target of a name or of an Adapter class."""
    if isinstance(allocator, str):
        return resolve(allocator)
    return target_of(f"{allocator.__module__}:{allocator.__qualname__}", allocator)
