"""The prefix cache of the optimized allocator: its order of reuse, its keys, its hits, its memory."""

import random

import numpy as np
import pytest
from impl_states import caching, ids, of_request, order_of_reuse, state

from kvoracle.impl import BadCall, OutOfBlocks, PagedAllocator
from kvoracle.impl.contents import block_texts, packed, unpacked
from kvoracle.impl.idle_queue import IdleQueue
from kvoracle.impl.pool import BlockPool
from kvoracle.impl.prefix_index import PrefixIndex, sha256_key


def chain_of(allocator, tokens):
    """The keys of the full blocks of a sequence."""
    texts = block_texts(np.array(tokens), allocator.block_size)
    return allocator.index.keys(allocator.index.root({}, 0), texts)


def test_asking_for_the_order_of_reuse_changes_nothing():
    allocator = caching(4, 2, a=[1, 2])
    allocator.release("a")
    before = state(allocator)

    assert sorted(order_of_reuse(allocator)) == [0, 1, 2, 3]
    assert state(allocator) == before


# The promised order of reuse


def test_blocks_that_are_not_published_are_taken_before_idle_ones():
    allocator = caching(4, 2, a=[1, 2, 3, 4])
    allocator.release("a")

    assert order_of_reuse(allocator) == [2, 3, 1, 0]


def test_blocks_that_are_not_published_are_taken_last_in_first_out():
    allocator = caching(6, 4, a=[1], b=[2], c=[3])
    for request in "bca":
        allocator.release(request)

    assert order_of_reuse(allocator) == [0, 2, 1, 3, 4, 5]


def test_idle_blocks_are_taken_least_recently_freed_first():
    allocator = caching(3, 2, a=[1, 2], b=[3, 4], c=[5, 6])
    for request in "bca":
        allocator.release(request)

    assert order_of_reuse(allocator) == [1, 2, 0]


def test_the_idle_tail_of_a_request_is_taken_before_its_head():
    allocator = caching(6, 1, a=[1, 2, 3], b=[7, 8, 9])
    allocator.release("a")
    allocator.release("b")

    assert order_of_reuse(allocator) == [2, 1, 0, 5, 4, 3]


def test_the_partial_tail_of_a_request_goes_before_every_idle_block():
    allocator = caching(6, 2, a=[1, 2, 3, 4, 5], b=[6, 7, 8])
    allocator.release("a")
    allocator.release("b")

    assert order_of_reuse(allocator) == [4, 2, 5, 1, 0, 3]


def test_of_a_batch_release_the_last_request_is_taken_first():
    allocator = caching(4, 1, a=[1, 2], b=[7, 8])
    allocator.release_batch(["a", "b"])

    assert order_of_reuse(allocator) == [3, 2, 1, 0]


def test_a_block_that_a_transfer_held_is_as_young_as_the_end_of_that_transfer():
    allocator = caching(3, 1, a=[1], b=[2], c=[3])
    allocator.pin("a", "t")
    for request in "abc":
        allocator.release(request)
    allocator.unpin("t")

    assert order_of_reuse(allocator) == [1, 2, 0]


def test_a_block_that_was_hit_is_as_young_as_its_last_release():
    allocator = caching(4, 1, a=[1], b=[2])
    allocator.release("a")
    allocator.release("b")
    assert order_of_reuse(allocator)[2:] == [0, 1]

    assert allocator.admit("c", [1, 9]).hit == 1
    allocator.release("c")

    assert order_of_reuse(allocator) == [3, 1, 2, 0]


def test_a_shared_block_is_as_young_as_the_release_of_its_last_owner():
    allocator = caching(3, 1, a=[1], b=[2])
    allocator.fork("a", "c")
    for request in "abc":
        allocator.release(request)

    assert order_of_reuse(allocator) == [2, 1, 0]


def test_what_is_taken_for_a_request_is_in_the_order_of_reuse():
    allocator = caching(4, 1, a=[1, 2], b=[3])
    allocator.release("a")
    allocator.release("b")
    expected = order_of_reuse(allocator)

    allocator.admit("c", [6, 7, 8, 9])

    assert allocator.table("c").tolist() == expected == [3, 1, 0, 2]


def test_reset_makes_idle_blocks_plain_free_ones_the_youngest_first():
    allocator = caching(4, 1, a=[1], b=[2])
    allocator.release("b")
    allocator.release("a")

    allocator.reset_prefix_cache()

    assert order_of_reuse(allocator) == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(60))
