"""A trace: a configuration and a list of operations, in JSON.  The one currency of the house."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from kvoracle.model.errors import UsageError
from kvoracle.model.operations import AnyOperation, Done, Outcome, OutOfBlocks, Rejected

VERSION = 1
SCHEMA_NAME = "schema.json"
"""The file in a folder of traces that is none."""
FILE_BYTES_MAX = 64 * 1024 * 1024
OPERATIONS_MAX = 1_000_000
BLOCK_SIZE_MAX = 4096
SLOTS_MAX = 4_194_304
PROBLEM_LENGTH_MAX = 300


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A group of layers: token slots in each of its blocks, and how many tokens a query sees, itself
    included (`window`; 0 is all)."""

    block_size: Annotated[int, Meta(ge=1, le=BLOCK_SIZE_MAX)]
    window: Annotated[int, Meta(ge=0)] = 0


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A pool: how many usable blocks, how many token slots in each, whether it caches prefixes, and
    how many blocks it keeps free of requests that begin with a prompt (`watermark`), and how many
    tokens a request may have (`max_model_len`; 0 is no limit), and the number of tokens in which
    prefixes are matched (`match_unit`, which divides `block_size`; 0 is whole blocks).

    With `groups` of layers the pool serves them all, and `block_size` is the least common multiple of
    theirs, where prefixes are matched."""

    blocks: Annotated[int, Meta(ge=1)]
    block_size: Annotated[int, Meta(ge=1, le=BLOCK_SIZE_MAX)]
    prefix_cache: bool = False
    watermark: Annotated[int, Meta(ge=0)] = 0
    max_model_len: Annotated[int, Meta(ge=0)] = 0
    match_unit: Annotated[int, Meta(ge=0)] = 0
    groups: tuple[Group, ...] = ()

    def __post_init__(self) -> None:
        if self.match_unit and self.block_size % self.match_unit:
            raise ValueError(f"match_unit {self.match_unit} does not divide {self.block_size}")
        multiple = math.lcm(*(group.block_size for group in self.layer_groups))
        if self.block_size != multiple:
            raise ValueError(
                f"block_size {self.block_size} is not {multiple}, the groups' multiple"
            )

    @property
    def layer_groups(self) -> tuple[Group, ...]:
        """The groups; one of full attention where none are given."""
        return self.groups or (Group(self.block_size),)

    def with_groups(self, groups: tuple[Group, ...]) -> "Configuration":
        """The same pool for these groups."""
        sizes = [group.block_size for group in groups] or [self.block_size]
        return msgspec.structs.replace(self, groups=groups, block_size=math.lcm(*sizes))


OPTIONS = ("watermark", "max_model_len", "match_unit")
"""The fields of a configuration that not every allocator honours."""


class Expected(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """What an operation must do, whatever the allocator: the outcome, and the free blocks after it."""

    outcome: Literal["ok", "out of blocks", "rejected"]
    free: Annotated[int, Meta(ge=0)]
    reason: str = ""
    refused: list[str] = []

    @classmethod
    def of(cls, outcome: Outcome, free: int) -> "Expected":
        if isinstance(outcome, Done):
            return cls("ok", free, refused=list(outcome.refused))
        if isinstance(outcome, OutOfBlocks):
            return cls("out of blocks", free)
        return cls("rejected", free, reason=outcome.reason)


class Trace(msgspec.Struct, forbid_unknown_fields=True):
    """Operations to carry out on a fresh pool.

    `expected`, where given, has one entry an operation.  `flags` are short labels explained in
    `notes`; `origin` says where the trace came from.
    """

    config: Configuration
    operations: Annotated[list[AnyOperation], Meta(max_length=OPERATIONS_MAX)]
    version: int = VERSION
    expected: list[Expected] = []
    flags: list[str] = []
    notes: dict[str, str] = {}
    origin: dict[str, str | int] = {}

    def __post_init__(self) -> None:
        if self.config.blocks * self.config.block_size > SLOTS_MAX:
            raise ValueError(f"a pool has at most {SLOTS_MAX:,} slots")


class _Header(msgspec.Struct):
    version: int


def write(trace: Trace, path: Path) -> None:
    """Write a trace, whole or not at all, one operation a line so that a diff can be read."""
    make_folder(path.parent)
    try:
        unfinished = path.with_suffix(f".{os.getpid()}.tmp")
        unfinished.write_text(render(trace), encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        problem = error.strerror or str(error)
        raise UsageError(f"{path} cannot be written ({problem}); choose another folder.") from error


def make_folder(folder: Path) -> None:
    """Make a folder for traces; a path that cannot be one is a UsageError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = error.strerror or str(error)
        raise UsageError(f"{folder} cannot be a folder ({problem}); choose another.") from error


def render(trace: Trace) -> str:
    """The JSON text of a trace."""
    fields: dict[str, Any] = msgspec.to_builtins(trace)
    fields = {"version": fields.pop("version"), **fields}
    needed = ("config", "operations")
    lines = [
        f'"{name}": {_render(value)}' for name, value in fields.items() if value or name in needed
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def read(path: Path) -> Trace:
    """Read a trace; a file that is not one is a UsageError."""
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is not a file; give the path of a trace.")
        with path.open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{path} cannot be read ({problem}); give the path of a trace.") from error
    if len(text) > FILE_BYTES_MAX:
        raise UsageError(
            f"{path} has more than the {FILE_BYTES_MAX:,} bytes of the largest trace;"
            " split it or shorten its token lists."
        )
    return parse(text, str(path))


def parse(text: bytes, name: str) -> Trace:
    """Decode a trace from JSON; `name` says in messages where the text came from."""
    try:
        version = msgspec.json.decode(text, type=_Header).version
        if version != VERSION:
            raise UsageError(
                f"{name} has trace version {str(version)[:20]}, and this kvoracle reads version {VERSION};"
                " replay it with the kvoracle that wrote it."
            )
        trace = msgspec.json.decode(text, type=Trace)
    except (msgspec.DecodeError, RecursionError) as error:
        problem = " ".join(str(error).split())[:PROBLEM_LENGTH_MAX]
        raise UsageError(
            f"{name} is not a trace ({problem}); seeds/README.md describes the format."
        ) from error
    if trace.expected and len(trace.expected) != len(trace.operations):
        raise UsageError(
            f"{name} has {len(trace.operations)} operations but {len(trace.expected)} expected"
            " outcomes; give one for each operation or none."
        )
    return trace


def outcome_in_words(outcome: Outcome) -> str:
    """An outcome as a user reads it."""
    if isinstance(outcome, Done):
        return f"ok, refused {', '.join(outcome.refused)}" if outcome.refused else "ok"
    if isinstance(outcome, Rejected):
        return f"rejected: {outcome.reason}"
    return "out of blocks"


def _render(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        items = ",\n".join("  " + msgspec.json.encode(item).decode() for item in value)
        return f"[\n{items}\n]"
    return msgspec.json.encode(value).decode()


def trace_files(paths: Sequence[Path]) -> list[Path]:
    """The files among paths, and the traces in the folders among them."""
    files: list[Path] = []
    for path in paths:
        inside = [path]
        if path.is_dir():
            inside = sorted(set(path.rglob("*.json")) - {path / SCHEMA_NAME})
        if not inside:
            raise UsageError(f"{path} holds no trace; give .json files or a folder of them.")
        files += inside
    return files
