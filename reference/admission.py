"""Admission credits: a request is admitted only if it can finish whatever the others do.

A block is available when nobody holds it: it is free, or idle in the prefix index.  A credit is a
block that an admitted request may still take, up to its longest length.  The law is that the credits
of all requests together are at most the available blocks; then no request ever waits for another one
to end, and none is ever preempted.

A prefix block that is hit need not be taken, which is a discount.  It is safe because the request
holds the block from its admission on, whoever else lets it go; and because an idle block, once hit, is
no longer available to anybody.

What ends gives its credits back at once, and its blocks when they are cleaned up: until then they are
not available, and nobody was promised them.  A transfer makes its request copy a tail that is not yet
full, which is one block more than the request needed, and so it begins only with a credit for that.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Claim:
    """What a request asks of the pool before it is admitted, in blocks."""

    needed: int
    """At its longest."""
    hit: int
    """Of those, what it finds in the prefix index."""
    woken: int
    """Of those, what nobody held until now."""

    @property
    def credit(self) -> int:
        """What it may still take."""
        return self.needed - self.hit

    def ever_fits(self, blocks: int) -> bool:
        """Whether a pool of so many blocks could hold it alone; its blocks are all different."""
        return self.needed <= blocks

    def is_safe(self, available: int, promised: int) -> bool:
        """Whether the law still holds once it is admitted."""
        return promised + self.credit <= available - self.woken


@dataclass
class Credits:
    """Who may still take how many blocks."""

    of: dict[str, int] = field(default_factory=dict)

    @property
    def promised(self) -> int:
        """The credits of all requests together."""
        return sum(self.of.values())

    def grant(self, request: str, count: int) -> None:
        """Promise so many blocks more."""
        self.of[request] = self.of.get(request, 0) + count

    def spend(self, request: str, count: int) -> None:
        """So many were taken, or are needed no more."""
        self.of[request] -= count

    def end(self, request: str) -> None:
        """The request takes no more."""
        del self.of[request]