def test_the_order_of_reuse_is_exactly_as_promised_in_random_states(seed):
    """Against lists: `stack` is taken from its end, then `queue` from its front."""
    draw = random.Random(seed)
    blocks, size = draw.randint(2, 9), draw.randint(1, 3)
    allocator = caching(blocks, size)
    stack, queue = list(range(blocks))[::-1], []

    def take(count):
        taken = []
        for _ in range(count):
            taken.append(stack.pop() if stack else queue.pop(0))
        return taken

    hits = 0
    for step in range(200):
        live = sorted(allocator.requests.by_name)
        if live and draw.random() < 0.5:
            request = draw.choice(live)
            table = allocator.table(request).tolist()
            allocator.release(request)
            freed = [b for b in table if not allocator.pool.owners[b]]
            stack += [block for block in freed if not allocator.pool.published[block]]
            queue += [block for block in reversed(freed) if allocator.pool.published[block]]
        else:
            prompt = [draw.randint(0, 1) for _ in range(draw.randint(1, 7))]
            try:
                growth = allocator.admit(f"r{step}", prompt)
            except OutOfBlocks:
                continue
            hit = growth.hit // size
            hits += hit
            table = allocator.table(f"r{step}").tolist()
            queue = [block for block in queue if block not in table[:hit]]
            assert table[hit:] == take(len(table) - hit)
        assert order_of_reuse(allocator) == stack[::-1] + queue
    assert hits > 0


# The idle queue


