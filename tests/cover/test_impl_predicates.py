"""What the allocator says beforehand about the room for a call, and what the call then does."""

import random

import pytest
from impl_states import allocator_with, caching, numbers, state

from kvoracle.impl import BadCall, OutOfBlocks, PagedAllocator


def agrees(it, verb, *arguments):
    """Whether `can_...` says what the call does, and changes nothing."""
    request, tokens = arguments
    before = state(it)
    said = it.can_append(request, len(tokens)) if verb == "append" else it.can_admit(tokens)
    assert state(it) == before
    assert isinstance(said, bool)
    try:
        getattr(it, verb)(request, tokens)
    except OutOfBlocks:
        return not said
    return said


def assert_says(it, verb, request, tokens, expected):
    said = it.can_append(request, len(tokens)) if verb == "append" else it.can_admit(tokens)
    assert said == expected
    assert agrees(it, verb, request, tokens)


# An append


@pytest.mark.parametrize(("free", "fits"), [(1, False), (2, True), (3, True)])
def test_an_append_needs_the_blocks_beyond_its_tail(free, fits):
    it = allocator_with(1 + free, 4, a=3)

    assert_says(it, "append", "a", numbers(6), fits)


@pytest.mark.parametrize(("free", "fits"), [(0, False), (1, True), (2, True)])
@pytest.mark.parametrize("holder", ["fork", "pin"])
def test_an_append_to_a_tail_that_others_read_needs_its_copy(free, fits, holder):
    it = allocator_with(1 + free, 4, a=2)
    getattr(it, holder)("a", "other")

    assert_says(it, "append", "a", [1], fits)


@pytest.mark.parametrize(("free", "fits"), [(1, False), (2, True), (3, True)])
def test_an_append_may_need_a_copy_and_more(free, fits):
    it = allocator_with(1 + free, 4, a=2)
    it.fork("a", "b")

    assert_says(it, "append", "a", numbers(3), fits)


@pytest.mark.parametrize(("count", "fits"), [(3, True), (4, True), (5, False)])
def test_an_append_uses_reserved_room_first(count, fits):
    it = allocator_with(2, 4, a=4)
    it.reserve("a", 3)

    assert_says(it, "append", "a", numbers(count), fits)


def test_an_append_may_take_idle_blocks():
    it = caching(2, 2, a=[1, 2], b=[3, 4])
    it.release("a")

    assert_says(it, "append", "b", [5], True)
    assert_says(it, "append", "b", [5, 6], False)


def test_can_append_refuses_what_append_refuses():
    it = PagedAllocator(16, 2, max_model_len=6)
    it.admit("flying", [1])
    it.begin_step("s", ["flying"], [2])
    it.receive("waiting", [1, 2], "t", 1)
    it.admit("long", numbers(6))

    for request, count in (("ghost", 1), ("flying", 1), ("waiting", 1), ("long", 0), ("long", 1)):
        with pytest.raises(BadCall) as refused:
            it.append(request, numbers(count))
        with pytest.raises(BadCall, match=f"^{refused.value}$"):
            it.can_append(request, count)


@pytest.mark.parametrize("count", [-1, 0])
def test_no_tokens_are_no_question(count):
    with pytest.raises(BadCall, match="no tokens"):
        allocator_with(4, 2, a=1).can_append("a", count)


@pytest.mark.parametrize("count", [1.5, "2", None])
def test_a_number_of_tokens_is_whole(count):
    with pytest.raises(ValueError, match="number of tokens"):
        allocator_with(4, 2, a=1).can_append("a", count)


# An admission


@pytest.mark.parametrize("watermark", [0, 1, 2])
@pytest.mark.parametrize(("spare", "fits"), [(-1, False), (0, True), (1, True)])
def test_an_admission_needs_its_blocks_and_the_watermark(spare, fits, watermark):
    it = PagedAllocator(3 + watermark + spare, 4, watermark=watermark)

    assert_says(it, "admit", "a", numbers(9), fits)


@pytest.mark.parametrize(("length", "fits"), [(8, True), (9, False)])
@pytest.mark.parametrize("in_use", [False, True])
def test_what_an_admission_hits_is_no_room_for_it(length, fits, in_use):
    it = caching(3, 4, a=numbers(4))
    if not in_use:
        it.release("a")

    assert_says(it, "admit", "b", numbers(length + 4), fits)


@pytest.mark.parametrize(("length", "fits"), [(8, True), (9, False)])
def test_what_an_admission_copies_is_no_room_for_it(length, fits):
    it = PagedAllocator(3, 4, prefix_cache=True, match_unit=1)
    it.admit("a", [0, 1])
    it.release("a")

    assert_says(it, "admit", "b", numbers(length), fits)


def test_can_admit_looks_with_the_extra_keys():
    it = PagedAllocator(3, 2, prefix_cache=True)
    it.admit("a", [1, 2, 3], {"salt": "x"})

    assert it.can_admit([1, 2, 3], {"salt": "x"}) is True
    assert it.can_admit([1, 2, 3], {"salt": "y"}) is False


def test_can_admit_refuses_what_is_no_prompt():
    it = PagedAllocator(4, 2, max_model_len=3)

    for prompt, reason in (([], "no tokens"), (numbers(4), "longer than max_model_len")):
        with pytest.raises(BadCall, match=f"^{reason}"):
            it.can_admit(prompt)
    with pytest.raises(ValueError, match="extra keys"):
        it.can_admit([1], {"colour": "red"})


@pytest.mark.parametrize("seed", range(20))
def test_the_answer_is_what_happens_in_random_states(seed):
    draw = random.Random(seed)
    it = PagedAllocator(
        draw.randint(2, 9),
        4,
        prefix_cache=seed % 2 > 0,
        watermark=seed % 3,
        match_unit=seed % 4 % 3,
    )
    for step in range(120):
        live, name = [*it.requests.by_name], f"r{step}"
        tokens = [int(draw.random() < 0.3) for _ in range(draw.randint(1, 10))]
        verb = draw.choice(["admit", "append", "append", "fork", "reserve", "trim", "release"])
        if verb == "admit" or not live:
            assert agrees(it, "admit", name, tokens)
        elif verb == "append":
            assert agrees(it, "append", draw.choice(live), tokens)
        elif verb == "fork":
            parent = draw.choice(live)
            it.trim(parent)
            it.fork(parent, name)
        elif verb == "reserve":
            request = draw.choice(live)
            if it.can_append(request, len(tokens)):
                it.reserve(request, len(tokens))
        else:
            getattr(it, verb)(draw.choice(live))
