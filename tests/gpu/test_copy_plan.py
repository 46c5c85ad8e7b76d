"""The plan of block copies gives what parallel assignment gives, in any order of its chains."""

import random

import pytest

pytest.importorskip("torch", reason="kvoracle.gpu needs torch")

from kvoracle.gpu.copy_plan import plan_copies


def parallel(blocks, pairs):
    read = [blocks[source] for source, _ in pairs]
    after = list(blocks)
    for (_, destination), value in zip(pairs, read, strict=True):
        after[destination] = value
    return after


def carried_out(blocks, plan, dice):
    """As the kernel for any pairs does it: chains in any order, the last source read first."""
    after = list(blocks)
    for chain in dice.sample(range(plan.chains), plan.chains):
        pairs = plan.pairs[plan.starts[chain] : plan.starts[chain + 1]]
        carried = after[pairs[-1][0]]
        for source, destination in pairs[:-1]:
            after[destination] = after[source]
        after[pairs[-1][1]] = carried
    return after


@pytest.mark.parametrize("seed", range(20))
def test_random_pairs(seed):
    dice = random.Random(seed)
    for _ in range(100):
        count = dice.randint(1, 12)
        blocks = list(range(count))
        destinations = dice.sample(blocks, dice.randint(0, count))
        pairs = [(dice.randrange(count), destination) for destination in destinations]

        plan = plan_copies(pairs)

        assert carried_out(blocks, plan, dice) == parallel(blocks, pairs), pairs
        is_disjoint = not {s for s, d in pairs if s != d} & {d for s, d in pairs if s != d}
        assert plan.is_disjoint == is_disjoint


def test_disjoint_pairs_are_chains_of_one_though_they_share_a_source():
    assert plan_copies([(0, 1), (0, 2), (3, 4)]).starts == [0, 1, 2, 3]


def test_a_chain_is_carried_out_from_its_end():
    plan = plan_copies([(0, 1), (1, 2), (2, 3)])

    assert plan.pairs == [(2, 3), (1, 2), (0, 1)]
    assert plan.starts == [0, 3]


def test_a_cycle_is_closed_by_what_its_last_pair_read_first():
    plan = plan_copies([(0, 1), (1, 2), (2, 0), (2, 3)])

    assert plan.starts == [0, 4]
    assert plan.pairs[0] == (2, 3)
    assert plan.pairs[1][0] == plan.pairs[2][1]
    assert plan.pairs[-1][0] == plan.pairs[1][1]


def test_a_block_copied_on_itself_is_left_out_and_still_read():
    assert plan_copies([(1, 1), (1, 2)]).pairs == [(1, 2)]


def test_a_destination_given_twice_is_refused():
    with pytest.raises(ValueError, match="block 2 is the destination of two copies"):
        plan_copies([(0, 2), (1, 2)])


def test_a_long_chain_and_a_long_cycle_take_no_recursion():
    chain = [(block, block + 1) for block in range(100_000)]

    assert plan_copies(chain).pairs == chain[::-1]
    assert plan_copies([*chain, (100_000, 0)]).chains == 1
