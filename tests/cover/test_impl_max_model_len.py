"""The longest that a request may become: every way to begin or to grow one, at the limit and beyond."""

import pytest
from impl_states import numbers, state

from kvoracle.impl import BadCall, PagedAllocator

LIMIT, LENGTH = 9, 6
REASON = "longer than max_model_len"


def limited(**options):
    """Two requests of LENGTH tokens, and one of one."""
    it = PagedAllocator(16, 4, prefix_cache=True, max_model_len=LIMIT, **options)
    for request, length in (("short", 1), ("a", LENGTH), ("b", LENGTH)):
        it.create(request)
        it.append(request, numbers(length))
    return it


def assert_refused(it, request, verb, *arguments):
    before = state(it)
    with pytest.raises(BadCall, match=f"^{REASON}: '{request}'$"):
        getattr(it, verb)(*arguments)
    assert state(it) == before


@pytest.mark.parametrize("verb", ["admit", "look_up", "receive"])
@pytest.mark.parametrize("length", [LIMIT - 1, LIMIT, LIMIT + 1])
def test_a_prompt_may_be_as_long_as_the_limit(verb, length):
    it = limited()
    arguments = ["new", numbers(length), *(["t", 1] if verb == "receive" else [])]

    if length > LIMIT:
        assert_refused(it, "new", verb, *arguments)
    else:
        getattr(it, verb)(*arguments)


@pytest.mark.parametrize("verb", ["append", "reserve"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_request_may_grow_up_to_the_limit(verb, count):
    it = limited()
    argument = numbers(count) if verb == "append" else count

    if LENGTH + count > LIMIT:
        assert_refused(it, "a", verb, "a", argument)
    else:
        getattr(it, verb)("a", argument)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_no_row_of_a_batch_grows_when_one_would_be_too_long(count):
    it = limited()
    rows, counts = it.rows(["short", "b", "a"]), numbers(3) * 0 + [1, count, count]

    if LENGTH + count > LIMIT:
        assert_refused(it, "b", "grow", rows, counts, numbers(counts.sum()))
    else:
        it.grow(rows, counts, numbers(counts.sum()))


def test_a_batch_in_which_one_request_is_at_the_limit_is_refused_whole():
    it = limited()
    it.append("a", numbers(LIMIT - LENGTH))

    assert_refused(it, "a", "append_batch", ["short", "a"], [1, 1])
    assert_refused(it, "a", "begin_step", "s", ["short", "a"], [1, 1])
    assert it.append_batch(["short", "b"], [1, 1]).granted.all()


def test_tokens_of_steps_in_flight_count():
    it = limited()
    for step in range(LIMIT - LENGTH - 1):
        it.begin_step(f"s{step}", ["a"], [1])
    it.append("b", [7, 7])
    assert it.begin_step("last", ["a", "b"], [1, 1]).granted.all()

    it.end_step("s0")
    assert_refused(it, "a", "begin_step", "more", ["short", "a"], [1, 1])


def test_reserved_room_that_is_already_there_may_be_used_up():
    it = limited()
    it.reserve("a", LIMIT - LENGTH)

    assert_refused(it, "a", "reserve", "a", LIMIT - LENGTH + 1)
    it.commit("a", numbers(LIMIT - LENGTH))
    it.preempt("a")
    assert it.resume("a").hit == 8


def test_the_limit_is_checked_after_all_else():
    it = limited()
    long = numbers(LIMIT + 1)

    for verb, arguments, reason in (
        ("admit", ("a", long), "duplicate request"),
        ("admit", ("new", []), "no tokens"),
        ("append", ("ghost", long), "unknown request"),
        ("append_batch", (["a"], long), "one token for each request"),
        ("begin_step", ("s", ["a"], long), "one token for each request"),
    ):
        with pytest.raises(BadCall, match=f"^{reason}"):
            getattr(it, verb)(*arguments)


def test_without_a_limit_only_the_pool_is_one():
    it = PagedAllocator(1000, 4)

    assert len(it.admit("a", numbers(4000)).slots) == 4000


@pytest.mark.parametrize("limit", [-1, 0.5, "9", None])
def test_a_limit_that_is_no_count_is_refused(limit):
    with pytest.raises(ValueError, match="max_model_len") as raised:
        PagedAllocator(8, 4, max_model_len=limit)
    assert not isinstance(raised.value, BadCall)
