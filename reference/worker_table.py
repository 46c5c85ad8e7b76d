"""The worker's mirror of one KV cache group's block tables, and the metadata of a step made from it.

The scheduler owns the tables and sends deltas; a worker, in another process, applies them to its
rows.  Changes are staged; `commit` makes them what the worker reads.  A row is read at the fixed
width of the mirror, or narrower, whatever its length: entries beyond the length are NULL_BLOCK,
never what an earlier request left there.

A delta is a list that JSON can carry: a verb and its arguments.

    ["append", rows, blocks]      blocks[i], a list of allocation block ids, is added to rows[i]
    ["replace", rows, blocks]     blocks[i] becomes all of rows[i]: a resumed request was given new
    ["null_out", rows, counts]    the first counts[i] blocks of rows[i] become the null block
    ["remove", rows]              the rows are emptied, for reuse
    ["move", source, target]      compaction: an empty target takes the row, the source is emptied
    ["swap", first, second]       two rows change places

A delta that names a row twice, a row or block that does not exist, or too many blocks for the
width is a ValueError and changes nothing.
Source: "The block table", "The slot mapping" and `CommonAttentionMetadata` of the document.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kvoracle.reference.slots import (
    block_and_offset,
    ceil_div,
    kernel_blocks,
    padded,
    require_whole,
    slot_of,
)

NULL_BLOCK = 0
"""The block that holds no request's KV, and the entry of a row beyond its length."""

Delta = Sequence[Any]
ARGUMENTS = {"append": 2, "replace": 2, "null_out": 2, "remove": 1, "move": 2, "swap": 2}


@dataclass(frozen=True)
class StepMetadata:
    """What the attention kernels are given for one step, n requests in rows 0 .. n - 1."""

    query_start_loc: list[int]
    """int32 [n + 1]: where each request's tokens begin among those of the step; then the end."""
    seq_lens: list[int]
    """int32 [n]: tokens of each request, those of this step included."""
    block_table: list[list[int]]
    """int32 [n, width]: kernel blocks, NULL_BLOCK beyond a row's length."""
    slot_mapping: list[int]
    """int64 [padded]: the slot of each token of the step, PAD_SLOT beyond and on other ranks."""
    num_reqs: int
    num_actual_tokens: int
    max_query_len: int
    max_seq_len: int


