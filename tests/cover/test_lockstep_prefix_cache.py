"""Lockstep and the prefix cache: wrong hits, each by an allocator broken in a few lines."""

import functools

import numpy as np
import pytest

from kvoracle.impl import OutOfBlocks as Full
from kvoracle.impl import PagedAllocator
from kvoracle.impl.admission import Admission
from kvoracle.impl.pool import BlockPool
from kvoracle.model.adapters.impl import ImplAdapter
from kvoracle.model.history import explain
from kvoracle.model.lockstep import Lockstep
from kvoracle.model.operations import (
    Admit,
    Append,
    ChangeWeights,
    Create,
    Done,
    Evict,
    Fork,
    LookUp,
    OutOfBlocks,
    Pin,
    Preempt,
    Rejected,
    Release,
    Reset,
    Resume,
    Unpin,
    Use,
)
from kvoracle.model.run import run
from kvoracle.model.trace import Configuration, Trace

CONFIG = Configuration(4, 2, prefix_cache=True)
AGAIN = [Admit("a", (1, 2, 3)), Admit("b", (1, 2, 4))]
IDLE = [Admit("a", (1, 2, 3)), Release("a"), Admit("b", (1, 2, 4))]


def failure_of(adapter, operations, config=CONFIG):
    return run(Trace(config, list(operations)), adapter)


def steps(adapter, *operations, config=CONFIG):
    both = Lockstep(adapter(config))
    return both, [both.step(operation) for operation in operations]


class SaysLittle(ImplAdapter):
    """No order of reuse is promised and nothing is counted: hits must be judged by themselves."""

    reuses_in_order = False

    def statistics(self):
        return None


def on(allocator):
    """The adapter of an allocator class."""
    return type(allocator.__name__, (SaysLittle,), {"allocator_class": allocator})


def admitting(admission):
    """The adapter of an allocator whose admission is of this class."""
    return on(type(admission.__name__, (PagedAllocator,), {"admission_class": admission}))


def pooling(pool, **body):
    """The adapter of an allocator whose pool is of this class."""
    allocator = type(pool.__name__, (PagedAllocator,), {"pool_class": pool})
    return type(pool.__name__, (SaysLittle,), {"allocator_class": allocator, **body})


def spoils_admit(spoil):
    """An adapter whose admission is changed by `spoil(adapter, request, prompt, done)`."""

    class Spoiled(ImplAdapter):
        def admit(self, request, prompt, extra_keys):
            done = super().admit(request, prompt, extra_keys)
            return spoil(self, request, prompt, done) or done

    return Spoiled


def says(hit):
    return spoils_admit(lambda _, __, ___, done: setattr(done, "hit", hit(done.hit)))


class NeverHits(Admission):
    def hits(self, keys, length):
        return np.array([], np.int32)


class HitsOneBlockLess(Admission):
    def hits(self, keys, length):
        return super().hits(keys, length)[:-1]


class HitsTheWholePrompt(Admission):
    def hits(self, keys, length):
        return super().hits(keys, length + 1)


