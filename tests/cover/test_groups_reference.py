"""`GroupedKV`: windows with the null block, several groups on one pool, one agreed hit."""

import random

import pytest

from kvoracle.reference import BrokenInvariant, Rejected, WrongChoice
from kvoracle.reference.group_invariants import INVARIANTS, describe
from kvoracle.reference.group_records import NULL_BLOCK, Choices, Group
from kvoracle.reference.groups import GroupedKV

FULL_2, WINDOW_2_3, WINDOW_4_2 = Group(2), Group(2, 3), Group(4, 2)


class Told(Choices):
    """Choices that a test gives beforehand; what it does not give the reference chooses alone."""

    def __init__(self, *, hit=None, hits=None, fresh=None):
        self.told = {"hit": hit, "hits": hits, "fresh": fresh}

    def hit(self, request, lengths):
        return super().hit(request, lengths) if self.told["hit"] is None else self.told["hit"]

    def hit_blocks(self, request, candidates):
        return self.told["hits"] or super().hit_blocks(request, candidates)

    def fresh_blocks(self, request, places, takeable):
        return self.told["fresh"] or super().fresh_blocks(request, places, takeable)


def seen_by_the_next_query(group, length):
    """The blocks that hold a token which the query at position `length` sees, and its own."""
    first = max(0, length - group.window + 1) if group.window else 0
    return {position // group.block_size for position in range(first, length + 1)}


def pool_state(kv):
    kv.check()
    return (
        sorted(kv.free),
        {request: [list(t) for t in tables] for request, tables in kv.tables.items()},
        {page: (list(p.tokens), set(p.owners)) for page, p in kv.pages.items()},
        dict(kv.index),
        {request: list(content.tokens) for request, content in kv.contents.items()},
        dict(kv.taken),
    )


def forget(kv, is_chosen):
    """Let the idle blocks of chosen groups and lengths of content be free."""
    for page in [p for p, (group, _, values) in kv.index.items() if is_chosen(group, len(values))]:
        del kv.index[page], kv.pages[page]
        kv.free.append(page)


# Windows


@pytest.mark.parametrize("size", range(1, 6))
@pytest.mark.parametrize("window", range(13))
def test_a_table_keeps_what_the_next_query_sees_and_nothing_else(size, window):
    group = Group(size, window)
    kv = GroupedKV(40, [group], caching=False)
    kv.create("a")

    for length in range(1, 40):
        kv.append("a", length)
        (table,) = kv.tables["a"]
        kept = {position for position, page in enumerate(table) if page != NULL_BLOCK}
        written = set(range(group.blocks(length)))
        assert kept == seen_by_the_next_query(group, length) & written
        assert len(kv.takeable()) == 40 - len(kept)
        kv.check()


@pytest.mark.parametrize("size", range(1, 6))
@pytest.mark.parametrize("window", range(1, 13))
def test_a_window_spans_one_block_more_than_it_fills_and_no_more(size, window):
    group = Group(size, window)
    most = max(len(seen_by_the_next_query(group, length)) for length in range(60))

    assert most == (window - 2) // size + 2 if window > 1 else most == 1


def test_one_append_takes_blocks_for_all_its_tokens_and_gives_back_what_is_out_of_the_window():
    kv = GroupedKV(5, [WINDOW_2_3], caching=False)
    kv.create("a")

    with pytest.raises(MemoryError, match="6 blocks needed in all groups, 5 free for them"):
        kv.append("a", *range(11))
    kv.append("a", *range(10))

    assert kv.tables["a"] == [[0, 0, 0, 0, 5]]
    assert sorted(kv.free) == [1, 2, 3, 4]


def test_a_block_larger_than_its_window_goes_when_the_window_has_left_it():
    kv = GroupedKV(3, [WINDOW_4_2], caching=False)
    kv.create("a")
    kv.append("a", *range(4))
    assert kv.tables["a"] == [[1]]

    kv.append("a", 4)

    assert kv.tables["a"] == [[0, 2]]


def test_what_leaves_a_window_is_idle_where_it_is_published_and_free_otherwise():
    caching, plain = (GroupedKV(4, [WINDOW_2_3], caching=caching) for caching in (True, False))
    for kv in (caching, plain):
        kv.admit("a", *range(6))
        assert kv.tables["a"] == [[0, 0, 3]]

    assert (sorted(caching.idle()), caching.free) == ([1, 2], [4])
    assert (plain.idle(), sorted(plain.free)) == ([], [1, 2, 4])


def test_what_a_step_drops_is_not_taken_in_the_same_step():
    told = Told()
    kv = GroupedKV(3, [Group(1, 1), Group(2)], choices=told, caching=False)
    for request in ("a", "b"):
        kv.create(request)
    kv.append("a", 0)
    assert kv.tables["a"] == [[0], [2]]

    assert kv.append_each(["a", "b"], [1, 1]) == ["b"]

    assert kv.tables == {"a": [[0, 0], [2]], "b": [[], []]}
    assert len(kv.takeable()) == 2


# Several groups on one pool


def test_a_call_succeeds_in_all_groups_or_changes_nothing():
    kv = GroupedKV(4, [Group(1), Group(2)])
    kv.create("a")
    kv.append("a", 0, 1)
    before = pool_state(kv)

    with pytest.raises(MemoryError, match="2 blocks needed in all groups, 1 free for them"):
        kv.append("a", 2)
    with pytest.raises(MemoryError):
        kv.admit("b", 9)

    assert pool_state(kv) == before
    assert kv.demand == (2, 1)


def test_a_block_of_one_group_is_taken_by_another():
    kv = GroupedKV(2, [Group(1, 1), Group(4)], caching=False)
    kv.create("a")
    kv.append("a", 0)
    kv.create("b")
    assert kv.tables["a"] == [[0], [2]]
    kv.release("a")

    kv.append("b", 0)

    assert kv.tables["b"] == [[0], [2]]
    assert kv.taken == {1: 2, 2: 2}


def test_room_is_counted_over_the_one_pool():
    kv = GroupedKV(7, [Group(1), Group(2), Group(4)], caching=False)
    kv.create("a")

    kv.append("a", *range(4))

    assert [len(table) for table in kv.tables["a"]] == [4, 2, 1]
    assert kv.takeable() == []


# The agreed hit


def test_a_hit_is_as_long_as_every_group_can_serve():
    kv = GroupedKV(20, [Group(2), Group(4)])
    kv.admit("a", *range(6))

    assert kv.admit("b", *range(8)) == 4
    assert kv.tables["b"][0][:2] == kv.tables["a"][0][:2]
    assert kv.tables["b"][1][0] == kv.tables["a"][1][0]
    kv.check()


def test_one_group_without_anything_leaves_nothing_to_the_others():
    kv = GroupedKV(12, [Group(2), Group(2), Group(2, 3)])
    kv.admit("a", *range(6))
    kv.release("a")
    forget(kv, lambda group, _: group == 2)

    assert kv.hit_lengths(kv.findable((), range(7)), 7) == [0]
    assert kv.admit("b", *range(7)) == 0


def test_a_window_needs_only_what_the_next_query_sees():
    kv = GroupedKV(10, [Group(1, 3)])
    kv.admit("a", *range(6))
    kv.release("a")
    forget(kv, lambda _, length: length < 4)

    assert kv.admit("b", *range(6), 9) == 6
    assert kv.tables["b"][0][:5] == [0] * 5
    assert kv.hit_lengths(kv.findable((), range(9)), 9) == [0, 5, 6]
    assert kv.hit_lengths(kv.findable((), range(5)), 5) == [0]


@pytest.mark.parametrize(("prompt", "hit"), [(4, 2), (5, 4), (8, 6), (9, 8)])
def test_the_last_token_is_never_hit(prompt, hit):
    kv = GroupedKV(20, [Group(1), Group(2)])
    kv.admit("a", *range(10))

    assert kv.admit("b", *range(prompt)) == hit


def test_the_same_tokens_are_not_the_same_in_another_group():
    kv = GroupedKV(8, [Group(2), Group(2)])
    kv.admit("a", 0, 1)
    kv.release("a")
    forget(kv, lambda group, _: group == 1)

    assert kv.admit("b", 0, 1, 2) == 0


def test_extra_keys_keep_blocks_apart():
    kv = GroupedKV(20, [FULL_2, WINDOW_2_3])
    kv.admit("a", 0, 1, 2, extra_keys={"salt": "x"})

    assert kv.admit("b", 0, 1, 2) == 0
    assert kv.admit("c", 0, 1, 2, extra_keys={"adapter": "x"}) == 0
    assert kv.admit("d", 0, 1, 2, extra_keys={"salt": "x", "adapter": ""}) == 2


def test_without_caching_nothing_is_hit_even_where_nothing_is_needed():
    kv = GroupedKV(9, [Group(1, 1)], caching=False)
    kv.admit("a", 0, 1)

    assert kv.admit("b", 0, 1) == 0


def test_a_window_of_one_token_needs_nothing():
    kv = GroupedKV(9, [Group(1, 1)])

    assert kv.admit("a", 0, 1, 2) == 2
    assert kv.taken == {page: int(page == 1) for page in range(1, 10)}


# What an allocator chose is judged


def test_a_hit_of_one_group_is_not_taken_by_another_in_the_same_call():
    told = Told()
    kv = GroupedKV(5, [Group(2), Group(2, 2)], choices=told)
    kv.admit("a", 0, 1)
    kv.release("a")
    hit = next(page for page, (group, *_) in kv.index.items() if group == 1)

    told.told["fresh"] = [hit, 5]

    with pytest.raises(WrongChoice, match="which hits it in this call") as wrong:
        kv.admit("b", 0, 1, 2)
    assert wrong.value.page == hit


def test_there_must_be_room_beside_the_hits():
    kv = GroupedKV(4, [Group(1), Group(1)])
    kv.admit("a", 0, 1)
    kv.release("a")
    before = pool_state(kv)

    with pytest.raises(MemoryError, match="2 blocks needed in all groups, 0 free for them"):
        kv.admit("b", 0, 1, 2)

    assert pool_state(kv) == before


@pytest.mark.parametrize(
    ("fresh", "said"),
    [
        ([1, 2], "is not free"),
        ([3, 3], "taken twice"),
        ([3], "2 blocks were needed and 1 taken"),
        ([0, 3], r"block 0 \(outside the pool\) was taken"),
        ([3, 9], r"block 9 \(outside the pool\) was taken"),
    ],
)
def test_blocks_that_are_not_to_be_taken(fresh, said):
    told = Told()
    kv = GroupedKV(6, [Group(2), Group(2)], choices=told)
    kv.admit("a", 0)
    told.told["fresh"] = fresh
    before = pool_state(kv)

    with pytest.raises(WrongChoice, match=said):
        kv.admit("b", 0)

    assert pool_state(kv) == before


def test_a_hit_on_other_content():
    told = Told()
    kv = GroupedKV(6, [Group(2)], choices=told)
    kv.admit("a", 0, 1, 2, 3)
    told.told["hits"] = [2]

    with pytest.raises(WrongChoice, match="does not hold its prefix"):
        kv.admit("b", 0, 1, 9)


@pytest.mark.parametrize(("finds_longest", "asked"), [(True, [[4]]), (False, [[0, 2, 4]])])
def test_a_shorter_hit_will_do_only_where_the_longest_is_not_required(finds_longest, asked):
    lengths_asked = []

    class Shortest(Choices):
        def hit(self, request, lengths):
            lengths_asked.append(lengths)
            return lengths[0]

    kv = GroupedKV(20, [Group(2)], choices=Shortest(), finds_longest=finds_longest)
    kv.admit("a", *range(4))
    kv.append("a", 4, 5)
    lengths_asked.clear()

    assert kv.admit("b", *range(6)) == asked[0][0]
    assert lengths_asked == asked


def test_whoever_may_hit_less_may_need_more():
    kv = GroupedKV(5, [Group(1)], finds_longest=False)
    kv.admit("a", 0, 1, 2)

    kv.admit("b", 0, 1, 2, 3)

    assert kv.may_refuse is True


# Requests begin and end


def test_a_preempted_request_resumes_on_what_is_left_of_it():
    kv = GroupedKV(9, [Group(2), Group(2, 3)])
    kv.admit("a", *range(5), extra_keys={"salt": "x"})
    kv.preempt("a")
    assert len(kv.takeable()) == 9

    assert kv.resume("a") == 4
    assert kv.read("a") == list(range(5))
    assert kv.preempted == {}
    kv.check()


def test_out_of_blocks_leaves_a_preempted_request_preempted():
    kv = GroupedKV(3, [Group(1)], caching=False)
    kv.admit("a", 0, 1)
    kv.preempt("a")
    kv.admit("b", 2, 3)

    with pytest.raises(MemoryError):
        kv.resume("a")
    kv.release("b")

    assert kv.resume("a") == 0


def test_reset_forgets_what_nobody_owns():
    kv = GroupedKV(6, [Group(2), Group(4)])
    kv.admit("a", *range(4))
    with pytest.raises(Rejected, match="blocks in use"):
        kv.reset()
    kv.release("a")

    kv.reset()

    assert (kv.index, kv.pages, sorted(kv.free)) == ({}, {}, [1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda kv: kv.create("a"), "duplicate request"),
        (lambda kv: kv.create("p"), "duplicate request"),
        (lambda kv: kv.admit("a", 1), "duplicate request"),
        (lambda kv: kv.admit("n"), "no tokens"),
        (lambda kv: kv.append("n", 1), "unknown request"),
        (lambda kv: kv.append("p", 1), "unknown request"),
        (lambda kv: kv.append("a"), "no tokens"),
        (lambda kv: kv.append_each([], []), "no requests"),
        (lambda kv: kv.append_each(["a", "n"], [1, 2]), "unknown request"),
        (lambda kv: kv.append_each(["a", "a"], [1, 2]), "repeated request"),
        (lambda kv: kv.append_each(["a"], [1, 2]), "one token for each request"),
        (lambda kv: kv.release("n"), "unknown request"),
        (lambda kv: kv.release_each([]), "no requests"),
        (lambda kv: kv.release_each(["p"]), "unknown request"),
        (lambda kv: kv.preempt("n"), "unknown request"),
        (lambda kv: kv.preempt("empty"), "no tokens"),
        (lambda kv: kv.resume("a"), "not preempted"),
        (lambda kv: kv.reset(), "blocks in use"),
        (lambda kv: kv.read("n"), "unknown request"),
    ],
)
def test_misuse_is_rejected_and_changes_nothing(call, reason):
    kv = GroupedKV(9, [FULL_2, WINDOW_2_3])
    kv.create("empty")
    kv.admit("a", 0, 1, 2)
    kv.admit("p", 5)
    kv.preempt("p")
    before = pool_state(kv)

    with pytest.raises(Rejected) as rejected:
        call(kv)

    assert rejected.value.reason == reason
    assert pool_state(kv) == before


