"""Ties the relations to the reference: what each sees of a state, in the same words."""

from typing import Any

from kvoracle.model.proof.finite import Domains
from kvoracle.model.proof.pool import Pool
from kvoracle.model.proof.state import State
from kvoracle.model.trace import Trace
from kvoracle.reference import Oracle

Seen = dict[str, Any]


def domains_of(trace: Trace) -> Domains:
    """Every name and number that a trace can speak of."""
    config = trace.config
    names: dict[str, set[str]] = {"request": set(), "transfer": set(), "step": set()}
    for operation in trace.operations:
        for field, value in zip(operation.__struct_fields__, operation.arguments(), strict=True):
            kind = {"parent": "request", "child": "request", "requests": "request"}.get(
                field, field
            )
            if kind in names:
                names[kind].update(value if isinstance(value, tuple) else (value,))
    begun = sum(hasattr(operation, "transfer") for operation in trace.operations)
    return {
        **{kind: sorted(of_kind) for kind, of_kind in names.items()},
        "block": range(config.blocks),
        "index": range(config.blocks + 1),
        "offset": range(config.block_size),
        "worker": range(4),
        "generation": range(begun + 2),
    }


def seen_in_pool(pool: Pool) -> Seen:
    """What the relations say of a state."""
    s, domains = pool.state, pool.domains
    live = [request for request in domains["request"] if s.live(request)]
    blocks = domains["block"]
    return {
        "tables": {r: [s.table(r, i) for i in range(s.count(r))] for r in live},
        "read": {r: list(pool.read(r)) for r in live},
        "appended": {r: _appended(s, r) for r in live},
        "promised": {r: _ahead(s, r, s.promised(r)) for r in live},
        "reserved": {r: _ahead(s, r, s.room(r)) for r in live},
        "free": [b for b in blocks if s.free(b)],
        "owners": {b: {r for r in live if s.owns(r, b)} for b in blocks if not s.free(b)},
        "pins": {
            b: {t for t in domains["transfer"] if s.pinned(t, b)} for b in blocks if not s.free(b)
        },
        "holds": {
            b: {step for step in domains["step"] if s.holds(step, b)}
            for b in blocks
            if not s.free(b)
        },
        "contents": {
            b: [s.stored(b, o) for o in range(s.fill(b))] for b in blocks if not s.free(b)
        },
        "index": {b: _entry(s, b) for b in blocks if s.published(b)},
        "transfers": {
            t: {
                b: [s.snapshot(t, b, o) for o in range(s.snapshot_fill(t, b))]
                for b in blocks
                if s.record(t, b)
            }
            for t in domains["transfer"]
            if s.outstanding(t)
        },
        "steps": {step for step in domains["step"] if s.flying(step)},
    }


def seen_in_reference(kv: Oracle, appended: dict[str, list[int]]) -> Seen:
    """What the reference says of a state; the list oracle knows what was appended."""
    pages = sorted(kv.pages.items())
    return {
        "tables": {r: list(table) for r, table in kv.tables.items()},
        "read": {r: kv.read(r) for r in kv.tables},
        "appended": appended,
        "promised": {r: life.in_flight for r, life in kv.lives.items()},
        "reserved": {r: life.reserved for r, life in kv.lives.items()},
        "free": sorted(kv.free),
        "owners": {b: page.owners for b, page in pages},
        "pins": {b: page.pins for b, page in pages},
        "holds": {b: {step for _, step in page.holds} for b, page in pages},
        "contents": {b: page.tokens for b, page in pages},
        "index": dict(kv.index),
        "transfers": {
            t: dict(zip(transfer.pages, transfer.contents, strict=True))
            for t, transfer in kv.transfers.items()
        },
        "steps": set(kv.steps),
    }


def _appended(s: State, request: str) -> list[int]:
    size, end = s.size(), s.length(request)
    written = end.index * size + end.offset
    return [s.appended(request, place // size, place % size) for place in range(written)]


def _ahead(s: State, request: str, end: Any) -> int:
    length = s.length(request)
    ahead: int = (end.index - length.index) * s.size() + end.offset - length.offset
    return ahead


def _entry(s: State, block: int) -> tuple[Any, tuple[int, ...]]:
    places = [(index, offset) for index in range(s.depth(block) + 1) for offset in range(s.size())]
    return s.entry_key(block), tuple(s.entry(block, *place) for place in places)
