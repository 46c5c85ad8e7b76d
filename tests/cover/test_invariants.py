"""Each invariant of the reference, broken by hand in each way it describes."""

from functools import partial

import pytest
from reference_helpers import broken, fill, pool, told_pool

from kvoracle.reference import BrokenInvariant, Oracle, PrefixCachedKV
from kvoracle.reference.invariants import INVARIANTS
from kvoracle.reference.records import Page, Transfer

pool_of = partial(pool, PrefixCachedKV)


def healthy():
    """a and b share pages 0 and 1 (partial), which t reads; c has page 2; d has a token in page 6
    and room in it and in 7, both held by step s; lookup l holds page 8; 3, 4 and 5 are free."""
    kv = told_pool(Oracle, 9, 2, [0, 1], [2], [6], [7], [8], [8])
    fill(kv, {"a": ["a0", "a1", "a2"]})
    kv.fork("a", "b")
    kv.pin("a", "t")
    fill(kv, {"c": ["c0"], "d": ["d0"]})
    kv.reserve("d", 3)
    kv.begin_step("s", ["d"], ["d1"])
    fill(kv, {"e": ["e0", "e1"]})
    kv.release("e")
    kv.look_up("l", "e0", "e1", "e2")
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
    kv.free.append(9)


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


def hold_has_no_record(kv):
    kv.pages[2].holds.add(("step", "ghost"))


def hold_of_a_lookup_was_forgotten(kv):
    kv.pages[8].holds.clear()


def hold_of_a_step_was_forgotten(kv):
    kv.pages[7].holds.clear()


def step_ended_and_its_holds_stayed(kv):
    del kv.steps["s"]


def lookup_ended_and_its_holds_stayed(kv):
    del kv.lookups["l"]


def step_names_a_free_page(kv):
    kv.steps["s"].pages.append(3)


def lookup_names_a_free_page(kv):
    kv.lookups["l"].pages.append(3)


def step_names_a_page_without_its_hold(kv):
    kv.steps["s"].pages.append(2)


def held_by_a_step_in_place_of_a_lookup(kv):
    kv.pages[8].holds = {("step", "l")}


def reserved_page_was_written(kv):
    kv.pages[7].tokens.append("d9")


def table_is_too_short_for_its_room(kv):
    kv.tables["d"].remove(7)
    kv.pages[7].owners.clear()


def room_was_forgotten_and_its_page_stayed(kv):
    kv.lives["d"].reserved = 1


def more_was_reserved_than_there_is(kv):
    kv.lives["d"].reserved = 4


def room_was_reserved_without_a_page(kv):
    kv.lives["c"].reserved = 2


def more_was_written_than_reserved(kv):
    kv.lives["c"].reserved = -1


def more_is_in_flight_than_reserved(kv):
    kv.lives["d"].in_flight = 4


def less_than_nothing_is_in_flight(kv):
    kv.lives["c"].in_flight = -1


