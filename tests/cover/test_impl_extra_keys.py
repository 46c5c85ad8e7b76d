"""Extra keys: requests share blocks by content only where adapter, salt and image agree."""

import itertools

import pytest
from impl_states import caching, state

from kvoracle.impl import PagedAllocator
from kvoracle.impl.contents import EXTRA_KEYS, root_key

PROMPT = [1, 2, 3, 4, 5]

APART = [
    {},
    {"adapter": "x"},
    {"salt": "x"},
    {"image": "x"},
    {"adapter": "x", "salt": "x"},
    {"adapter": "ab"},
    {"adapter": "a", "salt": "b"},
    {"adapter": "a", "image": "b"},
    {"adapter": "a salt 1 b"},
    {"adapter": "a", "salt": "1 b"},
    {"adapter": "x", "image": "epoch 0"},
    {"salt": "\u00e9"},
    {"salt": "e\u0301"},
    {"salt": "\udc80"},
]


@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(APART, 2)), ids=str)
def test_identities_that_differ_share_no_block(one, other):
    allocator = caching(16, 2)
    allocator.admit("a", PROMPT, one)

    assert allocator.admit("b", PROMPT, other).hit == 0
    assert allocator.admit("c", PROMPT, one).hit == 4


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"salt": ""}, {}),
        ({"adapter": "", "salt": "s", "image": ""}, {"salt": "s"}),
        ({"salt": "s", "adapter": "a"}, {"adapter": "a", "salt": "s"}),
    ],
    ids=str,
)
def test_an_empty_text_is_as_absent_and_the_order_says_nothing(one, other):
    allocator = caching(16, 2)
    allocator.admit("a", PROMPT, one)

    assert allocator.admit("b", PROMPT, other).hit == 4


@pytest.mark.parametrize("begin", ["admit", "look_up", "receive"])
def test_every_way_to_begin_a_request_takes_extra_keys(begin):
    allocator = caching(32, 2)
    allocator.admit("a", PROMPT, {"salt": "s"})

    hits = []
    for number, keys in enumerate([{"salt": "s"}, {"salt": "t"}, {}]):
        if begin == "look_up":
            hits.append(allocator.look_up(f"b{number}", PROMPT, keys))
        elif begin == "admit":
            hits.append(allocator.admit(f"b{number}", PROMPT, keys).hit)
        else:
            transfer = f"t{number}"
            hits.append(allocator.receive(f"b{number}", PROMPT, transfer, 1, 0, keys).hit)

    assert hits == [4, 0, 0]


def test_a_request_that_grows_keeps_its_extra_keys_and_so_does_its_fork():
    allocator = caching(32, 2)
    allocator.admit("a", [1], {"image": "i"})
    allocator.fork("a", "b")
    allocator.append("a", [2, 3])
    allocator.append("b", [7, 8])

    assert allocator.admit("c", [1, 2, 3], {"image": "i"}).hit == 2
    assert allocator.admit("d", [1, 7, 8], {"image": "i"}).hit == 2
    assert allocator.admit("e", [1, 2, 3]).hit == 0


def test_the_mapping_is_copied_before_the_caller_changes_it():
    allocator, keys = caching(32, 2), {"salt": "s"}
    allocator.look_up("a", PROMPT, keys)
    keys["salt"] = "t"

    allocator.use("a")
    allocator.preempt("a")
    allocator.resume("a")

    assert allocator.admit("b", PROMPT, {"salt": "s"}).hit == 4


@pytest.mark.parametrize("prefix_cache", [False, True])
@pytest.mark.parametrize("keys", [{"lora": "x"}, {"adapter": 1}, {"salt": None}, {"image": b"x"}])
def test_other_keys_and_what_is_no_text_are_refused_and_change_nothing(keys, prefix_cache):
    allocator = PagedAllocator(8, 2, prefix_cache=prefix_cache)
    before = state(allocator)

    with pytest.raises(ValueError, match="extra keys map adapter, salt, image to text"):
        allocator.admit("a", PROMPT, keys)

    assert state(allocator) == before


def test_epochs_are_a_part_of_the_identity():
    roots = {root_key(keys, epoch) for keys in APART for epoch in range(3)}

    assert len(roots) == 3 * len(APART)
    assert EXTRA_KEYS == ("adapter", "salt", "image")
