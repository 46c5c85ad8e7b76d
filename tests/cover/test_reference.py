"""The reference: the document's example, each of its rules, and each invariant broken by hand."""

import contextlib
import copy
import itertools
import subprocess
import sys

import pytest

from kvoracle.reference import BrokenInvariant, ListOracle, PagedKV, Rejected, WrongChoice
from kvoracle.reference.invariants import INVARIANTS
from kvoracle.reference.paged_kv import Page, Transfer

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


def state(kv):
    return copy.deepcopy((kv.free, kv.pages, kv.tables, kv.transfers))


@contextlib.contextmanager
def changes_nothing(kv, error, match):
    before = state(kv)
    with pytest.raises(error, match=match):
        yield
    assert state(kv) == before
    kv.check()


def pool_of(capacity, block_size, **requests):
    """A pool in which each request was created and given its tokens, in order."""
    kv = PagedKV(capacity, block_size)
    for request, tokens in requests.items():
        kv.create(request)
        if tokens:
            kv.append(request, *tokens)
    return kv


def told(capacity, block_size, *choices, asked=None):
    """A pool that is told the pages of each call in turn."""
    remaining = list(choices)

    def choose(request, positions):
        if asked is not None:
            asked.append((request, positions))
        return remaining.pop(0)

    return PagedKV(capacity, block_size, choose=choose)


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


# Which page is taken


def test_pages_are_taken_from_the_smallest_up():
    kv = pool_of(4, 2, a=[1, 2, 3], b=[4])

    assert kv.tables == {"a": [0, 1], "b": [2]}
    assert kv.free == [3]


def test_the_smallest_free_page_is_taken_whatever_order_pages_came_back_in():
    for order in itertools.permutations("abcd"):
        kv = pool_of(5, 1, a=[1], b=[2], c=[3], d=[4])
        for request in order:
            kv.release(request)
        kv.create("e")
        kv.append("e", 1, 2, 3, 4, 5)
        assert kv.tables["e"] == [0, 1, 2, 3, 4]


def test_the_smallest_of_the_returned_pages_comes_before_a_larger_one_never_used():
    kv = pool_of(4, 1, a=[1], b=[2], c=[3])
    kv.release("b")
    kv.create("d")

    kv.append("d", 4, 5)

    assert kv.tables["d"] == [1, 3]


def test_page_names_begin_at_first_page():
    kv = PagedKV(2, 1, first_page=1)
    kv.create("a")
    kv.append("a", 1, 2)

    assert kv.tables["a"] == [1, 2]
    kv.check()


def test_a_told_choice_is_used():
    kv = told(4, 2, [3, 1])
    kv.create("a")

    kv.append("a", 1, 2, 3)

    assert kv.tables["a"] == [3, 1]
    assert sorted(kv.free) == [0, 2]
    kv.check()


def test_choose_is_asked_for_the_positions_that_need_a_page_the_copied_tail_first():
    asked = []
    kv = told(6, 2, [5, 4], [3], [2, 1, 0], asked=asked)
    kv.create("a")
    kv.append("a", 1, 2, 3)
    kv.fork("a", "b")

    kv.append("b", 4)
    kv.append("b", 5, 6, 7, 8, 9, 10)

    assert asked == [("a", [0, 1]), ("b", [1]), ("b", [2, 3, 4])]
    assert kv.tables == {"a": [5, 4], "b": [5, 3, 2, 1, 0]}
    kv.check()


def test_the_first_told_page_is_the_copy_when_a_call_copies_and_grows():
    asked = []
    kv = told(6, 2, [0], [5, 4, 3], asked=asked)
    kv.create("a")
    kv.append("a", 1)
    kv.fork("a", "b")

    kv.append("b", 2, 3, 4, 5)

    assert asked[-1] == ("b", [0, 1, 2])
    assert kv.tables["b"] == [5, 4, 3]
    assert kv.read("b") == [1, 2, 3, 4, 5]
    assert kv.read("a") == [1]
    kv.check()


def test_choose_is_not_asked_when_no_page_is_needed():
    asked = []
    kv = told(4, 4, [0], asked=asked)
    kv.create("a")
    kv.append("a", 1)

    kv.append("a", 2, 3)
    kv.fork("a", "b")
    kv.release("a")

    assert asked == [("a", [0])]


