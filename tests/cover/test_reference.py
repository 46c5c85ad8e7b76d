"""The reference: the document's example, and each of its rules."""

import itertools
import subprocess
import sys
from functools import partial

import pytest
from reference_helpers import changes_nothing, pool, state

from kvoracle.reference import PagedKV, Rejected
from kvoracle.reference.records import Page, Transfer

pool_of = partial(pool, PagedKV)

EXAMPLE = """\
from scheduler_sim import PagedKV

pool = PagedKV(capacity=3, block_size=4)
pool.create("a")
pool.append("a", 10)
pool.fork("a", "b")
source, = pool.pin("a", "transfer-1")
pool.append("b", 20)  # Partial shared tail: copy before writing.
assert pool.read("a") == [10]
assert pool.read("b") == [10, 20]
pool.release("a")    # Cancellation removes ownership, not the transfer pin.
assert source in pool.pages and source not in pool.free
pool.unpin("transfer-1")
assert source in pool.free
pool.check()
pool.release("b")
assert len(pool.free) == 3
print("shared prefix, copy-on-write, and transfer cleanup: OK")
"""
"""As published; the test changes its first line and nothing else."""


# The published example


def test_the_published_example_runs_with_only_its_import_line_changed(capsys):
    first, rest = EXAMPLE.split("\n", 1)
    assert first == "from scheduler_sim import PagedKV"

    program = f"from kvoracle.reference import PagedKV\n{rest}"
    exec(compile(program, "example", "exec"), {})

    assert capsys.readouterr().out == "shared prefix, copy-on-write, and transfer cleanup: OK\n"


def test_the_example_goes_through_the_states_that_the_document_describes():
    kv = pool_of(3, 4, a=[10])
    kv.fork("a", "b")
    kv.pin("a", "transfer-1")
    assert (kv.pages[0].owners, kv.pages[0].pins) == ({"a", "b"}, {"transfer-1"})

    kv.append("b", 20)
    assert kv.tables == {"a": [0], "b": [1]}
    assert kv.pages[1].tokens == [10, 20]

    kv.release("a")
    assert (kv.pages[0].owners, kv.pages[0].pins) == (set(), {"transfer-1"})

    kv.unpin("transfer-1")
    assert sorted(kv.free) == [0, 2]


# Owners and pins


def test_release_never_ends_a_transfer():
    kv = pool_of(3, 2, a=[1, 2, 3])
    pages = kv.pin("a", "t")

    kv.release("a")

    assert pages == [0, 1]
    assert kv.transfers["t"].pages == pages
    assert [kv.pages[page].pins for page in pages] == [{"t"}, {"t"}]
    assert not set(pages) & set(kv.free)
    kv.check()


def test_unpin_never_ends_an_ownership():
    kv = pool_of(3, 2, a=[1, 2, 3])
    kv.pin("a", "t")

    kv.unpin("t")

    assert kv.read("a") == [1, 2, 3]
    assert [kv.pages[page].owners for page in kv.tables["a"]] == [{"a"}, {"a"}]
    assert kv.free == [2]
    kv.check()


def test_one_of_two_transfers_that_ends_leaves_the_other():
    kv = pool_of(2, 2, a=[1])
    kv.pin("a", "t")
    kv.pin("a", "u")
    kv.release("a")

    kv.unpin("t")
    assert kv.pages[0].pins == {"u"}
    kv.check()

    kv.unpin("u")
    assert sorted(kv.free) == [0, 1]
    kv.check()


def test_a_request_and_a_transfer_may_have_the_same_name():
    kv = pool_of(2, 2, a=[1])
    kv.pin("a", "a")

    kv.release("a")
    assert kv.pages[0].pins == {"a"}

    kv.unpin("a")
    assert sorted(kv.free) == [0, 1]


def test_a_pin_covers_the_pages_of_its_moment_and_no_later_ones():
    kv = pool_of(3, 1, a=[1])
    kv.pin("a", "t")
    kv.append("a", 2)

    kv.release("a")

    assert set(kv.pages) == {0}
    kv.check()


