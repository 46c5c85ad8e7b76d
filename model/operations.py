"""Operations and outcomes: every call on an allocator as data, naming things by name.

A new operation is a class here, a method of the same name on the reference, on the list oracle and
on the adapters that can do it, and nothing else: its field types (`fields.py`) tell both engines how
to draw it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from kvoracle.model.fields import (
    Committed,
    Count,
    ExtraKeys,
    Lease,
    Life,
    LookedUp,
    NewRequest,
    NewStep,
    NewTransfer,
    Position,
    Preempted,
    Prompt,
    Request,
    Requests,
    Reserving,
    Step,
    TokenEach,
    Tokens,
    Transfer,
    Worker,
    Workers,
)

Writes = dict[str, tuple[int, ...]]


def _verb(class_name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in class_name).lstrip("_")


class Operation(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="op",
    tag=_verb,
):
    """One call on an allocator; the class name in snake case is the verb that carries it out."""

    verb: ClassVar[str]
    completes: ClassVar[bool] = False
    """Whether what was in flight and now ends has done what it was to do."""

    copies_later: ClassVar[bool] = False
    """Whether the copies of what it begins run with it, and not at once."""

    def writes(self) -> Writes:
        """The tokens that each request gains."""
        return {}

    def grows(self) -> Sequence[str]:
        """The requests whose new tokens the call gives slots."""
        return tuple(self.writes())

    def mover(self) -> tuple[str, str] | None:
        """What will move the tokens later, e.g. ("step", "s1"); None where they move at once."""
        return None

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

    def retell(self, lists: Any, result: Any) -> None:  # noqa: ARG002
        """Carry this out on the list oracle, given what the reference returned."""
        self.perform(lists, self.writes())


class _Begins(Operation, frozen=True):
    """An operation whose `request` begins with a `prompt`, on what of it is found."""

    request: NewRequest
    prompt: Prompt

    def writes(self) -> Writes:
        return {self.request: self.prompt}

    def hit(self, result: Any) -> int:
        return int(result)


class _Grows(Operation, frozen=True):
    """An operation whose `request` begins with tokens that an earlier one named."""

    def grows(self) -> Sequence[str]:
        return (self.request,)  # type: ignore[attr-defined]

    def hit(self, result: Any) -> int:
        return int(result)


class _Batch(Operation, frozen=True):
    """An operation that gives room for one token to each of its `requests`, or refuses it."""

    def writes(self) -> Writes:
        return {
            request: (token,)
            for request, token in zip(self.requests, self.tokens, strict=False)  # type: ignore[attr-defined]
        }

    def refused(self, result: Any) -> list[str]:
        return list(result)

    def retell(self, lists: Any, result: Any) -> None:
        granted = {name: token for name, token in self.writes().items() if name not in result}
        told = msgspec.structs.replace(
            self,
            requests=tuple(granted),
            tokens=tuple(token for (token,) in granted.values()),
        )
        told.perform(lists, granted)


class Create(Operation, frozen=True):
    """Begin a request with nothing in it."""

    request: NewRequest


class Admit(_Begins, frozen=True):
    """Begin a request with a prompt, on the longest prefix of it that is published."""

    extra_keys: ExtraKeys = {}

    def perform(self, target: Any, writes: Mapping[str, Sequence[object]]) -> Any:
        return target.admit(self.request, *writes[self.request], extra_keys=self.extra_keys)


class LookUp(_Begins, frozen=True):
    """Find the longest published prefix of a prompt and hold it, to be used or cancelled."""

    extra_keys: ExtraKeys = {}

    def grows(self) -> Sequence[str]:
        return ()

    def perform(self, target: Any, writes: Mapping[str, Sequence[object]]) -> Any:
        return target.look_up(self.request, *writes[self.request], extra_keys=self.extra_keys)


class Use(_Grows, frozen=True):
    """Begin a request on what was looked up for it."""

    request: LookedUp


class Cancel(Operation, frozen=True):
    """Forget what was looked up for a request."""

    request: LookedUp


class Append(Operation, frozen=True):
    """Write tokens at the end of a request, all or none."""

    request: Request
    tokens: Tokens

    def writes(self) -> Writes:
        return {self.request: self.tokens}

    def perform(self, target: Any, writes: Mapping[str, Sequence[object]]) -> Any:
        return target.append(self.request, *writes[self.request])


class AppendEach(_Batch, frozen=True):
    """One decode step: one token to each request, in order; each is grown or refused on its own."""

    requests: Requests
    tokens: TokenEach

    def perform(self, target: Any, writes: Mapping[str, Sequence[object]]) -> Any:
        if len(self.tokens) != len(self.requests):
            return target.append_each(self.requests, self.tokens)
        return target.append_each(self.requests, [writes[name][0] for name in self.requests])


class Reserve(Operation, frozen=True):
    """Have room for tokens to come, e.g. speculative ones."""

    request: Request
    count: Count


class Commit(Operation, frozen=True):
    """Write tokens into the room that is reserved for them."""

    request: Reserving
    tokens: Committed

    def writes(self) -> Writes:
        return {self.request: self.tokens}

    def perform(self, target: Any, writes: Mapping[str, Sequence[object]]) -> Any:
        return target.commit(self.request, *writes[self.request])


class Trim(Operation, frozen=True):
    """Give reserved room back, e.g. that of rejected tokens."""

    request: Reserving


class Fork(Operation, frozen=True):
    """Begin a request that shares every block of another."""

    parent: Request
    child: NewRequest


class BeginStep(_Batch, frozen=True):
    """Begin a step that writes one token to each request; each is given room or refused."""

    step: NewStep
    requests: Requests
    tokens: TokenEach
    copies_later: ClassVar[bool] = True

    def mover(self) -> tuple[str, str]:
        return "step", self.step

    def perform(self, target: Any, writes: Mapping[str, Sequence[object]]) -> Any:
        tokens: Sequence[object] = self.tokens
        if len(self.tokens) == len(self.requests):
            tokens = [writes[name][0] for name in self.requests]
        return target.begin_step(self.step, self.requests, tokens)


class EndStep(Operation, frozen=True):
    """The oldest step in flight has run."""

    completes: ClassVar[bool] = True

    step: Step


class FailStep(Operation, frozen=True):
    """A step has failed, and with it those begun after it."""

    step: Step


class Pin(Operation, frozen=True):
    """Begin a transfer that may read every block of a request until it ends."""

    request: Request
    transfer: NewTransfer


class Unpin(Operation, frozen=True):
    """End a transfer that was begun by `pin`."""

    transfer: Transfer


class Send(Operation, frozen=True):
    """Begin a transfer out of every block of a request, which workers acknowledge; lease 0: none."""

    request: Request
    transfer: NewTransfer
    workers: Workers
    lease: Lease


class Receive(_Begins, frozen=True):
    """Begin a request with a prompt whose tokens, but for what is found, are transferred in."""

    transfer: NewTransfer
    workers: Workers
    lease: Lease
    extra_keys: ExtraKeys = {}

    def mover(self) -> tuple[str, str]:
        return "transfer", self.transfer

    def perform(self, target: Any, writes: Mapping[str, Sequence[object]]) -> Any:
        return target.receive(
            self.request,
            *writes[self.request],
            transfer=self.transfer,
            workers=self.workers,
            lease=self.lease,
            extra_keys=self.extra_keys,
        )

    def retell(self, lists: Any, result: Any) -> None:
        super().retell(lists, result)
        lists.find(self.transfer, result)


class Acknowledge(Operation, frozen=True):
    """A worker is done with a transfer, in the latest life of its name (0) or the one before (1)."""

    completes: ClassVar[bool] = True

    transfer: Transfer
    worker: Worker
    life: Life

    def retell(self, lists: Any, result: Any) -> None:
        if result:
            lists.arrive(self.transfer)


class Tick(Operation, frozen=True):
    """Time passes, and leases run out."""


class Release(Operation, frozen=True):
    """End a request: finished or cancelled."""

    request: Request


class ReleaseEach(Operation, frozen=True):
    """End several requests in one call."""

    requests: Requests


class Preempt(Operation, frozen=True):
    """End a request for now; its name and its tokens are remembered."""

    request: Request


class Resume(_Grows, frozen=True):
    """Begin a preempted request anew, on what is found of it."""

    request: Preempted


class Evict(Operation, frozen=True):
    """Forget what a request's blocks from a position on hold, e.g. after a failed load."""

    request: Request
    first: Position