@pytest.mark.parametrize(
    ("capacity", "groups"),
    [(0, [Group(1)]), (1, []), (1, [Group(0)]), (1, [Group(1, -1)])],
)
def test_a_pool_that_makes_no_sense(capacity, groups):
    with pytest.raises(ValueError, match="block sizes from 1 and windows from 0"):
        GroupedKV(capacity, groups)


# Invariants


def own_twice(kv):
    kv.tables["a"][0][0] = kv.tables["a"][1][2]


def null_in_the_pool(kv):
    kv.free.append(NULL_BLOCK)


def null_published(kv):
    kv.index[NULL_BLOCK] = (0, (), (1, 2))


def lost(kv):
    kv.free.pop()


def unowned(kv):
    kv.pages[kv.tables["a"][0][0]].owners.clear()


def kept_beyond_the_window(kv):
    idle = kv.idle()[0]
    kv.tables["a"][1][0] = idle
    kv.pages[idle].owners.add("a")


def null_within_the_window(kv):
    page, kv.tables["a"][0][0] = kv.tables["a"][0][0], NULL_BLOCK
    kv.pages[page].owners.clear()


def other_tokens(kv):
    kv.pages[kv.tables["a"][0][2]].tokens[0] = 99


def published_as_another(kv):
    page = kv.tables["a"][0][0]
    kv.index[page] = (0, (), (7, 7))


