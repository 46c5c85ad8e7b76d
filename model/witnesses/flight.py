"""Witnesses of what takes time: reservations, steps in flight, acknowledged transfers, leases."""

from collections.abc import Iterator

from kvoracle.model.operations import (
    Acknowledge,
    Append,
    BeginStep,
    Commit,
    EndStep,
    FailStep,
    Fork,
    Pin,
    Preempt,
    Receive,
    Release,
    Reserve,
    Send,
    Tick,
    Trim,
)
from kvoracle.model.witnesses.base import Looks, Needs, fates
from kvoracle.model.witnesses.prefix import found_of
from kvoracle.reference import Oracle
from kvoracle.reference.records import extra_keys_of

WITNESSES: Needs = {
    "reserve takes a block before its tokens": frozenset({Reserve}),
    "reserve copies a tail": frozenset({Append, Fork, Reserve}),
    "commit fills a part of the reserved room": frozenset({Reserve, Commit}),
    "trim gives blocks back": frozenset({Reserve, Trim}),
    "begin_step finds another step in flight": frozenset({BeginStep}),
    "begin_step grows a request that is in flight": frozenset({BeginStep}),
    "begin_step copies a tail": frozenset({Append, Fork, BeginStep}),
    "begin_step grows some and refuses others": frozenset({BeginStep}),
    "release while a step is in flight": frozenset({BeginStep, Release}),
    "preempt while a step is in flight": frozenset({BeginStep, Preempt}),
    "end_step finds a request gone": frozenset({BeginStep, EndStep, Release}),
    "end_step frees a block": frozenset({BeginStep, EndStep, Release}),
    "fail_step fails a later step too": frozenset({BeginStep, FailStep}),
    "send pins what another transfer pins": frozenset({Pin, Send}),
    "receive finds a part of its prompt": frozenset({Receive}),
    "acknowledge leaves other workers awaited": frozenset({Send, Acknowledge}),
    "acknowledge ends a transfer whose request is gone": frozenset({Send, Acknowledge, Release}),
    "a load arrives": frozenset({Receive, Acknowledge}),
    "a load arrives for a request that is gone": frozenset({Receive, Acknowledge, Release}),
    "a stale acknowledgement is refused": frozenset({Send, Acknowledge}),
    "a second acknowledgement of a worker is refused": frozenset({Send, Acknowledge}),
    "a lease runs out": frozenset({Send, Tick}),
    "a load is lost": frozenset({Receive, Tick}),
}

REJECTIONS = {
    "a stale acknowledgement is refused": "stale handle",
    "a second acknowledgement of a worker is refused": "already acknowledged",
}

PARTIAL_BLOCKS = frozenset({"reserve copies a tail", "begin_step copies a tail"})


