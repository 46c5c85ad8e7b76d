"""The worker's mirror: both rooms moved by the same deltas, and compared after each of them."""

import dataclasses
import json

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from kvoracle.impl import slots as impl_slots
from kvoracle.impl import worker_table as impl
from kvoracle.reference import worker_table as reference

ROWS, WIDTH = 4, 4
GEOMETRIES = [
    {"block_size": 2},
    {"block_size": 4, "ratio": 2},
    {"block_size": 4, "ratio": 4, "world": 2, "rank": 1, "interleave": 2},
    {"block_size": 6, "ratio": 3, "world": 3, "rank": 0, "interleave": 2},
]


def stated(examples, phases):
    """Every setting stated, so that the profile Hypothesis loads under CI changes nothing."""
    return settings(
        backend="hypothesis",
        database=None,
        deadline=None,
        derandomize=False,
        max_examples=examples,
        phases=phases,
        print_blob=False,
        report_multiple_bugs=False,
        stateful_step_count=25,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )


def as_lists(metadata):
    """Step metadata of either room, arrays as lists."""
    fields = dataclasses.asdict(metadata)
    return {name: np.asarray(value).tolist() for name, value in fields.items()}


def refusal(call, *arguments):
    """The ValueError of a call, if that is what it raises."""
    try:
        call(*arguments)
    except ValueError as error:
        return error
    return None


rows = st.integers(0, ROWS - 1)
many_rows = st.lists(rows, max_size=ROWS, unique=True)
blocks = st.lists(st.one_of(st.integers(0, 9), st.integers(2**29 - 9, 2**29)), max_size=WIDTH - 1)
"""A ratio of 4 leaves room for block ids below 2**29, so the last one is now and then refused."""


changes = st.dictionaries(rows, blocks, max_size=ROWS)
counts = st.dictionaries(rows, st.integers(0, 2), max_size=ROWS)
sixteenths = st.integers(0, 16)
numbers = st.sampled_from([-1, 0, 1, ROWS, 2**31, 2**70, 0.5, "0"])
misuse = st.one_of(
    st.tuples(st.sampled_from(["append", "replace"]), st.lists(numbers), st.lists(blocks)),
    st.tuples(st.sampled_from(["append", "replace"]), st.just([0]), st.tuples(st.lists(numbers))),
    st.tuples(st.just("null_out"), st.lists(rows), st.lists(numbers)),
    st.tuples(st.just("remove"), st.lists(numbers)),
    st.tuples(st.sampled_from(["move", "swap"]), numbers, rows),
    st.tuples(st.sampled_from(["append", "clear"]), st.just([0])),
)


