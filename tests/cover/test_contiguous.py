"""The contiguous baseline: its admissions, its refusals, and the same lockstep as everything else."""

import contextlib
import copy

import pytest

from kvoracle.impl.contiguous import ContiguousAllocator
from kvoracle.impl.errors import BadCall, OutOfBlocks
from kvoracle.model.adapters.contiguous import ContiguousAdapter
from kvoracle.model.canaries import RefusesWithRoom, WritesOverTheStart, with_canary
from kvoracle.model.check import as_target
from kvoracle.model.engines import hunt


def everything(pool):
    return copy.deepcopy((pool._free, pool._reservations, pool._lengths))


@contextlib.contextmanager
def changes_nothing(pool, error, match):
    before = everything(pool)
    with pytest.raises(error, match=match):
        yield
    assert everything(pool) == before


def test_13_requests_fit_the_documents_pool():
    pool = ContiguousAllocator(428_560, 32_768)
    for request in range(13):
        pool.admit(str(request), 612)
    with changes_nothing(pool, OutOfBlocks, "1 blocks needed, 0 free"):
        pool.admit("13", 1)


def test_2048_blocks_admit_one_prompt_of_4000_tokens():
    pool = ContiguousAllocator(2048 * 16, 32_768)
    pool.admit("a", 4000)
    with changes_nothing(pool, OutOfBlocks, "0 free"):
        pool.admit("b", 4000)


def test_a_request_fills_its_reservation_in_order():
    pool = ContiguousAllocator(12, 4)
    assert pool.admit("a", 1).tolist() == [0]
    assert pool.admit("b", 2).tolist() == [4, 5]
    assert pool.append("a", 2).tolist() == [1, 2]
    assert pool.append("b", 2).tolist() == [6, 7]


def test_the_first_free_reservation_is_taken():
    pool = ContiguousAllocator(16, 4)
    for request in "abcd":
        pool.admit(request, 1)
    pool.release("c")
    pool.release("a")
    assert [pool.admit(request, 1).tolist() for request in "ef"] == [[0], [8]]


def test_what_is_left_over_is_never_handed_out():
    pool = ContiguousAllocator(11, 4)
    assert pool.num_free == 2


def test_a_request_never_outgrows_its_reservation():
    pool = ContiguousAllocator(12, 4)
    with changes_nothing(pool, BadCall, "longer than max_model_len: 'a'"):
        pool.admit("a", 5)
    pool.admit("a", 3)
    with changes_nothing(pool, BadCall, "longer than max_model_len: 'a'"):
        pool.append("a", 2)
    assert pool.append("a", 1).tolist() == [3]


def test_wrong_calls_are_refused():
    pool = ContiguousAllocator(12, 4)
    pool.admit("a", 1)
    for call in (lambda: pool.append("b", 1), lambda: pool.release("b")):
        with changes_nothing(pool, BadCall, "unknown request: 'b'"):
            call()
    with changes_nothing(pool, BadCall, "duplicate request: 'a'"):
        pool.admit("a", 1)
    for tokens in (0, -1):
        with changes_nothing(pool, BadCall, "no tokens"):
            pool.append("a", tokens)
        with changes_nothing(pool, BadCall, "no tokens"):
            pool.admit("b", tokens)
    pool.release("a")
    with changes_nothing(pool, BadCall, "unknown request: 'a'"):
        pool.release("a")


@pytest.mark.parametrize("sizes", [(3, 4), (4, 0), (0, 1)])
def test_a_pool_has_room_for_a_reservation(sizes):
    with pytest.raises(ValueError, match="must be at least 1 and fit"):
        ContiguousAllocator(*sizes)


@pytest.mark.parametrize("engine", ["walk", "hypothesis"])
def test_the_baseline_keeps_every_rule(engine):
    operations = 10_000 if engine == "walk" else 1_000
    failure, tally = hunt(engine, as_target(ContiguousAdapter), 1, operations)

    assert failure is None
    assert tally.outcomes["append", "ok"] > operations // 50
    if engine == "walk":
        assert tally.outcomes["append", "out of blocks"] > operations // 50


def test_the_adapter_excuses_only_what_would_need_a_second_reservation():
    """With room, and within `max_model_len`, a refusal is a violation."""
    for canary in (RefusesWithRoom, WritesOverTheStart):
        target = as_target(ContiguousAdapter)
        spoiled = target._replace(factory=with_canary(target.factory, canary))
        failure, _ = hunt("walk", spoiled, 1, 5_000)
        assert failure is not None


class ReservesTooLittle(ContiguousAllocator):
    """Two reservations share their edge slot."""

    def _fill(self, request, tokens):
        return super()._fill(request, tokens) - self._reservations[request]


class GivesOneReservationTwice(ContiguousAllocator):
    def release(self, request):
        super().release(request)
        if len(self._free) > 1:
            self._free.append(self._free[0])


class KeepsTheReservation(ContiguousAllocator):
    def release(self, request):
        free = list(self._free)
        super().release(request)
        self._free = free or self._free


class StartsOver(ContiguousAllocator):
    def append(self, request, tokens):
        self._lengths[request] = 0
        return super().append(request, tokens)


class RefusesToFillWhenAlmostFull(ContiguousAllocator):
    def _check_growth(self, request, length, tokens):
        super()._check_growth(request, length, tokens)
        if length > 0 and not self._free[1:]:
            raise OutOfBlocks(1, len(self._free))


@pytest.mark.parametrize("bug", ContiguousAllocator.__subclasses__())
def test_a_planted_bug_is_found_in_lockstep(bug):
    class Planted(ContiguousAdapter):
        def __init__(self, config):
            super().__init__(config)
            self.allocator = bug(config.blocks * config.block_size, config.block_size)

    failure, _ = hunt("walk", as_target(Planted), 1, 10_000)

    assert failure is not None
