"""What the reference remembers: pages, live requests, transfers; and how it refuses."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

ExtraKeys = tuple[tuple[str, str], ...]
"""What identifies a request's tokens beside their values, e.g. (("adapter", "x"), ("salt", "y"))."""

Hold = tuple[str, str]
"""A reason to retain a page that is neither an owner nor a pin, e.g. ("step", "s1")."""


class Rejected(ValueError):
    """The call itself is wrong, whatever the state of the pool; nothing was changed."""

    def __init__(self, reason: str, name: str) -> None:
        super().__init__(f"{reason}: {name!r}")
        self.reason = reason


class WrongChoice(AssertionError):
    """The pages that an allocator took were not its to take, or not in this order."""

    def __init__(self, message: str, page: int | None = None, rule: str = "choice") -> None:
        super().__init__(message)
        self.page = page
        self.rule = rule


@dataclass
class Page:
    """An allocated page: its tokens so far, and every reason why it is retained."""

    tokens: list[object] = field(default_factory=list)
    owners: set[str] = field(default_factory=set)
    pins: set[str] = field(default_factory=set)
    holds: set[Hold] = field(default_factory=set)

    @property
    def is_in_use(self) -> bool:
        """Whether anything but the prefix index retains it."""
        return bool(self.owners or self.pins or self.holds)


@dataclass
class Life:
    """One life of a request's name, from its beginning to its release."""

    extra_keys: ExtraKeys = ()
    epoch: int = 0
    reserved: int = 0
    """Tokens for which it has room beyond those written."""
    in_flight: int = 0
    """Tokens of steps under way; each has its room."""
    waiting: bool = False
    """Whether tokens of its prompt are on their way to it."""


@dataclass
class Load:
    """What a transfer in writes when it is complete: tokens of a request, in one of its lives."""

    request: str
    life: Life
    tokens: tuple[object, ...]


@dataclass
class Transfer:
    """An outstanding transfer: the pages it may touch, as they were when it began.

    It ends when every one of `awaited` workers has acknowledged, or at its deadline.  A plain pin
    awaits nobody.
    """

    pages: list[int]
    contents: list[list[object]]
    awaited: set[int] = field(default_factory=set)
    acknowledged: set[int] = field(default_factory=set)
    deadline: int | None = None
    load: Load | None = None

    @property
    def is_pin(self) -> bool:
        return not self.awaited and not self.acknowledged


def extra_keys_of(extra_keys: Mapping[Any, str]) -> ExtraKeys:
    """The keys in one order; an empty one is as absent."""
    return tuple(sorted((tag, value) for tag, value in extra_keys.items() if value))


Identity = tuple[ExtraKeys, tuple[Hashable, ...]]
"""What identifies the content of a page: extra keys, and every token value up to where it was
published."""


@dataclass
class Hits:
    """The longest published prefix of a prompt: what its whole pages hold, and one that ends inside
    a page, which has to be copied."""

    whole: list[Identity] = field(default_factory=list)
    partial: Identity | None = None

    @property
    def tokens(self) -> int:
        """How many tokens were found."""
        longest = self.partial or (self.whole[-1] if self.whole else ((), ()))
        return len(longest[1])
