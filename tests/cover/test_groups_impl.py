"""`GroupedAllocator`: numpy tables a group, the null block, one pool, one agreed hit."""

import numpy as np
import pytest

from kvoracle.impl import BadCall, OutOfBlocks
from kvoracle.impl.groups import GroupedAllocator
from kvoracle.impl.layer_group import NULL, LayerGroup

FULL, WINDOW = (2, 0), (2, 3)


def tables(allocator, request):
    return [table.tolist() for table in allocator.tables(request)]


def state(allocator):
    names = sorted(allocator.by_name)
    return (
        allocator.num_free,
        {name: tables(allocator, name) for name in names},
        allocator.pool.owners.tolist(),
        allocator.pool.generations.tolist(),
        sorted(allocator.preempted),
        [group.tables.lengths.tolist() for group in allocator.groups],
    )


def caching(blocks, *groups):
    return GroupedAllocator(blocks, groups, prefix_cache=True)


# The null block and windows


@pytest.mark.parametrize("size", range(1, 5))
@pytest.mark.parametrize("window", range(9))
def test_what_the_next_query_sees(size, window):
    allocator = GroupedAllocator(1, [(size, window)])
    lengths = np.arange(40)

    firsts = allocator.groups[0].first_seen(lengths)

    for length, first in zip(lengths.tolist(), firsts.tolist(), strict=True):
        seen = range(max(0, length - window + 1) if window else 0, length + 1)
        assert first == min(position // size for position in seen)


def test_the_null_block_is_never_free_never_taken_and_never_counted():
    allocator = GroupedAllocator(3, [(1, 0)])

    assert allocator.num_free == 3
    allocator.create("a")
    allocator.append("a", [1, 2, 3])

    assert sorted(tables(allocator, "a")[0]) == [1, 2, 3]
    assert allocator.pool.owners[NULL] == 1
    with pytest.raises(OutOfBlocks):
        allocator.append("a", [4])
    allocator.release("a")
    assert allocator.num_free == 3
    assert allocator.pool.owners[NULL] == 1


def test_what_leaves_a_window_is_null_and_given_back():
    allocator = GroupedAllocator(8, [FULL, WINDOW])
    allocator.create("a")

    growth = allocator.append("a", range(7))

    full, windowed = tables(allocator, "a")
    assert windowed == [NULL, NULL, *windowed[2:]]
    assert NULL not in full + windowed[2:]
    assert allocator.num_free == 8 - 4 - 2
    assert growth.slots.shape == (2, 7)
    assert growth.slots.dtype == np.int64


def test_slots_count_in_the_block_size_of_their_group():
    allocator = GroupedAllocator(9, [(1, 0), (4, 0)])
    allocator.create("a")
    allocator.append("a", [1])

    growth = allocator.append("a", [2, 3, 4])

    small, large = tables(allocator, "a")
    assert growth.slots.tolist() == [small[1:], [large[0] * 4 + offset for offset in (1, 2, 3)]]


def test_the_slots_of_what_leaves_its_window_at_once_are_still_told():
    allocator = GroupedAllocator(4, [(1, 1)])
    allocator.create("a")

    growth = allocator.append("a", range(4))

    assert sorted(growth.slots[0].tolist()) == [1, 2, 3, 4]
    assert tables(allocator, "a") == [[NULL] * 4]
    assert allocator.num_free == 4


def test_a_shared_block_leaves_one_window_at_a_time():
    allocator = caching(12, (2, 3))
    allocator.admit("a", range(4))
    allocator.admit("b", range(5))
    shared = tables(allocator, "a")[0][1]
    assert tables(allocator, "b")[0][1] == shared
    assert allocator.pool.owners[shared] == 2

    allocator.append_batch(["a", "b"], [7, 8])
    allocator.append_batch(["a", "b"], [7, 8])

    assert allocator.pool.owners[shared] == 0
    assert [tables(allocator, name)[0][1] for name in "ab"] == [NULL, NULL]


# All groups or none


def test_a_call_that_finds_too_few_blocks_changes_nothing():
    allocator = caching(4, (1, 0), (2, 0))
    allocator.admit("a", [1, 2])
    before = state(allocator)

    with pytest.raises(OutOfBlocks) as out:
        allocator.append("a", [3])
    with pytest.raises(OutOfBlocks):
        allocator.admit("b", [9])

    assert (out.value.need, out.value.free) == (2, 1)
    assert state(allocator) == before


def test_a_batch_grants_in_order_what_fits_in_all_groups():
    allocator = GroupedAllocator(8, [(1, 0), (2, 0)])
    for name, tokens in (("a", [1, 2]), ("b", [3]), ("c", [4])):
        allocator.create(name)
        allocator.append(name, tokens)
    assert allocator.num_free == 1

    growth = allocator.append_batch(["a", "b", "c"], [5, 6, 7])

    assert growth.granted.tolist() == [False, True, False]
    assert (growth.slots == -1).tolist() == [[True, False, True]] * 2
    assert [len(table) for table in allocator.tables("b")] == [2, 1]
    assert allocator.num_free == 0


def test_hits_of_all_groups_are_marked_before_any_block_is_taken():
    allocator = caching(5, (2, 0), (2, 2))
    allocator.admit("a", [1, 2])
    allocator.release("a")

    growth = allocator.admit("b", [1, 2, 3])

    assert growth.hit == 2
    full, windowed = tables(allocator, "b")
    assert len({*full, *windowed}) == 4


def test_whether_an_append_finds_room_in_all_groups():
    allocator = GroupedAllocator(4, [(1, 0), (2, 2)])
    allocator.create("a")

    assert [allocator.can_append("a", count) for count in (1, 2, 3, 9)] == [
        True,
        True,
        False,
        False,
    ]
    with pytest.raises(BadCall):
        allocator.can_append("n", 1)


# The agreed hit


@pytest.mark.parametrize(
    ("groups", "hit"),
    [
        ([(1, 0)], 7),
        ([(2, 0)], 6),
        ([(4, 0)], 4),
        ([(1, 0), (4, 0)], 4),
        ([(2, 0), (1, 2)], 6),
        ([(3, 0), (2, 3)], 6),
        ([(3, 0), (4, 0)], 0),
    ],
)
def test_a_hit_ends_where_all_groups_have_an_edge(groups, hit):
    allocator = caching(60, *groups)
    allocator.admit("a", range(7))

    assert allocator.admit("b", range(8)).hit == hit
    assert allocator.admit("c", range(8), {"salt": "x"}).hit == 0


def test_a_hit_begins_with_null_where_a_window_no_longer_looks():
    allocator = caching(20, (2, 0), (2, 3))
    allocator.admit("a", range(8))

    growth = allocator.admit("b", range(9))

    assert growth.hit == 8
    assert [table[:3] for table in tables(allocator, "b")][1] == [NULL] * 3
    assert tables(allocator, "b")[1][3] == tables(allocator, "a")[1][3]


def test_the_same_tokens_have_another_key_in_every_group():
    allocator = caching(9, (2, 0), (2, 0))
    allocator.admit("a", [1, 2])

    first, second = (table[0] for table in tables(allocator, "a"))
    allocator.admit("b", [1, 2, 3])

    assert [table[0] for table in tables(allocator, "b")] == [first, second]


def test_nothing_is_hit_without_a_prefix_cache_and_never_the_last_token():
    plain, allocator = GroupedAllocator(9, [(1, 0)]), caching(9, (1, 0))
    for one in (plain, allocator):
        one.admit("a", [1, 2])

    assert plain.admit("b", [1, 2]).hit == 0
    assert allocator.admit("b", [1, 2]).hit == 1


@pytest.mark.parametrize("with_cache", [True, False])
def test_preempted_and_resumed(with_cache):
    allocator = GroupedAllocator(9, [FULL, WINDOW], prefix_cache=with_cache)
    allocator.admit("a", range(5))
    allocator.preempt("a")
    assert allocator.num_free == 9

    growth = allocator.resume("a")

    assert growth.hit == (4 if with_cache else 0)
    assert growth.slots.shape == (2, 5 - growth.hit)
    assert allocator.append("a", [5]).slots.shape == (2, 1)


def test_reset_forgets_what_nobody_owns():
    allocator = caching(9, FULL, WINDOW)
    allocator.admit("a", range(5))
    allocator.release("a")

    allocator.reset_prefix_cache()

    assert allocator.admit("a", range(5)).hit == 0


# Misuse


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda a: a.create("a"), "duplicate request"),
        (lambda a: a.admit("p", [1]), "duplicate request"),
        (lambda a: a.admit("n", []), "no tokens"),
        (lambda a: a.append("n", [1]), "unknown request"),
        (lambda a: a.append("a", []), "no tokens"),
        (lambda a: a.append_batch([], []), "no requests"),
        (lambda a: a.append_batch(["a", "n"], [1, 2]), "unknown request"),
        (lambda a: a.append_batch(["a", "a"], [1, 2]), "repeated request"),
        (lambda a: a.append_batch(["a"], [1, 2]), "one token for each request"),
        (lambda a: a.release("n"), "unknown request"),
        (lambda a: a.release_batch(["p"]), "unknown request"),
        (lambda a: a.preempt("empty"), "no tokens"),
        (lambda a: a.resume("a"), "not preempted"),
        (lambda a: a.reset_prefix_cache(), "blocks in use"),
        (lambda a: a.tables("n"), "unknown request"),
    ],
)
def test_misuse_is_refused_and_changes_nothing(call, reason):
    allocator = caching(9, FULL, WINDOW)
    allocator.create("empty")
    allocator.admit("a", [1, 2, 3])
    allocator.admit("p", [7])
    allocator.preempt("p")
    before = state(allocator)

    with pytest.raises(BadCall) as bad:
        call(allocator)

    assert bad.value.reason == reason
    assert state(allocator) == before