def not_published(kv):
    del kv.index[kv.tables["a"][0][0]]


def held_by_nothing(kv):
    page = kv.free.pop()
    kv.pages[page] = type(kv.pages[kv.tables["a"][0][0]])()


@pytest.mark.parametrize(
    ("corrupt", "invariant"),
    [
        (own_twice, "tables_and_owners_agree"),
        (null_in_the_pool, "every_block_is_in_one_place"),
        (null_published, "every_block_is_in_one_place"),
        (lost, "every_block_is_in_one_place"),
        (unowned, "tables_and_owners_agree"),
        (kept_beyond_the_window, "tables_name_what_is_seen"),
        (null_within_the_window, "tables_name_what_is_seen"),
        (other_tokens, "blocks_hold_their_tokens"),
        (published_as_another, "published_blocks_hold_what_they_say"),
        (not_published, "full_blocks_are_published"),
        (held_by_nothing, "allocated_blocks_are_held"),
    ],
)
def test_check_finds_what_is_broken(corrupt, invariant):
    kv = GroupedKV(9, [FULL_2, WINDOW_2_3])
    kv.admit("a", *range(5))
    kv.check()

    corrupt(kv)

    with pytest.raises(BrokenInvariant) as broken:
        kv.check()
    assert broken.value.invariant == invariant


