"""What kernels ask of their arguments, and what is said when it is not so: a ValueError in a sentence.

What needs the values themselves is checked on the CPU only: on a GPU looking would wait for the
device.  There the kernels do without: none reads or writes outside its tensors whatever the values.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

ID_LIMIT = 2**31
"""Block ids, block sizes and numbers of requests are below it: int32."""

INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Bytes are moved as integers: no move of one changes a bit, NaN or not, and every dtype is served."""


def check_tensor(
    name: str,
    tensor: torch.Tensor,
    dtype: torch.dtype | None = None,
    shape: Sequence[int | None] = (),
    device: torch.device | None = None,
) -> None:
    """Refuse another dtype, another shape (None is any length) and another device."""
    if dtype is not None and tensor.dtype != dtype:
        raise ValueError(f"{name} must be {_short(dtype)}, not {_short(tensor.dtype)}")
    fits = len(shape) == tensor.ndim and all(
        want in (None, have) for want, have in zip(shape, tensor.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if length is None else str(length) for length in shape)
        raise ValueError(f"{name} must have the shape [{wanted}], not {list(tensor.shape)}")
    if device is not None and tensor.device != device:
        raise ValueError(f"{name} must be on {device}, where the rest is, not on {tensor.device}")


def check_contiguous(name: str, tensor: torch.Tensor, first: int = 0) -> None:
    """Refuse gaps between the elements of the dimensions from `first` on."""
    if not all(part.is_contiguous() for part in _one_part(tensor, first)):
        strides = list(tensor.stride())
        raise ValueError(
            f"{name} must be contiguous from dimension {first} on, not of strides {strides}"
        )


def check_rows(name: str, tensor: torch.Tensor) -> None:
    """Refuse rows that overlap or lie backwards."""
    if len(tensor) > 1 and tensor.stride(0) < tensor[0].numel():
        raise ValueError(f"{name} has rows that overlap: a stride of {tensor.stride(0)} elements")


def check_whole(name: str, value: int, low: int, high: int = ID_LIMIT - 1) -> None:
    """Refuse all but the whole numbers low .. high."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high}, not {value!r}")


_looks_at_values = True


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """Within it values are not looked at on the CPU either: to show that the kernels do without."""
    global _looks_at_values  # noqa: PLW0603
    before, _looks_at_values = _looks_at_values, False
    try:
        yield
    finally:
        _looks_at_values = before


def looks_at_values(tensor: torch.Tensor) -> bool:
    """Whether the values of a tensor are to be checked."""
    return _looks_at_values and bool(tensor.device.type == "cpu")


def check_values(name: str, tensor: torch.Tensor, low: int, high: int) -> None:
    """Refuse values outside low .. high, where they are looked at."""
    if not looks_at_values(tensor) or tensor.numel() == 0:
        return
    least, most = int(tensor.min()), int(tensor.max())
    if least < low or most > high:
        outside = least if least < low else most
        raise ValueError(f"{name} must be from {low} to {high}, not {outside}")


def in_one_line(error: BaseException) -> str:
    """What was raised."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def as_integers(tensor: torch.Tensor) -> torch.Tensor:
    """The same bytes as integers of the same size."""
    return tensor.view(INTEGERS[tensor.element_size()])


def _one_part(tensor: torch.Tensor, first: int) -> list[torch.Tensor]:
    """What an index of the dimensions before `first` leaves; nothing where there is nothing."""
    for _ in range(first):
        if len(tensor) == 0:
            return []
        tensor = tensor[0]
    return [tensor]


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
