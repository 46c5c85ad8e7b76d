"""One representative for all states that differ only in the names of blocks, requests and transfers.

Names are put in an order that does not depend on them: by what each request and transfer looks like,
and where several look alike, by whichever order gives the smallest description.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from kvoracle.reference import Oracle

Key = tuple[Any, ...]


class Canonical(NamedTuple):
    """A state without names, and the names in the order in which it speaks of them."""

    key: Key
    requests: tuple[str, ...]
    transfers: tuple[str, ...]
    steps: tuple[str, ...]


def canonical(kv: Oracle, caches: bool) -> Canonical:
    """The smallest description of a state over all namings; contents are told only if it caches."""
    requests = _tied(_request_names(kv), lambda name: _looks(kv, name, caches))
    transfers = _tied(list(kv.transfers), lambda name: _transfer_looks(kv, name))
    named = (
        Canonical(_describe(kv, r, t, caches), r, t, tuple(kv.steps))
        for r, t in itertools.product(_orders(requests), _orders(transfers))
    )
    return min(named, key=lambda one: one.key)


def plain(kv: Oracle, caches: bool) -> Canonical:
    """A state with its names and block ids as they are, to cross-check the reduction."""
    requests, transfers = tuple(sorted(_request_names(kv))), tuple(sorted(kv.transfers))
    blocks = {page: page for page in kv.usable}
    key = (requests, transfers, *_describe(kv, requests, transfers, caches, blocks))
    return Canonical(key, requests, transfers, tuple(kv.steps))


def _request_names(kv: Oracle) -> list[str]:
    return [*kv.tables, *kv.lookups, *kv.preempted]


def _tied(names: list[str], looks: Callable[[str], Key]) -> list[list[str]]:
    """The names in groups that look alike, the groups in order."""
    by_looks = sorted((looks(name), name) for name in names)
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
    caches: bool,
    blocks: dict[int, int] | None = None,
) -> Key:
    """A state in words of its own: blocks are numbered as they are first spoken of."""
    number = {} if blocks is None else blocks

    def numbered(pages: Sequence[int]) -> tuple[int, ...]:
        return tuple([number.setdefault(page, len(number)) for page in pages])

    told = [(*_looks(kv, name, caches), numbered(_pages(kv, name))) for name in requests]
    sent = [
        (*_transfer_looks(kv, name)[:2], numbered(kv.transfers[name].pages)) for name in transfers
    ]
    steps = [_step(kv, step.writes, requests, numbered(step.pages)) for step in kv.steps.values()]
    free = len(kv.free)
    if not caches:
        return (tuple(told), tuple(sent), tuple(steps), free)
    idle = numbered(kv.idle())
    index = tuple(sorted((number[page], *identity) for page, identity in kv.index.items()))
    withdrawn = tuple(sorted(number[page] for page in kv.withdrawn))
    return (tuple(told), tuple(sent), tuple(steps), free, idle, index, withdrawn)


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