def test_choose_is_not_asked_when_the_pool_is_too_full():
    asked = []
    kv = told(1, 1, asked=asked)
    kv.create("a")

    with changes_nothing(kv, MemoryError, "2 blocks needed, 1 free"):
        kv.append("a", 1, 2)

    assert asked == []


def test_a_told_page_that_is_held_is_refused_and_nothing_changes():
    kv = told(4, 2, [0], [0])
    kv.create("a")
    kv.append("a", 1)
    kv.create("b")

    said = r"block 0 \(owners: a; pins: none\) was taken for 'b' but is not free"
    with changes_nothing(kv, WrongChoice, said):
        kv.append("b", 2)


def test_a_told_page_that_only_a_transfer_holds_is_refused_and_nothing_changes():
    kv = told(4, 2, [2], [2])
    kv.create("a")
    kv.append("a", 1)
    kv.pin("a", "t")
    kv.release("a")
    kv.create("b")

    said = r"block 2 \(owners: none; pins: t\) was taken for 'b' but is not free"
    with changes_nothing(kv, WrongChoice, said):
        kv.append("b", 2)


@pytest.mark.parametrize("page", [-1, 4, 99])
def test_a_told_page_outside_the_pool_is_refused_and_nothing_changes(page):
    kv = told(4, 2, [page])
    kv.create("a")

    with changes_nothing(kv, WrongChoice, rf"block {page} \(outside the pool\) was taken for 'a'"):
        kv.append("a", 1)


def test_a_page_told_twice_is_refused_and_nothing_changes():
    kv = told(4, 2, [1, 1])
    kv.create("a")

    with changes_nothing(kv, WrongChoice, "block 1 was taken twice in one call"):
        kv.append("a", 1, 2, 3)


@pytest.mark.parametrize("taken", [[], [0], [0, 1, 2]])
def test_another_number_of_told_pages_is_refused_and_nothing_changes(taken):
    kv = told(4, 2, taken)
    kv.create("a")

    with changes_nothing(kv, WrongChoice, f"2 blocks were needed and {len(taken)} taken"):
        kv.append("a", 1, 2, 3)


def test_the_source_of_a_copy_told_as_its_destination_is_refused_and_nothing_changes():
    kv = told(4, 2, [0], [0])
    kv.create("a")
    kv.append("a", 1)
    kv.fork("a", "b")

    with changes_nothing(kv, WrongChoice, r"block 0 \(owners: a, b; pins: none\)"):
        kv.append("b", 2)


def test_a_wrong_choice_names_its_page():
    kv = told(4, 2, [7])
    kv.create("a")

    with pytest.raises(WrongChoice) as caught:
        kv.append("a", 1)

    assert caught.value.page == 7


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


# The list oracle


def test_the_list_oracle_says_what_every_request_reads():
    lists = ListOracle()
    lists.create("a")
    lists.append("a", 1, 2)
    lists.fork("a", "b")
    lists.append("b", 3)
    lists.pin("a", "t")
    lists.append("a", 4)
    lists.unpin("t")

    assert lists.read("a") == [1, 2, 4]
    assert lists.read("b") == [1, 2, 3]

    lists.release_each(["b"])
    lists.release("a")
    assert lists.sequences == {}


# Each invariant, broken by hand in each way it describes


def healthy():
    """a and b share pages 0 and 1 (partial), which t reads; c has block 2; 3, 4 and 5 are free."""
    kv = pool_of(6, 2, a=["a0", "a1", "a2"])
    kv.fork("a", "b")
    kv.pin("a", "t")
    kv.create("c")
    kv.append("c", "c0")
    return kv


def is_free_and_allocated(kv):
    kv.free.append(0)


def is_free_twice(kv):
    kv.free.append(3)


def leaked_from_the_free_list(kv):
    kv.free.remove(4)


def leaked_from_the_allocated(kv):
    del kv.pages[2]
    del kv.tables["c"]


def is_free_outside_the_pool(kv):
    kv.free.append(6)


def is_allocated_outside_the_pool(kv):
    kv.pages[9] = Page(["x"], {"c"})


def replaced_by_one_outside_the_pool(kv):
    kv.free[kv.free.index(5)] = -1


def table_names_a_free_page(kv):
    kv.tables["c"].append(3)


