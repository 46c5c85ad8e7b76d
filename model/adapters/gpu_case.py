"""One call of a kernel with what it must leave behind, and what such calls are made of.

What a call may write lies between guards and is compared whole, so that one write too many is seen.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch

from kvoracle.gpu.checks import as_on_a_gpu, in_one_line

ID_MAX = 2**31 - 1
GUARD = 7
"""Elements before and after what is written; an odd number, so that nothing is aligned by luck."""
GUARD_VALUE = 77


class Case(NamedTuple):
    """A call of a kernel's function; `outputs`, once it ran, must be `expected` bit for bit.

    Its values are not looked at beforehand where it is not `checked`: as on a GPU, where the kernel
    alone must keep to its tensors.
    """

    function: str
    about: str
    arguments: tuple[Any, ...]
    keywords: dict[str, int]
    outputs: list[torch.Tensor]
    expected: list[torch.Tensor]
    checked: bool = True

    def on(self, device: str) -> "Case":
        """The same call on another device, its tensors lying in their storages as here."""
        moved: dict[int, torch.UntypedStorage] = {}

        def move(value: Any) -> Any:
            if isinstance(value, list) and value and isinstance(value[0], torch.Tensor):
                return [move(one) for one in value]
            if not isinstance(value, torch.Tensor):
                return value
            here = value.untyped_storage()
            if here.data_ptr() not in moved:
                every_byte = torch.empty(0, dtype=torch.uint8).set_(here)
                moved[here.data_ptr()] = every_byte.to(device, copy=True).untyped_storage()
            there = moved[here.data_ptr()]
            view = torch.empty(0, dtype=value.dtype, device=device)
            return view.set_(there, value.storage_offset(), value.shape, value.stride())

        return self._replace(
            arguments=tuple(map(move, self.arguments)), outputs=[move(one) for one in self.outputs]
        )

    def run(self, function: Callable[..., None]) -> None:
        """Make the call."""
        with nullcontext() if self.checked else as_on_a_gpu():
            function(*self.arguments, **self.keywords)

    def difference(self) -> str | None:
        """The first element that is wrong, in words; None where all are right."""
        actuals = [output.cpu() for output in self.outputs]
        for number, (actual, right) in enumerate(zip(actuals, self.expected, strict=True)):
            wrong = (_bytes_of(actual) != _bytes_of(right)).nonzero()
            if len(wrong):
                index = int(wrong[0]) // actual.element_size()
                found, wanted = actual.flatten()[index].item(), right.flatten()[index].item()
                return f"output {number} has {found} at {index}, and {wanted} is right"
        return None


def wrong_calls(
    cases: Iterable[Case], functions: Mapping[str, Callable[..., None]], kind: str = ""
) -> Iterator[str]:
    """Make calls; what is wrong after each.  A function that raised is called no more."""
    raised: set[str] = set()
    for case in cases:
        if case.function in raised:
            continue
        try:
            case.run(functions[case.function])
            difference = case.difference()
        except Exception as error:
            raised.add(case.function)
            difference = f"{in_one_line(error)} (it is called no more)"
        if difference is not None:
            yield f"{kind}{case.function} ({case.about}): {difference}"


def guarded(length: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor, and the one that it lies in, with guards on both sides."""
    whole = torch.full((length + 2 * GUARD,), GUARD_VALUE, dtype=dtype)
    return whole[GUARD : GUARD + length], whole


def random_bits(
    shape: tuple[int, ...] | torch.Size, dtype: torch.dtype, dice: random.Random
) -> torch.Tensor:
    """Random bits, not-a-numbers among them."""
    generator = torch.Generator().manual_seed(dice.getrandbits(32))
    size = torch.empty(0, dtype=dtype).element_size()
    shape = (*shape[:-1], shape[-1] * size)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator).view(dtype)


def any_id(dice: random.Random) -> int:
    """A block id: small, the largest, or any."""
    return dice.choice([0, dice.randrange(9), dice.randrange(ID_MAX), ID_MAX])


def int64(numbers: list[int]) -> torch.Tensor:
    """Numbers as the kernels take them."""
    return torch.tensor(numbers, dtype=torch.int64)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().flatten().view(torch.uint8)
