"""The layers that need no GPU: clean on the kernels, and each sees what it is there for."""

import re
from contextlib import suppress

import pytest

torch = pytest.importorskip("torch", reason="the layers need torch: kvoracle[gpu]")
triton = pytest.importorskip("triton", reason="the layers need Triton, which is for Linux")

import triton.language as tl  # noqa: E402

from kvoracle.gpu.ahead import (  # noqa: E402
    ARCHITECTURES,
    beyond_limits,
    compile_ahead,
    measure,
    table,
)
from kvoracle.gpu.functions import KERNELS, TWINS  # noqa: E402
from kvoracle.gpu.intervals import BOUNDS, Proof  # noqa: E402
from kvoracle.gpu.kernel import Kernel, launching_with  # noqa: E402
from kvoracle.gpu.mutants import MUTANTS  # noqa: E402
from kvoracle.gpu.production import production_launches  # noqa: E402
from kvoracle.gpu.sanitizer import Sanitizer, Stopped  # noqa: E402
from kvoracle.model.adapters import gpu_layers  # noqa: E402
from kvoracle.model.adapters.gpu_cases import edge_cases, random_cases  # noqa: E402
from kvoracle.model.adapters.gpu_hard_cases import sparse_cases, unchecked_cases  # noqa: E402
from kvoracle.model.adapters.gpu_layers import complaints, mutant_table  # noqa: E402
from kvoracle.model.adapters.gpu_layers import hunt as hunt_mutant  # noqa: E402

LAUNCHES = production_launches()
PINNED = """\
kernel         arch    registers  16-byte loads  16-byte stores  local
slot_mapping   sm_90          {slot}           0/23             1/1      0
slot_mapping   sm_100         {slot}           0/23             1/1      0
copy_disjoint  sm_90          30            4/7             4/4      0
copy_disjoint  sm_100         30            4/7             4/4      0
copy_chains    sm_90          48          36/57           36/36      0
copy_chains    sm_100         48          36/57           36/36      0
kv_write       sm_90          40           8/12             8/8      0
kv_write       sm_100         40           8/12             8/8      0
paged_gather   sm_90          40            8/9             8/8      0
paged_gather   sm_100         40            8/9             8/8      0
alloc_extend   sm_90          {extend}            0/9             0/4      0
alloc_extend   sm_100         {extend}            0/9             0/4      0
alloc_decode   sm_90          {decode}            0/4             0/1      0
alloc_decode   sm_100         {decode}            0/4             0/1      0"""
REGISTERS = {
    "3.7.1": {"slot": 28, "extend": 31, "decode": 19},
    "3.9.0": {"slot": 26, "extend": 32, "decode": 16},
}
"""By the version of Triton; of others the limits hold."""


def by_kernel(launch):
    return launch.kernel.name


# The machine code (layer C)


def test_the_machine_code_keeps_its_limits_and_is_as_pinned():
    machines = [measure(launch, arch) for launch in LAUNCHES for arch in ARCHITECTURES]

    assert [said for machine in machines for said in beyond_limits(machine)] == []
    if triton.__version__ in REGISTERS:
        assert "\n".join(table(machines)) == PINNED.format(**REGISTERS[triton.__version__])


def test_the_gate_refuses_copies_that_are_not_aligned():
    launches = []
    storage = torch.empty(4 * 4096 + 1, dtype=torch.int64)[1:].view(4, 4096)
    with launching_with(launches.append):
        KERNELS["copy_blocks"]([storage], [(0, 1)])

    refused = beyond_limits(measure(launches[0], 90))

    assert any("stores of less than 16 bytes" in said for said in refused)


# The interval proof (layer D)


@pytest.mark.parametrize("launch", LAUNCHES, ids=by_kernel)
def test_no_32_bit_operation_overflows(launch):
    proof = Proof(compile_ahead(launch, 90).asm["ttir"], BOUNDS[launch.kernel.name])

    assert proof.problems == []
    assert proof.checked > 0


def test_without_bounds_the_proof_names_what_can_overflow():
    launch = next(one for one in LAUNCHES if one.kernel.name == "slot_mapping")

    proof = Proof(compile_ahead(launch, 90).asm["ttir"], {})

    assert re.match(r"line \d+: arith.addi of 32 bits in `middle` can be ", proof.problems[0])


