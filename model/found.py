"""What was found, for a reader: the trace, the difference, the block's history, and how to replay it."""

import hashlib
import shlex
from pathlib import Path

import msgspec

from kvoracle.model import history
from kvoracle.model.errors import UsageError
from kvoracle.model.operations import Operation
from kvoracle.model.registry import Target
from kvoracle.model.run import Failure
from kvoracle.model.trace import OPTIONS, Trace, render, write

FOUND = Path("seeds/found")
_CANNOT_BE_EXPLAINED = ("crash", "hang")


def save(failure: Failure, target: Target, folder: Path = FOUND) -> Path:
    """Write the trace of a failure under a name made from its content."""
    trace = msgspec.structs.replace(
        failure.trace,
        origin={**failure.trace.origin, "allocator": target.name},
        flags=[failure.rule],
        notes={failure.rule: failure.message},
    )
    same = render(Trace(trace.config, trace.operations))
    digest = hashlib.sha256(same.encode()).hexdigest()[:8]
    allocator = "".join(c if c.isalnum() or c == "-" else "-" for c in target.name)
    path = folder / f"{allocator}-{failure.rule.replace(' ', '-')}-{digest}.json"
    write(trace, path)
    return path


def describe_found(failure: Failure, target: Target, folder: Path = FOUND) -> str:
    """Save a failure and describe it: everything a reader needs, in plain text."""
    text = describe(failure, target)
    try:
        path = save(failure, target, folder)
    except UsageError as error:
        return f"{text}\n\nNot saved: {error}"
    return f"{text}\n\nReplay it:\n  {replay_line(path, target)}"


def replay_line(path: Path, target: Target) -> str:
    """The command that replays a saved failure."""
    if "<locals>" in target.name:
        return (
            f"check_trace(YourAdapter, read(Path({str(path)!r})))  # kvoracle.model.check, .trace"
        )
    return shlex.join(["kvoracle", "replay", str(path), "--allocator", target.name])


def describe(failure: Failure, target: Target) -> str:
    """The difference, the trace, the history of the block, the tables, and the trace as Python."""
    parts = [_headline(failure), _operations(failure)]
    if failure.rule not in _CANNOT_BE_EXPLAINED:
        parts += _explained(failure, target)
    parts.append("As Python:\n" + _indent(as_python(failure.trace, target.name)))
    return "\n\n".join(parts)


def as_python(trace: Trace, allocator: str) -> str:
    """The trace as a program that raises AssertionError where the allocator is wrong."""
    config = trace.config
    caching = " prefix_cache=True," if config.prefix_cache else ""
    for name in OPTIONS:
        caching += f" {name}={getattr(config, name)}," if getattr(config, name) else ""
    caching += f" groups={config.groups!r}," if config.groups else ""
    names = sorted({type(operation).__name__ for operation in trace.operations})
    lines = [
        "from kvoracle.model.check import check",
        f"from kvoracle.model.operations import {', '.join(names)}" if names else "",
        *["from kvoracle.model.trace import Group"] * bool(config.groups),
        "",
        f"check({allocator!r}, blocks={config.blocks}, block_size={config.block_size},{caching}"
        " operations=[",
        *[f"    {operation!r}," for operation in trace.operations],
        "])",
    ]
    return "\n".join(lines)


def _headline(failure: Failure) -> str:
    count = len(failure.trace.operations)
    where = f"at operation {failure.index} ({count} in all)" if count else "before any operation"
    return f"VIOLATION ({failure.rule}) {where}\n  {failure.message}"


def _operations(failure: Failure) -> str:
    config = failure.trace.config
    pool = f"{config.blocks} block{'s' * (config.blocks != 1)} of {config.block_size}"
    pool += " with prefix cache" if config.prefix_cache else ""
    for name in OPTIONS:
        pool += f", {name} {getattr(config, name)}" if getattr(config, name) else ""
    for number, group in enumerate(config.groups):
        window = f", window {group.window}" if group.window else ""
        pool += f"; group {number}: blocks of {group.block_size}{window}"
    lines = [
        f"  {index:>3}  {in_words(operation)}"
        for index, operation in enumerate(failure.trace.operations)
    ]
    if lines:
        lines[-1] += "    <- here"
    return f"The trace, on {pool}:\n" + "\n".join(lines)


def in_words(operation: Operation) -> str:
    """An operation as a reader says it: `append a [1, 2]`."""
    return " ".join([operation.verb, *map(_in_words, operation.arguments())]).rstrip()


def _in_words(argument: object) -> str:
    if isinstance(argument, tuple):
        return f"[{', '.join(map(str, argument))}]"
    if isinstance(argument, dict):
        return " ".join(f"{name}={value}" for name, value in argument.items())
    return str(argument)


def _explained(failure: Failure, target: Target) -> list[str]:
    explanation = history.explain(failure, target.factory)
    if not explanation.reproduced:
        return [
            "It did not fail again when it was run once more: the allocator is not deterministic."
        ]
    parts = []
    if failure.block is not None:
        events = [f"  {index:>3}  {event}" for index, event in explanation.events]
        parts.append(f"The history of block {failure.block}:\n" + "\n".join(events or ["  none"]))
    if explanation.answer:
        parts.append(f"The allocator's last answer:\n  {explanation.answer}")
    before, after = explanation.tables_before, explanation.tables_after
    if before or after:
        rows = [
            f"  {request}: {before.get(request, 'none')} -> {after.get(request, 'none')}"
            for request in dict.fromkeys([*before, *after])
        ]
        parts.append("Block tables before and after the last operation:\n" + "\n".join(rows))
    return parts


def _indent(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())
