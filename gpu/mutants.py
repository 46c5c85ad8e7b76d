"""Kernels broken on purpose, one change each, to show that the layers see it."""

import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kvoracle.gpu.functions import KERNELS, MODULE_OF, Functions


class Mutant(NamedTuple):
    """A change in the source of a function's module: every `old` becomes `new`."""

    name: str
    function: str
    old: str
    new: str

    @property
    def source(self) -> str:
        """The source of the module as it is."""
        return Path(str(MODULE_OF[self.function].__file__)).read_text(encoding="utf-8")

    @property
    def fits(self) -> bool:
        """Whether there is still something to change."""
        return self.old in self.source

    @contextmanager
    def functions(self) -> Iterator[Functions]:
        """All functions, those of the changed module broken; within it, since sources are read late."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "broken.py"
            path.write_text(self.source.replace(self.old, self.new), encoding="utf-8")
            spec = importlib.util.spec_from_file_location(f"kvoracle_broken_{self.name}", path)
            assert spec is not None
            assert spec.loader is not None
            broken = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = broken
            spec.loader.exec_module(broken)
            try:
                yield {**KERNELS, self.function: getattr(broken, self.function)}
            finally:
                del sys.modules[spec.name]


SLOT, COPY, WRITE, GATHER = "slot_mapping", "copy_blocks", "kv_write", "paged_gather"
EXTEND, DECODE = "alloc_extend", "alloc_decode"
PRODUCT = "low.to(tl.int64) * row_stride"
READ, WRITTEN = "plane + tl.load(pair) * stride", "plane + tl.load(pair + 1) * stride"
DISJOINT = "copies.is_disjoint:"
PLANE = "tl.multiple_of(address.to(tl.pointer_type(word)), alignment)"

MUTANTS = (
    Mutant("slot-in-32-bits", SLOT, "other=-1).to(tl.int64)", "other=-1)"),
    Mutant("row-in-32-bits", SLOT, PRODUCT, "low * row_stride"),
    Mutant("rows-of-the-width", SLOT, PRODUCT, "low.to(tl.int64) * width"),
    Mutant("one-request-too-early", SLOT, "other=0) <= token", "other=0) < token"),
    Mutant("beyond-the-table", SLOT, " & (column < width)\n", "\n"),
    Mutant("padding-is-not-written", SLOT, "mask=token < capacity)", "mask=is_token)"),
    Mutant("padding-beyond-the-buffer", SLOT, "mask=token < capacity)", "mask=token <= capacity)"),
    Mutant("every-rank-is-the-first", SLOT, "turn % world == rank", "turn % world == 0"),
    Mutant("offset-of-the-position", SLOT, "block * size + local", "block * size + position"),
    Mutant("one-halving-too-few", SLOT, "in range(halvings)", "in range(halvings - 1)"),
    Mutant("source-and-destination-swapped", COPY, "tl.load(read, mask", "tl.load(written, mask"),
    Mutant("writes-its-source", COPY, f"written = {WRITTEN}", f"written = {READ}"),
    Mutant(
        "store-without-mask",
        COPY,
        ", mask=inside < words), mask=inside < words)",
        ", mask=inside < words))",
    ),
    Mutant("first-plane-only", COPY, "addresses + part % planes", "addresses"),
    Mutant("pair-in-32-bits", COPY, "(part // planes).to(tl.int64) * 2", "(part // planes) * 2"),
    Mutant("tile-in-32-bits", COPY, "(program % tiles).to(tl.int64)", "(program % tiles)"),
    Mutant(
        "block-in-32-bits", COPY, "tl.load(pair) * stride", "tl.load(pair).to(tl.int32) * stride"
    ),
    Mutant("hint-without-ground", COPY, PLANE, PLANE.replace("alignment", "256")),
    Mutant("hint-lost", COPY, PLANE, "address.to(tl.pointer_type(word))"),
    Mutant("chains-as-if-disjoint", COPY, DISJOINT, "copies.pairs is not None:"),
    Mutant(
        "cycle-closed-too-late",
        COPY,
        "inside, carried, mask",
        f"inside, tl.load({READ.replace('pair', 'last')} + inside, mask=inside < words), mask",
    ),
    Mutant("last-tile-left-out", COPY, "ceil_div(pool.words, tile)", "max(1, pool.words // tile)"),
    Mutant("tile-of-the-part", COPY, "(program % tiles).to", "(part % tiles).to"),
    Mutant("wherever-planes-begin", COPY, "*(one.storage_offset() for one in rows)", "0"),
    Mutant("negative-slots-written", WRITE, "(slot >= 0) & (slot < capacity)", "slot < capacity"),
    Mutant("slots-without-other", WRITE, "mask=token < tokens, other=-1", "mask=token < tokens"),
    Mutant(
        "keys-for-values",
        WRITE,
        "tl.load(value + (token * value_stride)",
        "tl.load(key + (token * key_stride)",
    ),
    Mutant(
        "blocks-without-stride",
        WRITE,
        "// block_size * block_stride",
        "// block_size * block_size * width",
    ),
    Mutant(
        "slots-of-the-width",
        WRITE,
        "slot % block_size * slot_stride",
        "slot % block_size * width",
    ),
    Mutant("values-as-far-apart-as-keys", WRITE, "token * value_stride", "token * key_stride"),
    Mutant("blocks-a-power-of-two", WRITE, "slot % block_size *", "(slot & (block_size - 1)) *"),
    Mutant("columns-without-mask", WRITE, "(column < width)", "(column >= 0)"),
    Mutant(
        "written-block-in-32-bits",
        WRITE,
        "place = slot // block_size",
        "place = (slot // block_size).to(tl.int32)",
    ),
    Mutant(
        "table-without-mask", GATHER, "// block_size, mask=is_token, other=0)", "// block_size)"
    ),
    Mutant(
        "offset-through-all-blocks",
        GATHER,
        "token % block_size * slot_stride",
        "token * slot_stride",
    ),
    Mutant("zeros-left-out", GATHER, "mask=read, other=0", "mask=read"),
    Mutant("values-over-keys", GATHER, "tl.store(value +", "tl.store(key +"),
    Mutant("gathered-block-in-32-bits", GATHER, "other=0).to(tl.int64)", "other=0)"),
    Mutant(
        "sums-without-other", EXTEND, "mask=earlier < request, other=0)", "mask=earlier < request)"
    ),
    Mutant("page-without-other", EXTEND, "mask=takes, other=0)", "mask=takes)"),
    Mutant("counts-itself", EXTEND, "mask=earlier < request", "mask=earlier <= request"),
    Mutant("partial-page-twice", EXTEND, "old_pages = (old + page_size - 1)", "old_pages = old"),
    Mutant("last-slot-again", EXTEND, "slot_before + 1 + number", "slot_before + number"),
    Mutant(
        "offset-of-the-growth", EXTEND, "page * page_size + position", "page * page_size + number"
    ),
    Mutant("one-tile-of-requests", EXTEND, "range(0, request, requests)", "range(0, 1, requests)"),
    Mutant(
        "pages-a-power-of-two",
        EXTEND,
        "position % page_size,",
        "(position & (page_size - 1)),",
    ),
    Mutant(
        "last-token-of-a-tile-left-out",
        EXTEND,
        "range(0, tl.minimum(new - old, capacity), tile)",
        "range(0, tl.maximum(tl.minimum(new - old, capacity) - 1, 1), tile)",
    ),
    Mutant("shrinking-gives-back", EXTEND, "other=0), old)", "other=0), 0)"),
    Mutant("place-before-the-slots", EXTEND, "(place >= 0) & ", ""),
    Mutant("no-earlier-tile", DECODE, "range(0, start, requests)", "range(0, 0, requests)"),
    Mutant("next-page-for-the-first", DECODE, "first_page + ahead - 1", "first_page + ahead"),
    Mutant("last-slot-once-more", DECODE, "slot_before + 1), mask", "slot_before), mask"),
)
