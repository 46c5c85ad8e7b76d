"""One representative for all states that differ only in the names of blocks, requests and transfers.

Names are put in an order that does not depend on them: by what each request and transfer looks like,
and where several look alike, by whichever order gives the smallest description.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from kvoracle.reference import Oracle
from kvoracle.reference.records import Transfer

Key = tuple[Any, ...]


class Canonical(NamedTuple):
    """A state without names, and the names in the order in which it speaks of them."""

    key: Key
    requests: tuple[str, ...]
    transfers: tuple[str, ...]
    steps: tuple[str, ...]


Looks = dict[str, Key]
"""What each request or transfer looks like without the names of blocks."""


def canonical(kv: Oracle, caches: bool) -> Canonical:
    """The smallest description of a state over all namings; contents are told only if it caches."""
    requests, transfers = _all_looks(kv, caches)
    steps = tuple(kv.steps)
    named = [
        Canonical(_describe(kv, r, t, requests, caches, {}), r, t, steps)
        for r in _orders(_tied(requests))
        for t in _orders(_tied(transfers))
    ]
    return named[0] if len(named) == 1 else min(named, key=lambda one: one.key)


def plain(kv: Oracle, caches: bool) -> Canonical:
    """A state with its names and block ids as they are, to cross-check the reduction."""
    looks, _ = _all_looks(kv, caches)
    requests, transfers = tuple(sorted(looks)), tuple(sorted(kv.transfers))
    blocks = {page: page for page in kv.usable}
    key = (requests, transfers, *_describe(kv, requests, transfers, looks, caches, blocks))
    return Canonical(key, requests, transfers, tuple(kv.steps))


def _all_looks(kv: Oracle, caches: bool) -> tuple[Looks, Looks]:
    requests = {name: _looks(kv, name, caches) for name in _request_names(kv)}
    return requests, {name: _transfer_looks(kv, name) for name in kv.transfers}


def _request_names(kv: Oracle) -> list[str]:
    return [*kv.tables, *kv.lookups, *kv.preempted]


def _tied(looks: Looks) -> list[list[str]]:
    """The names in groups that look alike, the groups in order."""
    if len(looks) < 2:
        return [[name] for name in looks]
    by_looks = sorted((look, name) for name, look in looks.items())
    return [
        [name for _, name in group] for _, group in itertools.groupby(by_looks, lambda one: one[0])
    ]


def _orders(groups: Sequence[Sequence[str]]) -> Iterator[tuple[str, ...]]:
    if all(len(group) == 1 for group in groups):
        yield tuple(name for (name,) in groups)
        return
    for orders in itertools.product(*(itertools.permutations(group) for group in groups)):
        yield tuple(itertools.chain.from_iterable(orders))


def _looks(kv: Oracle, name: str, caches: bool) -> Key:
    """What a request looks like without the names of its blocks."""
    if name in kv.lookups:
        found = kv.lookups[name]
        return (1, len(found.pages), kv.values_of(found.tokens))
    if name in kv.preempted:
        return (2, len(kv.preempted[name][0]), kv.values_of(kv.preempted[name][0]))
    life = kv.lives[name]
    pages = [kv.pages[page] for page in kv.tables[name]]
    shape = tuple((len(p.tokens), len(p.owners), len(p.pins), len(p.holds)) for p in pages)
    contents = kv.values_of(kv.read(name)) if caches else ()
    return (0, shape, life.reserved, life.in_flight, life.epoch == kv.epoch, contents)


def _transfer_looks(kv: Oracle, name: str) -> Key:
    transfer = kv.transfers[name]
    pages = [kv.pages[page] for page in transfer.pages]
    shape = tuple((len(p.owners), len(p.pins)) for p in pages)
    return (len(transfer.awaited), tuple(sorted(transfer.acknowledged)), shape)


def _describe(
    kv: Oracle,
    requests: tuple[str, ...],
    transfers: tuple[str, ...],
    looks: Looks,
    caches: bool,
    number: dict[int, int],
) -> Key:
    """A state in words of its own: blocks are numbered as they are first spoken of."""

    def numbered(pages: Sequence[int]) -> tuple[int, ...]:
        return tuple([number.setdefault(page, len(number)) for page in pages])

    told = tuple([(looks[name], numbered(_pages(kv, name))) for name in requests])
    sent = tuple([_sent(kv.transfers[name], numbered) for name in transfers])
    steps = tuple(
        [_step(kv, step.writes, requests, numbered(step.pages)) for step in kv.steps.values()]
    )
    free = len(kv.free)
    if not caches:
        return (told, sent, steps, free)
    idle = numbered(kv.idle())
    index = tuple(sorted((number[page], *identity) for page, identity in kv.index.items()))
    withdrawn = tuple(sorted(number[page] for page in kv.withdrawn))
    return (told, sent, steps, free, idle, index, withdrawn)


def _sent(one: Transfer, numbered: Callable[[Sequence[int]], tuple[int, ...]]) -> Key:
    return (len(one.awaited), tuple(sorted(one.acknowledged)), numbered(one.pages))


def _pages(kv: Oracle, name: str) -> Sequence[int]:
    if name in kv.tables:
        return kv.tables[name]
    return kv.lookups[name].pages if name in kv.lookups else ()


def _step(kv: Oracle, writes: Any, requests: tuple[str, ...], pages: Key) -> Key:
    """Which requests, in the order of their names, a step will still write to; and its blocks."""
    living = sorted(
        requests.index(request) for request, life, _ in writes if kv.lives.get(request) is life
    )
    return (len(writes), tuple(living), pages)
