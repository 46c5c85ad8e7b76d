"""What an adapter is: operations mapped onto one allocator's own API, and its tables and counts reported.

An adapter has a method for each operation that its allocator can do, named by the operation's verb
(`create`, `append`, `fork`, ...), taking the operation's fields and returning an outcome, or None for
a plain `Done()`.  Operations without a method are left out of every campaign, and the report says so.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from kvoracle.model.operations import OPERATIONS, Done, Operation, Outcome
from kvoracle.model.trace import Configuration

NO_KEYS: Mapping[str, str] = MappingProxyType({})


class Adapter:
    """One allocator under test; a new instance is a new, empty pool.

    Subclasses must offer `table`, and `create`, `append` and `release` at the least.
    """

    refuses: ClassVar[frozenset[str]] = frozenset()
    """The misuse that the allocator promises to reject, by reason; any other misuse is not tried."""

    headroom: ClassVar[int] = 0
    """Free blocks that the allocator may keep back: it may claim to be full with fewer than these."""

    first_block: ClassVar[int] = 0
    """The id of the first usable block; engines that reserve block 0 say 1."""

    extra_keys: ClassVar[frozenset[str]] = frozenset()
    """The extra keys of prompts (`adapter`, `salt`, `image`) that the allocator keeps apart."""

    options: ClassVar[frozenset[str]] = frozenset()
    """The optional fields of `Configuration` that it honours, e.g. {"watermark"}; a trace that sets
    another one says nothing about it.  `prefix_cache` is honoured by whatever has `admit`."""

    unreachable: ClassVar[frozenset[str]] = frozenset()
    """The witnesses that it cannot meet by what it is, and that no campaign may ask of it."""

    finds_longest_hits: ClassVar[bool] = True
    """Whether a prompt is promised the longest hit that all groups of layers can serve; without it any
    hit that they can serve will do, also none.  Only adapters with "groups" may decline it."""

    reuses_in_order: ClassVar[bool] = False
    """Whether it promises the order of reuse: blocks without an entry first, the one freed last
    first; then idle ones, the one that became idle first first; of a table its tail first."""

    block_sizes: ClassVar[range] = range(1, 4097)
    """The block sizes that the allocator takes."""

    def __init__(self, config: Configuration) -> None:
        self.config = config
        self.max_model_len = config.max_model_len

    def can_try(self, operation: Operation) -> bool:
        """Whether the allocator can do an operation with these arguments."""
        keys = getattr(operation, "extra_keys", {})
        return hasattr(self, operation.verb) and self.extra_keys >= keys.keys()

    def outcome_of(self, error: Exception) -> Outcome | None:  # noqa: ARG002
        """What an exception of the allocator's means, where its API documents that meaning.

        None lets the exception through, and lockstep turns it into a verdict.
        """
        return None

    def table(self, request: str) -> Sequence[int]:
        """The block ids of a live request, in order, `ceil(length / block_size)` of them.

        With groups of layers one table after the other, 0 where no later query looks; and the slots
        of an outcome likewise, each in the block size of its group."""
        raise NotImplementedError

    def can_append(self, request: str, count: int) -> bool | None:  # noqa: ARG002
        """Whether the allocator says that an append of so many tokens would find room now; None when
        it does not say."""
        return None

    def would_hit(
        self,
        request: str,  # noqa: ARG002
        prompt: Sequence[int],  # noqa: ARG002
        extra_keys: Mapping[str, str] = NO_KEYS,  # noqa: ARG002
    ) -> tuple[int, int] | None:
        """How many tokens of a prompt the allocator says an admission would find now, and how many of
        the whole blocks that hold them nothing holds; None when it does not say."""
        return None

    def free_blocks(self) -> int | None:
        """How many blocks the allocator says are free; None when it keeps no count."""
        return None

    def holders(self) -> dict[int, int] | None:
        """Block id to the number of owners, pins, lookups and steps that the allocator counts, held
        blocks only; None when it keeps no such count."""
        return None

    def generations(self) -> dict[int, int] | None:
        """Block id to how often the allocator says it was taken; None when it keeps no such count."""
        return None

    def statistics(self) -> dict[str, int] | None:
        """What the allocator counts, by the names of `reference.Oracle.statistics`, as far as it
        does; None when it counts nothing."""
        return None


def operations_of(adapter: type[Adapter]) -> tuple[type[Operation], ...]:
    """The operations that an allocator can do."""
    return tuple(operation for operation in OPERATIONS if hasattr(adapter, operation.verb))


def perform(adapter: Adapter, operation: Operation) -> Outcome:
    """Carry out one operation on an allocator."""
    return call(adapter, operation.verb, *operation.arguments())


def call(adapter: Adapter, verb: str, *arguments: object) -> Outcome:
    """Carry out an operation that is given by its verb and fields."""
    try:
        outcome: Outcome | None = getattr(adapter, verb)(*arguments)
    except Exception as error:
        meaning = adapter.outcome_of(error)
        if meaning is None:
            raise
        return meaning
    return Done() if outcome is None else outcome
