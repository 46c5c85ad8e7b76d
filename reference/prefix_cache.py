"""Prefix caching: full pages stay findable by their content after their request has ended.

The index is one more holder.  A page that only the index holds is idle: it may be hit, and it may be
taken for something else, which drops its entry.  What identifies a page is the full value of every
token from the start of its sequence to the end of the page, and the request's extra keys (adapter,
salt, image), never a hash of them.

Duplicate content keeps its own pages, so that tables stay append-only, and either may be hit.

Where the unit of matching is finer than a page, a partial page is published too, up to the last
multiple of the unit.  A hit that ends inside a page is copied, since the request goes on writing
there; this is the one place where a table does not name the page that was hit.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from kvoracle.reference.invariants import BrokenInvariant, describe
from kvoracle.reference.paged_kv import Choose, PagedKV, last_mentions
from kvoracle.reference.records import (
    ExtraKeys,
    Hits,
    Identity,
    Life,
    Rejected,
    WrongChoice,
    extra_keys_of,
)


class PrefixCachedKV(PagedKV):
    """A `PagedKV` whose full pages are published once they are written.

    `value_of` gives the part of a token that identifies it.  With `caching` off nothing is published
    and `admit` is `create` and `append` in one.  `watermark` pages are kept free of what begins.
    `match_unit` divides `block_size`; 0 is a whole page.  `choose_source(request, pages)` returns the
    page that was copied for a hit which ends inside one of these pages.
    """

    def __init__(
        self,
        capacity: int,
        block_size: int,
        *,
        first_page: int = 0,
        choose: Choose | None = None,
        in_order: bool = False,
        max_length: int | None = None,
        caching: bool = True,
        watermark: int = 0,
        match_unit: int = 0,
        choose_source: Callable[[str, list[int]], int] | None = None,
        value_of: Callable[[Any], Hashable] = lambda token: token,
    ) -> None:
        super().__init__(
            capacity,
            block_size,
            first_page=first_page,
            choose=choose,
            in_order=in_order,
            max_length=max_length,
        )
        self.caching = caching
        self.watermark = watermark
        self.match_unit = match_unit or block_size
        self._choose_source = choose_source
        self.value_of = value_of
        self.index: dict[int, Identity] = {}
        self.epoch = 0
        self.withdrawn: set[int] = set()
        """Allocated pages whose entry was dropped on request: not to be published again."""
        self.counted: Counter[str] = Counter()
        """What `statistics` reports: tokens queried and hit, entries lost to eviction, preemptions."""
        self.may_refuse = False
        """Whether an admission under way fits only if its hits are well chosen among duplicates."""
        self._idle_since: dict[int, int] = {}
        self._clock = 0

    def create(self, request: str) -> None:
        """As in `PagedKV`; what it will hold is computed with the weights of today."""
        super().create(request)
        # record
        self.lives[request].epoch = self.epoch

    def admit(self, request: str, *tokens: object, extra_keys: dict[str, str] | None = None) -> int:
        """Begin a request with a prompt; the result is how many of its tokens were hit.

        The longest published prefix is used, up to the token before the last, whose logits are
        still to be computed.  The rest is written to fresh pages.  All of it or MemoryError.
        """
        # check
        self._check_new(request)
        if not tokens:
            raise Rejected("no tokens", request)
        self._check_length(request, len(tokens))
        # take
        hit = self._begin_on_hits(request, tokens, extra_keys_of(extra_keys or {}))
        # record
        self._write(request, tokens[hit:])
        # result
        return hit

    def reset(self) -> None:
        """Forget every entry; refused while any page is in use."""
        # check
        if len(self.takeable()) < self.capacity:
            raise Rejected("blocks in use", "reset")
        # record
        self._withdraw(self.idle())

    def evict(self, request: str, first: int) -> None:
        """Forget what a request's pages from position `first` on hold, e.g. after a failed load."""
        # check
        table = self._table(request)
        # record
        self.withdrawn.update(table[first:])
        self._withdraw(table[first:])

    def change_weights(self) -> None:
        """Forget every entry; what was or will be computed by requests begun before is never hit."""
        # record
        self.epoch += 1
        self._withdraw(self.idle())
        self.index.clear()

    def values_of(self, tokens: Sequence[object]) -> tuple[Hashable, ...]:
        """What identifies each token."""
        return tuple(map(self.value_of, tokens))

    def hits_of(self, extra_keys: ExtraKeys, values: tuple[Hashable, ...]) -> Hits:
        """The longest published prefix of a prompt; its last token is never hit."""
        hits = Hits()
        for end in range(self.block_size, len(values), self.block_size):
            if not self.holding((extra_keys, values[:end])):
                break
            hits.whole.append((extra_keys, values[:end]))
        longest = min(hits.tokens + self.block_size, len(values)) - 1
        for end in range(longest - longest % self.match_unit, hits.tokens, -self.match_unit):
            if self.beginning_with((extra_keys, values[:end])):
                hits.partial = (extra_keys, values[:end])
                break
        return hits

    def woken_by(self, hits: Hits) -> int:
        """How many of the whole pages of a hit nobody holds: they could be taken, but for the hit."""
        idle = set(self.idle())
        return sum(set(self.holding(identity)) <= idle for identity in hits.whole)

    def beginning_with(self, identity: Identity) -> list[int]:
        """The pages in which a prefix ends and is published, the smallest first."""
        extra_keys, values = identity
        first = (len(values) - 1) // self.block_size * self.block_size
        return sorted(
            page
            for page, (keys, held) in self.index.items()
            if first < len(held) <= first + self.block_size
            and keys == extra_keys
            and held[: len(values)] == values
        )

    def idle(self) -> list[int]:
        """The pages that only the index holds, the one that became idle first first."""
        idle = [page for page in self.index if not self.pages[page].is_in_use]
        return sorted(idle, key=self._idle_since.__getitem__)

    def holding(self, identity: Identity) -> list[int]:
        """The pages published with a content, the smallest first."""
        length = len(identity[1])
        return sorted(
            page for page, held in self.index.items() if len(held[1]) == length and held == identity
        )

    def takeable(self) -> list[int]:
        """Free pages, and idle ones."""
        return self.free + self.idle()

    def reuse_order(self) -> list[int]:
        """Free pages first, as a stack; then the idle ones, the one that became idle first first."""
        return self.free[::-1] + self.idle()

    def is_held(self, page: int) -> bool:
        """Whether anything, the index included, holds an allocated page."""
        return page in self.index or super().is_held(page)

    def check(self) -> None:
        """As in `PagedKV`, and every entry of the index tells the truth."""
        super().check()
        for page, (_, values) in self.index.items():
            published = (len(values) - 1) % self.block_size + 1
            held = self.pages[page].tokens if page in self.pages else []
            if len(held) < published or published % self.match_unit:
                said = f"{describe(self, page)} is published and not full"
                raise BrokenInvariant("published_pages_are_full", said)
            if self.values_of(held[:published]) != values[-published:]:
                said = f"{describe(self, page)} is published as what it does not hold"
                raise BrokenInvariant("published_pages_hold_what_they_say", said)
        for request in self.tables:
            self._check_published(request)

    def _check_published(self, request: str) -> None:
        for depth, page in enumerate(self._publishable(request), start=1):
            _, values = self.index.get(page, ((), ()))
            if page not in self.withdrawn and len(values) != depth * self.block_size:
                said = f"{describe(self, page)}, full in the table of {request!r}, has no entry"
                raise BrokenInvariant("full_pages_are_published", said)

    def _publishable(self, request: str) -> list[int]:
        """The full pages of a request, if they hold what the weights of today compute."""
        if not self.caching or self.lives[request].epoch != self.epoch:
            return []
        pages = self.tables[request]
        return [page for page in pages if len(self.pages[page].tokens) == self.block_size]

    def _begin_on_hits(self, request: str, tokens: Sequence[object], extra_keys: ExtraKeys) -> int:
        """Begin a request on the longest published prefix of a prompt, with room for the rest."""
        # check
        hits = self.hits_of(extra_keys, self.values_of(tokens))
        positions = list(range(len(hits.whole), -(-len(tokens) // self.block_size)))
        self._check_admission(hits, len(positions))
        # take
        table = self._take_hits(request, hits)
        self._begin(request, table, Life(extra_keys, self.epoch))
        source: list[int] = []
        try:
            source = self._take_source(request, hits)
            fresh = self._take(request, positions)
        except (MemoryError, WrongChoice):
            self._end(request)
            self._drop_source(request, source)
            raise
        # record
        self._extend(table, request, fresh)
        for page in source:
            count = hits.tokens - len(hits.whole) * self.block_size
            self.pages[fresh[0]].tokens = self.pages[page].tokens[:count]
            self.copied.append((page, fresh[0]))
        self._drop_source(request, source)
        self._give_back(source)
        self._count_hits(hits, tokens)
        # result
        self.lives[request].reserved = len(tokens) - hits.tokens
        return hits.tokens

    def _take_source(self, request: str, hits: Hits) -> list[int]:
        """The page that a hit which ends inside a page is copied from, held until it was copied."""
        if hits.partial is None:
            return []
        fitting = self.beginning_with(hits.partial)
        source = (self._choose_source or self._best_source)(request, fitting)
        if source not in fitting:
            said = f"{describe(self, source)} was copied for {request!r} and holds another prefix"
            raise WrongChoice(said, source)
        self.pages[source].holds.add(("copy", request))
        return [source]

    def _drop_source(self, request: str, source: Sequence[int]) -> None:
        for page in source:
            self.pages[page].holds.remove(("copy", request))

    def _best_source(self, _request: str, pages: list[int]) -> int:
        idle = self.idle()
        return min(pages, key=lambda page: (page in idle, page))

    def _count_hits(self, hits: Hits, tokens: Sequence[object]) -> None:
        if self.caching:
            self.counted["queried_tokens"] += len(tokens)
            self.counted["hit_tokens"] += hits.tokens

    def _check_capacity(self, need: int, copied: int | None) -> None:
        self.may_refuse = False
        super()._check_capacity(need, copied)

    def _check_admission(self, hits: Hits, fresh: int) -> None:
        """An idle page that is hit or copied cannot be taken as a fresh one as well."""
        idle = set(self.idle())
        holding = [set(self.holding(identity)) for identity in hits.whole]
        if hits.partial is not None:
            holding.append(set(self.beginning_with(hits.partial)))
        room_at_most = len(self.takeable()) - sum(1 for pages in holding if pages <= idle)
        room_at_least = len(self.takeable()) - sum(1 for pages in holding if pages & idle)
        need = fresh + self.watermark
        self.demand = (need, room_at_most)
        if need > room_at_most:
            kept = f" ({self.watermark} kept free)" if self.watermark else ""
            raise MemoryError(f"{need} blocks needed{kept}, {room_at_most} free beside the hits")
        self.may_refuse = need > room_at_least

    def _take_hits(self, request: str, hits: Hits) -> list[int]:
        """The pages that the allocator hit, each published as exactly this part of the prompt."""
        if not hits.whole:
            return []
        if self._choose is None:
            return [self._best_source(request, self.holding(whole)) for whole in hits.whole]
        hit = list(self._choose(request, list(range(len(hits.whole)))))
        for page, identity in zip(hit, hits.whole, strict=True):
            if self.index.get(page) != identity:
                said = (
                    f"{describe(self, page)} was hit for {request!r} and does not hold its prefix"
                )
                raise WrongChoice(said, page)
        return hit

    def _write(self, request: str, tokens: Sequence[object]) -> None:
        """As in `PagedKV`, and pages that become full are published."""
        untouched = self.length(request) // self.block_size
        super()._write(request, tokens)
        life, table = self.lives[request], self.tables[request]
        if not self.caching or life.epoch != self.epoch:
            return
        values = self.values_of(self.read(request))
        for depth, page in enumerate(table[untouched:], start=untouched):
            first, filled = depth * self.block_size, len(self.pages[page].tokens)
            end = first + filled - filled % self.match_unit
            if end > first and page not in self.withdrawn:
                self.index[page] = (life.extra_keys, values[:end])

    def _withdraw(self, pages: Sequence[int]) -> None:
        """Drop the entries of pages; those that nothing else holds become free."""
        for page in pages:
            self.index.pop(page, None)
        super()._give_back(pages)

    def _claim(self, page: int) -> None:
        if page in self.index:
            del self.index[page]
            self.counted["evictions"] += 1
            super()._give_back([page])
        super()._claim(page)

    def _give_back(self, pages: Sequence[int]) -> None:
        super()._give_back(pages)
        self.withdrawn &= self.pages.keys()
        for page in reversed(last_mentions(pages)):
            if page in self.index and not self.pages[page].is_in_use:
                self._clock += 1
                self._idle_since[page] = self._clock
