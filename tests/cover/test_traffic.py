"""Traffic from files: formats, lines that are wrong, and shared blocks against a naive count."""

import gzip
import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_capacity import STATED

from kvoracle.model.errors import UsageError
from kvoracle.model.traffic.arrival import Arrival
from kvoracle.model.traffic.lengths import lengths_of
from kvoracle.model.traffic.read import read_traffic
from kvoracle.model.traffic.workload import workload

MOONCAKE = [
    {"timestamp": 0, "input_length": 513, "output_length": 5, "hash_ids": [7, 8]},
    {"timestamp": 27.5, "input_length": 512, "output_length": 0, "hash_ids": [7], "type": "chat"},
]
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
"""


@pytest.fixture
def file(tmp_path):
    def with_text(text, name="traffic"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return with_text


def mooncake_text(**changes):
    return json.dumps({key: v for key, v in (MOONCAKE[0] | changes).items() if v != "absent"})


# Formats


def test_mooncake(file):
    name, arrivals = read_traffic(file("\n".join(map(json.dumps, MOONCAKE)) + "\n"))

    assert name == "mooncake"
    assert list(arrivals) == [Arrival(0, 513, 5, (7, 8)), Arrival(27_500, 512, 0, (7,))]


def test_azure(file):
    name, arrivals = read_traffic(file(AZURE))
    first, second = arrivals

    assert name == "azure"
    assert (first.prompt, first.output, first.tokens, first.prefixes) == (374, 44, 418, ())
    assert second.microseconds - first.microseconds == 4_314_579


def test_azure_with_more_columns_in_another_order_and_a_time_zone(file):
    text = (
        "NumImages,GeneratedTokens,ContextTokens,TIMESTAMP\r\n1,2,3,2024-05-10T00:00:00.5+00:00\r\n"
    )
    _, arrivals = read_traffic(file("\ufeff" + text))
    (only,) = arrivals

    assert (only.prompt, only.output) == (3, 2)
    assert only.microseconds % 1_000_000 == 500_000


def test_lengths(file):
    name, arrivals = read_traffic(file("# chat\n1, 15\n\n16 17 # the last\n"))

    assert name == "lengths"
    assert [arrival.tokens for arrival in arrivals] == [1, 15, 16, 17]


def test_gzip(file):
    name, arrivals = read_traffic(file(gzip.compress(AZURE.encode())))

    assert (name, len(list(arrivals))) == ("azure", 2)


def test_requests_come_before_a_later_line_is_read(file):
    _, arrivals = read_traffic(file("5\nnonsense\n"))

    assert next(arrivals).tokens == 5
    with pytest.raises(UsageError):
        next(arrivals)


# Lines that are wrong


@pytest.mark.parametrize(
    "changes",
    [
        {"timestamp": "absent"},
        {"timestamp": -1},
        {"timestamp": "noon"},
        {"input_length": 0},
        {"input_length": 1.5},
        {"input_length": 10**12},
        {"output_length": -1},
        {"hash_ids": [7]},
        {"hash_ids": [7, 8, 9]},
        {"hash_ids": "absent"},
        {"hash_ids": [7, -8]},
        {"hash_ids": None},
    ],
)
def test_a_wrong_request_of_mooncake_is_named_by_its_line(changes, file):
    path = file(mooncake_text() + "\n\n" + mooncake_text(**changes) + "\n")

    with pytest.raises(UsageError) as error:
        list(read_traffic(path)[1])

    assert str(error.value).startswith(f"{path} line 3: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("2023-11-16 18:15:46,374", "2 cells and the first line 3"),
        ("2023-11-16 18:15:46,374,44,1", "4 cells and the first line 3"),
        ("yesterday,374,44", "'yesterday' is not a time"),
        (",374,44", "'' is not a time"),
        ("2023-11-16 18:15:46,0,44", "'0' is not a number of tokens"),
        ("2023-11-16 18:15:46,374,-4", "'-4' is not a number of tokens"),
        ("2023-11-16 18:15:46,374,4.5", "'4.5' is not a number of tokens"),
        ("2023-11-16 18:15:46,999999999999,4", "is not a number of tokens"),
    ],
)
def test_a_wrong_row_of_azure_is_named_by_its_line(row, complaint, file):
    path = file(AZURE + row + "\n")

    with pytest.raises(UsageError) as error:
        list(read_traffic(path)[1])

    assert str(error.value).startswith(f"{path} line 4: ")
    assert complaint in str(error.value)


def test_an_azure_trace_without_a_column_is_refused(file):
    with pytest.raises(UsageError, match="line 1: there is no column GeneratedTokens"):
        list(read_traffic(file("TIMESTAMP,ContextTokens\n"))[1])


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", "1;2", "9" * 20, "²"])
def test_what_is_no_length_is_refused(text, file):
    with pytest.raises(UsageError, match=r"line 2: .* is not a length"):
        list(read_traffic(file(f"5\n{text}\n"))[1])
    with pytest.raises(UsageError, match="is not a length"):
        list(lengths_of(["5", text]))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        (b"5\n\xff\xfe\n", "line 2: it is not text"),
        (gzip.compress(AZURE.encode())[:40], "cannot be read"),
        (b"\x1f\x8bnonsense", "cannot be read"),
    ],
)
def test_what_is_no_text_is_refused(text, complaint, file):
    with pytest.raises(UsageError) as error:
        list(read_traffic(file(text))[1])
    assert complaint in str(error.value)


def test_what_is_not_there_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UsageError, match="cannot be read"):
            read_traffic(path)


# Workloads


def naive_blocks(arrivals, block_size):
    """Every block of every request by what identifies it."""
    found = set()
    for number, arrival in enumerate(arrivals):
        for block in range(-(-arrival.tokens // block_size)):
            last = (block + 1) * block_size - 1
            is_shared = arrival.prefixes and last < arrival.prompt
            found.add(
                (block, arrival.prefixes[last // 512]) if is_shared else (block, "of", number)
            )
    return len(found)


@st.composite
def arrivals_of_a_tree(draw):
    """Prompts that share prefixes: an identity is the path to it, and so is its length."""
    found, numbers = [], {}
    for _ in range(draw(st.integers(1, 6))):
        path = tuple(draw(st.lists(st.integers(0, 1), min_size=1, max_size=3)))
        last = 512 if path[-1] == 0 else 100 + len(path)
        path = tuple(0 if step == 1 and i < len(path) - 1 else step for i, step in enumerate(path))
        prefixes = tuple(numbers.setdefault(path[: i + 1], len(numbers)) for i in range(len(path)))
        prompt = 512 * (len(path) - 1) + last
        found.append(Arrival(0, prompt, draw(st.integers(0, 40)), prefixes))
    return found


@STATED
@given(arrivals_of_a_tree(), st.sampled_from([1, 3, 16, 48, 128, 512, 1000]))
def test_shared_blocks_are_counted_once(arrivals, block_size):
    whole = workload(arrivals)

    assert whole.physical_blocks(block_size) == naive_blocks(arrivals, block_size)
    logical = sum(-(-arrival.tokens // block_size) for arrival in arrivals)
    assert whole.logical_blocks(block_size) == logical


def test_two_equal_prompts_have_their_full_blocks_once():
    whole = workload([Arrival(0, 513, 5, (7, 8)), Arrival(0, 513, 7, (7, 8))])

    assert whole.logical_blocks(16) == 66
    assert whole.physical_blocks(16) == 34
    assert (whole.requests, whole.tokens) == (2, 1038)


def test_tails_of_the_document():
    whole = workload(lengths_of(["1", "15", "16", "17"]))

    assert whole.tails(16) == Counter({15: 2, 1: 1, 0: 1})
    assert whole.physical_blocks(16) == whole.logical_blocks(16) == 5