def table_names_a_page_it_does_not_own(kv):
    kv.tables["c"].insert(0, 0)


def owner_has_no_table_entry(kv):
    kv.pages[2].owners.add("a")


def owner_is_no_request(kv):
    kv.pages[2].owners.add("ghost")


def owner_was_forgotten(kv):
    kv.pages[0].owners.remove("b")


def request_ended_and_its_owners_stayed(kv):
    del kv.tables["c"]


def nothing_holds_it(kv):
    kv.free.remove(3)
    kv.pages[3] = Page(["x"])


def the_last_holder_went_and_it_stayed(kv):
    kv.tables["c"].clear()
    kv.pages[2].owners.clear()


def pin_has_no_record(kv):
    kv.pages[2].pins.add("ghost")


def record_has_no_pin(kv):
    kv.pages[1].pins.remove("t")


def record_names_a_page_without_its_pin(kv):
    kv.transfers["t"].pages.append(2)
    kv.transfers["t"].contents.append(["c0"])


def record_names_a_free_page(kv):
    kv.transfers["t"].pages.append(3)
    kv.transfers["t"].contents.append([])


def transfer_ended_and_its_pins_stayed(kv):
    del kv.transfers["t"]


def record_has_no_page(kv):
    kv.transfers["u"] = Transfer([], [])


def record_names_a_page_twice(kv):
    kv.transfers["t"].pages.append(0)
    kv.transfers["t"].contents.append(["a0", "a1"])


def table_names_a_page_twice(kv):
    kv.tables["c"] = [2, 2]


def full_page_lost_a_token(kv):
    kv.pages[0].tokens.pop()


def tail_is_empty(kv):
    kv.pages[2].tokens.clear()


def tail_is_overfull(kv):
    kv.pages[2].tokens += ["c1", "c2"]


def full_page_is_overfull(kv):
    kv.pages[0].tokens.append("a2")


def pinned_token_was_replaced(kv):
    kv.pages[0].tokens[0] = "other"


def pinned_tail_was_written_in_place(kv):
    kv.pages[1].tokens.append("a3")


def page_that_only_a_transfer_holds_was_emptied(kv):
    kv.release_each(["a", "b"])
    kv.pages[1].tokens.clear()


PARTITION = "free_and_allocated_partition_the_pool"
OWNERS = "tables_and_owners_agree"
HELD = "every_page_is_held"
PINS = "pins_and_transfers_agree"
TWICE = "tables_name_no_page_twice"
TAIL = "only_the_tail_is_partial"
FROZEN = "pinned_contents_are_frozen"
SHARED = "block 0 (owners: a, b; pins: t)"
SHARED_TAIL = "block 1 (owners: a, b; pins: t)"
ALONE = "block 2 (owners: c; pins: none)"

