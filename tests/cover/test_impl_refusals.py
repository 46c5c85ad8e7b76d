"""Every reason to refuse a call, in the order of the checks; a refused call changes nothing."""

import pytest
from impl_states import assert_is_whole, caching, state

from kvoracle.impl import BadCall

WAY, STEP, RESERVED = "tokens on their way", "step in flight", "tokens reserved"
UNKNOWN, DUPLICATE = "unknown request", "duplicate request"


def allocator_in_every_state():
    """Requests named by what they are, and transfers out that begin and end in every way."""
    it = caching(64, 2, a=[1, 2, 3], b=[4], empty=[])
    it.receive("waiting", [1, 2, 9, 9], "in", 2)
    it.admit("flying", [5, 6])
    it.begin_step("s", ["flying"], [7])
    it.begin_step("s2", ["flying"], [8])
    it.admit("reserved", [7])
    it.reserve("reserved", 2)
    it.look_up("looked up", [1, 2, 3])
    it.admit("gone", [8, 8, 8])
    it.preempt("gone")
    it.pin("a", "pinned")
    it.send("a", "out", 2)
    return it


REFUSALS = [
    *[
        (verb, (request, *rest), reason, request)
        for verb, rest in {
            "append": ([1],),
            "reserve": (1,),
            "commit": ([1],),
            "trim": (),
        }.items()
        for request, reason in {
            "ghost": UNKNOWN,
            "gone": UNKNOWN,
            "looked up": UNKNOWN,
            "waiting": WAY,
            "flying": STEP,
        }.items()
    ],
    *[
        (verb, (request, *rest), reason, request)
        for verb, rest in {"fork": ("new",), "pin": ("new",), "send": ("new", 1)}.items()
        for request, reason in {
            "ghost": UNKNOWN,
            "gone": UNKNOWN,
            "waiting": WAY,
            "flying": STEP,
            "reserved": RESERVED,
        }.items()
    ],
    *[
        (verb, (name, *rest), DUPLICATE, name)
        for verb, rest in {
            "create": (),
            "admit": ([],),
            "look_up": ([],),
            "receive": ([], "in", 1),
        }.items()
        for name in ("a", "waiting", "gone", "looked up")
    ],
    *[("fork", ("a", name), DUPLICATE, name) for name in ("a", "b", "gone", "looked up")],
    ("fork", ("waiting", "a"), WAY, "waiting"),
    ("append", ("a", []), "no tokens", "a"),
    ("reserve", ("a", 0), "no tokens", "a"),
    ("reserve", ("flying", 0), STEP, "flying"),
    ("commit", ("a", []), "no tokens", "a"),
    ("commit", ("a", [1]), "more than reserved", "a"),
    ("commit", ("reserved", [1, 2, 3]), "more than reserved", "reserved"),
    ("admit", ("new", []), "no tokens", "new"),
    ("look_up", ("new", []), "no tokens", "new"),
    ("receive", ("new", [], "out", 1), "duplicate transfer", "out"),
    ("receive", ("new", [], "new", 1), "no tokens", "new"),
    ("use", ("a",), "unknown lookup", "a"),
    ("cancel", ("ghost",), "unknown lookup", "ghost"),
    ("resume", ("a",), "not preempted", "a"),
    ("resume", ("looked up",), "not preempted", "looked up"),
    ("preempt", ("ghost",), UNKNOWN, "ghost"),
    ("preempt", ("waiting",), WAY, "waiting"),
    ("preempt", ("empty",), "no tokens", "empty"),
    ("release", ("looked up",), UNKNOWN, "looked up"),
    ("release_batch", (["a", "gone"],), UNKNOWN, "gone"),
    ("evict", ("gone", 0), UNKNOWN, "gone"),
    ("table", ("gone",), UNKNOWN, "gone"),
    ("rows", ([],), "no requests", ""),
    ("rows", (["a", "looked up"],), UNKNOWN, "looked up"),
    ("rows", (["a", "b", "a"],), "repeated request", "a, b, a"),
    ("append_batch", (["a", "waiting", "flying"], [1, 2, 3]), WAY, "waiting"),
    ("append_batch", (["a", "flying", "waiting"], [1, 2, 3]), STEP, "flying"),
    ("append_batch", (["flying"], []), STEP, "flying"),
    ("append_batch", (["a", "a", "waiting"], []), "repeated request", "a, a, waiting"),
    ("append_batch", (["a", "b"], [1]), "one token for each request", "a, b"),
    ("begin_step", ("s", [], []), "duplicate step", "s"),
    ("begin_step", ("new", [], []), "no requests", ""),
    ("begin_step", ("new", ["a", "ghost", "a"], []), UNKNOWN, "ghost"),
    ("begin_step", ("new", ["a", "a"], []), "repeated request", "a, a"),
    ("begin_step", ("new", ["flying", "waiting"], []), WAY, "waiting"),
    ("begin_step", ("new", ["flying", "a"], [1]), "one token for each request", "flying, a"),
    ("end_step", ("ghost",), "unknown step", "ghost"),
    ("end_step", ("s2",), "an earlier step is in flight", "s2"),
    ("fail_step", ("ghost",), "unknown step", "ghost"),
    ("pin", ("a", "pinned"), "duplicate transfer", "pinned"),
    ("pin", ("empty", "in"), "duplicate transfer", "in"),
    ("pin", ("empty", "new"), "nothing to pin", "empty"),
    ("send", ("a", "in", 1), "duplicate transfer", "in"),
    ("send", ("empty", "new", 1), "nothing to pin", "empty"),
    ("unpin", ("ghost",), "unknown transfer", "ghost"),
    ("unpin", ("out",), "wrong kind of transfer", "out"),
    ("unpin", ("in",), "wrong kind of transfer", "in"),
    ("change_weights", (), "lookup outstanding", "looked up"),
    ("reset_prefix_cache", (), "blocks in use", "reset"),
]


@pytest.mark.parametrize(("verb", "arguments", "reason", "name"), REFUSALS, ids=str)
def test_a_refused_call_says_why_and_changes_nothing(verb, arguments, reason, name):
    allocator = allocator_in_every_state()
    assert_is_whole(allocator)
    before = state(allocator)

    with pytest.raises(BadCall) as caught:
        getattr(allocator, verb)(*arguments)

    assert caught.value.reason == reason
    assert str(caught.value) == f"{reason}: {name!r}"
    assert state(allocator) == before


@pytest.mark.parametrize("request_", ["waiting", "flying", "reserved", "a", "gone"])
def test_a_request_may_be_released_in_every_state(request_):
    allocator = allocator_in_every_state()

    allocator.release(request_)

    assert_is_whole(allocator)
    allocator.create(request_)


def test_when_everything_ends_every_block_can_be_taken():
    allocator = allocator_in_every_state()
    for request in list(allocator.requests.by_name):
        allocator.release(request)
    allocator.cancel("looked up")
    allocator.fail_step("s")
    allocator.unpin("pinned")
    for transfer in ("in", "out"):
        for worker in range(2):
            allocator.acknowledge(transfer, worker, allocator.generation_of(transfer))

    assert_is_whole(allocator)
    assert allocator.num_free == 64
    allocator.change_weights()
    assert allocator.statistics().idle == 0
