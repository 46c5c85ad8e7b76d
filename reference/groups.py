"""GroupedKV: several groups of layers on one pool, each with a block size and a window of its own.

A request has one table a group.  In a group with a window a query sees its own position and the
`window - 1` before it.  A block that no later query sees leaves the table: the request gives it back,
and the entry reads as the null block, which is no block of the pool.  Until the call is over it is
still read, so nothing is taken again in the call that drops it.

What identifies a published block is its group as well.  A prompt hits so many tokens as every group
can serve: each must hold the blocks that the next query sees.  A call succeeds in all groups or
changes nothing, and what one group hits no other takes in the same call.

Used alone it takes the longest hit and the smallest blocks.  Given `choices` it is told what an
allocator chose and judges it.  In which order blocks are reused is the allocator's affair.
"""

import math
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any

from kvoracle.reference.group_invariants import INVARIANTS, describe
from kvoracle.reference.group_records import (
    NULL_BLOCK,
    Choices,
    Content,
    Findable,
    Group,
    Identity,
    Place,
)
from kvoracle.reference.invariants import BrokenInvariant
from kvoracle.reference.records import ExtraKeys, Page, Rejected, WrongChoice, extra_keys_of


class GroupedKV:
    """A pool of `capacity` blocks, named 1, 2, ..., for requests with a table in each of `groups`.

    `value_of` gives the part of a token that identifies it.  With `caching` off nothing is published.
    With `finds_longest` the longest possible hit is required, else any possible one will do.  Out of
    blocks is a MemoryError.
    """

    def __init__(
        self,
        capacity: int,
        groups: Sequence[Group],
        *,
        choices: Choices | None = None,
        caching: bool = True,
        finds_longest: bool = True,
        value_of: Callable[[Any], Hashable] = lambda token: token,
    ) -> None:
        if capacity < 1 or not groups or any(g.block_size < 1 or g.window < 0 for g in groups):
            raise ValueError("give blocks, and groups of block sizes from 1 and windows from 0 on")
        self.capacity = capacity
        self.groups = tuple(groups)
        self.hit_unit = math.lcm(*(group.block_size for group in groups))
        """Where every group has a block edge, and a hit may end."""
        self.usable = range(NULL_BLOCK + 1, NULL_BLOCK + 1 + capacity)
        self.free: list[int] = list(self.usable)
        self.pages: dict[int, Page] = {}
        self.tables: dict[str, list[list[int]]] = {}
        self.contents: dict[str, Content] = {}
        self.preempted: dict[str, Content] = {}
        self.index: dict[int, Identity] = {}
        self.taken = dict.fromkeys(self.usable, 0)
        """How often each block was taken."""
        self.written: list[tuple[str, int, tuple[object, ...]]] = []
        """Every write, in order: the request, its first position, the tokens."""
        self.demand = (0, 0)
        """The blocks that the call under way takes, and those that it may take them from."""
        self.may_refuse = False
        """Whether the call under way fits only if its hits are well chosen among those possible."""
        self.caching = caching
        self.finds_longest = finds_longest
        self.value_of = value_of
        self._choices = choices or Choices()

    # Operations

    def create(self, request: str) -> None:
        """Begin a request with empty tables."""
        # check
        self._check_new(request)
        # record
        self.tables[request] = [[] for _ in self.groups]
        self.contents[request] = Content()

    def admit(self, request: str, *tokens: object, extra_keys: dict[str, str] | None = None) -> int:
        """Begin a request with a prompt; the result is how many of its tokens were hit."""
        # check
        self._check_new(request)
        if not tokens:
            raise Rejected("no tokens", request)
        # take and record
        return self._begin(request, tokens, extra_keys_of(extra_keys or {}))

    def append(self, request: str, *tokens: object) -> None:
        """Write tokens at the end of a request: all of them in all groups, or MemoryError and none."""
        # check
        self._check_live(request)
        if not tokens:
            raise Rejected("no tokens", request)
        # take and record
        self._grow(request, tokens)
        self._slide([request])

    def append_each(self, requests: Sequence[str], tokens: Sequence[object]) -> list[str]:
        """Write one token to each request, in order; the result names those that found no room."""
        # check
        self._check_batch(requests)
        if len(requests) != len(tokens):
            raise Rejected("one token for each request", ", ".join(requests))
        # take and record
        refused = []
        for request, token in zip(requests, tokens, strict=True):
            try:
                self._grow(request, (token,))
            except MemoryError:
                refused.append(request)
        self._slide([request for request in requests if request not in refused])
        # result
        return refused

    def release(self, request: str) -> None:
        """End a request, or forget a preempted one."""
        # record
        if self.preempted.pop(request, None) is None:
            self.release_each([request])

    def release_each(self, requests: Sequence[str]) -> None:
        """End several live requests in one call."""
        # check
        self._check_batch(requests)
        # record
        for request in requests:
            del self.contents[request]
            self._drop(request, [page for table in self.tables.pop(request) for page in table])

    def preempt(self, request: str) -> None:
        """End a request and remember its tokens."""
        # check
        self._check_live(request)
        if not self.contents[request].tokens:
            raise Rejected("no tokens", request)
        # record
        self.preempted[request] = self.contents[request]
        self.release_each([request])

    def resume(self, request: str) -> int:
        """Begin a preempted request anew; the result is how many of its tokens were hit."""
        # check
        if request not in self.preempted:
            raise Rejected("not preempted", request)
        old = self.preempted[request]
        # take and record
        hit = self._begin(request, old.tokens, old.extra_keys)
        del self.preempted[request]
        # result
        return hit

    def reset(self) -> None:
        """Forget every published block; refused while any block is owned."""
        # check
        if len(self.takeable()) < self.capacity:
            raise Rejected("blocks in use", "reset")
        # record
        self.free += self.index
        self.index.clear()
        self.pages.clear()

    # What can be asked

    def read(self, request: str) -> list[object]:
        """The tokens of a request, those that no query sees any more included."""
        self._check_live(request)
        return self.contents[request].tokens

    def length(self, request: str) -> int:
        """How many tokens a request has written."""
        return len(self.read(request))

    def idle(self) -> list[int]:
        """The blocks that only the index holds."""
        return [page for page in self.index if not self.pages[page].owners]

    def takeable(self) -> list[int]:
        """The blocks that may be taken: free ones and idle ones; the null block is neither."""
        return self.free + self.idle()

    def places(self, before: int, after: int) -> list[Place]:
        """Where blocks are needed for a request to grow from one length to another."""
        return [
            (number, position)
            for number, group in enumerate(self.groups)
            for position in range(group.blocks(before), group.blocks(after))
        ]

    def findable(self, extra_keys: ExtraKeys, values: Sequence[Hashable]) -> Findable:
        """For each group and each full block of a prompt, the blocks published as just that, those
        in use first."""
        idle, values = set(self.idle()), tuple(values)
        published: dict[Identity, list[int]] = {}
        for page in sorted(self.index, key=lambda page: (page in idle, page)):
            published.setdefault(self.index[page], []).append(page)
        return [
            [
                published.get((number, extra_keys, values[:end]), [])
                for end in range(group.block_size, len(values) + 1, group.block_size)
            ]
            for number, group in enumerate(self.groups)
        ]

    def candidates(self, found: Findable, length: int) -> dict[Place, list[int]]:
        """What the query at position `length`, an edge in all groups, sees: what may be hit for it."""
        return {
            (number, position): found[number][position]
            for number, group in enumerate(self.groups)
            for position in range(group.first_seen(length), length // group.block_size)
        }

    def hit_lengths(self, found: Findable, length: int) -> list[int]:
        """How many tokens of a prompt of this length may be hit, every possibility in rising order.

        Its last token is never hit: the logits are still to be computed.  A window of one token
        needs nothing for the next.
        """
        edges = range(0, length if self.caching else 1, self.hit_unit)
        return [edge for edge in edges if all(self.candidates(found, edge).values())]

    def check(self) -> None:
        """Recompute every invariant; BrokenInvariant names the block."""
        for invariant in INVARIANTS:
            for broken in invariant(self):
                raise BrokenInvariant(invariant.__name__, broken)

    # How it is done

    def _check_new(self, request: str) -> None:
        if request in self.tables or request in self.preempted:
            raise Rejected("duplicate request", request)

    def _check_live(self, request: str) -> None:
        if request not in self.tables:
            raise Rejected("unknown request", request)

    def _check_batch(self, requests: Sequence[str]) -> None:
        if not requests:
            raise Rejected("no requests", "")
        for request in requests:
            self._check_live(request)
        if len(set(requests)) < len(requests):
            raise Rejected("repeated request", ", ".join(requests))

    def _begin(self, request: str, tokens: Sequence[object], extra_keys: ExtraKeys) -> int:
        """Begin a request on what its prompt hits, and write the rest."""
        # check
        found = self.findable(extra_keys, list(map(self.value_of, tokens)))
        lengths = self.hit_lengths(found, len(tokens))
        lengths = lengths[-1:] if self.finds_longest else lengths
        self._check_room(
            len(tokens), [(length, self.candidates(found, length)) for length in lengths]
        )
        # take
        hit = self._choices.hit(request, lengths)
        hits = self._hits(request, self.candidates(found, hit))
        fresh = self._take(request, self.places(hit, len(tokens)), hits.values())
        # record
        self.tables[request] = [[NULL_BLOCK] * group.first_seen(hit) for group in self.groups]
        self.contents[request] = Content(extra_keys, list(tokens[:hit]))
        self._extend(request, hits | fresh)
        self._write(request, tokens[hit:])
        self._slide([request])
        # result
        return hit

    def _grow(self, request: str, tokens: Sequence[object]) -> None:
        # check
        before = self.length(request)
        self._check_room(before + len(tokens), [(before, {})])
        # take
        fresh = self._take(request, self.places(before, before + len(tokens)))
        # record
        self._extend(request, fresh)
        self._write(request, tokens)

    def _check_room(self, length: int, hits: Sequence[tuple[int, dict[Place, list[int]]]]) -> None:
        """One of the possible hits must leave room for the rest: what is hit cannot be taken too."""
        idle, free = set(self.idle()), len(self.takeable())
        surely, at_best = [], []
        for hit, candidates in hits:
            need = len(self.places(hit, length))
            lost_at_least = sum(1 for pages in candidates.values() if idle.issuperset(pages))
            lost_at_most = sum(1 for pages in candidates.values() if idle.intersection(pages))
            at_best.append(need <= free - lost_at_least)
            surely.append(need <= free - lost_at_most)
            self.demand = (need, free - lost_at_least)
        if not any(at_best):
            need, room = self.demand
            raise MemoryError(f"{need} blocks needed in all groups, {room} free for them")
        self.may_refuse = not all(surely)

    def _hits(self, request: str, candidates: dict[Place, list[int]]) -> dict[Place, int]:
        """The blocks hit for places, each published as what belongs there."""
        pages = self._choices.hit_blocks(request, candidates) if candidates else []
        for (group, position), page in zip(candidates, pages, strict=True):
            if page not in candidates[group, position]:
                said = f"{describe(self, page)} was hit for {request!r} at position {position}"
                raise WrongChoice(f"{said} of group {group} and does not hold its prefix", page)
        return dict(zip(candidates, pages, strict=True))

    def _take(
        self, request: str, places: list[Place], kept: Collection[int] = ()
    ) -> dict[Place, int]:
        """Blocks for places, none of them among those that are `kept`."""
        takeable = [page for page in self.takeable() if page not in kept]
        taken = list(self._choices.fresh_blocks(request, places, takeable)) if places else []
        if len(taken) != len(places):
            raise WrongChoice(f"{len(places)} blocks were needed and {len(taken)} taken")
        for index, page in enumerate(taken):
            if page in taken[:index]:
                raise WrongChoice(f"block {page} was taken twice in one call", page)
            if page in kept:
                said = (
                    f"{describe(self, page)} was taken for {request!r}, which hits it in this call"
                )
                raise WrongChoice(said, page)
            if page not in takeable:
                said = f"{describe(self, page)} was taken for {request!r} but is not free"
                raise WrongChoice(said, page)
        for page in taken:
            self._claim(page)
        return dict(zip(places, taken, strict=True))

    def _claim(self, page: int) -> None:
        if self.index.pop(page, None) is None:
            self.free.remove(page)
        self.pages[page] = Page()
        self.taken[page] += 1

    def _extend(self, request: str, blocks: dict[Place, int]) -> None:
        for (group, _), page in blocks.items():
            self.pages[page].owners.add(request)
            self.tables[request][group].append(page)

    def _write(self, request: str, tokens: Sequence[object]) -> None:
        """Write tokens into the room of a request, and publish the blocks that they fill."""
        content, first = self.contents[request], self.length(request)
        content.tokens += tokens
        values = tuple(map(self.value_of, content.tokens))
        for number, ((size, _), table) in enumerate(
            zip(self.groups, self.tables[request], strict=True)
        ):
            for position, token in enumerate(tokens, start=first):
                self.pages[table[position // size]].tokens.append(token)
            for filled in range(first // size, len(values) // size) if self.caching else ():
                identity = (number, content.extra_keys, values[: (filled + 1) * size])
                self.index[table[filled]] = identity
        self.written.append((request, first, tuple(tokens)))

    def _slide(self, requests: Sequence[str]) -> None:
        """Give back what the next queries of requests do not see."""
        for request in requests:
            length = self.length(request)
            for group, table in zip(self.groups, self.tables[request], strict=True):
                first = group.first_seen(length)
                left, table[:first] = table[:first], [NULL_BLOCK] * first
                self._drop(request, left)

    def _drop(self, request: str, pages: Sequence[int]) -> None:
        """End the ownership of pages; those that nothing holds then are free."""
        for page in pages:
            if page == NULL_BLOCK:
                continue
            self.pages[page].owners.remove(request)
            if not self.pages[page].owners and page not in self.index:
                del self.pages[page]
                self.free.append(page)
