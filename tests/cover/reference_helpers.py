"""What the tests of the reference share: all that it knows as plain data, and small pools."""

import contextlib
import copy
import re

import pytest

from kvoracle.reference import BrokenInvariant, Oracle, Rejected

LOGS = {"copied", "written"}
"""What was done, which grows with every call that succeeds."""
PASSING = {"demand", "may_refuse", "asked"}
"""What speaks of the call under way."""


def everything(kv):
    """All that a pool knows, its logs included; not what it was given to call."""
    return copy.deepcopy(
        {
            name: value
            for name, value in vars(kv).items()
            if name not in PASSING and not callable(value)
        }
    )


def state(kv):
    """All that decides what a pool does next."""
    return {name: value for name, value in everything(kv).items() if name not in LOGS}


@contextlib.contextmanager
def changes_nothing(kv, error, match):
    before = everything(kv)
    with pytest.raises(error, match=match):
        yield
    assert everything(kv) == before
    kv.check()


def rejects(kv, call, said):
    """A call is rejected for exactly this reason, in these words, and changes nothing."""
    with changes_nothing(kv, Rejected, f"^{re.escape(said)}$"):
        call(kv)


def fill(kv, requests):
    """Each request is created and given its tokens, in order, so that nothing is hit."""
    for request, tokens in requests.items():
        kv.create(request)
        if tokens:
            kv.append(request, *tokens)
    return kv


def pool(kind, capacity, block_size, **requests):
    return fill(kind(capacity, block_size), requests)


def oracle(capacity, block_size, *, watermark=0, **requests):
    return fill(Oracle(capacity, block_size, watermark=watermark), requests)


def told_pool(kind, capacity, block_size, *choices, asked=None):
    """A pool that is told the pages of each call in turn."""
    remaining = list(choices)

    def choose(request, positions):
        if asked is not None:
            asked.append((request, positions))
        choice = remaining.pop(0)
        if isinstance(choice, Exception):
            raise choice
        return choice

    return kind(capacity, block_size, choose=choose)


def published(kv):
    """Every entry of the index, where no request has extra keys."""
    assert not any(extra_keys for extra_keys, _ in kv.index.values())
    return {page: values for page, (_, values) in kv.index.items()}


def hit_depth(kv, prompt):
    """How many pages of a prompt would be hit, without extra keys."""
    return len(kv.hits_of((), tuple(prompt)).whole)


def holding(kv, *values):
    """The pages published with a content, without extra keys."""
    return kv.holding(((), values))


def holders(kv, page):
    """Owners, pins and holds of an allocated page, each in order."""
    held = kv.pages[page]
    return sorted(held.owners), sorted(held.pins), sorted(name for _, name in held.holds)


def broken(kv):
    """The invariant that is found broken, and what is said of it."""
    with pytest.raises(BrokenInvariant) as caught:
        kv.check()
    return caught.value.invariant, str(caught.value)


def assert_drained(kv):
    """Everything has ended: the whole pool may be taken, and then every page of it can be."""
    kv.check()
    assert (kv.tables, kv.lives, kv.transfers, kv.lookups, kv.steps) == ({}, {}, {}, {}, {})
    assert sorted(kv.takeable()) == list(kv.usable)
    kv.create("last")
    kv.append("last", *[(object(), "") for _ in range(kv.capacity * kv.block_size)])
    assert sorted(kv.tables["last"]) == list(kv.usable)
    kv.check()
