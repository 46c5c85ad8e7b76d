"""The field types of operations: what each one names, and so how both engines draw it."""

from functools import cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

NAME_LENGTH_MAX = 200
TOKENS_MAX = 1_000_000
COUNT_MAX = 1_000_000
WORKERS_MAX = 64
_NAME: dict[str, Any] = {"min_length": 1, "max_length": NAME_LENGTH_MAX}

NewRequest = Annotated[str, Meta(**_NAME, extra={"kind": "new request"})]
Request = Annotated[str, Meta(**_NAME, extra={"kind": "request"})]
Requests = Annotated[
    tuple[Annotated[str, Meta(**_NAME)], ...], Meta(min_length=1, extra={"kind": "requests"})
]
Reserving = Annotated[str, Meta(**_NAME, extra={"kind": "reserving"})]
LookedUp = Annotated[str, Meta(**_NAME, extra={"kind": "looked up"})]
Preempted = Annotated[str, Meta(**_NAME, extra={"kind": "preempted"})]
NewTransfer = Annotated[str, Meta(**_NAME, extra={"kind": "new transfer"})]
Transfer = Annotated[str, Meta(**_NAME, extra={"kind": "transfer"})]
NewStep = Annotated[str, Meta(**_NAME, extra={"kind": "new step"})]
Step = Annotated[str, Meta(**_NAME, extra={"kind": "step"})]

Token = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Prompt = Annotated[tuple[Token, ...], Meta(max_length=TOKENS_MAX, extra={"kind": "prompt"})]
Tokens = Annotated[tuple[Token, ...], Meta(max_length=TOKENS_MAX, extra={"kind": "tokens"})]
Committed = Annotated[tuple[Token, ...], Meta(max_length=TOKENS_MAX, extra={"kind": "committed"})]
TokenEach = Annotated[tuple[Token, ...], Meta(max_length=TOKENS_MAX, extra={"kind": "token each"})]
ExtraKeys = Annotated[
    dict[Literal["adapter", "salt", "image"], str], Meta(extra={"kind": "extra keys"})
]

Count = Annotated[int, Meta(ge=0, le=COUNT_MAX, extra={"kind": "count"})]
Position = Annotated[int, Meta(ge=0, le=COUNT_MAX, extra={"kind": "position"})]
Workers = Annotated[int, Meta(ge=1, le=WORKERS_MAX, extra={"kind": "workers"})]
Worker = Annotated[int, Meta(ge=0, lt=WORKERS_MAX, extra={"kind": "worker"})]
Lease = Annotated[int, Meta(ge=0, le=COUNT_MAX, extra={"kind": "lease"})]
Life = Annotated[int, Meta(ge=0, le=1, extra={"kind": "life"})]

LISTS = frozenset({"prompt", "tokens", "committed", "token each", "requests"})
"""The kinds that are lists, which shrinking makes shorter."""

TOKEN_LISTS = frozenset({"prompt", "tokens", "committed", "token each"})

NUMBERS = frozenset({"count", "position", "workers", "worker", "lease", "life"})
"""The kinds that are counts, which shrinking makes smaller."""

NAMES = {
    "new request": "request",
    "request": "request",
    "requests": "request",
    "reserving": "request",
    "looked up": "request",
    "preempted": "request",
    "new transfer": "transfer",
    "transfer": "transfer",
    "new step": "step",
    "step": "step",
}
"""The kinds that are names, and of what."""


@cache
def kinds(operation: type[msgspec.Struct]) -> dict[str, str]:
    """The fields of an operation and what each one names, e.g. {"parent": "request"}."""
    fields = msgspec.inspect.type_info(operation).fields  # type: ignore[attr-defined]
    return {field.name: field.type.extra["kind"] for field in fields}