@pytest.mark.parametrize(
    ("blocks", "groups"), [(0, [(1, 0)]), (1, []), (1, [(0, 0)]), (1, [(1, -1)]), (1, [(1.5, 0)])]
)
def test_a_pool_that_makes_no_sense(blocks, groups):
    with pytest.raises(ValueError, match=r"is at least|is a whole number"):
        GroupedAllocator(blocks, groups)


def test_extra_keys_are_checked():
    with pytest.raises(ValueError, match="extra keys map"):
        caching(9, FULL).admit("a", [1], {"colour": "red"})


def test_rows_grow_with_the_requests_in_all_groups():
    allocator = caching(200, (1, 0), (2, 3), (4, 1))
    names = [f"r{number}" for number in range(40)]
    for name in names:
        allocator.admit(name, [hash(name), 1])

    allocator.append_batch(names, range(40))
    allocator.release_batch(names[::2])

    assert allocator.tables("r1")[0].shape == (3,)
    allocator.release_batch(names[1::2])
    assert allocator.num_free == 200


def test_sliding_nothing_costs_nothing():
    allocator = GroupedAllocator(4, [(2, 5)])
    allocator.create("a")
    allocator.append("a", [1])
    group: LayerGroup = allocator.groups[0]

    assert group.slide(np.array([0]), np.array([0])).tolist() == []
