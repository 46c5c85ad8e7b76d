"""The worker's mirror of one KV cache group's block tables on numpy arrays, many rows at once.

Deltas arrive as data, lists that JSON can carry: `["append", rows, blocks]`,
`["replace", rows, blocks]`, `["null_out", rows, counts]`, `["remove", rows]`,
`["move", source, target]`, `["swap", first, second]`, where `blocks[i]` is the list of allocation
block ids for `rows[i]`.  They change the staged arrays; `commit` copies the rows that changed to
what the worker reads.  Entries beyond the length of a row are kept at the null block at all times,
so that a row may be read at any width.

Bad input is a ValueError in one sentence, and nothing was changed.
Source: "The block table", "The slot mapping" and `CommonAttentionMetadata` of the document.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kvoracle.impl.ids import Ids, Rows, Slots
from kvoracle.impl.slots import (
    Counts,
    check_sharding,
    check_whole,
    kernel_block_size,
    kernel_blocks,
    padded,
    slot_mapping,
    whole,
)

NULL_BLOCK = 0
"""The block that holds no request's KV, and every entry of a row beyond its length."""

Blocks = Sequence[Sequence[int] | Ids]
"""Allocation block ids, a list for each row of a delta."""

_ARITY = {"append": 2, "replace": 2, "null_out": 2, "remove": 1, "move": 2, "swap": 2}


@dataclass(frozen=True)
class StepMetadata:
    """What the attention kernels are given for one step, n requests in rows 0 .. n - 1.

    The arrays are copies: later deltas and commits leave a step what it was given.
    """

    query_start_loc: NDArray[np.int32]
    """[n + 1]: where each request's tokens begin among those of the step; then the end."""
    seq_lens: NDArray[np.int32]
    """[n]: tokens of each request, those of this step included."""
    block_table: Ids
    """[n, width * ratio]: kernel blocks, the null block beyond a row's length."""
    slot_mapping: Slots
    """[padded]: the slot of each token of the step, PAD_SLOT beyond and on other ranks."""
    num_reqs: int
    num_actual_tokens: int
    max_query_len: int
    max_seq_len: int