# The sanitizer (layer B)


def watched(function, programs, *arguments, **constants):
    sanitizer = Sanitizer(1, steps_max=300)
    with launching_with(sanitizer.carry_out), suppress(Stopped):
        Kernel(function).launch(programs, *arguments, **constants)
    return sanitizer.reports


def kinds(reports):
    return [report.kind for report in reports]


@pytest.mark.parametrize(
    "cases",
    [random_cases, edge_cases, unchecked_cases, sparse_cases],
    ids=lambda cases: cases.__name__,
)
def test_the_kernels_give_no_report(cases):
    sanitizer = Sanitizer(2)
    differences = []
    with launching_with(sanitizer.carry_out):
        for case in cases(7):
            case.run(KERNELS[case.function])
            differences.append(case.difference())

    assert sanitizer.reports == []
    assert set(differences) == {None}


def _beyond(out, tile: tl.constexpr):
    tl.store(out + tl.arange(0, tile), tl.program_id(0))


def test_an_access_outside_is_reported_and_not_made():
    out = torch.zeros(9, dtype=torch.int32)

    (report,) = watched(_beyond, 1, out[:7], tile=8)

    assert report.kind == "outside"
    assert report.address == out[7:].data_ptr()
    assert str(report).startswith(
        f"beyond, line {_beyond.__code__.co_firstlineno + 1}, program 0: "
    )
    assert out.tolist() == [0] * 9


def test_gaps_between_rows_are_outside():
    table = torch.zeros((2, 4), dtype=torch.int32)

    assert kinds(watched(_beyond, 1, table[:, :3], tile=8)) == ["outside"]


def test_two_programs_that_write_one_place_race():
    assert kinds(watched(_beyond, 2, torch.zeros(8, dtype=torch.int32), tile=8)) == ["race"]


def _turned(out, tile: tl.constexpr):
    lane = tl.arange(0, tile)
    tl.store(out + lane, lane)
    tl.store(out + tile - 1 - lane, tl.load(out + lane))


def test_two_lanes_that_use_one_place_race():
    (report,) = watched(_turned, 1, torch.zeros(8, dtype=torch.int32), tile=8)

    assert report.kind == "race"
    assert "two lanes of one program" in report.what


def _product(out, number):
    tl.store(out, (number * number).to(tl.int64))


def test_a_32_bit_product_that_overflows_is_reported():
    out = torch.zeros(1, dtype=torch.int64)

    assert kinds(watched(_product, 1, out, 2**16)) == ["overflow"]
    assert watched(_product, 1, out, 2**15) == []


def _cut(out, number):
    tl.store(out, number.to(tl.int32))


def test_a_number_cut_to_32_bits_is_reported():
    assert kinds(watched(_cut, 1, torch.zeros(1, dtype=torch.int32), 2**40)) == ["overflow"]


def _masked(out, source, tile: tl.constexpr):
    lane = tl.arange(0, tile)
    tl.store(out + lane, tl.load(source + lane, mask=lane < 3))


def test_masked_lanes_without_an_other_hold_anything():
    source = torch.ones(3, dtype=torch.int64)
    stored = set()
    for seed in range(9):
        out, sanitizer = torch.zeros(4, dtype=torch.int64), Sanitizer(seed)
        with launching_with(sanitizer.carry_out):
            Kernel(_masked).launch(1, out, source, tile=4)
        stored.add(int(out[3]))
        assert kinds(sanitizer.reports) == ["masked lane"]

    assert len(stored) > 1


def _counted(out, source, tile: tl.constexpr):
    lane = tl.arange(0, tile)
    tl.store(out + lane, tl.load(source + lane, mask=lane < 3) + 1, mask=lane < 3)


def test_masked_lanes_without_an_other_are_not_to_be_computed_with():
    source = torch.ones(3, dtype=torch.int64)

    (report,) = watched(_counted, 1, torch.zeros(3, dtype=torch.int64), source, tile=4)

    assert report.kind == "masked lane"
    assert "computes with" in report.what


def _hinted(out, alignment: tl.constexpr):
    tl.store(tl.multiple_of(out, alignment), 1)


