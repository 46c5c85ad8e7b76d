"""The kernels, interpreted, and their torch twins against the reference."""

import random

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch: kvoracle[gpu]")

from kvoracle.gpu.functions import KERNELS, TWINS  # noqa: E402
from kvoracle.gpu.kernel import HAS_TRITON, Kernel, Launch, launching_with  # noqa: E402
from kvoracle.model.adapters.gpu_cases import edge_cases, random_cases  # noqa: E402
from kvoracle.model.adapters.gpu_hard_cases import sparse_cases, unchecked_cases  # noqa: E402

SEEDS = range(6)
SIDES = [
    pytest.param(
        KERNELS, id="triton", marks=pytest.mark.skipif(not HAS_TRITON, reason="no Triton here")
    ),
    pytest.param(TWINS, id="torch"),
]


def differences(cases, functions):
    for case in cases:
        case.run(functions[case.function])
        difference = case.difference()
        if difference:
            yield f"{case.function} ({case.about}): {difference}"


@pytest.mark.parametrize("functions", SIDES)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_calls_leave_what_the_reference_says(functions, seed):
    assert list(differences(random_cases(seed), functions)) == []


@pytest.mark.parametrize("functions", SIDES)
def test_edges(functions):
    assert list(differences(edge_cases(1), functions)) == []


@pytest.mark.parametrize("functions", SIDES)
def test_values_that_nobody_looked_at_lead_nowhere_else(functions):
    assert list(differences(unchecked_cases(1), functions)) == []


@pytest.mark.parametrize("functions", SIDES)
def test_offsets_beyond_32_bits(functions):
    assert list(differences(sparse_cases(1), functions)) == []


@pytest.mark.parametrize("functions", SIDES)
def test_planes_need_not_begin_where_wide_words_do(functions):
    aligned, shifted = torch.arange(16).byte().view(2, 8), torch.arange(20).byte()[3:19].view(2, 8)

    functions["copy_blocks"]([aligned, shifted], [(0, 1)])

    assert aligned[1].tolist() == list(range(8))
    assert shifted[1].tolist() == list(range(3, 11))


def test_a_case_names_what_is_wrong():
    case = next(random_cases(0))

    said = case.difference()

    assert said is not None
    assert "is right" in said


@pytest.mark.skipif(not HAS_TRITON, reason="no Triton here")
def test_a_launch_is_seen_with_the_names_of_its_arguments():
    seen = []
    case = next(random_cases(0))

    with launching_with(seen.append):
        case.run(KERNELS[case.function])

    (launch,) = seen
    assert isinstance(launch, Launch)
    assert launch.is_on_cpu
    assert launch.named["capacity"] == len(case.arguments[3])
    assert case.difference() is not None


def test_more_programs_than_a_grid_has_are_refused():
    def _nothing() -> None: ...

    if HAS_TRITON:
        with pytest.raises(ValueError, match="more than a grid has"):
            Kernel(_nothing).launch(2**31)


def call(function, position, value):
    """Make the call of a random case with one argument exchanged."""
    cases = [case for case in random_cases(3) if case.function == function]
    case = random.Random(0).choice(cases)
    arguments = list(case.arguments)
    arguments[position] = value(arguments[position])
    KERNELS[function](*arguments, **case.keywords)


def unsorted(starts):
    """The same ends, and a step back in between."""
    return torch.cat([starts[:1], starts[-1:] + 1, starts[2:]])


@pytest.mark.parametrize(
    ("function", "position", "value", "said"),
    [
        ("slot_mapping", 0, lambda t: t.long(), "the block table must be int32, not int64"),
        ("slot_mapping", 0, lambda t: t.t(), "must be contiguous from dimension 1"),
        ("slot_mapping", 1, lambda t: t[:-1], "query starts must have the shape"),
        ("slot_mapping", 1, lambda t: t + 1, "the first of the query starts must be from 0 to 0"),
        ("slot_mapping", 1, unsorted, "the steps of query starts must be from 0"),
        ("slot_mapping", 2, lambda t: t[:1], "the last of the query starts must be from"),
        ("slot_mapping", 3, lambda t: t.to("meta"), "must be on meta"),
        ("slot_mapping", 4, lambda _: 0, "the block size must be a whole number from 1"),
        ("slot_mapping", 4, lambda _: 7, "does not split|must be"),
        ("copy_blocks", 0, lambda _: [], "at least one plane"),
        ("copy_blocks", 1, lambda _: [(0, 1), (2, 1)], "block 1 is the destination of two copies"),
        ("copy_blocks", 1, lambda _: [(0, 99)], "a block to copy must be a whole number from 0"),
        ("copy_blocks", 1, lambda _: [(-1, 0)], "a block to copy must be a whole number from 0"),
        ("kv_write", 0, lambda t: t.double(), "keys must be"),
        ("kv_write", 0, lambda t: t[:, :, :-1], "keys must have the shape"),
        ("kv_write", 3, lambda t: t[:, :, :, :-1], "the value cache must have the shape"),
        ("kv_write", 4, lambda t: t * 0, "slots must not name one slot twice"),
        ("kv_write", 4, lambda t: t + 10**6, "slots must be from"),
        ("paged_gather", 2, lambda t: t + 99, "the block table must be from 0 to 4"),
        ("paged_gather", 2, lambda t: t[:0], "tokens to gather must be a whole number from 0 to 0"),
        ("alloc_extend", 1, lambda t: t * 0 - 1, "lengths after must be from 0"),
        ("alloc_extend", 3, lambda t: t[:0], "free pages must be a whole number from"),
        ("alloc_extend", 4, lambda t: t[:-1], "slots to fill must be a whole number from"),
        ("alloc_decode", 3, lambda t: t[:0], "slots to fill must be a whole number from"),
        ("alloc_decode", 4, lambda _: True, "the page size must be a whole number from 1"),
    ],
)
def test_a_wrong_argument_is_refused_in_a_sentence(function, position, value, said):
    with pytest.raises(ValueError, match=said):
        call(function, position, value)