class HitsBlockZeroAlways(Admission):
    def hits(self, keys, length):
        return np.zeros(min((length - 1) // self.block_size, 1), np.int32)


class HitsInReverse(Admission):
    def hits(self, keys, length):
        return super().hits(keys, length)[::-1]


class ForgetsNothing(PagedAllocator):
    """A block that is taken stays findable as what it was."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.pool._forget = lambda _: None


class LosesIdleBlocks(PagedAllocator):
    """Idle blocks are never taken."""

    def admit(self, request, prompt, extra_keys):
        if -(-len(prompt) // self.block_size) > self.pool._stacked:
            raise Full(1, 0)
        return super().admit(request, prompt, extra_keys)


class CountsNoHitAsHeld(PagedAllocator):
    """A hit has no owner of its own."""

    def admit(self, request, prompt, extra_keys):
        growth = super().admit(request, prompt, extra_keys)
        self.pool.owners[self.table(request)[: growth.hit // self.block_size]] -= 1
        return growth


class TakesItsOwnHits(PagedAllocator):
    """The check for room counts idle hits as room."""

    def admit(self, request, prompt, extra_keys):
        fresh = -(-len(prompt) // self.block_size) - (len(prompt) - 1) // self.block_size
        try:
            return super().admit(request, prompt, extra_keys)
        except Full:
            return super().admit(request, prompt[: self.block_size * fresh], extra_keys)


class KeepsItsCacheOnReset(PagedAllocator):
    def reset_prefix_cache(self):
        pass


class CachesAlways(PagedAllocator):
    def __init__(self, blocks, block_size, *, prefix_cache, **options):
        super().__init__(blocks, block_size, prefix_cache=True, **options)


class HitsAreNotHeld(BlockPool):
    def hold(self, ids):
        pass

    def drop_hold(self, ids):
        pass


class NewestIdleFirst(BlockPool):
    def _evict(self, count):
        self.idle.append(np.roll(self.idle.pop(len(self.idle)), count))
        return super()._evict(count)


class ForgetsTheLastToken(Admission):
    def resume(self, name):
        self.requests.preempted[name].length -= 1
        self.requests.preempted[name].tokens = self.requests.preempted[name].tokens[:-1]
        return super().resume(name)


class KeepsItsEpoch(PagedAllocator):
    def change_weights(self):
        super().change_weights()
        self.chains.epoch -= 1


def with_keys(merge):
    """An adapter that tells extra keys apart only as far as `merge` leaves them different."""
    body = {
        verb: lambda self, request, prompt, keys, _verb=verb: getattr(SaysLittle, _verb)(
            self, request, prompt, merge(keys)
        )
        for verb in ("admit", "look_up")
    }
    return type("Merges", (SaysLittle,), body)


def says_hit(verb, change):
    def say(self, *arguments):
        done = getattr(SaysLittle, verb)(self, *arguments)
        done.hit = change(done.hit)
        return done

    return type("Says", (SaysLittle,), {verb: say})


def nothing(verb):
    """An adapter that answers `Done()` for a verb and does nothing."""
    return type("Nothing", (SaysLittle,), {verb: lambda *_: None})


TWO_IDLE = [*IDLE[:2], Admit("b", (4, 5, 6)), Release("b")]
"""Blocks 0 and 1 are idle, 0 longer; 2 and 3 are free."""
OFF = Configuration(4, 2)
CASES = {
    "says too much": (
        says(lambda hit: hit + 1),
        AGAIN[:1],
        ("hit", None),
        "says that 1 tokens of the prompt are written: 0 are",
    ),
    "says too little": (
        says(lambda hit: max(hit - 1, 0)),
        AGAIN,
        ("hit", None),
        "says that 1 tokens of the prompt are written: 2 are",
    ),
    "says none of a hit": (
        says(lambda _: 0),
        IDLE,
        ("hit", None),
        "says that 0 tokens of the prompt are written: 2 are",
    ),
    "says less than nothing": (
        says(lambda _: -2),
        AGAIN[:1],
        ("hit", None),
        "says that -2 tokens of the prompt are written: 0 are",
    ),
    "says half a token": (
        says(lambda _: 0.5),
        AGAIN[:1],
        ("outcome", None),
        "whose shape is wrong",
    ),
    "misses a block in use": (
        admitting(NeverHits),
        AGAIN,
        ("choice", 2),
        "block 2 (not allocated) was hit for 'b' and does not hold its prefix",
    ),
    "misses an idle block": (
        admitting(NeverHits),
        IDLE,
        ("choice", 1),
        "block 1 (not allocated) was hit for 'b' and does not hold its prefix",
    ),
    "misses the last block of a hit": (
        admitting(HitsOneBlockLess),
        [Admit("a", (1, 2, 3, 4)), Admit("b", (1, 2, 3, 4, 5))],
        ("choice", 2),
        "block 2 (not allocated) was hit for 'b' and does not hold its prefix",
    ),
    "hits a whole prompt": (
        admitting(HitsTheWholePrompt),
        [Admit("a", (1, 2, 3, 4)), Release("a"), Admit("b", (1, 2, 3, 4))],
        ("hit", None),
        "says that 4 tokens of the prompt are written: 2 are",
    ),
    "hits the whole prompt of a live request": (
        admitting(HitsTheWholePrompt),
        [Admit("a", (1, 2)), Admit("b", (1, 2))],
        ("choice", 0),
        "block 0 (owners: a; pins: none) was taken for 'b' but is not free",
    ),
    "hits where nothing is published": (
        admitting(HitsBlockZeroAlways),
        [Admit("a", (1,)), Admit("b", (1, 2, 3))],
        ("choice", 0),
        "block 0 (owners: a; pins: none) was taken for 'b' but is not free",
    ),
    "hits another content": (
        admitting(HitsBlockZeroAlways),
        [Admit("a", (1, 2)), Admit("b", (3, 4)), Admit("c", (3, 4, 5))],
        ("choice", 0),
        "block 0 (owners: a; pins: none) was hit for 'c' and does not hold its prefix",
    ),
    "hits in another order": (
        admitting(HitsInReverse),
        [Admit("a", (1, 2, 3, 4)), Admit("b", (1, 2, 3, 4, 5))],
        ("choice", 1),
        "block 1 (owners: a; pins: none) was hit for 'b' and does not hold its prefix",
    ),
    "hits what was taken for something else": (
        on(ForgetsNothing),
        [
            Admit("a", tuple(range(8))),
            Release("a"),
            Admit("b", tuple(range(10, 18))),
            Release("b"),
            Admit("c", (0, 1, 9)),
        ],
        ("hit", None),
        "says that 2 tokens of the prompt are written: 0 are",
    ),
    "is full of idle blocks": (
        on(LosesIdleBlocks),
        [Admit("a", tuple(range(8))), Release("a"), Admit("b", (9,))],
        ("outcome", None),
        "1 of 4 free blocks needed, yet: out of blocks",
    ),
    "is full of idle blocks that are hit": (
        on(LosesIdleBlocks),
        [Admit("a", tuple(range(8))), Release("a"), Admit("b", tuple(range(8)))],
        ("outcome", None),
        "yet: out of blocks",
    ),
    "counts no owner of a hit": (
        on(CountsNoHitAsHeld),
        AGAIN,
        ("holder count", 0),
        "the allocator counts 1 holders of block 0: it has 2",
    ),
    "rejects a right prompt": (
        spoils_admit(lambda *_: Rejected("bad weather")),
        AGAIN[:1],
        ("outcome", None),
        "yet: rejected: bad weather",
    ),
    "gives slots to what was hit as well": (
        spoils_admit(lambda _, r, p, d: Done(slots={r: [0, 1, 4]} if d.hit else d.slots)),
        AGAIN,
        ("slots", None),
        "3 slots for the 1 new tokens of 'b'",
    ),
    "writes its rest into its hit": (
        spoils_admit(lambda _, r, p, d: Done(slots={r: [0]} if d.hit else d.slots)),
        AGAIN,
        ("contents", 0),
        "'a' reads token 4 that 'b' wrote as its position 2 at position 0",
    ),
    "has room only by taking its own hits": (
        on(TakesItsOwnHits),
        [
            Admit("a", (1, 2)),
            Admit("x", (7, 8, 9, 9)),
            Release("a"),
            Admit("b", (1, 2, 3, 4, 5, 6)),
        ],
        ("outcome", None),
        "answered 'ok', and must answer 'out of blocks'",
    ),
    "keeps its cache on reset": (
        on(KeepsItsCacheOnReset),
        [Admit("a", (1, 2)), Release("a"), Reset(), Admit("b", (1, 2, 3))],
        ("hit", None),
        "says that 2 tokens of the prompt are written: 0 are",
    ),
    "resets while a block is in use": (
        on(KeepsItsCacheOnReset),
        [Admit("a", (1, 2)), Reset()],
        ("outcome", None),
        "answered 'ok', and must answer 'rejected: blocks in use'",
    ),
    "takes the newest idle block": (
        pooling(NewestIdleFirst, reuses_in_order=True),
        [*TWO_IDLE, Admit("c", (7, 8, 9, 10, 11))],
        ("reuse order", 1),
        "block 1 was taken for 'c' before block 0, which is to be reused first",
    ),
    "takes a block that a lookup holds": (
        pooling(HitsAreNotHeld, free_blocks=lambda _: None, holders=lambda _: None),
        [*TWO_IDLE, LookUp("c", (1, 2, 9)), Admit("d", (7, 8, 9, 10, 11))],
        ("choice", 0),
        "block 0 (owners: none; pins: none; lookup: c) was taken for 'd' but is not free",
    ),
    "says that a lookup found more than there is": (
        says_hit("look_up", lambda hit: hit + 2),
        [Admit("a", (1, 2, 3)), LookUp("b", (1, 2, 3, 4))],
        ("hit", None),
        "says that 4 tokens of the prompt are written: 2 are",
    ),
    "says at use that nothing was found": (
        says_hit("use", lambda _: 0),
        [Admit("a", (1, 2, 3)), LookUp("b", (1, 2, 3, 4)), Use("b")],
        ("hit", None),
        "says that 0 tokens of the prompt are written: 2 are",
    ),
    "says at resume that all was found": (
        says_hit("resume", lambda _: 3),
        [Admit("a", (1, 2, 3)), Preempt("a"), Resume("a")],
        ("hit", None),
        "says that 3 tokens of the prompt are written: 2 are",
    ),
    "resumes with a part of what was written": (
        admitting(ForgetsTheLastToken),
        [Admit("a", (1, 2, 3, 4)), Preempt("a"), Resume("a")],
        ("slots", None),
        "1 slots for the 2 new tokens of 'a'",
    ),
    "takes no notice of extra keys": (
        with_keys(lambda _: {}),
        [Admit("a", (1, 2, 3), {"salt": "x"}), Admit("b", (1, 2, 3))],
        ("choice", 0),
        "block 0 (owners: a; pins: none) was taken for 'b' but is not free",
    ),
    "takes an adapter for a salt": (
        with_keys(lambda keys: {"salt": "".join(keys.values())}),
        [Admit("a", (1, 2, 3), {"salt": "x"}), LookUp("b", (1, 2, 3), {"adapter": "x"})],
        ("hit", None),
        "says that 2 tokens of the prompt are written: 0 are",
    ),
    "joins the values of extra keys": (
        with_keys(lambda keys: {"salt": "".join(keys.values())}),
        [
            Admit("a", (1, 2, 3), {"adapter": "ab"}),
            Admit("b", (1, 2, 3), {"adapter": "a", "salt": "b"}),
        ],
        ("choice", 0),
        "was taken for 'b' but is not free",
    ),
    "tells an empty extra key from none": (
        with_keys(lambda keys: {"salt": "empty"} if keys == {"salt": ""} else keys),
        [Admit("a", (1, 2, 3)), Admit("b", (1, 2, 3), {"salt": ""})],
        ("choice", 2),
        "block 2 (not allocated) was hit for 'b' and does not hold its prefix",
    ),
    "hits what was computed with old weights": (
        nothing("change_weights"),
        [*IDLE[:2], ChangeWeights(), Admit("b", (1, 2, 3))],
        ("hit", None),
        "says that 2 tokens of the prompt are written: 0 are",
    ),
    "publishes what is computed with old weights": (
        on(KeepsItsEpoch),
        [Create("a"), Append("a", (1,)), ChangeWeights(), Append("a", (2,)), Admit("b", (1, 2, 3))],
        ("choice", 0),
        "block 0 (owners: a; pins: none) was taken for 'b' but is not free",
    ),
    "changes the weights under a lookup": (
        nothing("change_weights"),
        [LookUp("a", (1, 2)), ChangeWeights()],
        ("outcome", None),
        "answered 'ok', and must answer 'rejected: lookup outstanding'",
    ),
    "hits what was evicted": (
        nothing("evict"),
        [IDLE[0], Evict("a", 0), Admit("b", (1, 2, 3))],
        ("choice", 0),
        "block 0 (owners: a; pins: none) was taken for 'b' but is not free",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_allocator_with_a_broken_cache_fails_by_its_rule(name):
    adapter, operations, (rule, block), message = CASES[name]

    failure = failure_of(adapter, operations)

    assert failure is not None
    assert failure.rule == rule
    assert block is None or failure.block == block
    assert message in failure.message
    assert failure.index == len(operations) - 1
    assert len(failure.message.splitlines()) == 1


@pytest.mark.parametrize("name", CASES)
def test_the_operations_of_an_allocator_with_a_broken_cache_pass_on_a_right_one(name):
    assert failure_of(ImplAdapter, CASES[name][1]) is None


@pytest.mark.parametrize("name", CASES)
def test_the_failure_of_a_broken_cache_comes_back_when_it_is_explained(name):
    adapter, operations, _, _ = CASES[name]

    assert explain(failure_of(adapter, operations), adapter).reproduced


def test_a_cache_that_is_on_although_it_must_be_off_is_found():
    failure = failure_of(on(CachesAlways), AGAIN, OFF)

    assert failure is not None
    assert failure_of(on(CachesAlways), AGAIN) is None


def test_hits_that_are_not_said_are_still_judged_by_their_tables():
    silent = spoils_admit(lambda _, r, p, d: Done(slots=d.slots))
    unslotted = spoils_admit(lambda *_: Done())

    for adapter in (silent, unslotted):
        assert failure_of(adapter, [*AGAIN, Append("b", (5, 6)), Release("a")]) is None

    class SilentlyMisses(silent):
        allocator_class = admitting(NeverHits).allocator_class

    assert failure_of(SilentlyMisses, AGAIN).rule == "choice"


def test_what_was_hit_is_what_the_allocator_says_and_is_read_back():
    both, outcomes = steps(ImplAdapter, *IDLE)

    assert [getattr(outcome, "hit", None) for outcome in outcomes] == [0, None, 2]
    assert outcomes[2].slots == {"b": [2]}
    assert both.lists.read("b") == [1, 2, 4]
    assert both.reference.tables == {"b": [0, 1]}


def test_reset_and_release_and_pins_pass_on_a_right_allocator():
    operations = [
        *AGAIN,
        Pin("a", "t"),
        Fork("b", "c"),
        Append("c", (5,)),
        Release("a"),
        Release("b"),
        Reset(),
        Release("c"),
        Reset(),
        Unpin("t"),
        Reset(),
        Admit("a", (1, 2, 3)),
    ]

    _, outcomes = steps(ImplAdapter, *operations)

    assert outcomes[7] == outcomes[9] == Rejected("blocks in use")
    assert outcomes[11] == Done()
    assert outcomes[12].hit == 0


def test_a_watermark_that_is_not_kept_is_found():
    class KeepsNone(ImplAdapter):
        def __init__(self, config):
            super().__init__(config)
            self.allocator.admission.watermark = 0

    config = Configuration(2, 2, prefix_cache=True, watermark=1)
    failure = failure_of(KeepsNone, [Admit("a", (1, 2, 3))], config)

    assert (failure.rule, failure.block) == ("outcome", None)
    said = "3 blocks needed (1 kept free), 2 free beside the hits"
    assert failure.message == f"answered 'ok', and must answer 'out of blocks': {said}"


# Duplicates


DUPLICATES = [
    *(Create("a"), Append("a", (1,)), Create("b"), Append("b", (1,)), Release("a")),
    Admit("c", (1, 2, 3)),
]
"""Block 0 (idle) and block 1 (in use) hold the same, and one more is free: room for one choice."""


def with_first(choose):
    """An adapter that hits the duplicate which `choose` picks from all there are."""

    class Chooses(Admission):
        def hits(self, keys, length):
            hits = super().hits(keys, length)
            keys_hit = keys[: len(hits)]
            return np.array([choose(self.index._blocks[key]) for key in keys_hit], np.int32)

    return admitting(Chooses)


@pytest.mark.parametrize(("choose", "outcome"), [(max, Done), (min, OutOfBlocks)])
def test_an_allocator_may_hit_either_duplicate_and_be_full_by_its_choice(choose, outcome):
    config = Configuration(3, 1, prefix_cache=True)

    both, outcomes = steps(with_first(choose), *DUPLICATES, config=config)

    assert isinstance(outcomes[-1], outcome)
    assert ("c" in both.reference.tables) == (outcome is Done)


class RefusesAppendsAfterAnAdmission(with_first(min)):
    refused = False

    def admit(self, *arguments):
        self.refused = True
        return super().admit(*arguments)

    def append(self, request, tokens):
        return OutOfBlocks() if self.refused else super().append(request, tokens)


def test_an_append_after_an_admission_that_may_be_refused_may_not_be():
    config = Configuration(3, 1, prefix_cache=True)

    failure = failure_of(RefusesAppendsAfterAnAdmission, [*DUPLICATES, Append("b", (9,))], config)

    assert failure is not None
    assert failure.rule == "outcome"


# Reports without a name


class CountsByAPartial(ImplAdapter):
    def __init__(self, config):
        super().__init__(config)
        self.free_blocks = functools.partial(divmod, 1, 0)


def test_a_report_without_a_name_that_raises_is_a_verdict():
    assert failure_of(CountsByAPartial, [Create("a")]).rule == "exception"
