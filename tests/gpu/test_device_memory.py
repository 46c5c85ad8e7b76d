"""Lockstep on device memory: the same verdicts, and every byte as the plain memory has it."""

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="device memory needs torch: kvoracle[gpu]")

from kvoracle.gpu import device_memory  # noqa: E402
from kvoracle.gpu.device_memory import LAYOUTS, DeviceMemory, Shape, Torn  # noqa: E402
from kvoracle.gpu.functions import KERNELS, TWINS  # noqa: E402
from kvoracle.gpu.kernel import HAS_TRITON  # noqa: E402
from kvoracle.gpu.mutants import Mutant  # noqa: E402
from kvoracle.model.adapters.device_memory import (  # noqa: E402
    RULE,
    ComparedMemory,
    run_on_device,
)
from kvoracle.model.adapters.gpu_cases import DTYPES  # noqa: E402
from kvoracle.model.adapters.impl import ImplAdapter  # noqa: E402
from kvoracle.model.engines import ENGINES, hunt  # noqa: E402
from kvoracle.model.gpu_command import on_memory  # noqa: E402
from kvoracle.model.lockstep import Violation  # noqa: E402
from kvoracle.model.memory import Stamp  # noqa: E402
from kvoracle.model.operations import Append, AppendEach, Create, Fork, Pin, Release  # noqa: E402
from kvoracle.model.registry import resolve  # noqa: E402
from kvoracle.model.run import run  # noqa: E402
from kvoracle.model.trace import Configuration, Trace, read  # noqa: E402

DOCUMENT = sorted((Path(__file__).parents[2] / "seeds" / "document").glob("*.json"))
CHAIN = [(0, 1), (1, 2), (2, 3)]
CYCLE = [(0, 1), (1, 2), (2, 0), (2, 3)]


def stamps(count, request="a", first=0):
    return [Stamp(request, first + n, 7 * n, 1) for n in range(count)]


@pytest.mark.parametrize("path", DOCUMENT, ids=lambda path: path.stem)
def test_document_seeds_leave_the_pool_of_the_plain_memory(path):
    failure, moved = run_on_device(read(path), ImplAdapter)

    assert failure is None
    assert moved.tokens > 0
    assert moved.comparisons > 0


def test_copy_on_write_traces():
    forks = [Fork("a", child) for child in "bcde"]
    grown = AppendEach(list("bcde"), [9] * 4)
    operations = [Create("a"), Append("a", list(range(6))), *forks, grown, Pin("b", "t")]
    operations += [Append("b", [1]), Release("a"), Append("c", [2, 3, 4]), Append("d", [5])]

    failure, moved = run_on_device(Trace(Configuration(20, 4), operations), ImplAdapter)

    assert failure is None
    assert moved.copies >= 5


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_chains_and_cycles_of_copies_in_every_layout_and_dtype(layout, dtype):
    memory = ComparedMemory(6, 3, shape=Shape(3, 2, 8, dtype, layout))
    memory.write(list(range(2, 13)), stamps(11))

    memory.copy(CHAIN)
    memory.copy(CYCLE)

    assert [memory.read(block) for block in range(6)] == memory.lists.blocks
    assert memory.moved.comparisons == 2


def test_a_sequence_is_gathered_through_its_table():
    memory = DeviceMemory(4, 2)
    memory.write([6, 7, 0], stamps(3))

    gathered = memory.gather([3, 0], 3)

    assert torch.equal(gathered, memory.pool().flatten(2)[[3, 3, 0], [0, 1, 0]])
    assert memory.read(3) == stamps(2)
    assert memory.read(0) == [stamps(3)[2], None]


def test_every_layer_head_and_token_has_bits_of_its_own():
    memory = DeviceMemory(8, 4, shape=Shape(layers=4, heads=2, head_size=8))
    memory.write(range(32), stamps(32))

    heads = memory.pool().view(-1, 16)

    assert len(heads.unique(dim=0)) == len(heads) == 8 * 4 * 4 * 2 * 2


def test_of_two_tokens_for_one_slot_the_last_stays():
    memory = DeviceMemory(2, 2)

    memory.write([1, 1], stamps(2))

    assert memory.read(0) == [None, stamps(2)[1]]


def lost_copies(planes, pairs):
    KERNELS["copy_blocks"](planes, pairs[:-1])


