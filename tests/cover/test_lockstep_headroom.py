"""Lockstep and the free blocks that an allocator may keep back for itself."""

import pytest

from kvoracle.model.adapters.impl import ImplAdapter
from kvoracle.model.lockstep import Lockstep
from kvoracle.model.operations import (
    Admit,
    Append,
    AppendEach,
    Create,
    Done,
    OutOfBlocks,
    Rejected,
)
from kvoracle.model.run import run
from kvoracle.model.trace import Configuration, Trace

CONFIG = Configuration(4, 2)
CACHING = Configuration(4, 2, prefix_cache=True)
CREATE, APPEND = Create("a"), Append("a", (1,))


def failure_of(adapter, operations, config=CONFIG):
    return run(Trace(config, list(operations)), adapter)


def steps(adapter, *operations, config=CONFIG):
    both = Lockstep(adapter(config))
    return both, [both.step(operation) for operation in operations]


def keeps_back(kept, promised):
    """An allocator that keeps `kept` blocks free for itself and declares `promised`."""

    class KeepsBack(ImplAdapter):
        headroom = promised

        def can_append(self, request, count):
            return None

        def has_room_for(self, request, count):
            held = len(self.table(request))
            needed = -(-(int(self.allocator.tables.lengths[0]) + count) // 2) - held
            return needed == 0 or self.allocator.num_free - needed >= kept

        def append(self, request, tokens):
            if not self.has_room_for(request, len(tokens)):
                return OutOfBlocks()
            return super().append(request, tokens)

        def append_each(self, requests, tokens):
            if not self.has_room_for(requests[0], 1):
                return Done(refused=list(requests))
            return super().append_each(requests, tokens)

    return KeepsBack


@pytest.mark.parametrize(("kept", "promised"), [(0, 0), (1, 1), (2, 2), (1, 3), (0, 1)])
@pytest.mark.parametrize("tokens", range(1, 10))
def test_an_allocator_may_keep_back_what_it_promised(kept, promised, tokens):
    adapter = keeps_back(kept, promised)

    assert failure_of(adapter, [CREATE, Append("a", tuple(range(tokens)))]) is None


def test_full_within_headroom_is_out_of_blocks_and_changes_nothing():
    both, outcomes = steps(keeps_back(1, 1), CREATE, Append("a", tuple(range(8))))

    assert outcomes == [Done(), OutOfBlocks()]
    assert both.reference.tables == {"a": []}
    assert len(both.reference.free) == 4


def test_refused_within_headroom_in_a_batch_changes_nothing():
    both, outcomes = steps(
        keeps_back(1, 1), CREATE, Append("a", tuple(range(6))), AppendEach(("a",), (7,))
    )

    assert outcomes[-1] == Done(refused=["a"])
    assert both.lists.read("a") == list(range(6))


def test_an_allocator_may_not_keep_back_more_than_it_promised():
    failure = failure_of(keeps_back(2, 1), [CREATE, Append("a", tuple(range(6)))])

    assert failure.rule == "outcome"
    assert failure.message == "3 of 4 free blocks needed, yet: out of blocks"


def test_headroom_excuses_no_rejection():
    class Rejects(ImplAdapter):
        headroom = 4

        def append(self, request, tokens):
            return Rejected("bad weather")

    assert failure_of(Rejects, [CREATE, APPEND]).rule == "outcome"


# Admission


def admits_with_headroom(kept, promised):
    """An allocator that admits a prompt only if `kept` blocks can be taken after it."""

    class Admits(ImplAdapter):
        headroom = promised

        def admit(self, request, prompt, extra_keys):
            free, hit = self.allocator.num_free, self.allocator.look_up("probe", prompt)
            idle = free - self.allocator.num_free
            self.allocator.cancel("probe")
            left = free - idle - (-(-len(prompt) // 2) - hit // 2)
            return super().admit(request, prompt, extra_keys) if left >= kept else OutOfBlocks()

        def statistics(self):
            """The probes are counted too."""

    return Admits


@pytest.mark.parametrize("tokens", range(1, 10))
def test_an_admission_may_keep_back_less_than_was_promised(tokens):
    assert failure_of(admits_with_headroom(0, 1), [Admit("a", tuple(range(tokens)))]) is None


def test_an_admission_without_a_hit_may_keep_back_what_was_promised():
    both, outcomes = steps(admits_with_headroom(1, 1), Admit("a", tuple(range(8))))

    assert outcomes == [OutOfBlocks()]
    assert both.reference.tables == {}


def test_an_admission_with_a_hit_may_keep_back_what_was_promised():
    operations = [Admit("a", (1, 2)), Admit("b", tuple(range(1, 9)))]

    assert failure_of(admits_with_headroom(1, 1), operations, CACHING) is None


def test_an_admission_may_not_keep_back_more_than_was_promised():
    operations = [Admit("a", (1, 2)), Admit("b", tuple(range(1, 7)))]

    failure = failure_of(admits_with_headroom(3, 1), operations, CACHING)

    assert failure.rule == "outcome"
    assert failure.message == "2 of 3 free blocks needed, yet: out of blocks"
