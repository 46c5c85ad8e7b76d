"""Slot arithmetic: both rooms against each other, against counting, and the document's figures."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st

from kvoracle.impl import slots as impl
from kvoracle.reference import slots as reference

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


def stated(examples, phases):
    """Every setting stated, so that the profile Hypothesis loads under CI changes nothing."""
    return settings(
        backend="hypothesis",
        database=None,
        deadline=None,
        derandomize=False,
        max_examples=examples,
        phases=phases,
        print_blob=False,
        report_multiple_bugs=False,
        stateful_step_count=1,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.normal,
    )


def checked(examples, phases=(Phase.generate, Phase.shrink)):
    """A property of a fixed seed."""
    return lambda test: seed(0)(stated(examples, phases)(test))


def divisors(number):
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


@st.composite
def geometries(draw):
    block_size = draw(st.sampled_from([1, 2, 3, 4, 6, 8, 16]))
    world = draw(st.integers(1, 4))
    return {
        "block_size": block_size,
        "ratio": draw(st.sampled_from(divisors(block_size))),
        "world": world,
        "rank": draw(st.integers(0, world - 1)),
        "interleave": draw(st.sampled_from(divisors(block_size))),
    }


@st.composite
def steps(draw, geometries=geometries()):  # noqa: B008
    """A geometry, tables of allocation blocks, and tokens as (row, position)."""
    geometry = draw(geometries)
    highest = (INT32_MAX + 1) // geometry["ratio"] - 1
    ids = st.one_of(st.integers(0, 50), st.integers(highest - 50, highest))
    tables = draw(st.lists(st.lists(ids, min_size=1, max_size=4), min_size=1, max_size=3))
    rows = draw(st.lists(st.integers(0, len(tables) - 1), max_size=12))
    reach = geometry["block_size"] * geometry["world"]
    tokens = [(row, draw(st.integers(0, reach * len(tables[row]) - 1))) for row in rows]
    return geometry, tables, tokens


def split(table, ratio):
    return [kernel for block in table for kernel in reference.kernel_blocks(block, ratio)]


def rectangle(tables, beyond=7):
    """The tables as one array, and their lengths; what lies beyond a row is somebody's block."""
    block_table = np.full((len(tables), max(map(len, tables), default=0)), beyond, np.int32)
    for row, table in enumerate(tables):
        block_table[row, : len(table)] = table
    return block_table, np.array([len(table) for table in tables], np.int32)


def slots_of(mapping, geometry, tables, tokens):
    rows, positions = [row for row, _ in tokens], [position for _, position in tokens]
    kernel_tables = [split(table, geometry["ratio"]) for table in tables]
    return mapping(*rectangle(kernel_tables), rows, positions, **geometry)


def check_mappings_agree(mapping, **phases):
    """That a slot mapping is the reference's, token by token."""

    @checked(150, **phases)
    @given(steps(), st.integers(0, 3))
    def property_of(step, spare):
        geometry, tables, tokens = step
        actual = slots_of(mapping, geometry, tables, tokens)
        expected = [
            reference.slot_of(split(tables[row], geometry["ratio"]), position, **geometry)
            for row, position in tokens
        ]

        assert actual.dtype == np.int64
        assert actual.tolist() == expected
        buffer = impl.padded(actual, len(expected) + spare)
        assert buffer.tolist() == reference.padded(expected, len(expected) + spare)

    property_of()


def test_the_two_slot_mappings_agree():
    check_mappings_agree(impl.slot_mapping)


