"""What a kernel is here: a function in Triton's language, run where its tensors are.

On a GPU it is compiled, on the CPU Triton's interpreter carries it out, both in one process and
whatever TRITON_INTERPRET says.  `launching_with` exchanges how launches are carried out: that is how
a checking layer sees each of them as its caller makes it.

Triton has wheels for Linux only.  Elsewhere every kernel's torch twin still works.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import torch

try:
    import triton
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction
except ModuleNotFoundError:
    triton = tl = InterpretedFunction = None

__all__ = ["HAS_TRITON", "Kernel", "Launch", "add", "carry_out_where_it_is", "ceil_div"]
__all__ += ["launching_with", "power_of_two", "tl", "triton"]

HAS_TRITON = triton is not None

add = tl.standard._sum_combine if HAS_TRITON else None
"""For tl.reduce and tl.associative_scan: tl.sum, tl.cumsum and tl.zeros need TRITON_INTERPRET on the CPU."""

PROGRAMS_MAX = 2**31 - 1
"""Of a grid's first axis; the other two end at 65,535, and none of our kernels uses them."""


class Kernel:
    """A kernel and how to launch it."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function
        self.name = function.__name__.strip("_")

    @cached_property
    def compiled(self) -> Any:
        """For tensors on a GPU."""
        return triton.JITFunction(self.function)

    @cached_property
    def interpreted(self) -> Any:
        """For tensors on the CPU."""
        return InterpretedFunction(self.function)

    def launch(
        self,
        programs: int,
        *arguments: Any,
        warps: int = 4,
        reach: Sequence[torch.Tensor] = (),
        second_axis: int = 1,
        **constants: Any,
    ) -> None:
        """Run so many programs; none is no launch.

        `constants` are the tl.constexpr arguments; `reach` are tensors whose addresses a table holds;
        `second_axis` is how many programs a grid has along it.
        """
        if not HAS_TRITON:
            raise RuntimeError(f"{self.name} needs Triton, which is not here; use its torch twin.")
        if programs > PROGRAMS_MAX:
            raise ValueError(
                f"{self.name} needs {programs} programs, more than a grid has; split the work."
            )
        if programs:
            how = (warps, tuple(reach), second_axis)
            _carry_out(Launch(self, programs, arguments, constants, *how))


class Launch(NamedTuple):
    """One launch of a kernel, as its caller made it."""

    kernel: Kernel
    programs: int
    arguments: tuple[Any, ...]
    constants: dict[str, Any]
    warps: int
    reach: tuple[torch.Tensor, ...]
    second_axis: int = 1

    @property
    def grid(self) -> tuple[int, int]:
        """Its programs along two axes."""
        return self.programs, self.second_axis

    @property
    def named(self) -> dict[str, Any]:
        """All arguments by their names."""
        bound = inspect.signature(self.kernel.function).bind(*self.arguments, **self.constants)
        return bound.arguments

    @property
    def is_on_cpu(self) -> bool:
        """Whether the interpreter must do it."""
        tensors = [value for value in self.arguments if isinstance(value, torch.Tensor)]
        return all(tensor.device.type == "cpu" for tensor in tensors)


def carry_out_where_it_is(launch: Launch) -> None:
    """Interpret on the CPU, compile and run elsewhere."""
    kernel, grid = launch.kernel, launch.grid
    if launch.is_on_cpu:
        kernel.interpreted[grid](*launch.arguments, **launch.constants)
    else:
        kernel.compiled[grid](*launch.arguments, **launch.constants, num_warps=launch.warps)


_carry_out: Callable[[Launch], None] = carry_out_where_it_is


@contextmanager
def launching_with(carry_out: Callable[[Launch], None]) -> Iterator[None]:
    """Within it, launches are carried out by another function."""
    global _carry_out  # noqa: PLW0603
    before, _carry_out = _carry_out, carry_out
    try:
        yield
    finally:
        _carry_out = before


def ceil_div(dividend: int, divisor: int) -> int:
    """The quotient, rounded up."""
    return -(-dividend // divisor)


def power_of_two(number: int, most: int) -> int:
    """The smallest power of two that is at least a number, and at most `most`."""
    return min(1 << max(number - 1, 0).bit_length(), most)