CORRUPTIONS = [
    (is_free_and_allocated, PARTITION, f"{SHARED} is free and allocated at once"),
    (is_free_twice, PARTITION, "block 3 (not allocated) is on the free list 2 times"),
    (leaked_from_the_free_list, PARTITION, "block 4 (not allocated) is neither free nor allocated"),
    (leaked_from_the_allocated, PARTITION, "block 2 (not allocated) is neither free nor allocated"),
    (
        is_free_outside_the_pool,
        PARTITION,
        "block 6 (outside the pool) is listed as free or allocated",
    ),
    (
        is_allocated_outside_the_pool,
        PARTITION,
        "block 9 (outside the pool) is listed as free or allocated",
    ),
    (replaced_by_one_outside_the_pool, PARTITION, "block 5 (not allocated) is neither free nor"),
    (table_names_a_free_page, OWNERS, "the table of 'c' names block 3 (not allocated)"),
    (table_names_a_page_it_does_not_own, OWNERS, f"{SHARED} is named by a, b, c"),
    (owner_has_no_table_entry, OWNERS, "block 2 (owners: a, c; pins: none) is named by c"),
    (owner_is_no_request, OWNERS, "block 2 (owners: c, ghost; pins: none) is named by c"),
    (owner_was_forgotten, OWNERS, "block 0 (owners: a; pins: t) is named by a, b"),
    (request_ended_and_its_owners_stayed, OWNERS, f"{ALONE} is named by no table"),
    (
        nothing_holds_it,
        HELD,
        "block 3 (owners: none; pins: none) is allocated and nothing holds it",
    ),
    (the_last_holder_went_and_it_stayed, HELD, "block 2 (owners: none; pins: none) is allocated"),
    (pin_has_no_record, PINS, "block 2 (owners: c; pins: ghost) is named by no transfer record"),
    (record_has_no_pin, PINS, "block 1 (owners: a, b; pins: none) is named by t"),
    (record_names_a_page_without_its_pin, PINS, f"{ALONE} is named by t"),
    (record_names_a_free_page, PINS, "the record of transfer 't' names block 3 (not allocated)"),
    (transfer_ended_and_its_pins_stayed, PINS, f"{SHARED} is named by no transfer record"),
    (record_has_no_page, PINS, "the record of transfer 'u' has no block"),
    (
        record_names_a_page_twice,
        PINS,
        "the record of transfer 't' names block 0 (owners: a, b; pins: t) twice",
    ),
    (table_names_a_page_twice, TWICE, f"the table of 'c' names {ALONE} twice: [2, 2]"),
    (
        full_page_lost_a_token,
        TAIL,
        f"{SHARED} at position 0 of the table of 'a' holds 1 tokens, not 2 to 2",
    ),
    (tail_is_empty, TAIL, f"{ALONE} at position 0 of the table of 'c' holds 0 tokens, not 1 to 2"),
    (
        tail_is_overfull,
        TAIL,
        f"{ALONE} at position 0 of the table of 'c' holds 3 tokens, not 1 to 2",
    ),
    (
        full_page_is_overfull,
        TAIL,
        f"{SHARED} at position 0 of the table of 'a' holds 3 tokens, not 2 to 2",
    ),
    (pinned_token_was_replaced, FROZEN, f"{SHARED} changed while transfer 't' pins it"),
    (pinned_tail_was_written_in_place, FROZEN, f"{SHARED_TAIL} changed while transfer 't' pins it"),
    (
        page_that_only_a_transfer_holds_was_emptied,
        FROZEN,
        "block 1 (owners: none; pins: t) changed while transfer 't' pins it",
    ),
]


def test_a_healthy_pool_passes_every_invariant():
    healthy().check()


@pytest.mark.parametrize(
    ("corrupt", "invariant", "message"), CORRUPTIONS, ids=[c.__name__ for c, _, _ in CORRUPTIONS]
)
def test_a_corruption_is_found_by_its_invariant_and_names_the_page_and_its_holders(
    corrupt, invariant, message
):
    kv = healthy()
    corrupt(kv)

    with pytest.raises(BrokenInvariant) as caught:
        kv.check()

    assert caught.value.invariant == invariant
    assert str(caught.value).startswith(f"{invariant}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("corrupt", "invariant", "message"), CORRUPTIONS, ids=[c.__name__ for c, _, _ in CORRUPTIONS]
)
def test_a_corruption_is_found_by_its_invariant_alone(corrupt, invariant, message):
    kv = healthy()
    corrupt(kv)
    (look,) = [known for known in INVARIANTS if known.__name__ == invariant]

    assert any(message in said for said in look(kv))


def test_every_invariant_has_been_broken_by_hand():
    assert {invariant for _, invariant, _ in CORRUPTIONS} == {i.__name__ for i in INVARIANTS}


def test_a_record_with_fewer_contents_than_pages_breaks_an_invariant():
    kv = healthy()
    kv.transfers["t"].contents.pop()

    with pytest.raises(BrokenInvariant, match="'t'"):
        kv.check()


def test_a_record_that_names_a_page_twice_is_said_with_the_page_and_its_holders():
    kv = healthy()
    record_names_a_page_twice(kv)

    with pytest.raises(BrokenInvariant) as caught:
        kv.check()

    assert SHARED in str(caught.value)


def test_the_append_of_a_wrong_choice_changes_nothing_in_a_batch_either():
    kv = told(4, 1, [0], [0])
    kv.create("a")
    kv.create("b")

    with pytest.raises(WrongChoice, match=r"block 0 \(owners: a; pins: none\)"):
        kv.append_each(["a", "b"], [1, 2])

    assert kv.tables == {"a": [0], "b": []}
    assert kv.read("a") == [1]
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