def half_written(key, value, key_cache, value_cache, slots):
    KERNELS["kv_write"](key, key, key_cache, value_cache, slots)


@pytest.mark.parametrize(
    "broken",
    [{"copy_blocks": lost_copies}, {"kv_write": half_written}],
    ids=lambda b: next(iter(b)),
)
def test_a_broken_kernel_is_a_violation(broken):
    memory = ComparedMemory(4, 2)
    memory.on_device.functions = {**TWINS, **broken}

    memory.write([0, 1], stamps(2))

    with pytest.raises(Violation, match="on the device") as caught:
        memory.copy([(0, 2), (0, 1)])

    assert caught.value.rule == RULE
    assert caught.value.block in (0, 1)


def test_a_block_that_reads_back_otherwise_is_a_violation():
    memory = ComparedMemory(4, 2)
    memory.on_device.functions = {**TWINS, "kv_write": half_written}
    memory.write([0, 1], stamps(2))

    with pytest.raises(Violation, match="block 0 on the device reads back otherwise"):
        memory.read(0)


def raising(*arguments):
    raise NameError("no such name")


def test_a_function_that_raises_is_a_violation_that_names_it():
    memory = ComparedMemory(4, 2)
    memory.on_device.functions = {**TWINS, "kv_write": raising}

    with pytest.raises(Violation, match="kv_write raised NameError: no such name") as caught:
        memory.write([0, 1], stamps(2))

    assert caught.value.rule == RULE


@pytest.mark.skipif(not HAS_TRITON, reason="no Triton here")
def test_a_kernel_that_leaves_its_tensors_is_a_violation_that_names_it(monkeypatch):
    trace = Trace(Configuration(4, 2), [Create("a"), Append("a", [1])])
    mutant = Mutant("astray", "kv_write", "place = slot", "place = (slot + 10**11)")

    with mutant.functions() as functions:
        monkeypatch.setattr(device_memory, "KERNELS", functions)
        failure, _ = run_on_device(trace, ImplAdapter)

    assert failure is not None
    assert failure.rule == RULE
    assert re.match(r"kv_write, line \d+, program 0: outside: writes \d+ el", failure.message)


def test_bits_that_are_no_stamp_s_read_back_as_torn():
    memory = DeviceMemory(1, 1)
    memory.write([0], stamps(1))

    memory.planes[0].view(torch.uint8).view(-1)[-1] ^= 1

    assert memory.read(0) == [Torn]


def stray_write(key, value, key_cache, value_cache, slots):
    TWINS["kv_write"](key, value, key_cache, value_cache, slots)
    value_cache.view(torch.uint8)[-1, -1, -1, -1] ^= 1


def test_a_stray_write_that_no_read_sees_is_found_at_the_end_of_a_fuzzed_run(monkeypatch):
    functions = {**TWINS, "kv_write": stray_write}
    monkeypatch.setattr(device_memory, "KERNELS", functions)
    monkeypatch.setattr(device_memory, "TWINS", functions)
    trace = Trace(Configuration(4, 2), [Create("a"), Append("a", [1, 2, 3])])

    failure = run(trace, on_memory(resolve("impl"), "device").factory)

    assert failure is not None
    assert failure.rule == RULE
    assert failure.message.startswith("block 3 differs on the device (offset 1, layer ")
    assert failure.trace == trace


@pytest.mark.parametrize("engine", ENGINES)
def test_both_engines_find_a_stray_write_that_no_read_sees(engine, monkeypatch):
    functions = {**TWINS, "kv_write": stray_write}
    monkeypatch.setattr(device_memory, "KERNELS", functions)
    monkeypatch.setattr(device_memory, "TWINS", functions)

    failure, _ = hunt(engine, on_memory(resolve("impl-token"), "device"), 1, 100)

    assert failure is not None
    assert failure.rule == RULE


@pytest.mark.parametrize("name", ["impl", "mutant:copy-skipped-on-shared-tail"])
def test_a_fuzz_says_the_same_on_both_memories(name):
    target = resolve(name)

    on_list, tally = hunt("walk", target, 5, 300)
    on_device, tally_on_device = hunt("walk", on_memory(target, "device"), 5, 300)

    assert tally_on_device.outcomes == tally.outcomes
    assert on_device == on_list