class Mirrors(RuleBasedStateMachine):
    """One mirror of each room; every delta goes to both, as JSON."""

    tested = impl.WorkerTable

    @initialize(geometry=st.sampled_from(GEOMETRIES), first=st.tuples(*[blocks] * ROWS))
    def make_mirrors(self, geometry, first):
        self.expected = reference.WorkerTable(ROWS, WIDTH, **geometry)
        self.actual = self.tested(ROWS, WIDTH, **geometry)
        self.deliver("append", list(range(ROWS)), first)
        self.commit()

    def deliver(self, *delta):
        wire = json.dumps(delta)
        expected = refusal(self.expected.apply, json.loads(wire))
        actual = refusal(self.actual.apply, json.loads(wire))

        assert (actual is None) == (expected is None), f"{delta}: {actual} and {expected}"

    @rule(changes=changes)
    def append(self, changes):
        self.deliver("append", list(changes), list(changes.values()))

    @rule(changes=changes)
    def replace(self, changes):
        self.deliver("replace", list(changes), list(changes.values()))

    @rule(counts=counts)
    def null_out(self, counts):
        held = [len(self.expected.staged[row]) // self.expected.ratio for row in counts]
        self.deliver("null_out", list(counts), list(map(min, counts.values(), held)))

    @rule(rows=many_rows)
    def remove(self, rows):
        self.deliver("remove", rows)

    @rule(pair=st.tuples(rows, rows))
    def move(self, pair):
        self.deliver("move", *pair)

    @rule(pair=st.tuples(rows, rows))
    def swap(self, pair):
        self.deliver("swap", *pair)

    @rule(delta=misuse)
    def misuse(self, delta):
        self.deliver(*delta)

    @rule()
    def commit(self):
        self.expected.commit()
        self.actual.commit()

    @rule(parts=st.lists(st.tuples(sixteenths, sixteenths), max_size=ROWS))
    def step(self, parts):
        """A step of requests that have some sixteenths of the tokens their blocks have room for."""
        table = self.expected
        queries, lengths = [], []
        for row, (of_row, of_sequence) in zip(table.committed, parts, strict=False):
            room = len(row) // table.ratio * table.virtual_block_size
            if room == 0:
                break
            lengths.append(1 + (room - 1) * of_row // 16)
            queries.append(1 + (lengths[-1] - 1) * of_sequence // 16)
        self.compare_metadata(queries, lengths, sum(queries) + len(parts))

    @rule(queries=st.lists(numbers, max_size=2), lengths=st.lists(numbers, max_size=2))
    def step_misuse(self, queries, lengths):
        self.compare_metadata(queries, lengths, None)

    def compare_metadata(self, queries, lengths, buffer):
        expected = refusal(self.expected.metadata, queries, lengths, buffer)
        actual = refusal(self.actual.metadata, queries, lengths, buffer)

        assert (actual is None) == (expected is None), f"{actual} and {expected}"
        if expected is None:
            taken = self.actual.metadata(queries, lengths, buffer)
            assert as_lists(taken) == as_lists(self.expected.metadata(queries, lengths, buffer))

    @invariant()
    def every_row_agrees(self):
        columns = self.expected.columns
        for entries, lengths, expected in (
            (self.actual.staged, self.actual.lengths, self.expected.staged),
            (self.actual.committed, self.actual.committed_lengths, self.expected.committed),
        ):
            assert lengths.tolist() == [len(row) for row in expected]
            assert entries.tolist() == [row + [0] * (columns - len(row)) for row in expected]

    @invariant()
    def a_row_reads_alike_at_every_width(self):
        for columns in (1, self.expected.columns):
            entries = self.actual.read(range(ROWS), columns)

            assert entries.dtype == np.int32
            assert entries.shape == (ROWS, columns)
            assert entries.tolist() == self.expected.read(range(ROWS), columns)


def explore(tested, examples=60, phases=(Phase.generate,)):
    machine = type("Mirrors", (Mirrors,), {"tested": tested})
    run_state_machine_as_test(seed(0)(machine), settings=stated(examples, phases))


def test_both_mirrors_say_the_same_after_every_delta():
    explore(impl.WorkerTable, phases=(Phase.generate, Phase.shrink))


ROOMS = pytest.mark.parametrize("room", [reference, impl], ids=["reference", "impl"])


def staged(table):
    """The staged rows without what lies beyond their lengths."""
    if isinstance(table, reference.WorkerTable):
        return table.staged
    return [row[:length].tolist() for row, length in zip(table.staged, table.lengths, strict=True)]


def read(table, columns=None):
    width = table.columns if isinstance(table, reference.WorkerTable) else table.staged.shape[1]
    number_of_rows = len(table.staged)
    entries = table.read(range(number_of_rows), width if columns is None else columns)
    return np.asarray(entries).tolist()


@ROOMS
class TestTheFiguresOfTheDocument:
    def test_row_3_grows_from_256_to_257_blocks(self, room):
        table = room.WorkerTable(8, 2048, 16)
        table.apply(["append", [2, 3, 4], [[7000], list(range(1, 257)), [9000, 9001]]])
        assert len(staged(table)[3]) == 256
        before = staged(table)

        table.apply(["append", [3], [[1913]]])
        table.commit()

        assert len(staged(table)[3]) == 257
        assert read(table)[3][:258] == [*range(1, 257), 1913, 0]
        assert [row for i, row in enumerate(staged(table)) if i != 3] == [
            row for i, row in enumerate(before) if i != 3
        ]

    def test_its_token_4096_is_written_to_slot_30608(self, room):
        table = room.WorkerTable(8, 2048, 16)
        table.append([0, 1, 2, 3], [[500], [501], [502], [*range(1, 257), 1913]])
        table.commit()

        metadata = as_lists(table.metadata([1] * 4, [1, 2, 3, 4097]))

        assert metadata["slot_mapping"] == [500 * 16, 501 * 16 + 1, 502 * 16 + 2, 30_608]
        assert metadata["max_seq_len"] == 4097


def test_256_rows_of_2048_blocks_take_2_mib():
    table = impl.WorkerTable(256, 2048, 16)

    assert table.committed.dtype == np.int32
    assert table.committed.shape == (256, 32_768 // 16)
    assert table.committed.nbytes == 256 * 2048 * 4 == 2 * 2**20


@ROOMS
class TestDeltas:
    def test_a_resumed_request_gets_a_new_row(self, room):
        table = room.WorkerTable(1, 4, 2)
        for delta in (["append", [0], [[1, 2, 3]]], ["replace", [0], [[5, 6]]]):
            table.apply(delta)
        table.apply(["append", [0], [[8]]])
        table.commit()

        assert read(table) == [[5, 6, 8, 0]]

    def test_a_reused_row_shows_nothing_of_the_request_before(self, room):
        table = room.WorkerTable(1, 6, 2)
        for delta in (
            ["append", [0], [[1, 2, 3, 4, 5, 6]]],
            ["remove", [0]],
            ["append", [0], [[7]]],
        ):
            table.apply(delta)
        table.commit()

        assert read(table) == [[7, 0, 0, 0, 0, 0]]

    def test_compaction_empties_the_row_that_it_leaves(self, room):
        table = room.WorkerTable(3, 3, 2)
        for delta in (
            ["append", [0, 1, 2], [[1, 2, 3], [4], [5, 6]]],
            ["remove", [0]],
            ["move", 2, 0],
        ):
            table.apply(delta)
        table.commit()

        assert read(table) == [[5, 6, 0], [4, 0, 0], [0, 0, 0]]

    def test_a_move_to_its_own_row_changes_nothing(self, room):
        table = room.WorkerTable(1, 2, 2)
        table.append([0], [[1, 2]])
        table.move(0, 0)
        table.commit()

        assert read(table) == [[1, 2]]

    def test_a_move_onto_a_request_is_refused(self, room):
        table = room.WorkerTable(2, 2, 2)
        table.append([0, 1], [[1], [2]])

        with pytest.raises(ValueError, match="row 0 cannot move to row 1, which is not empty"):
            table.move(0, 1)

        assert staged(table) == [[1], [2]]

    def test_rows_of_unequal_lengths_change_places_whole(self, room):
        table = room.WorkerTable(2, 3, 2)
        table.append([0, 1], [[1, 2, 3], [4]])
        table.swap(0, 1)
        table.commit()

        assert read(table) == [[4, 0, 0], [1, 2, 3]]

    def test_blocks_that_left_the_window_become_the_null_block(self, room):
        table = room.WorkerTable(2, 4, 2)
        table.append([0, 1], [[1, 2, 3], [4, 5]])
        table.apply(["null_out", [1, 0], [0, 2]])
        table.commit()

        assert read(table) == [[0, 0, 3, 0], [4, 5, 0, 0]]
        assert [len(row) for row in staged(table)] == [3, 2]

    def test_blocks_are_split_for_the_kernel(self, room):
        table = room.WorkerTable(1, 3, 32, ratio=2)
        table.append([0], [[5, 9]])
        table.null_out([0], [1])
        table.commit()

        assert read(table) == [[0, 1, 18, 19, 0, 0]]
        assert read(table, 3) == [[0, 1, 18]]

    def test_the_worker_reads_nothing_before_the_commit(self, room):
        table = room.WorkerTable(1, 2, 2)
        table.append([0], [[1]])
        assert read(table) == [[0, 0]]

        table.commit()
        table.append([0], [[2]])
        assert read(table) == [[1, 0]]

        table.commit()
        assert read(table) == [[1, 2]]

    @pytest.mark.parametrize("through", [json, msgspec.json, msgspec.msgpack], ids=str)
    def test_deltas_survive_the_way_to_another_process(self, room, through):
        write, take = (
            (json.dumps, json.loads) if through is json else (through.encode, through.decode)
        )
        table = room.WorkerTable(3, 4, 2)
        deltas = [
            ["append", [0, 1], [[1, 2], [3]]],
            ["replace", [0], [[4, 5, 6]]],
            ["null_out", [0], [1]],
            ["swap", 0, 1],
            ["move", 1, 2],
            ["remove", [0]],
        ]

        for delta in take(write(deltas)):
            table.apply(delta)

        assert staged(table) == [[], [], [0, 5, 6]]


BAD_DELTAS = {
    "verb": (["grow", [0], [[1]]], "a delta is a verb with its arguments"),
    "nothing": ([], "a delta is a verb with its arguments"),
    "arguments": (["append", [0]], "a delta is a verb with its arguments"),
    "no list": ({"append": 1}, r"a delta (is a verb|must be a list)"),
    "unknown row": (["append", [3], [[1]]], r"rows? must be .* from 0 to 2, not 3$"),
    "negative row": (["remove", [-1]], r"rows? must be .* from 0 to 2, not -1$"),
    "row by itself": (["remove", 0], "rows must be"),
    "row by name": (["remove", ["a"]], "rows? must be"),
    "row named twice": (["append", [1, 1], [[1], [2]]], r"names a row once, not as in \[1, 1\]$"),
    "source": (["move", 3, 0], r"a row must be .* from 0 to 2, not 3$"),
    "target": (["swap", 0, 0.5], "a row must be"),
    "negative block": (["append", [2, 1], [[1], [-1]]], r"block ids? must be .* not -1$"),
    "block beyond int32": (["replace", [2], [[2**30]]], rf"block ids? must be .* not {2**30}$"),
    "fractional block": (["append", [2], [[1.5]]], "block ids? must be"),
    "no list of blocks": (["append", [2], [7]], "list"),
    "too few lists": (["append", [1, 2], [[7]]], "1 lists of blocks were given"),
    "append beyond the width": (["append", [2, 0], [[7], [7, 8]]], "do not fit row 0, 6 wide"),
    "replace beyond the width": (["replace", [2, 0], [[7], [1, 2, 3, 4]]], "do not fit row 0"),
    "negative count": (["null_out", [1], [-1]], "counts? must be"),
    "fractional count": (["null_out", [1], [0.5]], "counts? must be"),
    "count beyond the row": (["null_out", [0, 1], [1, 2]], r"count must be|row 1 has fewer blocks"),
    "too few counts": (["null_out", [0, 1], [1]], "1 counts were given"),
}


@ROOMS
class TestRefusals:
    @pytest.fixture
    def table(self, room):
        """Two kernel blocks a block: rows [1, 2], [3] and an empty one, of at most three."""
        table = room.WorkerTable(3, 3, 4, ratio=2)
        table.append([0, 1], [[1, 2], [3]])
        table.commit()
        return table

    @pytest.mark.parametrize(("delta", "message"), BAD_DELTAS.values(), ids=BAD_DELTAS)
    def test_a_bad_delta_changes_nothing(self, table, delta, message):
        before = [list(row) for row in staged(table)]

        with pytest.raises(ValueError, match=message) as caught:
            table.apply(delta)

        assert "\n" not in str(caught.value)
        assert staged(table) == before
        table.commit()
        assert read(table) == [[2, 3, 4, 5, 0, 0], [6, 7, 0, 0, 0, 0], [0] * 6]

    @pytest.mark.parametrize(("rows", "columns"), [([3], 1), ([-1], 1), ([0], 7), ([0], -1)])
    def test_a_read_outside_the_mirror_is_refused(self, table, rows, columns):
        with pytest.raises(ValueError, match="must be"):
            table.read(rows, columns)

    @pytest.mark.parametrize(
        ("queries", "lengths", "buffer", "message"),
        [
            ([1], [9], None, "row 0 has too few blocks for a sequence of 9"),
            ([1, 1, 1], [1, 1, 1], None, "row 2 has too few blocks for a sequence of 1"),
            ([1] * 4, [1] * 4, None, r"row 2 has too few|4 requests do not fit 3 rows"),
            ([0], [1], None, "query length"),
            ([3], [2], None, r"query length must be|computes more than it has"),
            ([0.5], [2], None, "query length"),
            ([1], [0], None, "sequence length"),
            ([1, 1], [1], None, r"1 sequence lengths|2 query lengths"),
            ([3], [3], 2, "3 slots do not fit a buffer of 2"),
            ([3], [3], -1, "the length of a slot buffer must be"),
        ],
    )
    def test_a_step_that_the_rows_cannot_carry_is_refused(
        self, table, queries, lengths, buffer, message
    ):
        with pytest.raises(ValueError, match=message):
            table.metadata(queries, lengths, buffer)

    def test_nothing_is_written_into_the_null_block(self, table):
        table.null_out([0], [1])
        table.commit()

        with pytest.raises(ValueError, match="position 3 of row 0 is in the null block"):
            table.metadata([4], [7])
        assert as_lists(table.metadata([3], [7]))["slot_mapping"] == [8, 9, 10]

    def test_a_step_of_more_tokens_than_int32_counts_is_refused(self, room):
        table = room.WorkerTable(2, 1, 2**31 - 1)
        table.append([0, 1], [[1], [2]])
        table.commit()

        with pytest.raises(ValueError, match="the tokens of a step must be"):
            table.metadata([2**31 - 1] * 2, [2**31 - 1] * 2)

    @pytest.mark.parametrize(
        "geometry",
        [
            {"rows": 0},
            {"width": 0},
            {"width": 1.5},
            {"block_size": 0},
            {"ratio": 3},
            {"ratio": 0},
            {"rank": 1},
            {"world": 0},
            {"interleave": 3},
        ],
        ids=str,
    )
    def test_a_table_of_no_geometry_is_refused(self, room, geometry):
        with pytest.raises(ValueError, match=r"must be|does not"):
            room.WorkerTable(**{"rows": 1, "width": 1, "block_size": 4} | geometry)


@ROOMS
class TestMetadata:
    def test_a_prefill_and_a_decode(self, room):
        table = room.WorkerTable(3, 3, 4)
        table.append([0, 1, 2], [[5, 6], [7, 8], [9]])
        table.commit()

        assert as_lists(table.metadata([3, 1], [6, 5], buffer=6)) == {
            "query_start_loc": [0, 3, 4],
            "seq_lens": [6, 5],
            "block_table": [[5, 6, 0], [7, 8, 0]],
            "slot_mapping": [23, 24, 25, 32, -1, -1],
            "num_reqs": 2,
            "num_actual_tokens": 4,
            "max_query_len": 3,
            "max_seq_len": 6,
        }

    def test_ranks_write_their_own_positions_and_replicas_all(self, room):
        sharding = {"world": 2, "interleave": 1}
        slots = []
        for geometry in ({}, sharding | {"rank": 0}, sharding | {"rank": 1}):
            table = room.WorkerTable(1, 3, 2, **geometry)
            table.append([0], [[5, 6, 7]])
            table.commit()
            slots.append(as_lists(table.metadata([6], [6]))["slot_mapping"])

        assert slots == [
            [10, 11, 12, 13, 14, 15],
            [10, -1, 11, -1, 12, -1],
            [-1, 10, -1, 11, -1, 12],
        ]

    def test_a_virtual_block_may_be_of_more_positions_than_int32_counts(self, room):
        table = room.WorkerTable(1, 1, 2**20, world=2**20, interleave=2**20)
        table.append([0], [[2**31 - 1]])
        table.commit()

        step = as_lists(table.metadata([2], [2**20 + 1]))

        assert step["slot_mapping"] == [2**51 - 1, -1]

    def test_a_step_without_requests(self, room):
        metadata = as_lists(room.WorkerTable(1, 1, 1).metadata([], [], buffer=2))

        assert metadata["query_start_loc"] == [0]
        assert metadata["slot_mapping"] == [-1, -1]
        assert metadata["num_reqs"] == metadata["max_seq_len"] == 0

    def test_a_step_keeps_what_it_was_given(self, room):
        table = room.WorkerTable(2, 2, 2)
        table.append([0, 1], [[1], [2]])
        table.commit()
        step = table.metadata([1, 1], [1, 1])
        given = as_lists(step)

        table.remove([0])
        table.move(1, 0)
        table.append([0], [[3]])
        table.commit()

        assert as_lists(step) == given


def test_the_arrays_of_a_step_are_of_the_types_that_kernels_take():
    table = impl.WorkerTable(3, 5, 4, ratio=2)
    table.append([0, 1], [[1], [2]])
    table.commit()

    step = table.metadata([4, 1], [4, 2], buffer=8)

    assert {
        name: (array.dtype.name, array.shape)
        for name, array in vars(step).items()
        if isinstance(array, np.ndarray)
    } == {
        "query_start_loc": ("int32", (3,)),
        "seq_lens": ("int32", (2,)),
        "block_table": ("int32", (2, 10)),
        "slot_mapping": ("int64", (8,)),
    }
    assert [type(value) for value in list(vars(step).values())[4:]] == [int] * 4


class AppendsToResumed(impl.WorkerTable):
    def replace(self, rows, blocks):
        super().append(rows, blocks)


class KeepsTheTailOfReplaced(impl.WorkerTable):
    def _empty(self, rows):
        self.lengths[rows] = 0
        self._changed[rows] = True


class AppendsOneTooFar(impl.WorkerTable):
    def _write(self, rows, ids, counts):
        super()._write(rows, ids, counts)
        self.staged[rows] = np.roll(self.staged[rows], 1, axis=1)


class AppendsToOneRow(impl.WorkerTable):
    def _write(self, rows, ids, counts):
        super()._write(rows[:1], ids[: counts[:1].sum()], counts[:1])


class ForgetsItsLength(impl.WorkerTable):
    def _write(self, rows, ids, counts):
        super()._write(rows, ids, counts)
        self.lengths[rows] -= counts.astype(np.int32)


class ClearsARowThatStays(impl.WorkerTable):
    def move(self, source, target):
        super().move(source, target)
        if source == target:
            self.remove([source])


class LeavesTheSource(impl.WorkerTable):
    def move(self, source, target):
        kept = self.staged.copy()
        super().move(source, target)
        self.staged[source] = kept[source]


class MovesOntoRequests(impl.WorkerTable):
    def move(self, source, target):
        if source != target:
            self._check_row(source)
            self.remove([target])
        super().move(source, target)


class SwapsLengthsOnly(impl.WorkerTable):
    def swap(self, first, second):
        kept = self.staged.copy()
        super().swap(first, second)
        self.staged[:] = kept


class NullsOneTooMany(impl.WorkerTable):
    def null_out(self, rows, counts):
        held = self.lengths[self._distinct(rows)] // self.ratio
        super().null_out(rows, np.minimum(np.add(counts, 1), held))


class NullsTheEnd(impl.WorkerTable):
    def null_out(self, rows, counts):
        kept = self.staged.copy()
        super().null_out(rows, counts)
        for row, count in zip(rows, counts, strict=True):
            self.staged[row] = kept[row]
            end = self.lengths[row]
            self.staged[row, end - count * self.ratio : end] = 0


class ForgetsToNullOut(impl.WorkerTable):
    def null_out(self, rows, counts):
        kept = self.staged.copy()
        super().null_out(rows, counts)
        self.staged[:] = kept


class CommitsByReference(impl.WorkerTable):
    def commit(self):
        self.committed, self.committed_lengths = self.staged, self.lengths


class CommitsAtOnce(impl.WorkerTable):
    def append(self, rows, blocks):
        super().append(rows, blocks)
        self.commit()


class CommitsNoMoves(impl.WorkerTable):
    def swap(self, first, second):
        kept = self._changed.copy()
        super().swap(first, second)
        self._changed = kept


class CommitsNoLengths(impl.WorkerTable):
    def commit(self):
        kept = self.committed_lengths.copy()
        super().commit()
        self.committed_lengths = kept


class ClampsAtTheWidth(impl.WorkerTable):
    def _check_width(self, rows, columns):
        pass


class ReadsTheStagedRows(impl.WorkerTable):
    def read(self, rows, columns):
        return self.staged[list(rows), :columns]


class SplitsByTheKernelBlock(impl.WorkerTable):
    """i * ratio + b where b * ratio + i is meant."""

    def _split(self, rows, blocks):
        ids, counts = super()._split(rows, blocks)
        return ids // self.ratio + ids % self.ratio * self.ratio, counts


class WritesIntoTheNullBlock(impl.WorkerTable):
    def _slots(self, rows, positions):
        sharding = {name: getattr(self, name) for name in ("ratio", "world", "rank", "interleave")}
        tables = self.committed, self.committed_lengths
        return impl_slots.slot_mapping(*tables, rows, positions, self.block_size, **sharding)


class MapsPaddingToZero(impl.WorkerTable):
    def metadata(self, query_lens, seq_lens, buffer=None):
        step = super().metadata(query_lens, seq_lens, buffer)
        return dataclasses.replace(step, slot_mapping=np.maximum(step.slot_mapping, 0))


class CountsOnlyTheQueries(impl.WorkerTable):
    def metadata(self, query_lens, seq_lens, buffer=None):
        step = super().metadata(query_lens, seq_lens, buffer)
        return dataclasses.replace(step, max_seq_len=step.max_query_len)


MUTANTS = [
    mutant
    for mutant in list(globals().values())
    if isinstance(mutant, type) and issubclass(mutant, impl.WorkerTable)
    if mutant is not impl.WorkerTable
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_wrong_mirror_is_noticed(mutant):
    with pytest.raises((AssertionError, IndexError)):
        explore(mutant)


def test_an_int32_slot_mapping_is_noticed_through_the_mirror(monkeypatch):
    def narrow(*arguments, **geometry):
        return impl_slots.slot_mapping(*arguments, **geometry).astype(np.int32).astype(np.int64)

    monkeypatch.setattr(impl, "slot_mapping", narrow)

    with pytest.raises(AssertionError):
        explore(impl.WorkerTable)
