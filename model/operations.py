"""Operations and outcomes: every call on an allocator as data, naming requests and transfers by name.

A new operation is a class here, a method of the same name on the reference and on the adapters that
can do it, and nothing else: its field types tell both engines how to draw it.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

NAME_LENGTH_MAX = 200
TOKENS_MAX = 1_000_000

_NAME = {"min_length": 1, "max_length": NAME_LENGTH_MAX}
NewRequest = Annotated[str, Meta(**_NAME, extra={"kind": "new request"})]
Request = Annotated[str, Meta(**_NAME, extra={"kind": "request"})]
Requests = Annotated[
    tuple[Annotated[str, Meta(**_NAME)], ...], Meta(min_length=1, extra={"kind": "requests"})
]
NewTransfer = Annotated[str, Meta(**_NAME, extra={"kind": "new transfer"})]
Transfer = Annotated[str, Meta(**_NAME, extra={"kind": "transfer"})]
Token = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Prompt = Annotated[tuple[Token, ...], Meta(max_length=TOKENS_MAX, extra={"kind": "prompt"})]
Tokens = Annotated[tuple[Token, ...], Meta(max_length=TOKENS_MAX, extra={"kind": "tokens"})]
TokenEach = Annotated[tuple[Token, ...], Meta(max_length=TOKENS_MAX, extra={"kind": "token each"})]

Writes = dict[str, tuple[int, ...]]


def _verb(class_name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in class_name).lstrip("_")


class Operation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag=_verb):
    """One call on an allocator; the class name in snake case is the verb that carries it out."""

    verb: ClassVar[str]

    def writes(self) -> Writes:
        """The tokens that each request gains."""
        return {}

    def hit(self, result: Any) -> int:  # noqa: ARG002
        """How many of its tokens the reference found written, from what it returned."""
        return 0

    def refused(self, result: Any) -> list[str]:  # noqa: ARG002
        """The requests of a batch that the reference refused, from what it returned."""
        return []

    def arguments(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__struct_fields__)

    def perform(self, target: Any, writes: Mapping[str, Sequence[object]]) -> Any:  # noqa: ARG002
        """Carry this out on an oracle, with `writes` in place of the tokens."""
        return getattr(target, self.verb)(*self.arguments())


class Create(Operation, frozen=True):
    """Begin a request with nothing in it."""

    request: NewRequest


class Admit(Operation, frozen=True):
    """Begin a request with a prompt, on the longest prefix of it that is published."""

    request: NewRequest
    prompt: Prompt

    def writes(self) -> Writes:
        return {self.request: self.prompt}

    def hit(self, result: Any) -> int:
        return int(result)

    def perform(self, target: Any, writes: Mapping[str, Sequence[object]]) -> Any:
        return target.admit(self.request, *writes[self.request])


class Append(Operation, frozen=True):
    """Write tokens at the end of a request, all or none."""

    request: Request
    tokens: Tokens

    def writes(self) -> Writes:
        return {self.request: self.tokens}

    def perform(self, target: Any, writes: Mapping[str, Sequence[object]]) -> Any:
        return target.append(self.request, *writes[self.request])


class AppendEach(Operation, frozen=True):
    """One decode step: one token to each request, in order; each is grown or refused on its own."""

    requests: Requests
    tokens: TokenEach

    def writes(self) -> Writes:
        return {
            request: (token,) for request, token in zip(self.requests, self.tokens, strict=False)
        }

    def perform(self, target: Any, writes: Mapping[str, Sequence[object]]) -> Any:
        if len(self.tokens) != len(self.requests):
            return target.append_each(self.requests, self.tokens)
        return target.append_each(self.requests, [writes[name][0] for name in self.requests])

    def refused(self, result: Any) -> list[str]:
        return list(result)


class Fork(Operation, frozen=True):
    """Begin a request that shares every block of another."""

    parent: Request
    child: NewRequest


class Pin(Operation, frozen=True):
    """Begin a transfer that may read every block of a request until it ends."""

    request: Request
    transfer: NewTransfer


class Unpin(Operation, frozen=True):
    """End a transfer."""

    transfer: Transfer


class Release(Operation, frozen=True):
    """End a request: finished, cancelled or preempted."""

    request: Request


class ReleaseEach(Operation, frozen=True):
    """End several requests in one call."""

    requests: Requests


class Reset(Operation, frozen=True):
    """Forget every published block; refused while any block is in use."""


OPERATIONS: tuple[type[Operation], ...] = (
    Create,
    Admit,
    Append,
    AppendEach,
    Fork,
    Pin,
    Unpin,
    Release,
    ReleaseEach,
    Reset,
)
for _operation in OPERATIONS:
    _operation.verb = _verb(_operation.__name__)

AnyOperation = (
    Create | Admit | Append | AppendEach | Fork | Pin | Unpin | Release | ReleaseEach | Reset
)


REASONS = frozenset(
    {
        "blocks in use",
        "duplicate request",
        "duplicate transfer",
        "no requests",
        "no tokens",
        "nothing to pin",
        "one token for each request",
        "repeated request",
        "unknown request",
        "unknown transfer",
    }
)
"""Why the reference rejects a call."""


class Done(msgspec.Struct):
    """The call succeeded.

    `copies` are (source, destination) blocks to copy before anything is written.  `slots` says
    where the new tokens of a request go; without it they go where its block table says.
    `refused` names the requests of a batch that could not grow.  `hit` is how many tokens of a
    prompt the allocator says are already written; None where it does not say.
    """

    copies: list[tuple[int, int]] = []
    slots: dict[str, list[int]] = {}
    refused: list[str] = []
    hit: int | None = None


class OutOfBlocks(msgspec.Struct):
    """The allocator says that it has not enough free blocks."""


class Rejected(msgspec.Struct):
    """The allocator says that the call itself is wrong."""

    reason: str


Outcome = Done | OutOfBlocks | Rejected


def kinds(operation: type[Operation]) -> dict[str, str]:
    """The fields of an operation and what each one names, e.g. {"parent": "request"}."""
    fields = msgspec.inspect.type_info(operation).fields  # type: ignore[attr-defined]
    return {field.name: field.type.extra["kind"] for field in fields}
