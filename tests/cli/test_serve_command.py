"""`kvoracle serve`: whole outputs, the numbers as JSON, and what bad input gets."""

import json

import pytest
from test_golden import hold_against_golden, kvoracle

MIXED = [
    {
        "timestamp": 40 * n,
        "input_length": 1100 + 7 * n,
        "output_length": 60,
        "hash_ids": [0, n, 99 + n],
    }
    for n in range(1, 13)
]
SMALL_POOL = ("--slots", "6400", "--max-model-len", "2048")

GOOD = {
    "serve-mooncake": ["serve", "trace.jsonl", *SMALL_POOL, "--block-sizes", "16,64"],
    "serve-azure": ["serve", "trace.csv"],
    "serve-lengths": ["serve", "lengths.txt", "--slots", "1024", "--concurrency", "2"],
    "serve-side-by-side": [
        *("serve", "trace.jsonl", *SMALL_POOL, "--allocator", "impl", "--allocator", "contiguous"),
        *("--allocator", "impl-batch", "--credits"),
    ],
    "serve-pools": ["serve", "trace.jsonl", "--slots", "6400,2048", "--max-model-len", "2048"],
    "serve-document": ["serve", "--document"],
    "serve-in-lockstep": [
        *("serve", "trace.jsonl", *SMALL_POOL, "--scale", "32", "--block-sizes", "4", "--lockstep"),
        *("--cancelled", "0.3", "--remote", "0.3", "--cleanup-steps", "2", "--requests", "9"),
    ],
}

WRONG = {
    "serve-wrong": ["serve", "trace.jsonl", *SMALL_POOL, "--allocator", "wrong:Raises"],
    "serve-wrong-contents": ["serve", "trace.jsonl", "--allocator", "wrong:WritesElsewhere"],
    "serve-wrong-in-lockstep": [
        *("serve", "trace.jsonl", "--slots", "3200", "--allocator", "mutant:hit-misses-an-owner"),
        *("--scale", "32", "--block-sizes", "4", "--lockstep", "--requests", "6"),
    ],
}

BAD = {
    "trace": ["serve", "missing.jsonl"],
    "nothing": ["serve"],
    "empty": ["serve", "empty.txt"],
    "only-a-comment": ["serve", "comment.txt"],
    "line": ["serve", "wrong.jsonl"],
    "allocator": ["serve", "trace.csv", "--allocator", "nonsense"],
    "groups": ["serve", "trace.csv", "--allocator", "impl-groups"],
    "block-sizes": ["serve", "trace.csv", "--block-sizes", "16,0"],
    "slots": ["serve", "trace.csv", "--slots", "0"],
    "too-few-slots": ["serve", "trace.csv", "--slots", "100", "--allocator", "contiguous"],
    "too-many-slots": ["serve", "trace.csv", "--slots", "999999999"],
    "lockstep-slots": ["serve", "trace.csv", "--slots", "9999999", "--lockstep"],
    "scale": ["serve", "trace.csv", "--scale", "3"],
    "budget": ["serve", "trace.csv", "--budget", "0"],
    "requests": ["serve", "trace.csv", "--requests", "-1"],
    "share": ["serve", "trace.csv", "--cancelled", "30"],
    "remote": ["serve", "trace.csv", "--remote", "0.5", "--allocator", "contiguous"],
    "document-contiguous": ["serve", "--document", "--allocator", "contiguous"],
    "plots": ["serve", "trace.csv", "--plots", "trace.csv"],
    "pipe": ["serve", "/dev/null"],
    "not-in-order": ["serve", "late.jsonl"],
    "not-chained": ["serve", "unchained.jsonl"],
    "no-pool": ["serve", "trace.csv", "--allocator", "impl", "--allocator", "wrong:CannotBeMade"],
    "no-count": ["serve", "trace.csv", "--allocator", "wrong:CountsNothing", "--lockstep"],
    "json-is-the-trace": ["serve", "trace.csv", "--json", "trace.csv"],
    "document-of-a-trace": ["serve", "trace.csv", "--document"],
    "cleanup": ["serve", "trace.csv", "--cleanup-steps", "1000000"],
    "json": ["serve", "trace.csv", "--json", "no/such/folder.json"],
}


@pytest.fixture
def folder(tmp_path):
    lines = [json.dumps(request) for request in MIXED]
    texts = {
        "trace.jsonl": "\n".join(lines) + "\n",
        "wrong.jsonl": "\n".join([*lines, lines[0].replace("1107", "5000")]) + "\n",
        "lengths.txt": "# tokens of each request\n612, 612, 40\n2000\n64\n",
        "late.jsonl": "\n".join(reversed(lines)) + "\n",
        "unchained.jsonl": "\n".join([*lines, lines[0].replace("0, 1, 100", "0, 100, 1")]) + "\n",
        "empty.txt": "",
        "comment.txt": "# nothing yet\n",
        "trace.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n",
        "wrong.py": (
            "from kvoracle.model.adapters.impl import ImplAdapter\n"
            "from kvoracle.model.operations import Done\n"
            "class Raises(ImplAdapter):\n"
            "    def append_each(self, requests, tokens):\n"
            "        raise IndexError('list index out of range')\n"
            "class CannotBeMade(ImplAdapter):\n"
            "    def __init__(self, config):\n"
            "        raise KeyError('device')\n"
            "class CountsNothing(ImplAdapter):\n"
            "    def free_blocks(self):\n"
            "        return None\n"
            "class WritesElsewhere(ImplAdapter):\n"
            "    def append_each(self, requests, tokens):\n"
            "        slots = super().append_each(requests, tokens).slots\n"
            "        return Done(slots={name: [slot ^ 1] for name, (slot,) in slots.items()})\n"
        ),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


def test_help(folder):
    hold_against_golden("help-serve", ["serve", "--help"], folder)


@pytest.mark.parametrize("name", GOOD)
def test_what_is_printed(name, folder):
    text = hold_against_golden(name, GOOD[name], folder)

    assert text.endswith("Exit code: 0\n")


@pytest.mark.parametrize("name", WRONG)
def test_what_goes_wrong_is_shown(name, folder):
    text = hold_against_golden(name, WRONG[name], folder)

    assert text.endswith("Exit code: 1\n")


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_sentence_and_exit_code_2(name, folder):
    text = hold_against_golden(f"bad-serve-{name}", BAD[name], folder)

    assert text.count("\n") == 3
    assert text.endswith("Exit code: 2\n")


def test_the_numbers_as_json(folder):
    done = kvoracle([*GOOD["serve-mooncake"], "--json", "numbers.json"], folder)
    numbers = json.loads((folder / "numbers.json").read_text("utf-8"))

    assert done.returncode == 0
    assert [row["block_size"] for row in numbers["results"]] == [16, 64]
    for row in numbers["results"]:
        assert row["finished"] == len(MIXED)
        assert 0 < row["hit_rate"] <= row["hit_rate_unlimited"]
        assert row["series"]["running"]
    assert numbers["policy"] == {"budget": 8192, "credited": False, "lockstep": False}


def test_plots_are_drawn(folder):
    done = kvoracle([*GOOD["serve-pools"], "--plots", "drawn"], folder)

    assert (done.returncode, done.stderr) == (0, "")
    names = {path.name for path in (folder / "drawn").iterdir()}
    assert names == {"running.svg", "used.svg", "waste.svg", "hits.svg", "curve.svg"}