class Reset(Operation, frozen=True):
    """Forget every published block; refused while any block is in use."""


class ChangeWeights(Operation, frozen=True):
    """Forget every published block, in use or not: what they hold was computed with old weights."""


OPERATIONS: tuple[type[Operation], ...] = (
    Create,
    Admit,
    LookUp,
    Use,
    Cancel,
    Append,
    AppendEach,
    Reserve,
    Commit,
    Trim,
    Fork,
    BeginStep,
    EndStep,
    FailStep,
    Pin,
    Unpin,
    Send,
    Receive,
    Acknowledge,
    Tick,
    Release,
    ReleaseEach,
    Preempt,
    Resume,
    Evict,
    Reset,
    ChangeWeights,
)
for _operation in OPERATIONS:
    _operation.verb = _verb(_operation.__name__)

AnyOperation = (
    Create
    | Admit
    | LookUp
    | Use
    | Cancel
    | Append
    | AppendEach
    | Reserve
    | Commit
    | Trim
    | Fork
    | BeginStep
    | EndStep
    | FailStep
    | Pin
    | Unpin
    | Send
    | Receive
    | Acknowledge
    | Tick
    | Release
    | ReleaseEach
    | Preempt
    | Resume
    | Evict
    | Reset
    | ChangeWeights
)


REASONS = frozenset(
    {
        "already acknowledged",
        "an earlier step is in flight",
        "blocks in use",
        "duplicate request",
        "duplicate step",
        "duplicate transfer",
        "longer than max_model_len",
        "lookup outstanding",
        "more than reserved",
        "no requests",
        "no tokens",
        "not preempted",
        "nothing to pin",
        "one token for each request",
        "repeated request",
        "stale handle",
        "step in flight",
        "tokens on their way",
        "tokens reserved",
        "too many steps in flight",
        "unknown lookup",
        "unknown request",
        "unknown step",
        "unknown transfer",
        "unknown worker",
        "wrong kind of transfer",
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
