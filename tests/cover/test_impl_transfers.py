"""Transfers in and out: pins until the last acknowledgement, leases, and words that come late or twice."""

import pytest
from impl_states import allocator_with, assert_is_whole, caching, numbers, of_request, state

from kvoracle.impl import BadCall, OutOfBlocks, PagedAllocator
from kvoracle.impl.generations import Generations


def refuses(allocator, reason, call):
    """The call is refused for this reason and changes nothing."""
    before = state(allocator)
    with pytest.raises(BadCall) as caught:
        call()
    assert caught.value.reason == reason
    assert state(allocator) == before


# Out


def test_a_transfer_out_holds_the_table_until_every_worker_is_done():
    allocator = allocator_with(8, 2, a=3)
    generation = allocator.send("a", "t", 3)
    allocator.release("a")

    for worker in (2, 0):
        allocator.acknowledge("t", worker, generation)
        assert allocator.num_free == 6
    allocator.acknowledge("t", 1, generation)

    assert allocator.num_free == 8
    assert_is_whole(allocator)


def test_a_tail_that_is_sent_is_copied_before_it_is_written():
    allocator = allocator_with(8, 4, a=2)
    generation = allocator.send("a", "t", 1)

    assert allocator.append("a", [1]).copies == [(0, 1)]
    assert allocator.num_free == 6
    allocator.acknowledge("t", 0, generation)
    assert allocator.num_free == 7


def test_two_transfers_of_one_table_end_by_themselves():
    allocator = allocator_with(8, 2, a=3)
    first, second = allocator.send("a", "t", 1), allocator.send("a", "u", 1)
    allocator.release("a")

    allocator.acknowledge("u", 0, second)
    assert allocator.num_free == 6
    allocator.acknowledge("t", 0, first)
    assert allocator.num_free == 8


# In


def test_a_transfer_in_begins_on_the_hits_and_writes_the_rest():
    allocator = caching(8, 2, a=[1, 2, 3, 4])

    growth = allocator.receive("b", [1, 2, 9, 9, 9], "t", 2)

    assert (growth.hit, growth.copies) == (2, [])
    assert growth.slots.tolist() == [4, 5, 6]
    now = of_request(allocator, "b")
    assert (now["length"], now["reserved"], now["waiting"]) == (2, 3, True)
    assert now["table"] == [0, 2, 3]
    assert allocator.pool.pins.tolist() == [0, 0, 1, 1, 0, 0, 0, 0]
    assert_is_whole(allocator)


def test_what_is_received_is_written_and_published_with_the_last_acknowledgement():
    allocator = caching(8, 2)
    allocator.receive("a", [1, 2, 3, 4, 5], "t", 2)
    generation = allocator.generation_of("t")

    allocator.acknowledge("t", 1, generation)
    assert of_request(allocator, "a")["length"] == 0
    assert allocator.admit("b", [1, 2, 3]).hit == 0

    allocator.acknowledge("t", 0, generation)
    now = of_request(allocator, "a")
    assert (now["length"], now["reserved"], now["waiting"]) == (5, 0, False)
    assert now["written"] == [1, 2, 3, 4, 5]
    assert allocator.append("a", [6]).slots.tolist() == [5]
    assert allocator.admit("c", [1, 2, 3, 4, 5, 6, 7]).hit == 6
    assert_is_whole(allocator)


@pytest.mark.parametrize("again", [False, True])
def test_what_arrives_for_a_request_that_is_gone_is_not_published(again):
    allocator = caching(4, 2)
    allocator.receive("a", [1, 2, 3], "t", 1)
    allocator.release("a")
    if again:
        allocator.create("a")
    assert allocator.num_free == 2

    allocator.acknowledge("t", 0, allocator.generation_of("t"))

    assert allocator.num_free == 4
    assert allocator.index._blocks == {}
    assert not again or of_request(allocator, "a")["length"] == 0
    assert_is_whole(allocator)


def test_what_arrives_after_a_change_of_weights_is_written_and_not_published():
    allocator = caching(4, 2)
    allocator.receive("a", [1, 2, 3], "t", 1)
    allocator.change_weights()

    allocator.acknowledge("t", 0, allocator.generation_of("t"))

    assert of_request(allocator, "a")["length"] == 3
    assert allocator.index._blocks == {}