def test_pin_of_an_empty_request_is_refused():
    kv = pool_of(2, 2, a=[])

    with changes_nothing(kv, Rejected, "nothing to pin: 'a'"):
        kv.pin("a", "t")


def test_fork_shares_every_page_the_partial_tail_included():
    kv = pool_of(4, 2, a=[1, 2, 3])

    kv.fork("a", "b")

    assert kv.tables["b"] == kv.tables["a"] == [0, 1]
    assert kv.tables["b"] is not kv.tables["a"]
    assert [kv.pages[page].owners for page in (0, 1)] == [{"a", "b"}, {"a", "b"}]
    kv.check()


def test_fork_of_an_empty_request_is_an_empty_request():
    kv = pool_of(1, 1, a=[])

    kv.fork("a", "b")

    assert kv.tables == {"a": [], "b": []}
    kv.check()


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
@pytest.mark.parametrize("grow", ["", "a", "b", "c", "abc"])
def test_every_release_order_of_a_chain_of_forks_leaves_the_pool_empty(order, grow):
    kv = pool_of(8, 2, a=[1, 2, 3])
    kv.fork("a", "b")
    kv.fork("b", "c")
    for request in grow:
        kv.append(request, 4)

    for request in order:
        kv.release(request)
        kv.check()

    assert sorted(kv.free) == list(range(8))
    assert (kv.pages, kv.tables, kv.transfers) == ({}, {}, {})


# Names


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda kv: kv.create("a"), "duplicate request: 'a'"),
        (lambda kv: kv.create("empty"), "duplicate request: 'empty'"),
        (lambda kv: kv.append("ghost", 1), "unknown request: 'ghost'"),
        (lambda kv: kv.append("released", 1), "unknown request: 'released'"),
        (lambda kv: kv.append("a"), "no tokens: 'a'"),
        (lambda kv: kv.fork("ghost", "new"), "unknown request: 'ghost'"),
        (lambda kv: kv.fork("a", "b"), "duplicate request: 'b'"),
        (lambda kv: kv.fork("a", "a"), "duplicate request: 'a'"),
        (lambda kv: kv.pin("ghost", "u"), "unknown request: 'ghost'"),
        (lambda kv: kv.pin("a", "t"), "duplicate transfer: 't'"),
        (lambda kv: kv.pin("empty", "u"), "nothing to pin: 'empty'"),
        (lambda kv: kv.unpin("ghost"), "unknown transfer: 'ghost'"),
        (lambda kv: kv.unpin("completed"), "unknown transfer: 'completed'"),
        (lambda kv: kv.unpin("a"), "unknown transfer: 'a'"),
        (lambda kv: kv.release("ghost"), "unknown request: 'ghost'"),
        (lambda kv: kv.release("released"), "unknown request: 'released'"),
        (lambda kv: kv.release("t"), "unknown request: 't'"),
        (lambda kv: kv.read("ghost"), "unknown request: 'ghost'"),
        (lambda kv: kv.length("ghost"), "unknown request: 'ghost'"),
        (lambda kv: kv.append_each([], []), "no requests: ''"),
        (lambda kv: kv.append_each([], [1]), "no requests: ''"),
        (lambda kv: kv.append_each(["a", "ghost"], [1, 2]), "unknown request: 'ghost'"),
        (lambda kv: kv.append_each(["a", "b", "a"], [1, 2, 3]), "repeated request: 'a, b, a'"),
        (lambda kv: kv.append_each(["a", "b"], [1]), "one token for each request: 'a, b'"),
        (lambda kv: kv.append_each(["a"], [1, 2]), "one token for each request: 'a'"),
        (lambda kv: kv.release_each([]), "no requests: ''"),
        (lambda kv: kv.release_each(["a", "ghost"]), "unknown request: 'ghost'"),
        (lambda kv: kv.release_each(["b", "b"]), "repeated request: 'b, b'"),
    ],
)
def test_a_wrong_call_is_refused_and_changes_nothing(call, reason):
    kv = pool_of(8, 2, a=[1, 2, 3], empty=[], released=[9])
    kv.fork("a", "b")
    kv.pin("a", "t")
    kv.pin("a", "completed")
    kv.unpin("completed")
    kv.release("released")

    with changes_nothing(kv, Rejected, f"^{reason}$"):
        call(kv)


