"""Lockstep on device memory: `gpu`'s KV memory with the plain one beside it, equal to the last bit."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import ClassVar, NamedTuple

import torch

from kvoracle.gpu.device_memory import DeviceMemory, Shape
from kvoracle.gpu.kernel import HAS_TRITON, launching_with
from kvoracle.gpu.sanitizer import Sanitizer
from kvoracle.model.adapters.base import Adapter
from kvoracle.model.lockstep import Factory, Violation
from kvoracle.model.memory import ListMemory, Stamp
from kvoracle.model.run import Failure, run
from kvoracle.model.trace import Configuration, Trace

RULE = "device memory"


class Moved(NamedTuple):
    """What a trace moved on a device, and how often the whole pool was compared."""

    tokens: int
    copies: int
    comparisons: int


class ComparedMemory:
    """A device memory that equals the plain memory byte for byte, after every copy and in the end.

    What is read is compared too; the first difference is a Violation, and so is all that a kernel does
    wrong.  On the CPU the sanitizer carries the kernels out: none ends or hangs the process.
    """

    def __init__(
        self, blocks: int, block_size: int, device: str = "cpu", shape: Shape | None = None
    ) -> None:
        self.on_device = DeviceMemory(blocks, block_size, device, shape)
        self._sanitizer = Sanitizer(0) if HAS_TRITON and device == "cpu" else None
        self.lists = ListMemory(blocks, block_size)
        self.moved = Moved(0, 0, 0)

    def write(self, slots: Sequence[int], stamps: Sequence[Stamp]) -> None:
        self.lists.write(slots, stamps)
        with self._judged():
            self.on_device.write(slots, stamps)
        self.moved = self.moved._replace(tokens=self.moved.tokens + len(slots))

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        self.lists.copy(pairs)
        with self._judged():
            self.on_device.copy(pairs)
        self.moved = self.moved._replace(copies=self.moved.copies + len(pairs))
        self._compare()

    def read(self, block: int) -> Sequence[Stamp | None]:
        right = self.lists.read(block)
        with self._judged():
            actual = self.on_device.read(block)
        if actual != right:
            raise Violation(RULE, f"block {block} on the device reads back otherwise", block)
        return right

    def finish(self) -> None:
        self._compare()

    @contextmanager
    def _judged(self) -> Iterator[None]:
        """Within it, what the sanitizer reports and what is raised are a Violation."""
        sanitizer = self._sanitizer
        try:
            with launching_with(sanitizer.carry_out) if sanitizer else nullcontext():
                yield
        except RuntimeError as error:
            raise Violation(RULE, self._reported() or str(error)) from error
        if self._reported():
            raise Violation(RULE, self._reported())

    def _reported(self) -> str:
        return (
            str(self._sanitizer.reports[0]) if self._sanitizer and self._sanitizer.reports else ""
        )

    def _compare(self) -> None:
        """Compare the whole pool."""
        self.moved = self.moved._replace(comparisons=self.moved.comparisons + 1)
        actual, right = self.on_device.pool(), self.on_device.pool_of(self.lists.blocks)
        if not torch.equal(actual, right):
            block, offset, layer, part, byte = (actual != right).nonzero()[0].tolist()
            where = f"offset {offset}, layer {layer}, {'KV'[part]}, byte {byte}"
            raise Violation(RULE, f"block {block} differs on the device ({where})", block)


def run_on_device(
    trace: Trace, factory: Factory, device: str = "cpu", shape: Shape | None = None
) -> tuple[Failure | None, Moved]:
    """Run a trace with the whole pool compared after every copy and at the end."""
    memories: list[ComparedMemory] = []

    def make_memory(blocks: int, block_size: int) -> ComparedMemory:
        memories.append(ComparedMemory(blocks, block_size, device, shape))
        return memories[-1]

    failure = run(trace, factory, make_memory=make_memory)
    return failure, memories[0].moved if memories else Moved(0, 0, 0)


class OnDeviceMemory:
    """A factory of the same allocator, whose lockstep is on device memory."""

    make_memory: ClassVar = ComparedMemory

    def __init__(self, factory: Factory) -> None:
        self._factory = factory

    def __call__(self, config: Configuration) -> Adapter:
        return self._factory(config)
