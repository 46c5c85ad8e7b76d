"""A sanitizer over Triton's interpreter: what a GPU does not forgive and an interpreter does not notice.

    overflow     a 32-bit sum, difference or product that leaves its type, or a value cut to 32 bits
    outside      an access outside every tensor of the launch, gaps between its rows included
    unwritten    a read of output that this launch has not written
    masked lane  computed with, or stored, though it was masked when loaded without an `other`
    race         one place used by two programs, or by two lanes of one, at least one of them writing
    hint         a tl.multiple_of that is not so

    exception    what the interpreter raised; of an atomic operation, and of a program without end, too

Programs run in a seeded random order; masked lanes without an `other` hold anything, a poison among
it; and an access outside is reported and not made, so that nothing here ends the process.
"""

import random
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from traceback import walk_tb
from types import FrameType
from typing import Any, NamedTuple

import torch

from kvoracle.gpu.checks import in_one_line
from kvoracle.gpu.kernel import HAS_TRITON, Launch

if HAS_TRITON:
    from triton.runtime import interpreter

OUTPUTS = {
    "slot_mapping": ("slots",),
    "paged_gather": ("key", "value"),
    "alloc_extend": ("slots",),
    "alloc_decode": ("slots",),
}
"""The tensors that a kernel fills, whatever they held before."""

POISONS = (0x5A, 0x00, 0x01, 0xFF)
"""Bytes of what a masked lane without an `other` holds."""

STEPS_MAX = 20_000
"""Accesses, operations on two operands and casts of one program: a loop without end ends there."""

PATCHED = (
    "set_grid_idx",
    "create_masked_load",
    "create_masked_store",
    "create_atomic_rmw",
    "create_atomic_cas",
    "binary_op",
    "create_int_cast",
)
"""What of the interpreter's builder is replaced, by the methods of these names."""


class Report(NamedTuple):
    """What one line of a kernel did."""

    kernel: str
    line: int
    program: int
    address: int
    kind: str
    what: str

    def __str__(self) -> str:
        line = f", line {self.line}" if self.line else ""
        where = f"{self.kernel}{line}, program {self.program}"
        at = f" at address {self.address:#x}" if self.address else ""
        return f"{where}: {self.kind}: {self.what}{at}"


def first_of_each(reports: Sequence[Report]) -> list[str]:
    """In words, the first report of each line and kind."""
    first: dict[tuple[str, int, str], str] = {}
    for one in reports:
        first.setdefault((one.kernel, one.line, one.kind), str(one))
    return list(first.values())


class Stopped(Exception):
    """A launch was not carried out to its end; what it left behind says nothing."""


class Access(NamedTuple):
    """Addresses that one line used, and the lane of each; -1 where all threads of a program do it."""

    addresses: torch.Tensor
    lanes: torch.Tensor
    program: int
    line: int
    writes: bool


class Sanitizer:
    """Carries out launches (`launching_with(sanitizer.carry_out)`) and reports."""

    def __init__(
        self,
        seed: int,
        steps_max: int = STEPS_MAX,
        poisons: Sequence[int] = POISONS,
    ) -> None:
        self._dice = random.Random(seed)
        self._steps_max = steps_max
        self._poisons = poisons
        self.reports: list[Report] = []

    def carry_out(self, launch: Launch) -> None:
        """Run one launch in the interpreter, watched; Stopped where it did not come to its end."""
        watch = _Watch(launch, self._dice, self._steps_max, self._poisons)
        try:
            with watch.patched(), warnings.catch_warnings(action="ignore"):
                launch.kernel.interpreted[launch.grid](*launch.arguments, **launch.constants)
        except Exception as error:
            watch.report_exception(error.__cause__ or error)
            raise Stopped(str(watch.reports[-1])) from error
        finally:
            watch.find_races()
            self.reports += watch.reports