def test_a_name_may_be_used_again_after_its_end():
    kv = pool_of(2, 2, a=[1])
    kv.pin("a", "t")
    kv.unpin("t")
    kv.pin("a", "t")
    kv.release("a")

    kv.create("a")
    kv.append("a", 2)

    assert kv.tables["a"] == [1]
    assert kv.read("a") == [2]
    kv.check()


def test_a_rejection_is_a_value_error_with_a_reason():
    with pytest.raises(ValueError, match="unknown request") as caught:
        PagedKV(1, 1).release("a")

    assert caught.value.reason == "unknown request"


@pytest.mark.parametrize(("capacity", "block_size"), [(0, 1), (1, 0), (-1, 4), (4, -1), (0, 0)])
def test_a_pool_without_pages_or_slots_is_refused(capacity, block_size):
    with pytest.raises(ValueError, match="capacity and block_size must be at least 1"):
        PagedKV(capacity, block_size)


# Writing


@pytest.mark.parametrize("block_size", [1, 2, 3, 4])
@pytest.mark.parametrize("length", range(1, 10))
def test_a_table_is_as_long_as_its_tokens_need_around_every_block_edge(block_size, length):
    at_once = pool_of(9, block_size, a=list(range(length)))
    one_by_one = pool_of(9, block_size, a=[])
    for token in range(length):
        one_by_one.append("a", token)

    assert len(at_once.tables["a"]) == -(-length // block_size)
    assert state(at_once) == state(one_by_one)
    assert at_once.read("a") == list(range(length))
    at_once.check()


def test_append_of_many_tokens_is_all_or_nothing():
    kv = pool_of(3, 2, a=[1, 2, 3])

    with changes_nothing(kv, MemoryError, "2 blocks needed, 1 free"):
        kv.append("a", 4, 5, 6, 7)

    kv.append("a", 4, 5, 6)
    assert kv.read("a") == [1, 2, 3, 4, 5, 6]
    assert kv.free == []


def test_a_failed_append_to_an_empty_request_leaves_it_empty():
    kv = pool_of(1, 1, a=[])

    with changes_nothing(kv, MemoryError, "2 blocks needed, 1 free"):
        kv.append("a", 1, 2)

    assert kv.read("a") == []


NO_COPY = r"^{} blocks needed \(one to copy block 0\), {} free$"


@pytest.mark.parametrize("branch", ["a", "b"])
def test_a_pool_of_one_page_that_cannot_copy_a_shared_tail_modifies_neither_branch(branch):
    kv = pool_of(1, 4, a=[10])
    kv.fork("a", "b")

    with changes_nothing(kv, MemoryError, NO_COPY.format(1, 0)):
        kv.append(branch, 20)

    assert kv.read("a") == [10]
    assert kv.read("b") == [10]


def test_a_pool_of_one_page_that_cannot_copy_a_pinned_tail_modifies_nothing():
    kv = pool_of(1, 4, a=[10])
    kv.pin("a", "t")

    with changes_nothing(kv, MemoryError, NO_COPY.format(1, 0)):
        kv.append("a", 20)


def test_an_append_that_has_room_for_its_copy_but_not_for_its_growth_modifies_nothing():
    kv = pool_of(2, 2, a=[1])
    kv.fork("a", "b")

    with changes_nothing(kv, MemoryError, NO_COPY.format(2, 1)):
        kv.append("b", 2, 3)


def test_a_shared_partial_tail_is_copied_before_it_is_written():
    kv = pool_of(4, 4, a=[1])
    kv.fork("a", "b")

    kv.append("a", 2)

    assert kv.tables == {"a": [1], "b": [0]}
    assert (kv.read("a"), kv.read("b")) == ([1, 2], [1])
    kv.check()


def test_the_last_of_the_sharers_writes_in_place():
    kv = pool_of(4, 4, a=[1])
    kv.fork("a", "b")
    kv.append("a", 2)

    kv.append("b", 3)

    assert kv.tables == {"a": [1], "b": [0]}
    assert (kv.read("a"), kv.read("b")) == ([1, 2], [1, 3])


def test_a_shared_full_tail_is_not_copied():
    kv = pool_of(4, 2, a=[1, 2])
    kv.fork("a", "b")

    kv.append("b", 3)

    assert kv.tables == {"a": [0], "b": [0, 1]}
    kv.check()


def test_the_only_owner_of_a_pinned_partial_page_copies_it_before_it_writes():
    kv = pool_of(4, 4, a=[1])
    kv.pin("a", "t")

    kv.append("a", 2)

    assert kv.tables["a"] == [1]
    assert kv.read("a") == [1, 2]
    assert kv.pages[0] == Page(tokens=[1], owners=set(), pins={"t"})
    assert kv.transfers["t"] == Transfer([0], [[1]])
    kv.check()


def test_the_copy_of_a_pinned_page_is_written_in_place_afterwards():
    kv = pool_of(4, 4, a=[1])
    kv.pin("a", "t")
    kv.append("a", 2)

    kv.append("a", 3)

    assert kv.tables["a"] == [1]


def test_a_page_whose_transfer_ended_is_written_in_place_again():
    kv = pool_of(4, 4, a=[1])
    kv.pin("a", "t")
    kv.unpin("t")

    kv.append("a", 2)

    assert kv.tables["a"] == [0]


def test_a_pinned_full_tail_is_not_copied():
    kv = pool_of(4, 1, a=[1])
    kv.pin("a", "t")

    kv.append("a", 2)

    assert kv.tables["a"] == [0, 1]
    kv.check()


# Batches


def test_append_each_grows_every_request_by_one_token():
    kv = pool_of(4, 2, a=[1], b=[2, 3], c=[])

    refused = kv.append_each(["a", "b", "c"], [4, 5, 6])

    assert refused == []
    assert [kv.read(request) for request in "abc"] == [[1, 4], [2, 3, 5], [6]]
    kv.check()


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
def test_append_each_gives_the_pages_to_the_first_in_order_and_names_the_refused(order):
    kv = pool_of(5, 1, a=[1], b=[2], c=[3])

    refused = kv.append_each(order, [10, 20, 30])

    assert refused == [order[2]]
    assert [len(kv.tables[request]) for request in order] == [2, 2, 1]
    assert [kv.tables[request][-1] for request in order[:2]] == [3, 4]
    kv.check()


def test_append_each_goes_on_after_a_refusal():
    kv = pool_of(2, 2, full=[1, 2], roomy=[3])

    refused = kv.append_each(["full", "roomy"], [4, 5])

    assert refused == ["full"]
    assert (kv.read("full"), kv.read("roomy")) == ([1, 2], [3, 5])
    kv.check()


def test_append_each_of_a_request_and_its_fork_copies_once_and_the_second_writes_in_place():
    kv = pool_of(4, 4, a=[1])
    kv.fork("a", "b")

    assert kv.append_each(["b", "a"], [2, 3]) == []

    assert kv.tables == {"a": [0], "b": [1]}
    assert (kv.read("a"), kv.read("b")) == ([1, 3], [1, 2])
    kv.check()


def test_append_each_that_is_refused_altogether_changes_nothing():
    kv = pool_of(2, 1, a=[1], b=[2])
    before = state(kv)

    assert kv.append_each(["b", "a"], [3, 4]) == ["b", "a"]

    assert state(kv) == before


def test_release_each_releases_all():
    kv = pool_of(4, 1, a=[1], b=[2], c=[3])
    kv.fork("a", "d")
    kv.pin("b", "t")

    kv.release_each(["d", "a", "b"])

    assert sorted(kv.tables) == ["c"]
    assert sorted(kv.pages) == [1, 2]
    kv.check()


def test_importing_the_reference_loads_nothing_but_the_standard_library():
    program = (
        "import sys; before = set(sys.modules); import kvoracle.reference;"
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()

    assert set(loaded) - set(sys.stdlib_module_names) == {"kvoracle"}
