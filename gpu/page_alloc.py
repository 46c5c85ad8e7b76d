"""Page allocation: the slots of new tokens of many requests, from a free list on the device.

The token at a position of a request goes

    to the slot behind the request's last one    while its last page is partly filled,
    into the next page of the free list          else: whole new pages, then a partial one,

and requests take pages from the free list one after the other.  As in SGLang's token pool; a slot is
`page * page_size + offset`.  Where the free list has too few pages a token gets NO_SLOT, and a request
that shrinks takes and gives back nothing.
"""

from __future__ import annotations

import torch

from kvoracle.gpu.checks import (
    ID_LIMIT,
    check_contiguous,
    check_tensor,
    check_values,
    check_whole,
    looks_at_values,
)
from kvoracle.gpu.kernel import Kernel, add, ceil_div, power_of_two, tl

NO_SLOT = -1

TILE = 512
REQUESTS = 128
"""Tokens, and requests, of a tile."""


@Kernel
def _alloc_extend(
    before: tl.pointer_type,
    after: tl.pointer_type,
    last: tl.pointer_type,
    free: tl.pointer_type,
    pages: tl.tensor,
    slots: tl.pointer_type,
    capacity: tl.tensor,
    page_size: tl.constexpr,
    tile: tl.constexpr,
    requests: tl.constexpr,
) -> None:
    request = tl.program_id(0)
    first_slot = tl.full([], 0, tl.int64)
    first_page = tl.full([], 0, tl.int64)
    for start in range(0, request, requests):
        earlier = start + tl.arange(0, requests)
        old = tl.load(before + earlier, mask=earlier < request, other=0)
        new = tl.maximum(tl.load(after + earlier, mask=earlier < request, other=0), old)
        taken = (new + page_size - 1) // page_size - (old + page_size - 1) // page_size
        first_slot += tl.reduce(new - old, 0, add)
        first_page += tl.reduce(taken, 0, add)
    old = tl.load(before + request)
    new = tl.load(after + request)
    slot_before = tl.load(last + request)
    old_pages = (old + page_size - 1) // page_size
    for start in range(0, tl.minimum(new - old, capacity), tile):
        number = start + tl.arange(0, tile)
        position = old + number
        column = position // page_size - old_pages
        page_number = first_page + column
        takes = (position < new) & (column >= 0) & (page_number >= 0) & (page_number < pages)
        page = tl.load(free + page_number, mask=takes, other=0)
        fresh = tl.where(takes, page * page_size + position % page_size, -1)
        slot = tl.where(column < 0, slot_before + 1 + number, fresh)
        place = first_slot + number
        is_place = (place >= 0) & (place < capacity)
        tl.store(slots + place, slot, mask=(position < new) & is_place)


@Kernel
def _alloc_decode(
    lengths: tl.pointer_type,
    last: tl.pointer_type,
    free: tl.pointer_type,
    pages: tl.tensor,
    slots: tl.pointer_type,
    count: tl.tensor,
    page_size: tl.constexpr,
    requests: tl.constexpr,
) -> None:
    start = tl.program_id(0) * requests
    first_page = tl.full([], 0, tl.int64)
    for earlier in range(0, start, requests):
        length = tl.load(lengths + earlier + tl.arange(0, requests))
        first_page += tl.reduce((length % page_size == 0).to(tl.int32), 0, add)
    request = start + tl.arange(0, requests)
    is_request = request < count
    length = tl.load(lengths + request, mask=is_request, other=1)
    is_full = (length % page_size == 0) & is_request
    ahead = tl.associative_scan(is_full.to(tl.int32), 0, add)
    number = first_page + ahead - 1
    takes = is_full & (number < pages)
    page = tl.load(free + number, mask=takes, other=0)
    fresh = tl.where(takes, page * page_size, -1)
    slot_before = tl.load(last + request, mask=is_request, other=0)
    tl.store(slots + request, tl.where(is_full, fresh, slot_before + 1), mask=is_request)


def alloc_extend(
    before: torch.Tensor,
    after: torch.Tensor,
    last: torch.Tensor,
    free_pages: torch.Tensor,
    slots: torch.Tensor,
    page_size: int,
) -> None:
    """Fill `slots` with those of the tokens before .. after - 1 of each request in turn.

    before, after  int64 [requests]: tokens of each request
    last           int64 [requests]: the slot of the last token, used where it leaves a partial page
    free_pages     int64 [pages]: taken from the front
    slots          int64 [tokens]: sum(after - before) of them
    """
    _check(before, last, free_pages, slots, page_size)
    _check_extension(before, after, free_pages, slots, page_size)
    _alloc_extend.launch(
        len(before),
        *(before, after, last, free_pages, len(free_pages), slots, len(slots)),
        page_size=page_size,
        tile=power_of_two(len(slots), TILE),
        requests=power_of_two(len(before), REQUESTS),
    )


