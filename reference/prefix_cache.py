"""Prefix caching: full pages stay findable by their content after their request has ended.

The index is one more holder.  A page that only the index holds is idle: it may be hit, and it may be
taken for something else, which drops its entry.  What identifies a page is the full value of every
token from the start of its sequence to the end of the page, never a hash of it.

Duplicate content keeps its own pages, so that tables stay append-only, and either may be hit.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from kvoracle.reference.invariants import BrokenInvariant, describe
from kvoracle.reference.paged_kv import Choose, PagedKV, Rejected, WrongChoice

Identity = tuple[Hashable, ...]


class PrefixCachedKV(PagedKV):
    """A `PagedKV` whose full pages are published once they are written.

    `value_of` gives the part of a token that identifies it.  With `caching` off nothing is published
    and `admit` is `create` and `append` in one.
    """

    def __init__(
        self,
        capacity: int,
        block_size: int,
        *,
        first_page: int = 0,
        choose: Choose | None = None,
        caching: bool = True,
        value_of: Callable[[Any], Hashable] = lambda token: token,
    ) -> None:
        super().__init__(capacity, block_size, first_page=first_page, choose=choose)
        self.caching = caching
        self.value_of = value_of
        self.index: dict[int, Identity] = {}
        self.may_refuse = False
        """Whether an admission under way fits only if its hits are well chosen among duplicates."""

    def admit(self, request: str, *tokens: object) -> int:
        """Begin a request with a prompt; the result is how many of its tokens were hit.

        The longest published prefix is used, up to the token before the last, whose logits are
        still to be computed.  The rest is written to fresh pages.  All of it or MemoryError.
        """
        # check
        self._check_new(request)
        if not tokens:
            raise Rejected("no tokens", request)
        depth = self.hit_depth(tokens)
        positions = list(range(depth, -(-len(tokens) // self.block_size)))
        self._check_admission(tokens, depth, len(positions))
        # take
        hit = self._take_hits(request, tokens, depth)
        for page in hit:
            self.pages[page].owners.add(request)
        try:
            fresh = self._take(request, positions)
        except (MemoryError, WrongChoice):
            for page in hit:
                self.pages[page].owners.remove(request)
            raise
        # record
        self.tables[request] = hit
        self._write(request, fresh, tokens[depth * self.block_size :])
        self._publish(request)
        # result
        return depth * self.block_size

    def append(self, request: str, *tokens: object) -> None:
        """As in `PagedKV`, and pages that become full are published."""
        super().append(request, *tokens)
        # record
        self._publish(request)

    def reset(self) -> None:
        """Forget every entry, as when the weights change; refused while any page is in use."""
        # check
        if len(self.takeable()) < self.capacity:
            raise Rejected("blocks in use", "reset")
        # record
        for page in self.idle():
            self._claim(page)
            self.free.append(page)

    def hit_depth(self, tokens: Sequence[object]) -> int:
        """How many pages of a prompt are published from its start on, the last token never hit."""
        return self.depth_of(self._values(tokens))

    def depth_of(self, values: Identity) -> int:
        """As `hit_depth`, for what identifies the tokens of a prompt."""
        depth = 0
        while (depth + 1) * self.block_size < len(values):
            if not self.holding(values[: (depth + 1) * self.block_size]):
                break
            depth += 1
        return depth

    def idle(self) -> list[int]:
        """The pages that only the index holds."""
        return [
            page for page in self.index if not (self.pages[page].owners or self.pages[page].pins)
        ]

    def holding(self, identity: Identity) -> list[int]:
        """The pages published with a content, the smallest first."""
        length = len(identity)
        return sorted(
            page for page, held in self.index.items() if len(held) == length and held == identity
        )

    def takeable(self) -> list[int]:
        """Free pages, and idle ones."""
        return self.free + self.idle()

    def is_held(self, page: int) -> bool:
        """Whether anything, the index included, holds an allocated page."""
        return page in self.index or super().is_held(page)

    def check(self) -> None:
        """As in `PagedKV`, and every entry of the index tells the truth."""
        super().check()
        for page, identity in self.index.items():
            if page not in self.pages or len(self.pages[page].tokens) != self.block_size:
                said = f"{describe(self, page)} is published and not full"
                raise BrokenInvariant("published_pages_are_full", said)
            if self._values(self.pages[page].tokens) != identity[-self.block_size :]:
                said = f"{describe(self, page)} is published as what it does not hold"
                raise BrokenInvariant("published_pages_hold_what_they_say", said)

        if not self.caching:
            return
        for request, table in self.tables.items():
            for depth, page in enumerate(table, start=1):
                is_full = len(self.pages[page].tokens) == self.block_size
                known = len(self.index.get(page, ()))
                if is_full and known != depth * self.block_size:
                    said = f"{describe(self, page)}, full in the table of {request!r}, has no entry"
                    raise BrokenInvariant("full_pages_are_published", said)

    def _check_admission(self, tokens: Sequence[object], depth: int, fresh: int) -> None:
        """An idle page that is hit cannot be taken as a fresh one as well."""
        idle = set(self.idle())
        holding = [set(self.holding(identity)) for identity in self._identities(tokens, depth)]
        room_at_most = len(self.takeable()) - sum(1 for pages in holding if pages <= idle)
        room_at_least = len(self.takeable()) - sum(1 for pages in holding if pages & idle)
        self.demand = (fresh, room_at_most)
        if fresh > room_at_most:
            raise MemoryError(f"{fresh} blocks needed, {room_at_most} free beside the hits")
        self.may_refuse = fresh > room_at_least

    def _take_hits(self, request: str, tokens: Sequence[object], depth: int) -> list[int]:
        """The pages that the allocator hit, each published as exactly this part of the prompt."""
        if depth == 0:
            return []
        identities = self._identities(tokens, depth)
        if self._chooses_itself():
            self.may_refuse = False
            idle = self.idle()
            return [
                min(self.holding(identity), key=lambda page: (page in idle, page))
                for identity in identities
            ]
        try:
            hit = list(self._choose(request, list(range(depth))))
        finally:
            self.may_refuse = False
        for page, identity in zip(hit, identities, strict=True):
            if self.index.get(page) != identity:
                said = (
                    f"{describe(self, page)} was hit for {request!r} and does not hold its prefix"
                )
                raise WrongChoice(said, page)
        return hit

    def _publish(self, request: str) -> None:
        """Enter every page of a request that is full into the index."""
        table = self.tables[request]
        full = [page for page in table if len(self.pages[page].tokens) == self.block_size]
        if not self.caching or all(page in self.index for page in full):
            return
        values = self._values(self.read(request))
        for depth, page in enumerate(full, start=1):
            self.index.setdefault(page, values[: depth * self.block_size])

    def _chooses_itself(self) -> bool:
        return self._choose == self._smallest

    def _claim(self, page: int) -> None:
        if page in self.index:
            del self.index[page]
            del self.pages[page]
        else:
            super()._claim(page)

    def _values(self, tokens: Sequence[object]) -> Identity:
        return tuple(map(self.value_of, tokens))

    def _identities(self, tokens: Sequence[object], depth: int) -> list[Identity]:
        values = self._values(tokens)
        return [values[: (index + 1) * self.block_size] for index in range(depth)]