PARTITION = "free_and_allocated_partition_the_pool"
OWNERS = "tables_and_owners_agree"
HELD = "every_page_is_held"
PINS = "pins_and_transfers_agree"
TWICE = "tables_name_no_page_twice"
HOLDS = "holds_and_records_agree"
TAIL = "only_the_tail_is_partial"
LONG = "tables_are_as_long_as_needed"
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
        "block 9 (outside the pool) is listed as free or allocated",
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
    (
        reserved_page_was_written,
        TAIL,
        "block 7 (owners: d; pins: none; step: s) at position 1 of the table of 'd' holds 1 tokens, "
        "not 0 to 0",
    ),
    (
        hold_has_no_record,
        HOLDS,
        "block 2 (owners: c; pins: none; step: ghost) is named by no record",
    ),
    (hold_of_a_lookup_was_forgotten, HOLDS, "block 8 (owners: none; pins: none) is named by l"),
    (hold_of_a_step_was_forgotten, HOLDS, "block 7 (owners: d; pins: none) is named by s"),
    (
        step_ended_and_its_holds_stayed,
        HOLDS,
        "block 6 (owners: d; pins: none; step: s) is named by no record",
    ),
    (
        lookup_ended_and_its_holds_stayed,
        HOLDS,
        "block 8 (owners: none; pins: none; lookup: l) is named by no record",
    ),
    (step_names_a_free_page, HOLDS, "the step 's' names block 3 (not allocated)"),
    (lookup_names_a_free_page, HOLDS, "the lookup 'l' names block 3 (not allocated)"),
    (step_names_a_page_without_its_hold, HOLDS, f"{ALONE} is named by s"),
    (
        held_by_a_step_in_place_of_a_lookup,
        HOLDS,
        "block 8 (owners: none; pins: none; step: l) is named by l",
    ),
    (
        table_is_too_short_for_its_room,
        LONG,
        "the table of 'd' names 1 blocks, not 2 (3 tokens reserved, 1 of them in flight)",
    ),
    (room_was_forgotten_and_its_page_stayed, LONG, "the table of 'd' names 2 blocks, not 1 (1 tok"),
    (more_was_reserved_than_there_is, LONG, "the table of 'd' names 2 blocks, not 3 (4 tokens"),
    (room_was_reserved_without_a_page, LONG, "the table of 'c' names 1 blocks, not 2 (2 tokens"),
    (more_was_written_than_reserved, LONG, "the table of 'c' names 1 blocks, not 0 (-1 tokens"),
    (more_is_in_flight_than_reserved, LONG, "(3 tokens reserved, 4 of them in flight)"),
    (less_than_nothing_is_in_flight, LONG, "(0 tokens reserved, -1 of them in flight)"),
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


# The prefix cache


def test_a_partial_page_that_is_published_is_found():
    kv = pool_of(4, 2, a=[1, 2, 3])

    kv.index[1] = ((), (1, 2, 3))

    name, said = broken(kv)
    assert name == "published_pages_are_full"
    assert "block 1 (owners: a; pins: none) is published and not full" in said


def test_a_free_page_that_is_published_is_found():
    kv = pool_of(4, 2, a=[1, 2])

    kv.index[3] = ((), (7, 8))

    assert broken(kv) == (
        "published_pages_are_full",
        "published_pages_are_full: block 3 (not allocated) is published and not full",
    )


@pytest.mark.parametrize("tokens", [[1, 9], [9, 2], [2, 1]])
def test_a_page_that_is_published_as_what_it_does_not_hold_is_found(tokens):
    kv = pool_of(4, 2, a=[1, 2])

    kv.pages[0].tokens[:] = tokens

    name, said = broken(kv)
    assert name == "published_pages_hold_what_they_say"
    assert "block 0 (owners: a; pins: none) is published as what it does not hold" in said


FULL, TRUE = "published_pages_are_full", "published_pages_hold_what_they_say"


@pytest.mark.parametrize(
    ("index", "invariant"),
    [
        ({0: (9, 9)}, TRUE),
        ({0: (2, 1)}, TRUE),
        ({0: (1, 2), 1: (1, 2, 3, 4)}, FULL),
        ({0: (1, 2), 3: (7, 8)}, FULL),
        ({}, "full_pages_are_published"),
        ({0: (9, 9, 1, 2)}, "full_pages_are_published"),
    ],
)
def test_an_entry_of_the_index_that_is_not_what_was_published_is_found(index, invariant):
    kv = pool_of(4, 2, a=[1, 2, 3])

    kv.index = {page: ((), values) for page, values in index.items()}

    assert broken(kv)[0] == invariant


def test_a_page_that_only_a_lost_entry_held_is_found():
    kv = pool_of(4, 2, a=[1, 2])
    kv.release("a")

    del kv.index[0]

    assert broken(kv)[0] == "every_page_is_held"