def test_every_invariant_is_shown_to_find_something():
    names = {invariant.__name__ for invariant in INVARIANTS}

    assert len(names) == len(INVARIANTS) == 7


def test_a_block_in_words():
    kv = GroupedKV(9, [FULL_2])
    kv.admit("a", 0, 1, 2)

    assert describe(kv, 1) == "block 1 (owners: a; published in group 0)"
    assert describe(kv, 2) == "block 2 (owners: a)"
    assert describe(kv, 3) == "block 3 (not allocated)"
    assert describe(kv, 0) == "block 0 (outside the pool)"


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_done_every_invariant_holds(seed):
    draw = random.Random(seed)
    groups = [Group(draw.randint(1, 4), draw.choice([0, 0, 1, 2, 3, 5, 7])) for _ in range(3)]
    kv = GroupedKV(draw.randint(4, 40), groups[: draw.randint(1, 3)], caching=seed % 4 > 0)
    for _ in range(60):
        name, count = draw.choice("abcd"), draw.randint(1, 9)
        verb, *arguments = draw.choice(
            [
                ("admit", name, *[draw.randint(0, 1) for _ in range(count)]),
                ("append", name, *[0] * count),
                ("append_each", [*kv.tables], [0] * len(kv.tables)),
                ("release", name),
                ("preempt", name),
                ("resume", name),
            ]
        )
        before = pool_state(kv)
        try:
            getattr(kv, verb)(*arguments)
        except (MemoryError, Rejected):
            assert pool_state(kv) == before
        kv.check()
    for name in [*kv.tables, *kv.preempted]:
        kv.release(name)
    assert len(kv.takeable()) == kv.capacity