def alloc_extend_torch(
    before: torch.Tensor,
    after: torch.Tensor,
    last: torch.Tensor,
    free_pages: torch.Tensor,
    slots: torch.Tensor,
    page_size: int,
) -> None:
    """As `alloc_extend`, in torch alone."""
    _check(before, last, free_pages, slots, page_size)
    _check_extension(before, after, free_pages, slots, page_size)
    after = torch.maximum(before, after)
    grown = (after - before).clamp(0, len(slots))
    old_pages = (before + page_size - 1) // page_size
    taken = (after + page_size - 1) // page_size - old_pages
    owner = torch.repeat_interleave(torch.arange(len(before), device=slots.device), grown)
    number = torch.arange(len(owner), device=slots.device) - (grown.cumsum(0) - grown)[owner]
    position = before[owner] + number
    column = position // page_size - old_pages[owner]
    page_number = (taken.cumsum(0) - taken)[owner] + column
    fresh = _slots_in(free_pages, page_number, page_size, position % page_size)
    found = torch.where(column < 0, last[owner] + 1 + number, fresh)[: len(slots)]
    slots[: len(found)] = found


def alloc_decode(
    lengths: torch.Tensor,
    last: torch.Tensor,
    free_pages: torch.Tensor,
    slots: torch.Tensor,
    page_size: int,
) -> None:
    """Fill `slots` with that of the next token of each request.

    lengths     int64 [requests]: tokens of each request before it
    last        int64 [requests]: the slot of the last token, used where it leaves a partial page
    free_pages  int64 [pages]: taken from the front
    slots       int64 [requests]
    """
    _check(lengths, last, free_pages, slots, page_size)
    _check_decode(lengths, free_pages, slots, page_size)
    requests = power_of_two(len(lengths), REQUESTS)
    _alloc_decode.launch(
        ceil_div(len(lengths), requests),
        *(lengths, last, free_pages, len(free_pages), slots, len(lengths)),
        page_size=page_size,
        requests=requests,
    )


def alloc_decode_torch(
    lengths: torch.Tensor,
    last: torch.Tensor,
    free_pages: torch.Tensor,
    slots: torch.Tensor,
    page_size: int,
) -> None:
    """As `alloc_decode`, in torch alone."""
    _check(lengths, last, free_pages, slots, page_size)
    _check_decode(lengths, free_pages, slots, page_size)
    is_full = lengths % page_size == 0
    fresh = _slots_in(free_pages, is_full.cumsum(0) - 1, page_size, torch.zeros_like(lengths))
    slots.copy_(torch.where(is_full, fresh, last + 1))


def _slots_in(
    free_pages: torch.Tensor, number: torch.Tensor, page_size: int, offset: torch.Tensor
) -> torch.Tensor:
    """The slots at offsets of the pages of these numbers; NO_SLOT where the free list has no such."""
    padded = torch.cat([free_pages, free_pages.new_zeros(1)])
    has_page = (number >= 0) & (number < len(free_pages))
    page = padded[torch.where(has_page, number, len(free_pages))]
    return torch.where(has_page, page * page_size + offset, NO_SLOT)


def _check(
    lengths: torch.Tensor,
    last: torch.Tensor,
    free_pages: torch.Tensor,
    slots: torch.Tensor,
    page_size: int,
) -> None:
    check_whole("the page size", page_size, 1)
    check_whole("the number of requests", len(lengths), 0, ID_LIMIT // 2 - 1)
    check_tensor("lengths", lengths, torch.int64, (None,))
    check_tensor("last slots", last, torch.int64, lengths.shape, lengths.device)
    check_tensor("free pages", free_pages, torch.int64, (None,), lengths.device)
    check_tensor("slots", slots, torch.int64, (None,), lengths.device)
    for name, tensor in (
        ("lengths", lengths),
        ("last slots", last),
        ("free pages", free_pages),
        ("slots", slots),
    ):
        check_contiguous(name, tensor)
    check_values("lengths", lengths, 0, ID_LIMIT - 1)
    check_values("free pages", free_pages, 0, ID_LIMIT - 1)


def _check_extension(
    before: torch.Tensor,
    after: torch.Tensor,
    free_pages: torch.Tensor,
    slots: torch.Tensor,
    page_size: int,
) -> None:
    check_tensor("lengths after", after, torch.int64, before.shape, before.device)
    check_contiguous("lengths after", after)
    check_values("lengths after", after, 0, ID_LIMIT - 1)
    if looks_at_values(before):
        grown = after - before
        check_values("the growths", grown, 0, ID_LIMIT - 1)
        check_whole("slots to fill", len(slots), int(grown.sum()), int(grown.sum()))
        taken = (after + page_size - 1) // page_size - (before + page_size - 1) // page_size
        check_whole("free pages", len(free_pages), int(taken.sum()))


def _check_decode(
    lengths: torch.Tensor, free_pages: torch.Tensor, slots: torch.Tensor, page_size: int
) -> None:
    check_whole("slots to fill", len(slots), len(lengths), len(lengths))
    if looks_at_values(lengths):
        check_whole("free pages", len(free_pages), int((lengths % page_size == 0).sum()))