def test_a_hint_that_is_not_so_is_reported():
    out = torch.zeros(3, dtype=torch.int32)

    assert kinds(watched(_hinted, 1, out[1:], alignment=2**20)) == ["hint"]
    assert watched(_hinted, 1, out[1:], alignment=4) == []


def _slot_mapping(slots):
    tl.store(slots, tl.load(slots + 1))


def test_output_that_was_never_written_is_not_to_be_read():
    assert kinds(watched(_slot_mapping, 1, torch.zeros(2, dtype=torch.int64))) == ["unwritten"]


def _endless(out):
    number = tl.load(out)
    while number == 0:
        number = tl.load(out)


def _endless_without_access(out):
    number = tl.program_id(0)
    while number == 0:
        number = number + 0


@pytest.mark.parametrize("function", [_endless, _endless_without_access])
def test_a_loop_without_end_ends(function):
    (report,) = watched(function, 1, torch.zeros(1, dtype=torch.int64))

    assert report.kind == "exception"
    assert "more than 300 steps" in report.what


def _exchanged(out):
    tl.atomic_xchg(out + 10**12, 1)


def _compared(out):
    tl.atomic_cas(out + 10**12, 0, 1)


@pytest.mark.parametrize(
    ("function", "name"), [(_exchanged, "tl.atomic_xchg"), (_compared, "tl.atomic_cas")]
)
def test_atomic_operations_are_refused_by_name(function, name):
    (report,) = watched(function, 1, torch.zeros(1, dtype=torch.int64))

    line = function.__code__.co_firstlineno + 1
    head = f"{function.__name__.strip('_')}, line {line}, program 0: exception: "
    assert str(report) == f"{head}NotImplementedError: the sanitizer does not know {name}"


def test_a_launch_that_is_stopped_is_no_result():
    out, sanitizer = torch.zeros(1, dtype=torch.int64), Sanitizer(1)

    with launching_with(sanitizer.carry_out), pytest.raises(Stopped, match="atomic_cas"):
        Kernel(_compared).launch(1, out)


def _halved(out, source, tile: tl.constexpr):
    lane = tl.arange(0, tile)
    tl.store(out + lane, tl.load(source + lane, mask=lane < 3))


@pytest.mark.filterwarnings("error")
def test_poison_of_any_type_leaks_no_warning():
    source = torch.ones(3, dtype=torch.float16)

    assert kinds(watched(_halved, 1, source.new_zeros(4), source, tile=4)) == ["masked lane"]


# All layers


def raising(*arguments, **options):
    raise KeyError(1)


def test_a_function_that_raises_is_named_and_the_others_are_checked(monkeypatch):
    monkeypatch.setattr(gpu_layers, "KERNELS", {**KERNELS, "kv_write": raising})
    monkeypatch.setattr(gpu_layers, "TWINS", {**TWINS, "alloc_decode": raising})
    monkeypatch.setattr(
        gpu_layers, "all_cases", lambda rounds: [*random_cases(0), *random_cases(1)]
    )
    gpu_layers._watched.cache_clear()

    found = {layer.name: gpu_layers.found_by(layer) for layer in gpu_layers.LAYERS[:4]}
    gpu_layers._watched.cache_clear()

    kernel, twin = found["A"].problems
    assert re.fullmatch(r"kv_write \(.*\): KeyError: 1 \(it is called no more\)", kernel)
    assert twin.startswith("torch twin of alloc_decode (")
    assert found["B"].problems == []
    assert found["C"].problems == found["D"].problems == ["kv_write: KeyError: 1"]
    assert found["D"].did.endswith("in 6 kernels")


# Mutants


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_broken_kernel_is_seen(mutant):
    layer, said = next(complaints(mutant))

    assert layer in "ABCD"
    assert said


def test_the_table_says_which_layer_caught_a_mutant():
    caught = [hunt_mutant(mutant) for mutant in MUTANTS if mutant.name == "slot-in-32-bits"]

    assert "ABD" in mutant_table(caught)[1]


def test_there_are_mutants_of_every_function():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25
    assert {mutant.function for mutant in MUTANTS} == KERNELS.keys()
