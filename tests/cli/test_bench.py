"""`kvoracle bench`: what it prints, without the figures; no test looks at a time."""

import json
import re

import pytest
from test_golden import hold_against_golden, kvoracle

CHEAP = ["bench", "--rounds", "1", "--only", "make"]

BAD_ARGUMENTS = {
    "only": ["bench", "--only", "nonsense"],
    "rounds": ["bench", "--rounds", "0"],
    "rounds-word": ["bench", "--rounds", "many"],
    "json": [*CHEAP, "--json", "."],
}


def test_help(tmp_path):
    hold_against_golden("help-bench", ["bench", "--help"], tmp_path)


def test_a_row_without_a_peer_is_shown_with_nothing_of_peers(tmp_path):
    done = kvoracle(CHEAP, tmp_path)

    heading, rounds, against, _, heads, row, _, verdict = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert heading.endswith("bench")
    assert rounds == "  rounds     1, in turns on one core; medians of processor time"
    assert against == "  against    nothing"
    assert heads.split() == ["row", "work", "measured", "limit"]
    assert re.match(r"make  make a pool of 26,785 blocks +[\d.]+ ms +2 ms", row)
    assert re.fullmatch(r"[01] of 1 goals met", verdict)


def test_rows_come_once_and_as_they_were_asked_for(tmp_path):
    done = kvoracle([*CHEAP, "--only", "memory", "--only", "make"], tmp_path)

    assert re.findall(r"^(make|memory) ", done.stdout, re.M) == ["make", "memory"]


@pytest.mark.parametrize(
    ("engine", "title", "row"), [("vllm", "vLLM", "take-1"), ("sglang", "SGLang", "slots-free")]
)
def test_an_absent_engine_costs_its_rows_and_says_how_to_get_it(engine, title, row, tmp_path):
    (tmp_path / f"{engine}.py").write_text("raise ModuleNotFoundError('hidden by a test')", "utf-8")

    done = kvoracle([*CHEAP, "--only", row], tmp_path)

    absence = done.stdout.splitlines()[-1]
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^make ", done.stdout, re.M)
    assert not re.search(rf"^{row} ", done.stdout, re.M)
    assert re.fullmatch(
        rf"{title} is not installed here \(.+\): 1 row left out; pip install .+", absence
    )


def test_the_numbers_as_json(tmp_path):
    (tmp_path / "vllm.py").write_text("raise ModuleNotFoundError('hidden by a test')", "utf-8")

    done = kvoracle([*CHEAP, "--only", "take-1", "--json", "numbers.json"], tmp_path)

    numbers = json.loads((tmp_path / "numbers.json").read_text("utf-8"))
    (row,) = numbers["rows"]
    assert done.returncode == 0
    assert (numbers["rounds"], numbers["against"], numbers["left_out"]) == (1, [], ["take-1"])
    assert (row["name"], row["goal"], row["unit"]) == ("make", 2, "ms")
    assert row["value"] > 0


@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_bad_arguments_get_one_sentence_and_exit_code_2(name, tmp_path):
    text = hold_against_golden(f"bad-bench-{name}", BAD_ARGUMENTS[name], tmp_path)

    assert text.count("\n") == 3
    assert text.endswith("Exit code: 2\n")
