"""The rules of `GroupedKV`, each one named and recomputed from scratch.

An invariant yields one sentence for each place where it is broken, naming the block and its holders.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kvoracle.reference.group_records import NULL_BLOCK

if TYPE_CHECKING:
    from kvoracle.reference.groups import GroupedKV


def describe(kv: "GroupedKV", page: int) -> str:
    """A block and its holders in words."""
    if page not in kv.usable:
        return f"block {page} (outside the pool)"
    if page not in kv.pages:
        return f"block {page} (not allocated)"
    published = f"; published in group {kv.index[page][0]}" if page in kv.index else ""
    return f"block {page} (owners: {', '.join(sorted(kv.pages[page].owners)) or 'none'}{published})"


def every_block_is_in_one_place(kv: "GroupedKV") -> Iterator[str]:
    """Every block is free or allocated, never both; the null block is neither."""
    for page in sorted({*kv.usable, *kv.free, *kv.pages, *kv.index}):
        places = kv.free.count(page) + (page in kv.pages)
        if places != (page in kv.usable) or (page in kv.index and page not in kv.pages):
            yield f"{describe(kv, page)} is in {places} places"


def tables_and_owners_agree(kv: "GroupedKV") -> Iterator[str]:
    """A request owns a block exactly when one of its tables names it, once and in one group."""
    owners: dict[int, list[str]] = {page: [] for page in kv.pages}
    groups: dict[int, int] = {}
    for request, tables in kv.tables.items():
        for group, table in enumerate(tables):
            for page in table:
                if page != NULL_BLOCK:
                    owners.setdefault(page, []).append(request)
                    if groups.setdefault(page, group) != group:
                        yield f"{describe(kv, page)} is named by two groups"
    for page, expected in owners.items():
        if page not in kv.pages or sorted(kv.pages[page].owners) != sorted(expected):
            yield f"{describe(kv, page)} is named by {', '.join(sorted(expected)) or 'no table'}"


def allocated_blocks_are_held(kv: "GroupedKV") -> Iterator[str]:
    """What no request owns is published."""
    for page in kv.pages:
        if not kv.pages[page].owners and page not in kv.index:
            yield f"{describe(kv, page)} is allocated and nothing holds it"


def tables_name_what_is_seen(kv: "GroupedKV") -> Iterator[str]:
    """A table names blocks for all tokens, and is null exactly where no later query looks."""
    for request, tables in kv.tables.items():
        length = kv.length(request)
        for number, (group, table) in enumerate(zip(kv.groups, tables, strict=True)):
            first = group.first_seen(length)
            nulls = [position for position, page in enumerate(table) if page == NULL_BLOCK]
            if len(table) != group.blocks(length) or nulls != list(range(first)):
                said = f"the table of {request!r} in group {number} is {table}"
                yield f"{said}: {group.blocks(length)} blocks, {first} of them null, are right"


def blocks_hold_their_tokens(kv: "GroupedKV") -> Iterator[str]:
    """Each block in a table holds the tokens of its position."""
    for request, tables in kv.tables.items():
        values = [kv.value_of(token) for token in kv.contents[request].tokens]
        for (size, _), table in zip(kv.groups, tables, strict=True):
            for position, page in enumerate(table):
                right = values[position * size : (position + 1) * size]
                if page != NULL_BLOCK and list(map(kv.value_of, kv.pages[page].tokens)) != right:
                    yield f"{describe(kv, page)}, at position {position}, holds other tokens"


def published_blocks_hold_what_they_say(kv: "GroupedKV") -> Iterator[str]:
    """An entry names a full block and ends with what this holds."""
    for page, (number, _, values) in kv.index.items():
        size = kv.groups[number].block_size
        held = tuple(map(kv.value_of, kv.pages[page].tokens))
        if len(held) != size or len(values) % size or values[-size:] != held:
            yield f"{describe(kv, page)} is published as what it does not hold"


def full_blocks_are_published(kv: "GroupedKV") -> Iterator[str]:
    """Where prefixes are cached, each full block in a table has the entry of its position."""
    for request, content in kv.contents.items() if kv.caching else ():
        values = tuple(map(kv.value_of, content.tokens))
        for number, ((size, _), table) in enumerate(
            zip(kv.groups, kv.tables[request], strict=True)
        ):
            for position, page in enumerate(table[: len(values) // size]):
                right = (number, content.extra_keys, values[: (position + 1) * size])
                if page != NULL_BLOCK and kv.index.get(page) != right:
                    yield f"{describe(kv, page)}, full in the table of {request!r}, has no entry"


INVARIANTS: tuple[Callable[["GroupedKV"], Iterator[str]], ...] = (
    every_block_is_in_one_place,
    tables_and_owners_agree,
    allocated_blocks_are_held,
    tables_name_what_is_seen,
    blocks_hold_their_tokens,
    published_blocks_hold_what_they_say,
    full_blocks_are_published,
)
