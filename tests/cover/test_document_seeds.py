"""The document's own test: 25 fixed seeds of 200 operations, checked after every one."""

from pathlib import Path

import pytest

from kvoracle.model.check import unfit
from kvoracle.model.registry import resolve
from kvoracle.model.run import run
from kvoracle.model.seeds import DOCUMENT_SEEDS, document_trace
from kvoracle.model.trace import read, render
from kvoracle.reference import ListOracle, PagedKV, Rejected

SEEDS = Path(__file__).parents[2] / "seeds"
SEED_IDS = [f"seed-{seed:02}" for seed in DOCUMENT_SEEDS]


def perform_on_both(operation, kv, lists):
    """Whether the reference accepted the operation; the list oracle then carried it out too."""
    try:
        operation.perform(kv, operation.writes())
    except (MemoryError, Rejected):
        return False
    operation.perform(lists, operation.writes())
    return True


@pytest.mark.parametrize("seed", DOCUMENT_SEEDS, ids=SEED_IDS)
def test_every_sequence_and_every_pinned_page_after_every_operation(seed):
    trace = document_trace(seed)
    kv = PagedKV(trace.config.blocks, trace.config.block_size)
    lists = ListOracle()
    frozen = {}

    assert len(trace.operations) == 200
    for operation in trace.operations:
        perform_on_both(operation, kv, lists)
        for transfer, record in kv.transfers.items():
            contents = [list(kv.pages[page].tokens) for page in record.pages]
            assert frozen.setdefault(transfer, contents) == contents
        frozen = {transfer: frozen[transfer] for transfer in kv.transfers}
        kv.check()
        assert kv.tables.keys() == lists.sequences.keys()
        for request in kv.tables:
            assert kv.read(request) == lists.read(request)


@pytest.mark.parametrize("seed", DOCUMENT_SEEDS, ids=SEED_IDS)
def test_the_file_holds_the_walk_of_its_seed(seed):
    path = SEEDS / "document" / f"seed-{seed:02}.json"

    assert path.read_text(encoding="utf-8") == render(document_trace(seed))


TRACES = [
    path
    for path in sorted(SEEDS.rglob("*.json"))
    if path.name != "schema.json" and path.parent.name != "found"
]
SAVED = pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)


@SAVED
def test_every_saved_trace_passes_on_our_allocator_and_says_something_about_it(path):
    trace = read(path)
    target = resolve("impl-groups" if trace.config.groups else "impl")

    assert unfit(trace, target) is None
    assert run(trace, target.factory) is None