class WorkerTable:
    """`rows` rows of at most `width` allocation blocks, each split into `ratio` kernel blocks.

    `staged` and `committed` hold the rows without padding, in kernel blocks.
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
        require_whole("rows", rows, low=1)
        require_whole("the width", width, low=1)
        self._slot_of: Callable[[list[int], int], int] = partial(
            slot_of,
            block_size=block_size,
            ratio=ratio,
            world=world,
            rank=rank,
            interleave=interleave,
        )
        self._slot_of([NULL_BLOCK], 0)  # refuses what is no geometry
        self.ratio = ratio
        self.block_size = block_size
        self.columns = width * ratio
        self.virtual_block_size = block_size * world
        self.staged: list[list[int]] = [[] for _ in range(rows)]
        self.committed: list[list[int]] = [[] for _ in range(rows)]

    def apply(self, delta: Delta) -> None:
        """Carry out one delta as it came from the scheduler."""
        _check_list("a delta", delta)
        verb, *arguments = delta or [None]
        if verb not in list(ARGUMENTS) or len(arguments) != ARGUMENTS[verb]:
            raise ValueError(f"a delta is a verb with its arguments, not {delta!r}")
        getattr(self, verb)(*arguments)

    def append(self, rows: Sequence[int], blocks: Sequence[Sequence[int]]) -> None:
        """Add allocation blocks at the end of rows."""
        # check
        added = self._split(rows, blocks)
        for row, ids in zip(rows, added, strict=True):
            self._check_width(row, len(self.staged[row]) + len(ids))
        # record
        for row, ids in zip(rows, added, strict=True):
            self.staged[row].extend(ids)

    def replace(self, rows: Sequence[int], blocks: Sequence[Sequence[int]]) -> None:
        """Make allocation blocks all that the rows hold."""
        # check
        added = self._split(rows, blocks)
        for row, ids in zip(rows, added, strict=True):
            self._check_width(row, len(ids))
        # record
        for row, ids in zip(rows, added, strict=True):
            self.staged[row] = ids

    def null_out(self, rows: Sequence[int], counts: Sequence[int]) -> None:
        """Make the first allocation blocks of rows the null block."""
        # check
        self._check_rows(rows)
        _check_list("counts", counts, len(rows))
        for row, count in zip(rows, counts, strict=True):
            require_whole("a count", count, high=len(self.staged[row]) // self.ratio)
        # record
        for row, count in zip(rows, counts, strict=True):
            self.staged[row][: count * self.ratio] = kernel_blocks(NULL_BLOCK, self.ratio) * count

    def remove(self, rows: Sequence[int]) -> None:
        """Empty rows, for reuse."""
        # check
        self._check_rows(rows)
        # record
        for row in rows:
            self.staged[row] = []

    def move(self, source: int, target: int) -> None:
        """Move a row to an empty one, or nowhere where both are the same."""
        # check
        self._check_row(source)
        self._check_row(target)
        if source == target:
            return
        if self.staged[target]:
            raise ValueError(f"row {source} cannot move to row {target}, which is not empty")
        # record
        self.staged[target] = self.staged[source]
        self.staged[source] = []

    def swap(self, first: int, second: int) -> None:
        """Let two rows change places."""
        # check
        self._check_row(first)
        self._check_row(second)
        # record
        self.staged[first], self.staged[second] = self.staged[second], self.staged[first]

    def commit(self) -> None:
        """Make the staged rows, as they are now, what the worker reads."""
        self.committed = [list(row) for row in self.staged]

    def read(self, rows: Sequence[int], columns: int) -> list[list[int]]:
        """What the worker sees in the first columns of rows: committed entries, then NULL_BLOCK."""
        for row in rows:
            self._check_row(row)
        require_whole("columns", columns, high=self.columns)
        wide = [self.committed[row] + [NULL_BLOCK] * self.columns for row in rows]
        return [entries[:columns] for entries in wide]

    def metadata(
        self, query_lens: Sequence[int], seq_lens: Sequence[int], buffer: int | None = None
    ) -> StepMetadata:
        """The metadata of a step in which request i, in row i, computes its last query_lens[i] tokens.

        `buffer` is the length to which the slot mapping is padded.  ValueError where a row has too
        few blocks for its sequence, or a token would be written into the null block.
        """
        # check
        self._check_step(query_lens, seq_lens)
        # result
        slots: list[int] = []
        starts = [0]
        for row, (query_len, seq_len) in enumerate(zip(query_lens, seq_lens, strict=True)):
            slots += [self._slot(row, at) for at in range(seq_len - query_len, seq_len)]
            starts.append(starts[-1] + query_len)
        return StepMetadata(
            query_start_loc=starts,
            seq_lens=list(seq_lens),
            block_table=self.read(range(len(seq_lens)), self.columns),
            slot_mapping=padded(slots, starts[-1] if buffer is None else buffer),
            num_reqs=len(seq_lens),
            num_actual_tokens=starts[-1],
            max_query_len=max(query_lens, default=0),
            max_seq_len=max(seq_lens, default=0),
        )

    def _slot(self, row: int, position: int) -> int:
        slot = self._slot_of(self.committed[row], position)
        if slot >= 0 and block_and_offset(slot, self.block_size)[0] == NULL_BLOCK:
            raise ValueError(f"position {position} of row {row} is in the null block")
        return slot

    def _split(self, rows: Sequence[int], blocks: Sequence[Sequence[int]]) -> list[list[int]]:
        """The kernel blocks of the allocation blocks that a delta brings for each of its rows."""
        self._check_rows(rows)
        _check_list("lists of blocks", blocks, len(rows))
        for ids in blocks:
            _check_list("blocks", ids)
        return [
            [kernel for block in ids for kernel in kernel_blocks(block, self.ratio)]
            for ids in blocks
        ]

    def _check_row(self, row: int) -> None:
        require_whole("a row", row, high=len(self.staged) - 1)

    def _check_rows(self, rows: Sequence[int]) -> None:
        _check_list("rows", rows)
        for row in rows:
            self._check_row(row)
        if len(set(rows)) < len(rows):
            raise ValueError(f"a delta names a row once, not as in {list(rows)}")

    def _check_width(self, row: int, columns: int) -> None:
        if columns > self.columns:
            raise ValueError(f"{columns} kernel blocks do not fit row {row}, {self.columns} wide")

    def _check_step(self, query_lens: Sequence[int], seq_lens: Sequence[int]) -> None:
        _check_list("query lengths", query_lens)
        _check_list("sequence lengths", seq_lens, len(query_lens))
        for row, (query_len, seq_len) in enumerate(zip(query_lens, seq_lens, strict=True)):
            self._check_row(row)
            require_whole("a sequence length", seq_len, low=1)
            require_whole("a query length", query_len, low=1, high=seq_len)
            needed = ceil_div(seq_len, self.virtual_block_size) * self.ratio
            if needed > len(self.committed[row]):
                raise ValueError(f"row {row} has too few blocks for a sequence of {seq_len}")
        require_whole("the tokens of a step", sum(query_lens))


def _check_list(name: str, values: object, length: int | None = None) -> None:
    if not isinstance(values, list | tuple):
        raise ValueError(f"{name} must be a list, not {values!r}")
    if length is not None and len(values) != length:
        raise ValueError(f"{len(values)} {name} were given where {length} are needed")