def _reserve(kv: Oracle, operation: Reserve) -> Iterator[str]:
    life = kv.lives[operation.request]
    if life.waiting or life.in_flight or operation.count < 1:
        return
    copied = kv.tail_to_copy(operation.request) is not None
    after = -(-(kv.length(operation.request) + operation.count) // kv.block_size)
    fresh = after - len(kv.tables[operation.request])
    if max(fresh, 0) + copied > len(kv.takeable()):
        return
    if fresh > 0:
        yield "reserve takes a block before its tokens"
    if copied:
        yield "reserve copies a tail"


def _commit(kv: Oracle, operation: Commit) -> Iterator[str]:
    life = kv.lives[operation.request]
    if not life.in_flight and 0 < len(operation.tokens) < life.reserved:
        yield "commit fills a part of the reserved room"


def _trim(kv: Oracle, operation: Trim) -> Iterator[str]:
    life, length = kv.lives[operation.request], kv.length(operation.request)
    needed = -(-length // kv.block_size)
    if not (life.waiting or life.in_flight) and len(kv.tables[operation.request]) > needed:
        yield "trim gives blocks back"


def _begin_step(kv: Oracle, operation: BeginStep) -> Iterator[str]:
    lives = [kv.lives[request] for request in operation.requests]
    if any(life.waiting for life in lives) or operation.step in kv.steps or len(kv.steps) == 3:
        return
    if kv.steps:
        yield "begin_step finds another step in flight"
    told = fates(kv, operation.requests)
    if any(life.in_flight and fate.is_granted for life, fate in zip(lives, told, strict=True)):
        yield "begin_step grows a request that is in flight"
    if any(fate.copied is not None for fate in told):
        yield "begin_step copies a tail"
    if len({fate.is_granted for fate in told}) == 2:
        yield "begin_step grows some and refuses others"


def _release(kv: Oracle, operation: Release) -> Iterator[str]:
    life = kv.lives.get(operation.request)
    if life is not None and life.in_flight:
        yield "release while a step is in flight"


def _preempt(kv: Oracle, operation: Preempt) -> Iterator[str]:
    life = kv.lives[operation.request]
    if life.in_flight and kv.length(operation.request):
        yield "preempt while a step is in flight"


def _end_step(kv: Oracle, operation: EndStep) -> Iterator[str]:
    if operation.step != next(iter(kv.steps), None):
        return
    step = kv.steps[operation.step]
    if any(kv.lives.get(request) is not life for request, life, _ in step.writes):
        yield "end_step finds a request gone"
    pages = [(page, kv.pages[page]) for page in step.pages]
    if any(
        len(page.holds) == 1 and not (page.owners or page.pins) and number not in kv.index
        for number, page in pages
    ):
        yield "end_step frees a block"


def _fail_step(kv: Oracle, operation: FailStep) -> Iterator[str]:
    if operation.step in kv.steps and operation.step != list(kv.steps)[-1]:
        yield "fail_step fails a later step too"


def _send(kv: Oracle, operation: Send) -> Iterator[str]:
    life = kv.lives[operation.request]
    is_settled = not (life.waiting or life.in_flight or life.reserved)
    pinned = any(kv.pages[page].pins for page in kv.tables[operation.request])
    if is_settled and pinned and operation.transfer not in kv.transfers:
        yield "send pins what another transfer pins"


def _receive(kv: Oracle, operation: Receive) -> Iterator[str]:
    found = found_of(kv, extra_keys_of(operation.extra_keys), operation.prompt)
    if found.has_room and found.hits.tokens:
        yield "receive finds a part of its prompt"


def _acknowledge(kv: Oracle, operation: Acknowledge) -> Iterator[str]:
    if operation.life and kv.begun.get(operation.transfer, 0) > 1:
        yield "a stale acknowledgement is refused"
    transfer = kv.transfers.get(operation.transfer)
    if transfer is None or operation.life or operation.worker not in transfer.awaited:
        return
    if operation.worker in transfer.acknowledged:
        yield "a second acknowledgement of a worker is refused"
    elif len(transfer.awaited - transfer.acknowledged) > 1:
        yield "acknowledge leaves other workers awaited"
    elif transfer.load is None:
        if not any(kv.pages[page].owners for page in transfer.pages):
            yield "acknowledge ends a transfer whose request is gone"
    elif kv.lives.get(transfer.load.request) is transfer.load.life:
        yield "a load arrives"
    else:
        yield "a load arrives for a request that is gone"


def _tick(kv: Oracle, _: Tick) -> Iterator[str]:
    for transfer in kv.transfers.values():
        if transfer.deadline == kv.time + 1:
            yield "a lease runs out" if transfer.load is None else "a load is lost"


LOOKS: Looks = {
    Reserve: _reserve,
    Commit: _commit,
    Trim: _trim,
    BeginStep: _begin_step,
    Release: _release,
    Preempt: _preempt,
    EndStep: _end_step,
    FailStep: _fail_step,
    Send: _send,
    Receive: _receive,
    Acknowledge: _acknowledge,
    Tick: _tick,
}