@checked(100)
@given(geometries(), st.lists(st.integers(0, 60), min_size=1, max_size=4, unique=True))
def test_ranks_share_out_every_position_and_no_two_share_a_slot(geometry, table):
    kernel_table = split(table, geometry["ratio"])
    positions = range(len(table) * geometry["block_size"] * geometry["world"])
    for rank in range(geometry["world"]):
        slots = [
            reference.slot_of(kernel_table, position, **geometry | {"rank": rank})
            for position in positions
        ]
        local = [p for p in positions if p // geometry["interleave"] % geometry["world"] == rank]
        size = geometry["block_size"]

        assert [slot for slot in slots if slot != -1] == [
            table[count // size] * size + count % size for count in range(len(local))
        ]
        assert [p for p in positions if slots[p] != -1] == local


@checked(100)
@given(steps(), st.integers(0, 8))
def test_a_position_beyond_the_table_is_refused_on_every_rank(step, beyond):
    geometry, tables, _ = step
    position = geometry["block_size"] * geometry["world"] * len(tables[0]) + beyond
    table = split(tables[0], geometry["ratio"])

    with pytest.raises(ValueError, match="is beyond"):
        reference.slot_of(table, position, **geometry)
    with pytest.raises(ValueError, match="is beyond"):
        slots_of(impl.slot_mapping, geometry, tables, [(0, position)])


@checked(100)
@given(st.integers(0, INT32_MAX), st.integers(1, INT32_MAX), st.data())
def test_a_slot_leads_back_to_its_block_and_offset(block, block_size, data):
    offset = data.draw(st.integers(0, block_size - 1))
    slot = reference.slot_at(block, offset, block_size)
    blocks, offsets = impl.blocks_and_offsets([slot], block_size)

    assert reference.block_and_offset(slot, block_size) == (block, offset)
    assert (blocks.tolist(), offsets.tolist()) == ([block], [offset])
    assert (blocks.dtype, offsets.dtype) == (np.int32, np.int64)


@checked(100)
@given(
    st.lists(st.one_of(st.integers(0, 99), st.integers(0, INT64_MAX)), max_size=5),
    st.one_of(st.integers(1, 20), st.integers(1, INT32_MAX)),
)
def test_blocks_needed_and_tail_waste_agree(tokens, block_size):
    needed = [reference.blocks_needed(count, block_size) for count in tokens]
    waste = [reference.tail_waste(count, block_size) for count in tokens]

    assert impl.blocks_needed(tokens, block_size).tolist() == needed
    assert impl.tail_waste(tokens, block_size).tolist() == waste
    assert waste == [(block_size - count % block_size) % block_size for count in tokens]


@checked(50)
@given(
    st.dictionaries(st.integers(0, 5000), st.integers(0, 50), min_size=1, max_size=6),
    st.integers(1, 64),
)
def test_the_expected_tail_waste_agrees(workload, block_size):
    if not any(workload.values()):
        workload[0] = 1
    expected = reference.expected_tail_waste(workload, block_size)
    actual = impl.expected_tail_waste(list(workload), list(workload.values()), block_size)

    assert actual == pytest.approx(float(expected))


@checked(50)
@given(st.lists(st.integers(0, 2**28 - 1), max_size=4), st.integers(1, 8))
def test_kernel_blocks_agree(blocks, ratio):
    actual = impl.kernel_blocks(blocks, ratio)

    assert actual.dtype == np.int32
    assert actual.tolist() == split(blocks, ratio)
    assert actual.tolist() == [block * ratio + i for block in blocks for i in range(ratio)]


@checked(50)
@given(steps())
def test_kernel_blocks_lead_to_the_slots_of_their_allocation_blocks(step):
    geometry, tables, tokens = step

    assert (
        slots_of(impl.slot_mapping, geometry, tables, tokens).tolist()
        == slots_of(impl.slot_mapping, geometry | {"ratio": 1}, tables, tokens).tolist()
    )


class TestTheFiguresOfTheDocument:
    def test_position_4096_of_block_1913_is_slot_30608(self):
        table = [*range(256), 1913]

        assert reference.slot_of(table, 4096, 16) == 30_608
        assert impl.slot_mapping(*rectangle([table]), [0], [4096], 16).tolist() == [30_608]
        assert reference.block_and_offset(30_608, 16) == (1913, 0)

    def test_4097_tokens_need_257_blocks(self):
        assert [reference.blocks_needed(tokens, 16) for tokens in (4096, 4097)] == [256, 257]
        assert impl.blocks_needed([4096, 4097], 16).tolist() == [256, 257]

    def test_the_tails_of_1_15_16_and_17_tokens(self):
        assert [reference.tail_waste(tokens, 16) for tokens in (1, 15, 16, 17)] == [15, 1, 0, 15]
        assert impl.tail_waste([1, 15, 16, 17], 16).tolist() == [15, 1, 0, 15]

    def test_their_mean_is_7_75_only_where_they_are_equally_likely(self):
        even, uneven = {1: 1, 15: 1, 16: 1, 17: 1}, {1: 1, 15: 1, 16: 6, 17: 0}

        assert reference.expected_tail_waste(even, 16) == Fraction(31, 4)
        assert reference.expected_tail_waste(uneven, 16) == 2
        assert impl.expected_tail_waste(list(uneven), list(uneven.values()), 16) == 2

    @pytest.mark.parametrize("block_size", [1, 16, 17])
    def test_uniform_residues_waste_half_a_block_less_half_a_slot(self, block_size):
        uniform = dict.fromkeys(range(100, 100 + block_size), 1)

        assert reference.expected_tail_waste(uniform, block_size) == Fraction(block_size - 1, 2)


def test_a_block_of_32_tokens_feeds_a_kernel_of_16():
    assert reference.kernel_blocks(5, 2) == [10, 11]
    assert impl.kernel_blocks([5, 9], 2).tolist() == [10, 11, 18, 19]


def test_two_ranks_take_turns_of_two_positions():
    table, sharding = [3, 8], {"block_size": 4, "world": 2, "interleave": 2}
    expected = {
        0: [12, 13, -1, -1, 14, 15, -1, -1, 32, 33, -1, -1, 34, 35, -1, -1],
        1: [-1, -1, 12, 13, -1, -1, 14, 15, -1, -1, 32, 33, -1, -1, 34, 35],
    }

    for rank, slots in expected.items():
        mapped = impl.slot_mapping(*rectangle([table]), [0] * 16, range(16), **sharding, rank=rank)
        assert mapped.tolist() == slots
        assert [reference.slot_of(table, p, **sharding, rank=rank) for p in range(16)] == slots


def test_the_largest_slot_fits():
    largest = {"block_size": INT32_MAX, "world": INT32_MAX, "interleave": INT32_MAX}
    table, position = [INT32_MAX], INT32_MAX - 1
    slot = INT32_MAX * INT32_MAX + INT32_MAX - 1

    assert INT32_MAX < slot < INT64_MAX
    assert reference.slot_of(table, position, **largest) == slot
    assert impl.slot_mapping(*rectangle([table]), [0], [position], **largest).tolist() == [slot]


def test_padding_is_no_slot_and_leads_to_no_block():
    assert reference.padded([5], 3) == [5, -1, -1]
    assert impl.padded(np.array([5]), 3).tolist() == [5, -1, -1]
    with pytest.raises(
        ValueError, match=r"^a slot must be a whole number from 0 to 34359738367, not -1$"
    ):
        reference.block_and_offset(-1, 16)
    with pytest.raises(ValueError, match="slots must be whole numbers from 0"):
        impl.blocks_and_offsets([5, -1], 16)


BAD_GEOMETRIES = [
    {"block_size": 0},
    {"block_size": -4},
    {"block_size": 4.0},
    {"block_size": 2**31},
    {"ratio": 0},
    {"ratio": 3},
    {"ratio": 8},
    {"ratio": 0.5},
    {"world": 0},
    {"world": 1.5},
    {"rank": 2},
    {"rank": -1},
    {"interleave": 0},
    {"interleave": 3},
    {"interleave": 8},
    {"interleave": "2"},
]


@pytest.mark.parametrize("bad", BAD_GEOMETRIES, ids=str)
def test_what_is_no_geometry_is_refused(bad):
    geometry = {"block_size": 4, "world": 2, "rank": 0} | bad

    with pytest.raises(ValueError, match=r"must be|does not"):
        reference.slot_of([1], 0, **geometry)
    with pytest.raises(ValueError, match=r"must be|does not"):
        impl.slot_mapping(*rectangle([[1]]), [0], [0], **geometry)


@pytest.mark.parametrize("position", [-1, 0.5, 1.0, 2**63, "0", None])
def test_what_is_no_position_is_refused(position):
    with pytest.raises(ValueError, match="must be"):
        reference.slot_of([1], position, 4)
    with pytest.raises(ValueError, match="must be"):
        impl.slot_mapping(*rectangle([[1]]), [0], [position], 4)


@pytest.mark.parametrize("block", [-1, 2**31])
def test_what_is_no_block_id_is_refused(block):
    table, length = np.array([[block]], np.int64), np.array([1])

    for refuse in (
        lambda: reference.slot_of([block], 0, 4),
        lambda: impl.slot_mapping(table, length, [0], [0], 4),
        lambda: reference.kernel_blocks(block, 2),
        lambda: reference.kernel_blocks(2**30, 2),
        lambda: impl.kernel_blocks([block], 2),
        lambda: impl.kernel_blocks([2**30], 2),
    ):
        with pytest.raises(ValueError, match="block id"):
            refuse()


@pytest.mark.parametrize("count", [-1, 1.5, 2**63, True, "1"])
def test_what_is_no_count_is_refused(count):
    for refuse in (
        lambda: reference.blocks_needed(count, 16),
        lambda: impl.blocks_needed([count], 16),
        lambda: reference.tail_waste(count, 16),
        lambda: impl.tail_waste([count], 16),
        lambda: reference.expected_tail_waste({1: count}, 16),
        lambda: impl.expected_tail_waste([1], [count], 16),
        lambda: reference.padded([], count),
        lambda: impl.padded(np.array([], np.int64), count),
    ):
        with pytest.raises(ValueError, match="must be"):
            refuse()


def test_a_workload_without_requests_and_a_full_buffer_are_refused():
    for refuse in (
        lambda: reference.expected_tail_waste({5: 0}, 16),
        lambda: impl.expected_tail_waste([5], [0], 16),
    ):
        with pytest.raises(ValueError, match="without requests"):
            refuse()
    for refuse in (
        lambda: reference.padded([1, 2], 1),
        lambda: impl.padded(np.array([1, 2]), 1),
    ):
        with pytest.raises(ValueError, match="2 slots do not fit a buffer of 1"):
            refuse()


def test_rows_that_do_not_exist_or_match_no_position_are_refused():
    table = rectangle([[1]])

    with pytest.raises(ValueError, match="rows must be whole numbers from 0 to 0, not 1"):
        impl.slot_mapping(*table, [1], [0], 4)
    with pytest.raises(ValueError, match="2 rows were given for 1 positions"):
        impl.slot_mapping(*table, [0, 0], [0], 4)


def narrow(table, lengths, rows, positions, **geometry):
    """int32 throughout, as a kernel has it that widens nothing."""
    size = np.int32(geometry["block_size"] // geometry["ratio"])
    with np.errstate(over="ignore"):
        exact = impl.slot_mapping(table, lengths, rows, positions, **geometry)
        return np.where(exact < 0, -1, (exact // size).astype(np.int32) * size + exact % size)


def changed(**change):
    """The mapping of another geometry: each entry a function of the right one."""

    def mapping(*arguments, **geometry):
        return impl.slot_mapping(
            *arguments, **geometry | {name: new(geometry) for name, new in change.items()}
        )

    return mapping


def one_too_far(table, lengths, rows, positions, **geometry):
    return impl.slot_mapping(table, lengths, rows, np.maximum(positions, 1) - 1, **geometry)


def global_offset(table, lengths, rows, positions, **geometry):
    """The block of the virtual block size, the offset of the whole one."""
    exact = impl.slot_mapping(table, lengths, rows, positions, **geometry)
    size = geometry["block_size"] // geometry["ratio"]
    return np.where(exact < 0, -1, exact // size * size + np.asarray(positions, int) % size)


def every_rank_writes(table, lengths, rows, positions, **geometry):
    owners = np.asarray(positions, int) // geometry["interleave"] % geometry["world"]
    ranks = [
        impl.slot_mapping(table, lengths, rows, positions, **geometry | {"rank": rank})
        for rank in range(geometry["world"])
    ]
    return np.choose(owners, ranks) if len(owners) else ranks[0]


def pads_with_zero(*arguments, **geometry):
    return np.maximum(impl.slot_mapping(*arguments, **geometry), 0)


MUTANTS = {
    "int32 slots": narrow,
    "previous position": one_too_far,
    "global offset": global_offset,
    "every rank writes": every_rank_writes,
    "other ranks write slot 0": pads_with_zero,
    "next rank": changed(rank=lambda g: (g["rank"] + 1) % g["world"]),
    "ranks counted down": changed(rank=lambda g: g["world"] - 1 - g["rank"]),
    "no interleave": changed(interleave=lambda g: 1),
    "interleave by block": changed(interleave=lambda g: g["block_size"]),
    "no ratio": changed(ratio=lambda g: 1),
    "ratio swapped with size": changed(ratio=lambda g: g["block_size"] // g["ratio"]),
    "no context parallelism": changed(world=lambda g: 1, rank=lambda g: 0),
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_wrong_slot_mapping_is_noticed(mutant):
    with pytest.raises((AssertionError, ValueError), match=r"^assert |is beyond"):
        check_mappings_agree(mutant, phases=(Phase.generate,))