class _Watch:
    """One launch under watch."""

    def __init__(
        self, launch: Launch, dice: random.Random, steps_max: int, poisons: Sequence[int]
    ) -> None:
        self.launch = launch
        self._poisons = poisons
        self._steps_max = steps_max
        self._steps = 0
        self.reports: list[Report] = []
        self.accesses: list[Access] = []
        self._dice = dice
        self._order = dice.sample(range(launch.programs), launch.programs)
        self._program = 0
        tensors = [value for value in launch.arguments if isinstance(value, torch.Tensor)]
        self._views = [*tensors, *launch.reach]
        outputs = OUTPUTS.get(launch.kernel.name, ())
        self._outputs = [launch.named[name] for name in outputs]

    def report(self, kind: str, what: str, address: int = 0, line: int = 0) -> None:
        """Once for each line and kind."""
        line = line or self._line()
        if not any((one.line, one.kind) == (line, kind) for one in self.reports):
            name = self.launch.kernel.name
            self.reports.append(Report(name, line, self._program, address, kind, what))

    def report_exception(self, error: BaseException) -> None:
        """What ended the launch, and where."""
        lines = [line for frame, line in walk_tb(error.__traceback__) if self._is_kernel(frame)]
        self.report("exception", in_one_line(error), line=lines[-1] if lines else 0)

    @contextmanager
    def patched(self) -> Iterator[None]:
        """The interpreter's builder with this watch in between."""
        builder = interpreter.interpreter_builder
        handle_set_attr = interpreter.TensorHandle.set_attr
        self._original = {name: getattr(builder, name) for name in PATCHED}
        for name in PATCHED:
            setattr(builder, name, getattr(self, name))

        def set_attr(handle: Any, name: str, values: Any) -> None:
            self._check_hint(handle, name, values)
            handle_set_attr(handle, name, values)

        interpreter.TensorHandle.set_attr = set_attr
        try:
            yield
        finally:
            interpreter.TensorHandle.set_attr = handle_set_attr
            for name in PATCHED:
                delattr(builder, name)

    # In place of the builder's own

    def set_grid_idx(self, x: int, y: int, z: int) -> None:
        """Another program than the next one."""
        self._program = self._order[x] + y * len(self._order)
        self._steps = 0
        self._original["set_grid_idx"](self._order[x], y, z)

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *how: Any) -> Any:
        """Load what may be loaded; poison where a masked lane has no `other`.

        Of one lane only, the interpreter does not tell an `other` of 0 from none.
        """
        dtype = interpreter._get_np_dtype(ptrs.get_element_ty())
        allowed = self._access(ptrs, mask, dtype.itemsize, writes=False)
        is_undefined = other is None and ptrs.data.size > 1
        if is_undefined:
            poison = mask.data.astype(dtype)
            poison.reshape(-1).view("uint8").fill(self._dice.choice(self._poisons))
            other = interpreter.TensorHandle(poison, ptrs.get_element_ty())
        loaded = self._original["create_masked_load"](ptrs, allowed, other, *how)
        if is_undefined and not bool(mask.data.all()):
            loaded.set_attr(UNDEFINED, ~mask.data)
        return loaded

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *how: Any) -> Any:
        """Store what may be stored."""
        if bool((mask.data & value.attr.get(UNDEFINED, False)).any()):
            self.report("masked lane", "stores what a masked lane loaded without an `other`")
        size = value.data.dtype.itemsize
        allowed = self._access(ptrs, mask, size, writes=True)
        return self._original["create_masked_store"](ptrs, value, allowed, *how)

    def create_atomic_rmw(self, operation: Any, *_: Any) -> Any:
        """Programs may share what atomic operations use; nothing here could tell."""
        raise NotImplementedError(f"the sanitizer does not know tl.atomic_{operation.name.lower()}")

    def create_atomic_cas(self, *_: Any) -> Any:
        """Likewise."""
        raise NotImplementedError("the sanitizer does not know tl.atomic_cas")

    def binary_op(self, lhs: Any, rhs: Any, operate: Any) -> Any:
        """Sums, differences and products of 32 bits are worked out in 64 as well."""
        self._step()
        self._check_defined(lhs, rhs)
        result = self._original["binary_op"](lhs, rhs, operate)
        if operate.__name__ in ("add", "subtract", "multiply") and result.data.dtype.name in INT32:
            exact = operate(lhs.data.astype("int64"), rhs.data.astype("int64"))
            if bool((exact != result.data).any()):
                most = int(exact.flat[abs(exact).argmax()])
                self.report("overflow", f"a 32-bit {operate.__name__} gives {most}")
        return result

    def create_int_cast(self, src: Any, dst_type: Any, is_signed: bool) -> Any:
        """A value cut to 32 bits must be the same after it."""
        self._step()
        self._check_defined(src)
        result = self._original["create_int_cast"](src, dst_type, is_signed)
        if result.data.dtype.name in INT32 and bool((result.data != src.data).any()):
            self.report("overflow", "a value is cut to 32 bits and changed")
        return result

    def _check_defined(self, *operands: Any) -> None:
        if any(UNDEFINED in operand.attr for operand in operands):
            self.report("masked lane", "computes with what a masked lane loaded without an `other`")

    def _check_hint(self, handle: Any, name: str, values: Any) -> None:
        first = int(handle.data.reshape(-1)[0])
        if name == "tt.divisibility" and first % values[-1]:
            self.report("hint", f"{first} is not a multiple of {values[-1]}", first)

    # What is checked

    def _step(self) -> None:
        self._steps += 1
        if self._steps > self._steps_max:
            raise RuntimeError(f"more than {self._steps_max} steps: it may never end")

    def _access(self, ptrs: Any, mask: Any, size: int, *, writes: bool) -> Any:
        """The mask without what lies outside; the rest is remembered."""
        self._step()
        addresses = torch.from_numpy(ptrs.data.astype("int64").reshape(-1))
        is_on = torch.from_numpy((mask.data & (ptrs.data == ptrs.data)).reshape(-1))
        inside = _any_holds(self._views, addresses, size)
        self._complain("outside", addresses[is_on & ~inside], "writes" if writes else "reads")
        used = is_on & inside
        if not writes:
            filled = _any_holds(self._outputs, addresses, size) & used
            self._complain("unwritten", self._never_written(addresses[filled]), "reads")
        lanes = torch.arange(len(addresses)) if len(addresses) > 1 else torch.tensor([-1])
        self.accesses.append(
            Access(addresses[used], lanes[used], self._program, self._line(), writes)
        )
        return interpreter.TensorHandle(used.numpy().reshape(ptrs.data.shape), mask.dtype)

    def _complain(self, kind: str, addresses: torch.Tensor, verb: str) -> None:
        if len(addresses):
            self.report(kind, f"{verb} {len(addresses)} elements", int(addresses[0]))

    def _never_written(self, addresses: torch.Tensor) -> torch.Tensor:
        written = [access.addresses for access in self.accesses if access.writes]
        if not written or not len(addresses):
            return addresses
        return addresses[~torch.isin(addresses, torch.cat(written))]

    def find_races(self) -> None:
        """Places that two programs used, or two lanes of one, and that at least one of them wrote."""
        if not any(access.writes for access in self.accesses):
            return
        numbered = enumerate(self.accesses)
        owner = torch.cat([torch.full_like(one.addresses, number) for number, one in numbered])
        addresses = torch.cat([access.addresses for access in self.accesses])
        lanes = torch.cat([access.lanes for access in self.accesses])
        programs = torch.tensor([access.program for access in self.accesses])[owner]
        writes = torch.tensor([access.writes for access in self.accesses])[owner]
        places, place = addresses.unique(return_inverse=True)
        uses = torch.arange(len(owner))
        first = uses.new_full(places.shape, len(uses)).scatter_reduce(0, place, uses, "amin")[place]
        is_written = torch.zeros(len(places), dtype=torch.bool)
        is_written[place[writes]] = True
        is_other = (programs != programs[first]) | (lanes != lanes[first])
        contested = (is_other & is_written[place]).nonzero().flatten()
        for number in owner[contested].unique().tolist():
            use = contested[owner[contested] == number][0]
            before = self.accesses[int(owner[first[use]])]
            self._race(before, self.accesses[number], int(addresses[use]))

    def _race(self, one: Access, other: Access, address: int) -> None:
        kind = "lanes of one program" if one.program == other.program else "programs"
        what = f"two {kind} use one place, the other in line {one.line}"
        self._program = other.program
        self.report("race", what, address, other.line)

    def _line(self) -> int:
        """The line of the kernel that is being carried out."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not self._is_kernel(frame):
            frame = frame.f_back
        return frame.f_lineno if frame is not None else 0

    def _is_kernel(self, frame: FrameType) -> bool:
        return frame.f_code.co_name == self.launch.kernel.function.__name__


INT32 = ("int32", "uint32")
UNDEFINED = "undefined"
"""The mark of a value of which some lanes hold anything: those."""


def _any_holds(views: list[torch.Tensor], addresses: torch.Tensor, size: int) -> torch.Tensor:
    """Whether each address is that of an element of one of the views."""
    held = torch.zeros(len(addresses), dtype=torch.bool)
    for view in views:
        held |= _holds(view, addresses, size)
    return held


def _holds(view: torch.Tensor, addresses: torch.Tensor, size: int) -> torch.Tensor:
    if view.numel() == 0 or view.element_size() < size:
        return torch.zeros(len(addresses), dtype=torch.bool)
    rest = addresses - view.data_ptr()
    held = rest >= 0
    dimensions = sorted(zip(view.stride(), view.shape, strict=True), reverse=True)
    for stride, length in dimensions:
        step = stride * view.element_size()
        if length > 1:
            index = rest // step
            held &= index < length
            rest = rest - index * step
    return held & (rest + size <= view.element_size())