def test_a_prompt_is_copied_before_the_caller_changes_it():
    allocator, prompt = caching(8, 2), numbers(5)
    allocator.receive("a", prompt, "t", 1)
    prompt[:] = 9

    allocator.acknowledge("t", 0, allocator.generation_of("t"))

    assert of_request(allocator, "a")["written"] == [0, 1, 2, 3, 4]


def test_a_transfer_in_that_finds_too_few_blocks_changes_nothing():
    allocator = caching(4, 2, a=[1, 2, 3, 4])
    allocator.release("a")
    before = state(allocator)

    with pytest.raises(OutOfBlocks, match="3 blocks needed, 2 free"):
        allocator.receive("b", [1, 2, 3, 4, 5, 6, 7, 8, 9], "t", 1)

    assert state(allocator) == before
    assert allocator.generation_of("t") == 0


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_transfer_in_without_a_prefix_cache_writes_everything(length):
    allocator = allocator_with(8, 2)
    growth = allocator.receive("a", numbers(length), "t", 1)

    assert (growth.hit, growth.slots.tolist()) == (0, [0, 1, 2][:length])
    allocator.acknowledge("t", 0, allocator.generation_of("t"))
    assert of_request(allocator, "a")["length"] == length


# Leases


@pytest.mark.parametrize("lease", [1, 2, 5])
def test_a_lease_ends_a_transfer_out_at_its_tick_and_not_before(lease):
    allocator = allocator_with(4, 2, a=2)
    allocator.tick()
    allocator.send("a", "t", 1, lease)
    allocator.release("a")

    for _ in range(lease):
        assert allocator.num_free == 3
        allocator.tick()

    assert allocator.num_free == 4
    refuses(
        allocator,
        "unknown transfer",
        lambda: allocator.acknowledge("t", 0, allocator.generation_of("t")),
    )


def test_a_transfer_without_a_lease_outlives_every_tick():
    allocator = allocator_with(4, 2, a=2)
    allocator.send("a", "t", 1, 0)
    allocator.pin("a", "u")

    for _ in range(100):
        allocator.tick()

    assert allocator.pool.pins.tolist() == [2, 0, 0, 0]


def test_a_request_whose_load_is_lost_keeps_its_hits_and_its_room():
    allocator = caching(8, 2, a=[1, 2, 3, 4])
    allocator.receive("b", [1, 2, 9, 9, 9], "t", 2, 1)
    allocator.acknowledge("t", 0, allocator.generation_of("t"))

    allocator.tick()

    now = of_request(allocator, "b")
    assert (now["length"], now["reserved"], now["waiting"]) == (2, 3, False)
    assert allocator.pool.pins.tolist() == [0] * 8
    assert allocator.append("b", [7, 7, 7, 7]).slots.tolist() == [4, 5, 6, 7]
    assert allocator.admit("c", [1, 2, 7, 7, 7]).hit == 4
    assert_is_whole(allocator)


def test_the_lease_of_a_load_whose_request_is_gone_ends_it_too():
    allocator = caching(8, 2)
    allocator.receive("a", [1, 2, 3], "t", 1, 1)
    allocator.release("a")
    allocator.create("a")

    allocator.tick()

    assert allocator.num_free == 8
    assert_is_whole(allocator)


# Late, double and unknown words


def test_an_acknowledgement_of_an_earlier_life_is_stale():
    allocator = allocator_with(8, 2, a=2)
    first = allocator.send("a", "t", 1)
    allocator.acknowledge("t", 0, first)
    second = allocator.send("a", "t", 1)

    refuses(allocator, "stale handle", lambda: allocator.acknowledge("t", 0, first))
    allocator.acknowledge("t", 0, second)
    refuses(allocator, "stale handle", lambda: allocator.acknowledge("t", 0, first))
    refuses(allocator, "unknown transfer", lambda: allocator.acknowledge("t", 0, second))


@pytest.mark.parametrize("begin", ["pin", "send", "receive"])
def test_every_kind_of_transfer_begins_a_life_of_its_name(begin):
    allocator = allocator_with(8, 2, a=2)
    first = allocator.send("a", "t", 1)
    allocator.acknowledge("t", 0, first)
    arguments = {"pin": ("a", "t"), "send": ("a", "t", 1), "receive": ("b", [1], "t", 1)}

    getattr(allocator, begin)(*arguments[begin])

    assert allocator.generation_of("t") > first
    refuses(allocator, "stale handle", lambda: allocator.acknowledge("t", 0, first))


