"""Lookup and use as separate operations: what was found is held until it is used or cancelled."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kvoracle.reference.prefix_cache import PrefixCachedKV
from kvoracle.reference.records import ExtraKeys, Hits, Hold, Life, Rejected, extra_keys_of


@dataclass
class LookUp:
    """A prompt, and the published pages that its prefix was found on."""

    tokens: tuple[object, ...]
    extra_keys: ExtraKeys
    pages: list[int]


class LookUpKV(PrefixCachedKV):
    """A `PrefixCachedKV` in which anything may happen between a lookup and its use."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.lookups: dict[str, LookUp] = {}

    def look_up(
        self, request: str, *tokens: object, extra_keys: dict[str, str] | None = None
    ) -> int:
        """Hold the longest published prefix of a prompt, in whole pages; the result is its number of
        tokens."""
        # check
        self._check_new(request)
        if not tokens:
            raise Rejected("no tokens", request)
        self._check_length(request, len(tokens))
        # take
        keys = extra_keys_of(extra_keys or {})
        hits = Hits(self.hits_of(keys, self.values_of(tokens)).whole)
        self._check_capacity(0, None)
        pages = self._take_hits(request, hits)
        # record
        self.lookups[request] = LookUp(tokens, keys, pages)
        for page in pages:
            self.pages[page].holds.add(("lookup", request))
        self._count_hits(hits, tokens)
        # result
        return len(pages) * self.block_size

    def use(self, request: str) -> int:
        """Begin the request that was looked up on what it holds, and write the rest; the result is
        the number of tokens that it began on."""
        # check
        found = self._lookup(request)
        positions = list(range(len(found.pages), -(-len(found.tokens) // self.block_size)))
        self._check_admission(Hits(), len(positions))
        # take
        fresh = self._take(request, positions)
        # record
        hit = len(found.pages) * self.block_size
        table = self._end_lookup(request)
        self._begin(request, table, Life(found.extra_keys, self.epoch))
        self._extend(table, request, fresh)
        self.lives[request].reserved = len(found.tokens) - hit
        self._write(request, found.tokens[hit:])
        # result
        return hit

    def cancel(self, request: str) -> None:
        """Forget a lookup and let its pages go."""
        # check
        self._lookup(request)
        # record
        self._give_back(self._end_lookup(request))

    def change_weights(self) -> None:
        """As in `PrefixCachedKV`; what was found with the old weights must not be used."""
        # check
        if self.lookups:
            raise Rejected("lookup outstanding", ", ".join(self.lookups))
        # record
        super().change_weights()

    def holds(self) -> Iterator[tuple[Hold, Sequence[int]]]:
        yield from super().holds()
        for request, found in self.lookups.items():
            yield ("lookup", request), found.pages

    def _lookup(self, request: str) -> LookUp:
        if request not in self.lookups:
            raise Rejected("unknown lookup", request)
        return self.lookups[request]

    def _end_lookup(self, request: str) -> list[int]:
        pages = list(self.lookups.pop(request).pages)
        for page in pages:
            self.pages[page].holds.remove(("lookup", request))
        return pages

    def _check_new(self, request: str) -> None:
        super()._check_new(request)
        if request in self.lookups:
            raise Rejected("duplicate request", request)