@pytest.mark.parametrize("blocks", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("seed", range(4))
def test_the_idle_queue_is_a_list(blocks, seed):
    draw = random.Random(1000 * blocks + seed)
    queue, model, compactions = IdleQueue(blocks), [], 0
    for _ in range(3000):
        outside = [block for block in range(blocks) if block not in model]
        verb = draw.choice(["append", "append", "remove", "pop"])
        tail = queue._tail
        if verb == "append":
            chosen = draw.sample(outside, draw.randint(0, len(outside)))
            queue.append(ids(*chosen))
            model += chosen
            compactions += queue._tail < tail + len(chosen)
        elif verb == "remove":
            chosen = draw.sample(model, draw.randint(0, len(model)))
            queue.remove(ids(*chosen))
            model = [block for block in model if block not in chosen]
        else:
            count = draw.randint(0, len(model))
            popped = queue.pop(count)
            assert popped.tolist() == model[:count]
            assert popped.dtype == np.int32
            model = model[count:]
        assert len(queue) == len(model)
        assert queue.ids().tolist() == model
    assert compactions > 10


def test_an_idle_queue_that_is_only_appended_to_and_emptied_from_behind_never_overflows():
    queue = IdleQueue(3)
    for _ in range(100):
        queue.append(ids(2, 0, 1))
        queue.remove(ids(1, 2))
        queue.remove(ids(0))

    assert len(queue) == 0
    assert queue.ids().tolist() == queue.pop(0).tolist() == []
    queue.append(ids(1))
    assert queue.pop(1).tolist() == [1]


def test_what_the_idle_queue_gives_is_not_what_it_keeps():
    queue = IdleQueue(3)
    queue.append(ids(2, 0, 1))

    queue.ids()[:] = 0
    queue.pop(1)[:] = 0

    assert queue.ids().tolist() == [0, 1]


def test_a_block_that_left_and_came_back_is_the_youngest():
    queue = IdleQueue(3)
    queue.append(ids(0, 1, 2))
    queue.remove(ids(0))
    queue.append(ids(0))

    assert queue.ids().tolist() == [1, 2, 0]
    assert queue.pop(3).tolist() == [1, 2, 0]


# Admission


def test_a_prompt_that_nothing_holds_is_written_whole():
    allocator = caching(8, 2, a=[1, 2])

    growth = allocator.admit("b", [7, 8, 9])

    assert (growth.hit, growth.copies) == (0, [])
    assert growth.slots.tolist() == [2, 3, 4]
    assert allocator.table("b").tolist() == [1, 2]


def test_a_prompt_that_is_held_in_part_is_written_from_where_it_differs():
    allocator = caching(8, 2, a=[1, 2, 3, 4])

    growth = allocator.admit("b", [1, 2, 9, 9, 9])

    assert growth.hit == 2
    assert growth.slots.tolist() == [4, 5, 6]
    assert growth.slots.dtype == np.int64
    assert allocator.table("b").tolist() == [0, 2, 3]


@pytest.mark.parametrize("in_use", [False, True])
@pytest.mark.parametrize(
    ("length", "hit"), [(1, 0), (2, 0), (3, 2), (4, 2), (5, 4), (6, 4), (7, 6), (9, 6)]
)
def test_a_prompt_is_hit_up_to_the_token_before_its_last(length, hit, in_use):
    allocator = caching(8, 2, a=range(6))
    if not in_use:
        allocator.release("a")

    growth = allocator.admit("b", range(length))

    assert growth.hit == hit
    assert len(growth.slots) == length - hit
    table = allocator.table("b")
    assert table[: hit // 2].tolist() == [0, 1, 2][: hit // 2]
    positions = np.arange(hit, length)
    assert growth.slots.tolist() == (table[positions // 2] * 2 + positions % 2).tolist()


def test_the_last_block_of_a_whole_hit_is_written_again_to_a_block_of_its_own():
    allocator = caching(8, 2, a=[1, 2, 3, 4])

    growth = allocator.admit("b", [1, 2, 3, 4])

    assert allocator.table("b").tolist() == [0, 2]
    assert growth.slots.tolist() == [4, 5]


def test_a_hit_counts_an_owner_and_an_idle_block_leaves_the_queue():
    allocator = caching(4, 2, a=[1, 2, 3, 4])
    allocator.release("a")
    assert allocator.num_free == 4

    allocator.admit("b", [1, 2, 3, 4, 5])

    assert allocator.num_free == 1
    assert allocator.pool.owners.tolist() == [1, 1, 1, 0]
    assert allocator.pool.idle.ids().tolist() == []
    allocator.admit("c", [1, 2, 9])
    assert allocator.pool.owners.tolist() == [2, 1, 1, 1]


def test_with_caching_off_nothing_is_published_hit_or_kept():
    allocator = PagedAllocator(8, 2)
    allocator.admit("a", [1, 2, 3, 4])
    allocator.append("a", [5, 6])

    assert allocator.admit("b", [1, 2, 3]).hit == 0
    allocator.release_batch(["a", "b"])
    assert (allocator.index._blocks, allocator.index._keys) == ({}, {})
    assert not allocator.pool.published.any()
    assert len(allocator.pool.idle) == 0
    assert allocator.chains.of_row == {}
    assert allocator.chains.tails.size == 0


@pytest.mark.parametrize(
    "prompt",
    [
        [1, 2, 5, 6, 7, 8],
        [1, 2, 3, 4, 5, 6, 7, 8],
        [9, 9, 9, 9, 9, 9, 9, 9],
        list(range(100)),
        list(range(1000)),
    ],
    ids=["EV02", "hits two", "hits none", "much too long", "wider than the tables"],
)
def test_an_admission_that_finds_too_few_blocks_changes_nothing(prompt):
    """Four blocks, one in use: idle blocks that are hit are no room for the rest."""
    allocator = caching(4, 2, a=[1, 2, 3, 4], b=[7, 8], empty=[])
    allocator.release("a")
    allocator.append("b", [9])
    allocator.pin("b", "t")
    before = state(allocator)

    with pytest.raises(OutOfBlocks):
        allocator.admit("c", prompt)

    assert state(allocator) == before
    assert allocator.admit("c", [1, 2, 3]).hit == 2


def test_out_of_blocks_says_what_is_free_beside_the_hits():
    allocator = caching(3, 2, a=[1, 2], b=[3, 4])
    allocator.release("a")

    with pytest.raises(OutOfBlocks, match="2 blocks needed, 1 free"):
        allocator.admit("c", [1, 2, 5, 6, 7, 8])


@pytest.mark.parametrize(
    "prompt", [[2**63], [-(2**63) - 1], ["x"], [None], [[1, 2], [3]]], ids=repr
)
def test_a_prompt_of_what_are_no_tokens_is_refused_and_changes_nothing(prompt):
    allocator = caching(4, 2, a=[1, 2])
    before = state(allocator)

    for call in (allocator.admit, allocator.append):
        with pytest.raises((OverflowError, TypeError, ValueError)):
            call("b" if call == allocator.admit else "a", prompt)
        assert state(allocator) == before


@pytest.mark.parametrize(
    "make",
    [
        list,
        tuple,
        lambda tokens: np.array(tokens, np.int32),
        lambda tokens: np.array(tokens, np.int64),
        lambda tokens: np.array(tokens, np.uint16),
        lambda tokens: np.array(tokens, ">i8"),
        lambda tokens: np.repeat(np.array(tokens, np.int64), 2)[::2],
        lambda tokens: np.array(tokens[::-1], np.int32)[::-1],
    ],
    ids=["list", "tuple", "int32", "int64", "uint16", "big endian", "strided", "reversed"],
)
def test_every_kind_of_prompt_has_the_same_keys(make):
    tokens = [1, 2, 3, 300, 5]
    expected = caching(8, 2, a=tokens)

    by_append, by_admit = caching(8, 2), caching(8, 2)
    by_append.create("a")
    by_append.append("a", make(tokens))
    by_admit.admit("a", make(tokens))

    queries = {"statistics": None}
    for allocator in (by_append, by_admit):
        assert state(allocator) | queries == state(expected) | queries
        assert allocator.admit("b", make(tokens)).hit == 4


# Keys


def test_a_key_is_the_sha256_of_the_key_before_it_and_of_its_tokens_as_int32():
    allocator = caching(8, 2, a=[1, 2, 3, 4, 5])
    root = allocator.index.root({}, 0)
    first = sha256_key(root, np.array([1, 2], np.int32).tobytes())
    second = sha256_key(first, np.array([3, 4], np.int32).tobytes())

    assert allocator.index._blocks == {first: [0], second: [1]}


def test_a_block_with_a_token_that_does_not_fit_int32_is_hashed_as_int64_behind_a_byte():
    allocator = caching(8, 2, a=[1, 2, 3, 2**31, 4, 5])
    root = allocator.index.root({}, 0)
    first = sha256_key(root, np.array([1, 2], np.int32).tobytes())
    second = sha256_key(first, b"\0" + np.array([3, 2**31], np.int64).tobytes())
    third = sha256_key(second, np.array([4, 5], np.int32).tobytes())

    assert allocator.index._blocks == {first: [0], second: [1], third: [2]}
    assert allocator.admit("b", [1, 2, 3, 2**31, 4, 5, 6]).hit == 6


@pytest.mark.parametrize("block_size", range(1, 12))
def test_two_narrow_tokens_are_never_the_bytes_of_a_wide_one(block_size):
    wide = np.full(block_size, 2**32 + 7)
    narrow = np.frombuffer(wide.tobytes(), np.int32)
    allocator = caching(64, block_size, a=wide)

    assert allocator.admit("b", [*narrow, 1]).hit == 0
    assert allocator.admit("c", [*wide, 1]).hit == block_size


@pytest.mark.parametrize(
    "tokens", [[], [1], [-(2**31), 2**31 - 1], [2**31], [0, -(2**63), 2**63 - 1], [7] * 9], ids=str
)
def test_packed_tokens_are_unpacked(tokens):
    text = packed(np.array(tokens, np.int64))

    assert unpacked(text).tolist() == tokens
    assert len(text) % 4 == (any(not -(2**31) <= token < 2**31 for token in tokens))


@pytest.mark.parametrize("block_size", [1, 2, 4])
def test_the_same_tokens_under_another_parent_are_never_hit(block_size):
    head, body = list(range(block_size)), list(range(50, 50 + block_size))
    allocator = caching(40, block_size, a=head + body)

    assert allocator.admit("b", [*body, 1]).hit == 0
    assert allocator.admit("c", [*(t + 1 for t in head), *body, 1]).hit == 0
    assert allocator.admit("d", [*head, *head, *body, 1]).hit == block_size
    assert allocator.admit("e", [*head, *body, 1]).hit == 2 * block_size


@pytest.mark.parametrize("difference", [256, 2**16, 2**31, 2**32, 2**62, -256, -(2**16), -(2**31)])
@pytest.mark.parametrize("where", range(4))
def test_tokens_that_agree_in_their_low_bits_are_never_hit(difference, where):
    prompt = [5, 6, 7, 8, 9]
    allocator = caching(16, 2, a=prompt)
    other = list(prompt)
    other[where] += difference

    assert allocator.admit("b", other).hit == where // 2 * 2
    assert allocator.admit("c", prompt).hit == 4


def test_negative_tokens_are_not_their_positive_ones():
    allocator = caching(16, 1, a=[-1, -2])

    assert allocator.admit("b", [1, 2, 3]).hit == 0
    assert allocator.admit("c", [2**63 - 1, 2, 3]).hit == 0
    assert allocator.admit("d", [-1, -2, 3]).hit == 2


def test_a_key_function_that_collides_makes_false_hits():
    """The allocator compares keys and never tokens: it relies on the strength of its hash."""
    allocator = PagedAllocator(8, 2, prefix_cache=True, key_of=lambda parent, tokens: b"same")
    allocator.admit("a", [1, 2])

    growth = allocator.admit("b", [7, 8, 9])

    assert growth.hit == 2
    assert allocator.table("b").tolist() == [0, 1]


def test_a_key_function_is_given_the_parent_and_the_bytes_of_one_block():
    asked = []

    def key_of(parent, tokens):
        asked.append((parent, np.frombuffer(tokens, np.int32).tolist()))
        return b"k%d" % len(asked)

    allocator = PagedAllocator(8, 2, prefix_cache=True, key_of=key_of)
    allocator.admit("a", [1, 2, 3, 4, 5])
    allocator.append("a", [6])

    root = allocator.index.root({}, 0)
    assert asked == [(root, [1, 2]), (b"k1", [3, 4]), (b"k2", [5, 6])]


# Duplicates


def test_duplicates_keep_both_blocks_and_the_first_is_hit():
    allocator = caching(8, 2, a=[1, 2], b=[1, 2])
    assert allocator.table("a").tolist() != allocator.table("b").tolist()

    allocator.admit("c", [1, 2, 3])

    assert allocator.table("c").tolist() == [0, 2]


@pytest.mark.parametrize("gone", ["a", "b"])
def test_a_duplicate_that_is_taken_leaves_the_other_to_be_hit(gone):
    allocator = caching(2, 2, a=[1, 2], b=[1, 2])
    left = int(allocator.table("b" if gone == "a" else "a")[0])
    allocator.release(gone)
    allocator.admit("x", [9])
    allocator.release("x")

    assert allocator.index.match(list(allocator.index._blocks), allocator.pool.is_held) == [left]
    assert allocator.admit("c", [1, 2, 3]).hit == 2
    assert int(allocator.table("c")[0]) == left


def test_an_index_forgets_one_of_its_duplicates_and_then_the_other():
    index = PrefixIndex()
    index.add([b"k"] * 3, [3, 1, 2])

    index.forget(ids(3))
    assert index.match([b"k", b"none"], lambda _: False) == [1]
    index.forget(ids(2, 1))
    assert (index._blocks, index._keys) == ({}, {})
    assert index.match([b"k"], lambda _: False) == []


def test_taking_an_idle_block_forgets_it_and_then_it_misses():
    allocator = caching(3, 1, a=[1], b=[1, 2])
    allocator.release("b")
    allocator.admit("c", [9])
    assert allocator.table("c").tolist() == [2]
    allocator.release("c")

    assert allocator.admit("d", [1, 2, 3]).hit == 1


def test_a_chain_whose_head_is_gone_is_not_hit():
    allocator = caching(4, 1, a=[1], b=[1])
    allocator.append("b", [2])
    allocator.release("a")
    chain = chain_of(allocator, [1, 2])
    allocator.index.forget(ids(0, 1))
    allocator.pool.published[[0, 1]] = False

    assert allocator.index.match(chain, allocator.pool.is_held) == []
    assert allocator.index.match(chain[1:], allocator.pool.is_held) == [2]


# Growth publishes


@pytest.mark.parametrize("block_size", [1, 2, 3, 4])
@pytest.mark.parametrize("cached_prompt", [False, True])
def test_however_a_sequence_was_written_the_same_is_published(block_size, cached_prompt):
    tokens = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
    expected = caching(10, block_size, a=tokens)
    for first in range(len(tokens) + 1):
        ways = [caching(10, block_size) for _ in range(4)]
        for index, allocator in enumerate(ways):
            if index >= 2 and first > 0:
                allocator.admit("a", tokens[:first])
            else:
                allocator.create("a")
                if first > 0:
                    allocator.append("a", tokens[:first])
            for position in range(first, len(tokens)):
                if index % 2 == 0:
                    allocator.append("a", tokens[position : position + 1])
                else:
                    allocator.append_batch(["a"], tokens[position : position + 1])
            assert allocator.index._blocks == expected.index._blocks
            assert allocator.pool.published.tolist() == expected.pool.published.tolist()
            assert of_request(allocator, "a") == of_request(expected, "a")


def test_a_batch_append_publishes_the_blocks_that_it_fills_and_no_others():
    allocator = caching(8, 2, a=[1], b=[5, 6], c=[7])

    allocator.append_batch(["c", "a", "b"], [8, 2, 9])
    allocator.release_batch(["a", "b", "c"])

    assert allocator.pool.published.tolist() == [True, True, True] + [False] * 5
    assert allocator.admit("d", [1, 2, 0]).hit == 2
    assert allocator.admit("e", [7, 8, 0]).hit == 2
    assert allocator.admit("f", [5, 6, 9, 0]).hit == 2


def test_a_request_that_a_batch_refused_keeps_its_chain():
    allocator = caching(2, 2, a=[1, 2], b=[3])

    assert allocator.append_batch(["a", "b"], [8, 4]).slots.tolist() == [-1, 3]
    allocator.release("b")

    assert allocator.append("a", [5]).slots.tolist() == [2]
    allocator.append("a", [6])
    allocator.release("a")
    assert allocator.index.match(chain_of(allocator, [1, 2, 5, 6]), allocator.pool.is_held) == [
        0,
        1,
    ]
    assert allocator.admit("c", [1, 2, 5]).hit == 2


def test_a_request_on_a_hit_publishes_what_it_appends_under_its_whole_prefix():
    allocator = caching(8, 2, a=[1, 2, 3, 4])
    allocator.admit("b", [1, 2, 3, 4, 5])
    allocator.append("b", [6])
    allocator.append("b", [7, 8, 9])

    assert allocator.admit("c", [1, 2, 3, 4, 5, 6, 7, 8, 0]).hit == 8


def test_the_chain_of_a_fork_is_independent_of_its_parents():
    allocator = caching(8, 3, a=[1, 2, 3, 4])
    allocator.fork("a", "b")

    allocator.append("b", [5, 6])
    allocator.append("a", [7])
    allocator.append("a", [8])

    assert allocator.admit("c", [1, 2, 3, 4, 5, 6, 0]).hit == 6
    assert allocator.admit("d", [1, 2, 3, 4, 7, 8, 0]).hit == 6
    assert allocator.admit("e", [1, 2, 3, 4, 5, 8, 0]).hit == 3


def test_the_chain_of_a_row_that_is_used_again_begins_anew():
    allocator = caching(8, 2, a=[1, 2, 3])
    row = allocator.requests.row("a")
    allocator.release("a")

    allocator.create("b")
    assert allocator.requests.row("b") == row
    allocator.append("b", [4])
    allocator.append("b", [5])

    assert allocator.admit("c", [4, 5, 6]).hit == 2
    assert allocator.admit("d", [1, 2, 3, 4, 0]).hit == 2


# Reset


@pytest.mark.parametrize("hold", ["own", "pin"])
def test_reset_is_refused_while_a_block_is_in_use_and_changes_nothing(hold):
    allocator = caching(4, 2, a=[1, 2], b=[3, 4])
    allocator.release("b")
    if hold == "pin":
        allocator.pin("a", "t")
        allocator.release("a")
    before = state(allocator)

    with pytest.raises(BadCall, match="blocks in use: 'reset'"):
        allocator.reset_prefix_cache()

    assert state(allocator) == before


def test_reset_forgets_every_entry():
    allocator = caching(4, 2, a=[1, 2, 3, 4], b=[1, 2], empty=[])
    allocator.release_batch(["a", "b"])

    allocator.reset_prefix_cache()

    assert (allocator.index._blocks, allocator.index._keys) == ({}, {})
    assert not allocator.pool.published.any()
    assert (allocator.num_free, len(allocator.pool.idle)) == (4, 0)
    assert allocator.admit("c", [1, 2, 3]).hit == 0


def test_a_pool_can_be_reset_again_and_again():
    allocator = caching(4, 2)
    for _ in range(50):
        allocator.reset_prefix_cache()
        assert allocator.admit("a", [1, 2, 3, 4, 5]).hit == 0
        allocator.release("a")
        assert allocator.admit("b", [1, 2, 3, 4, 5]).hit == 4
        allocator.release("b")


# Memory


@pytest.mark.parametrize("blocks", [1, 1000, 100_000])
def test_the_metadata_of_a_block_in_the_pool_is_at_most_40_bytes(blocks):
    pool = BlockPool(blocks, lambda _: None)
    parts = [*vars(pool).values(), *vars(pool.idle).values()]

    used = sum(part.nbytes for part in parts if isinstance(part, np.ndarray))

    assert used / blocks <= 40
    assert used / blocks == 37
