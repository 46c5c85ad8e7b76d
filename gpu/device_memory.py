"""A KV memory on torch tensors: many layers of real keys and values, moved by the kernels alone.

It offers what lockstep asks of a memory.  The bits of a slot are drawn from its stamp, so that no two
(request, position, token, layer, head) share theirs and a slot read back says whose it is; a slot
that was never written is all zeros.
"""

from collections.abc import Hashable, Sequence
from hashlib import shake_256
from itertools import islice
from typing import Any, NamedTuple

import torch

from kvoracle.gpu.checks import in_one_line
from kvoracle.gpu.functions import KERNELS, TWINS, Functions
from kvoracle.gpu.kernel import HAS_TRITON

LAYOUTS = ("contiguous", "per layer", "interleaved", "apart")


class Shape(NamedTuple):
    """What one slot holds, and how the planes of the pool lie (see `block_copy`)."""

    layers: int = 2
    heads: int = 2
    head_size: int = 8
    dtype: torch.dtype = torch.bfloat16
    layout: str = "contiguous"

    @property
    def row_bytes(self) -> int:
        """The bytes of a slot in one layer, of the keys or of the values."""
        return self.heads * self.head_size * int(self.dtype.itemsize)


class Torn:
    """What reads back where the bits of a slot are those of no stamp."""


class DeviceMemory:
    """`blocks` blocks of `block_size` slots on a device."""

    def __init__(
        self, blocks: int, block_size: int, device: str = "cpu", shape: Shape | None = None
    ) -> None:
        self.blocks, self.block_size = blocks, block_size
        self.device = torch.device(device)
        self.shape = shape or Shape()
        self.functions: Functions = KERNELS if HAS_TRITON else TWINS
        self._lay_out()
        self._bytes_of: dict[Hashable, bytes] = {None: bytes(self.slot_bytes)}
        self._stamp_of: dict[bytes, Hashable] = {bytes(self.slot_bytes): None}
        self._read: list[list[Hashable]] = [[None] * block_size for _ in range(blocks)]
        self._stale: set[int] = set()

    @property
    def slot_bytes(self) -> int:
        """The bytes of a slot in all layers, keys and values."""
        return self.shape.layers * 2 * self.shape.row_bytes

    def write(self, slots: Sequence[int], stamps: Sequence[Hashable]) -> None:
        """Store the bits of each stamp at its slot; of two for one slot the last stays."""
        last = dict(zip(slots, stamps, strict=True))
        if not last:
            return
        new = self._bits(list(last.values())).view(len(last), self.shape.layers, 2, -1)
        new = new.view(self.shape.dtype).unflatten(-1, (self.shape.heads, self.shape.head_size))
        where = self._mapped(list(last))
        for layer, (keys, values) in enumerate(self.caches):
            self._call("kv_write", new[:, layer, 0], new[:, layer, 1], keys, values, where)
        self._stale.update(slot // self.block_size for slot in last)

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks (source, destination), every source read before any is written."""
        source_of = {destination: source for source, destination in pairs}
        distinct = [(source, destination) for destination, source in source_of.items()]
        self._call("copy_blocks", self.planes, distinct)
        self._stale.update(source_of)

    def read(self, block: int) -> list[Hashable]:
        """The stamps of a block; None where nothing was written, Torn where the bits are no stamp's.

        Whatever changed is gathered at once, as one sequence.
        """
        if block in self._stale:
            table = sorted(self._stale)
            rows = self.gather(table, len(table) * self.block_size).cpu().numpy()
            stamps = iter([self._stamp_of.get(row.tobytes(), Torn) for row in rows])
            for changed in table:
                self._read[changed] = list(islice(stamps, self.block_size))
            self._stale.clear()
        return self._read[block]

    def gather(self, table: Sequence[int], length: int) -> torch.Tensor:
        """The bytes of a sequence, read through its block table: [length, slot bytes]."""
        shape = self.shape
        rows = torch.empty(
            (length, shape.layers, 2, shape.heads, shape.head_size),
            dtype=shape.dtype,
            device=self.device,
        )
        blocks = torch.tensor(table, dtype=torch.int32, device=self.device)
        for layer, (keys, values) in enumerate(self.caches):
            self._call("paged_gather", keys, values, blocks, rows[:, layer, 0], rows[:, layer, 1])
        return rows.view(torch.uint8).flatten(1)

    def pool(self) -> torch.Tensor:
        """Every byte: [blocks, block size, layers, 2, row bytes]."""
        planes = [torch.stack(pair, dim=2) for pair in self.caches]
        return torch.stack(planes, dim=2).flatten(-2).view(torch.uint8)

    def pool_of(self, stamps: Sequence[Sequence[Hashable]]) -> torch.Tensor:
        """Every byte as it should be, from the stamps of each block."""
        bits = self._bits([stamp for block in stamps for stamp in block])
        shape = (self.blocks, self.block_size, self.shape.layers, 2, self.shape.row_bytes)
        return bits.view(shape)

    def _call(self, function: str, *arguments: Any) -> None:
        """Call a function; what it raises names it."""
        try:
            self.functions[function](*arguments)
        except Exception as error:
            raise RuntimeError(f"{function} raised {in_one_line(error)}") from error

    def _lay_out(self) -> None:
        """The planes that are copied, and each layer's keys and values within them."""
        shape = self.shape
        slots = (self.block_size, shape.heads, shape.head_size)
        lead = {
            "contiguous": (self.blocks, shape.layers, 2),
            "per layer": (shape.layers, self.blocks, 2),
            "interleaved": (shape.layers, self.blocks, 2),
            "apart": (shape.layers, 2, self.blocks),
        }[shape.layout]
        storage = torch.zeros((*lead, *slots), dtype=shape.dtype, device=self.device)
        if shape.layout == "contiguous":
            self.caches = [(storage[:, n, 0], storage[:, n, 1]) for n in range(shape.layers)]
        elif shape.layout == "apart":
            self.caches = [(layer[0], layer[1]) for layer in storage]
        else:
            self.caches = [(layer[:, 0], layer[:, 1]) for layer in storage]
        whole = {"contiguous": [storage], "per layer": list(storage)}
        self.planes = whole.get(shape.layout) or [part for pair in self.caches for part in pair]

    def _mapped(self, slots: list[int]) -> torch.Tensor:
        """The slots, worked out on the device from the table of their blocks."""
        table = list(dict.fromkeys(slot // self.block_size for slot in slots))
        index = {block: number for number, block in enumerate(table)}
        positions = [
            index[slot // self.block_size] * self.block_size + slot % self.block_size
            for slot in slots
        ]
        mapped = torch.empty(len(slots), dtype=torch.int64, device=self.device)
        self._call(
            "slot_mapping",
            torch.tensor([table], dtype=torch.int32, device=self.device),
            torch.tensor([0, len(slots)], dtype=torch.int32, device=self.device),
            torch.tensor(positions, dtype=torch.int64, device=self.device),
            mapped,
            self.block_size,
        )
        return mapped

    def _bits(self, stamps: list[Hashable]) -> torch.Tensor:
        """The bytes of stamps, one slot after the other."""
        for stamp in stamps:
            if stamp not in self._bytes_of:
                bits = shake_256(repr(stamp).encode()).digest(self.slot_bytes)
                self._bytes_of[stamp] = bits
                self._stamp_of[bits] = stamp
        joined = bytearray().join(self._bytes_of[stamp] for stamp in stamps)
        return torch.frombuffer(joined, dtype=torch.uint8).to(self.device)