class WorkerTable:
    """`rows` rows of at most `width` allocation blocks, each split into `ratio` kernel blocks.

    `staged` and `committed` are int32 [rows, width * ratio]; `lengths` and `committed_lengths` are
    int32 [rows], in kernel blocks.
    """

    def __init__(
        self,
        rows: int,
        width: int,
        block_size: int,
        *,
        ratio: int = 1,
        world: int = 1,
        rank: int = 0,
        interleave: int = 1,
    ) -> None:
        check_whole("rows", rows)
        check_whole("the width", width)
        kernel_block_size(block_size, ratio)
        check_sharding(block_size, world, rank, interleave)
        self.block_size = block_size
        self.ratio = ratio
        self.world = world
        self.rank = rank
        self.interleave = interleave
        self.staged: Ids = np.full((rows, width * ratio), NULL_BLOCK, np.int32)
        self.lengths = np.zeros(rows, np.int32)
        self.committed = self.staged.copy()
        self.committed_lengths = self.lengths.copy()
        self._changed = np.zeros(rows, bool)

    def apply(self, delta: Sequence[Any]) -> None:
        """Carry out one delta as it came from the scheduler."""
        known = isinstance(delta, list | tuple) and delta and delta[0] in list(_ARITY)
        if not known or len(delta) != 1 + _ARITY[delta[0]]:
            raise ValueError(f"a delta is a verb with its arguments, not {delta!r:.60}")
        getattr(self, delta[0])(*delta[1:])

    def append(self, rows: ArrayLike, blocks: Blocks) -> None:
        """Add allocation blocks at the end of rows: rows int [k], k lists of blocks."""
        rows = self._distinct(rows)
        ids, counts = self._split(rows, blocks)
        self._check_width(rows, self.lengths[rows] + counts)
        self._write(rows, ids, counts)

    def replace(self, rows: ArrayLike, blocks: Blocks) -> None:
        """Make allocation blocks all that the rows hold: rows int [k], k lists of blocks."""
        rows = self._distinct(rows)
        ids, counts = self._split(rows, blocks)
        self._check_width(rows, counts)
        self._empty(rows)
        self._write(rows, ids, counts)

    def null_out(self, rows: ArrayLike, counts: ArrayLike) -> None:
        """Make the first counts[i] allocation blocks of rows[i] the null block: int [k] both."""
        rows = self._distinct(rows)
        counts = whole("counts", counts) * self.ratio
        if len(counts) != len(rows):
            raise ValueError(f"{len(counts)} counts were given for {len(rows)} rows")
        if (counts > self.lengths[rows]).any():
            row = rows[(counts > self.lengths[rows]).argmax()]
            raise ValueError(f"row {row} has fewer blocks than are to be nulled out")
        columns = _ranges(np.zeros_like(counts), counts)
        self.staged[np.repeat(rows, counts), columns] = NULL_BLOCK + columns % self.ratio
        self._changed[rows] = True

    def remove(self, rows: ArrayLike) -> None:
        """Empty rows, for reuse: int [k]."""
        self._empty(self._distinct(rows))

    def move(self, source: int, target: int) -> None:
        """Move a row to an empty one, or nowhere where both are the same."""
        self._check_row(source)
        self._check_row(target)
        if source == target:
            return
        if self.lengths[target]:
            raise ValueError(f"row {source} cannot move to row {target}, which is not empty")
        self.swap(source, target)

    def swap(self, first: int, second: int) -> None:
        """Let two rows change places."""
        self._check_row(first)
        self._check_row(second)
        self.staged[[first, second]] = self.staged[[second, first]]
        self.lengths[[first, second]] = self.lengths[[second, first]]
        self._changed[[first, second]] = True

    def commit(self) -> None:
        """Make the staged rows, as they are now, what the worker reads."""
        rows = np.flatnonzero(self._changed)
        self.committed[rows] = self.staged[rows]
        self.committed_lengths[rows] = self.lengths[rows]
        self._changed[rows] = False

    def read(self, rows: ArrayLike, columns: int) -> Ids:
        """What the worker sees in the first columns of rows, a copy: int32 [k, columns]."""
        rows = self._existing(rows)
        check_whole("columns", columns, 0, self.staged.shape[1])
        entries: Ids = self.committed[rows, :columns]
        return entries

    def metadata(
        self, query_lens: ArrayLike, seq_lens: ArrayLike, buffer: int | None = None
    ) -> StepMetadata:
        """The metadata of a step in which request i, in row i, computes its last query_lens[i] tokens.

        Both are int [n]; `buffer` is the length to which the slot mapping is padded.  ValueError
        where a row has too few blocks for its sequence, or a token would be written into the null
        block.
        """
        queries = whole("query lengths", query_lens, 1)
        lengths = whole("sequence lengths", seq_lens, 1)
        self._check_step(queries, lengths)
        starts = np.concatenate([[0], np.cumsum(queries)])
        rows = np.repeat(np.arange(len(queries)), queries)
        slots = self._slots(rows, _ranges(lengths - queries, queries))
        return StepMetadata(
            query_start_loc=starts.astype(np.int32),
            seq_lens=lengths.astype(np.int32),
            block_table=self.committed[: len(queries)].copy(),
            slot_mapping=padded(slots, len(slots) if buffer is None else buffer),
            num_reqs=len(queries),
            num_actual_tokens=len(slots),
            max_query_len=int(queries.max(initial=0)),
            max_seq_len=int(lengths.max(initial=0)),
        )

    def _slots(self, rows: Rows, positions: Counts) -> Slots:
        slots = slot_mapping(
            self.committed,
            self.committed_lengths,
            rows,
            positions,
            self.block_size,
            ratio=self.ratio,
            world=self.world,
            rank=self.rank,
            interleave=self.interleave,
        )
        null = (slots >= 0) & (slots // self.block_size == NULL_BLOCK)
        if null.any():
            token = null.argmax()
            raise ValueError(
                f"position {positions[token]} of row {rows[token]} is in the null block"
            )
        return slots

    def _write(self, rows: Rows, ids: Ids, counts: Counts) -> None:
        """Put counts[i] of the ids at the end of rows[i]."""
        self.staged[np.repeat(rows, counts), _ranges(self.lengths[rows], counts)] = ids
        self.lengths[rows] += counts.astype(np.int32)
        self._changed[rows] = True

    def _empty(self, rows: Rows) -> None:
        self.staged[rows] = NULL_BLOCK
        self.lengths[rows] = 0
        self._changed[rows] = True

    def _split(self, rows: Rows, blocks: Blocks) -> tuple[Ids, Counts]:
        """All kernel blocks that a delta brings, and how many of them each of its rows gets."""
        try:
            counts = np.array([len(ids) for ids in blocks], np.int64)
        except TypeError:
            raise ValueError("a delta brings a list of blocks for each of its rows") from None
        if len(counts) != len(rows):
            raise ValueError(f"{len(counts)} lists of blocks were given for {len(rows)} rows")
        return kernel_blocks(list(chain.from_iterable(blocks)), self.ratio), counts * self.ratio

    def _existing(self, rows: ArrayLike) -> Rows:
        return whole("rows", rows, high=len(self.lengths) - 1)

    def _distinct(self, rows: ArrayLike) -> Rows:
        rows = self._existing(rows)
        if len(np.unique(rows)) < len(rows):
            raise ValueError(f"a delta names a row once, not as in {rows.tolist()}")
        return rows

    def _check_row(self, row: int) -> None:
        check_whole("a row", row, 0, len(self.lengths) - 1)

    def _check_width(self, rows: Rows, columns: NDArray[np.integer]) -> None:
        width = self.staged.shape[1]
        if (columns > width).any():
            worst = columns.argmax()
            raise ValueError(
                f"{columns[worst]} kernel blocks do not fit row {rows[worst]}, {width} wide"
            )

    def _check_step(self, queries: Counts, lengths: Counts) -> None:
        if len(queries) != len(lengths):
            raise ValueError(f"{len(queries)} query lengths for {len(lengths)} sequence lengths")
        if len(lengths) > len(self.lengths):
            raise ValueError(f"{len(lengths)} requests do not fit {len(self.lengths)} rows")
        if (queries > lengths).any():
            raise ValueError(f"request {(queries > lengths).argmax()} computes more than it has")
        needed = -(-lengths // (self.block_size * self.world)) * self.ratio
        short = needed > self.committed_lengths[: len(lengths)]
        if short.any():
            row = short.argmax()
            raise ValueError(f"row {row} has too few blocks for a sequence of {lengths[row]}")
        whole("the tokens of a step", [queries.sum()])


def _ranges(first: NDArray[np.integer], counts: Counts) -> Counts:
    """first[0], first[0] + 1, ... counts[0] of them, then the same of every other: int64."""
    begins = np.cumsum(counts) - counts
    ranges: Counts = np.arange(counts.sum()) + np.repeat(first - begins, counts)
    return ranges