def test_an_acknowledgement_that_comes_twice_is_refused():
    allocator = allocator_with(8, 2, a=2)
    generation = allocator.send("a", "t", 2)
    allocator.acknowledge("t", 1, generation)

    refuses(allocator, "already acknowledged", lambda: allocator.acknowledge("t", 1, generation))


@pytest.mark.parametrize("worker", [2, 3, -1, 10**30])
def test_a_worker_that_takes_no_part_is_refused(worker):
    allocator = allocator_with(8, 2, a=2)
    generation = allocator.send("a", "t", 2)

    refuses(allocator, "unknown worker", lambda: allocator.acknowledge("t", worker, generation))


@pytest.mark.parametrize("name", ["t", "u", "never"])
@pytest.mark.parametrize("generation", [-1, 0, 1, 2, 10**30])
def test_a_generation_that_was_never_given_out_is_of_no_transfer(name, generation):
    allocator = allocator_with(8, 2, a=2)
    allocator.send("a", "t", 1)
    allocator.pin("a", "u")

    refuses(allocator, "unknown transfer", lambda: allocator.acknowledge(name, 0, generation))


def test_the_generation_of_another_name_is_of_no_transfer():
    allocator = allocator_with(8, 2, a=2)
    of_t = allocator.send("a", "t", 1)
    of_u = allocator.send("a", "u", 1)
    assert of_t != of_u

    refuses(allocator, "unknown transfer", lambda: allocator.acknowledge("t", 0, of_u))
    refuses(allocator, "unknown transfer", lambda: allocator.acknowledge("u", 0, of_t))


def test_a_pin_is_not_acknowledged_and_what_is_acknowledged_is_not_unpinned():
    allocator = allocator_with(8, 2, a=2)
    allocator.pin("a", "t")
    allocator.send("a", "u", 1)
    allocator.receive("b", [1], "v", 1)

    generation = allocator.generation_of("t")
    wrong = "wrong kind of transfer"
    refuses(allocator, wrong, lambda: allocator.acknowledge("t", 0, generation))
    refuses(allocator, wrong, lambda: allocator.unpin("u"))
    refuses(allocator, wrong, lambda: allocator.unpin("v"))


def test_a_transfer_that_fails_to_begin_is_no_life_of_its_name():
    allocator = allocator_with(8, 2, a=2, empty=0)
    first = allocator.send("a", "t", 2)
    for call in (
        lambda: allocator.send("a", "t", 1),
        lambda: allocator.pin("ghost", "t"),
        lambda: allocator.send("empty", "u", 1),
    ):
        with pytest.raises(BadCall):
            call()

    assert allocator.generation_of("t") == first
    assert allocator.generation_of("u") == 0
    allocator.acknowledge("t", 0, first)


@pytest.mark.parametrize(
    ("workers", "lease"), [(0, 0), (-1, 0), (1.0, 0), ("1", 0), (1, -1), (1, 0.5), (1, None)]
)
@pytest.mark.parametrize("begin", ["send", "receive"])
def test_workers_and_leases_that_are_no_whole_numbers_change_nothing(begin, workers, lease):
    allocator = allocator_with(8, 2, a=2)
    before = state(allocator)
    what = ("a", "t") if begin == "send" else ("b", [1, 2], "t")

    with pytest.raises(ValueError, match=r"whole number|at least"):
        getattr(allocator, begin)(*what, workers, lease)

    assert state(allocator) == before


def test_generations_are_unique_over_names_and_lives():
    generations = Generations()
    given = {(name, generations.give(name)) for _ in range(50) for name in "abc"}

    assert len({generation for _, generation in given}) == 150
    for name in "abcd":
        known = {generation for whose, generation in given if whose == name}
        near = {generation + step for _, generation in given for step in (-1, 0, 1)}
        assert {one for one in near if generations.was_given(name, one)} == known


def test_transfers_that_are_over_leave_one_number_a_name():
    allocator = PagedAllocator(4, 2)
    allocator.admit("a", [1])
    for _ in range(1000):
        allocator.acknowledge("t", 0, allocator.send("a", "t", 1))

    assert len(allocator.transfers.generations._latest) == 1
    assert allocator.transfers.by_name == {}
