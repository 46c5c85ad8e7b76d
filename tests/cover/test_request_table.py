"""The request-to-token table against lists, each rule by itself, and planted bugs noticed."""

import contextlib
import random

import numpy as np
import pytest

from kvoracle.impl.errors import BadCall
from kvoracle.impl.request_table import OutOfRows, RequestTable


def everything(table):
    return (
        table.slots.tolist(),
        table.lengths.tolist(),
        table.generation.tolist(),
        table._is_open.tolist(),
        list(table._unused),
    )


@contextlib.contextmanager
def refused(table, reason, named):
    before = everything(table)
    with pytest.raises(BadCall, match=named) as error:
        yield
    assert error.value.reason == reason
    assert everything(table) == before


def walk(table_class, seed, steps=120):
    """Random batches, every row compared with a list after each; contents are never reused."""
    chance = random.Random(seed)
    rows, width = chance.randint(1, 6), chance.randint(1, 9)
    table, lists, generations = table_class(rows, width), {}, [0] * (rows + 1)
    written = 1
    for _ in range(steps):
        live = chance.sample(sorted(lists), chance.randint(0, len(lists)))
        move = chance.choice(["open", "append", "append", "append", "close"])
        if move == "open":
            count = chance.randint(0, table.num_free)
            opened = table.open(count).tolist()
            assert len(opened) == len(set(opened)) == count
            for row in opened:
                assert 1 <= row <= rows
                assert row not in lists
                lists[row] = []
                generations[row] += 1
        elif move == "append":
            counts = [chance.randint(0, width - len(lists[row])) for row in live]
            slots = np.arange(written, written + sum(counts))
            table.append(live, counts, slots)
            for row, count in zip(live, counts, strict=True):
                lists[row] += range(written, written + count)
                written += count
        else:
            table.close(live)
            for row in live:
                del lists[row]
        assert table.num_free == rows - len(lists)
        assert table.generation.tolist() == generations
        assert table.lengths.tolist() == [len(lists.get(row, [])) for row in range(rows + 1)]
        assert not table.slots[0].any()
        named = sorted(lists)
        assert {row: table.row(row).tolist() for row in named} == lists
        assert table.last(named).tolist() == [(lists[row] or [-1])[-1] for row in named]


@pytest.mark.parametrize("seed", range(25))
def test_rows_read_as_lists(seed):
    walk(RequestTable, seed)


def test_the_shape_is_fixed_with_a_padding_row():
    """257 x 32,768 x 4 bytes are the document's 32.1 MiB."""
    table = RequestTable(256, 32_768)
    assert table.slots.shape == (257, 32_768)
    assert f"{table.slots.nbytes / 2**20:.1f}" == "32.1"
    assert 0 not in table.open(256)


def test_a_late_reader_sees_that_its_row_has_another_request():
    table = RequestTable(2, 4)
    (row,) = table.open(1)
    seen = table.generation[row]
    table.close([row])
    assert table.open(1) == [row]
    assert table.generation[row] == seen + 1


def test_a_row_is_read_as_a_copy():
    table = RequestTable(1, 4)
    (row,) = table.open(1)
    table.append([row], [2], [7, 8])
    table.row(row)[:] = 0
    assert table.row(row).tolist() == [7, 8]


def test_too_few_rows():
    table = RequestTable(2, 4)
    table.open(1)
    before = everything(table)
    with pytest.raises(OutOfRows, match="2 rows needed, 1 free: end a request or make more rows"):
        table.open(2)
    assert everything(table) == before


@pytest.mark.parametrize("rows", [[0], [-1], [2], [3], [99], [1, 2]])
def test_padding_and_rows_that_are_not_open_are_refused(rows):
    table = RequestTable(2, 4)
    assert table.open(1) == [1]
    for call in (
        lambda: table.close(rows),
        lambda: table.last(rows),
        lambda: table.append(rows, [1] * len(rows), [5] * len(rows)),
        lambda: table.row(rows[-1]),
    ):
        with refused(table, "unknown row", f"row {rows[-1]}"):
            call()


def test_a_row_is_named_once_a_call_and_closed_once():
    table = RequestTable(2, 4)
    table.open(2)
    with refused(table, "repeated row", r"rows \[1, 2, 1\]"):
        table.close([1, 2, 1])
    table.close([1, 2])
    with refused(table, "unknown row", "row 1"):
        table.close([1])


def test_a_request_never_outgrows_its_row():
    table = RequestTable(2, 4)
    table.open(2)
    table.append([1, 2], [4, 3], range(1, 8))
    with refused(table, "longer than max_context", "row 1"):
        table.append([2, 1], [1, 1], [8, 9])


def test_counts_are_not_negative():
    table = RequestTable(2, 4)
    table.open(1)
    with refused(table, "negative count", "-1"):
        table.open(-1)
    with refused(table, "negative count", "-1"):
        table.append([1], [-1], [])


def test_a_batch_brings_one_count_a_row_and_one_slot_a_token():
    table = RequestTable(2, 4)
    table.open(2)
    with refused(table, "one count for each row", "1 for 2"):
        table.append([1, 2], [1], [5])
    with refused(table, "one slot for each token", "3 for 2"):
        table.append([1, 2], [1, 1], [5, 6, 7])


def test_a_table_has_a_row_and_a_token():
    for wrong in ((0, 4), (4, 0)):
        with pytest.raises(ValueError, match="at least 1"):
            RequestTable(*wrong)


class OpensTheLastRowTwice(RequestTable):
    def close(self, rows):
        super().close(rows)
        self._unused += self._unused[-1:] if len(self._unused) < 2 else []


class OpensPadding(RequestTable):
    def __init__(self, rows, max_context):
        super().__init__(rows, max_context)
        self._unused = list(range(rows - 1, -1, -1))


class KeepsTheLength(RequestTable):
    def close(self, rows):
        lengths = self.lengths.copy()
        super().close(rows)
        self.lengths = lengths


class KeepsTheGeneration(RequestTable):
    def open(self, count):
        generation = self.generation.copy()
        opened = super().open(count)
        self.generation = generation
        return opened


class LosesARow(RequestTable):
    def close(self, rows):
        super().close(rows)
        self._unused = self._unused[: max(len(self._unused) - 1, 1)]


class WritesAtTheStart(RequestTable):
    def append(self, rows, counts, slots):
        lengths = self.lengths.copy()
        self.lengths = np.zeros_like(lengths)
        super().append(rows, counts, slots)
        self.lengths += lengths


class ReadsTheLastOfARowThatHasNone(RequestTable):
    def last(self, rows):
        return self.slots[rows, self.lengths[rows] - 1].astype(np.int64)


class GivesTheSlotsToTheRowsInOrder(RequestTable):
    def append(self, rows, counts, slots):
        order = np.argsort(rows)
        super().append(np.array(rows, int)[order], np.array(counts, int)[order], slots)


@pytest.mark.parametrize("bug", RequestTable.__subclasses__())
def test_a_planted_bug_is_noticed(bug):
    def notices(seed):
        try:
            walk(bug, seed)
        except Exception:
            return True
        return False

    assert any(notices(seed) for seed in range(25))
