"""What a user sees, exit code included, held against the files in golden/.

KVORACLE_UPDATE_GOLDEN=1 writes the files anew; read the difference before you commit it.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SEEDS = HERE.parents[1] / "seeds"
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(HERE),
    "COLUMNS": "100",
    "NO_COLOR": "1",
    "TERM": "dumb",
}

BAD_ARGUMENTS = {
    "command": ["fuz"],
    "option": ["fuzz", "--nonsense"],
    "allocator": ["fuzz", "--allocator", "nonsense"],
    "allocator-module": ["fuzz", "--allocator", "no.such.module:factory"],
    "allocator-attribute": ["fuzz", "--allocator", "broken_allocators:nothing"],
    "allocator-not-callable": ["fuzz", "--allocator", "broken_allocators:not_callable"],
    "allocator-makes-nonsense": ["fuzz", "--allocator", "broken_allocators:makes_something_else"],
    "allocator-does-nothing": ["fuzz", "--allocator", "broken_allocators:CannotDoAnything"],
    "allocator-empty": ["fuzz", "--allocator", ""],
    "engine": ["fuzz", "--engine", "diesel"],
    "budget": ["fuzz", "--budget", "soon"],
    "budget-zero": ["fuzz", "--budget", "0s"],
    "budget-negative": ["fuzz", "--budget", "-5s"],
    "budget-fraction": ["fuzz", "--budget", "1.5ops"],
    "seed": ["fuzz", "--seed", "zzz"],
    "seed-negative": ["fuzz", "--seed", "-1"],
    "workers": ["fuzz", "--workers", "0"],
    "workers-word": ["fuzz", "--workers", "many"],
    "hang": ["fuzz", "--hang-after", "-1"],
    "hang-nan": ["fuzz", "--hang-after", "nan"],
    "replay-nothing": ["replay"],
    "replay-missing": ["replay", "missing.json"],
    "replay-empty-folder": ["replay", "empty"],
    "replay-truncated": ["replay", "truncated.json"],
    "replay-version": ["replay", "version.json"],
    "replay-no-fit": ["replay", "one.json", "--allocator", "narrow:Narrow"],
    "explore-feature": ["explore", "--features", "core,flying"],
    "explore-blocks": ["explore", "--blocks", "99"],
    "explore-transfers": ["explore", "--transfers", "-1"],
    "explore-unit": ["explore", "--features", "cache", "--match-unit", "3"],
    "explore-resume": ["explore", "--resume"],
    "explore-states": ["explore", "--states-max", "0"],
    "mutants-seed": ["mutants", "--seed", "?"],
    "mutants-save": ["mutants", "--save", "truncated.json"],
}


def kvoracle(arguments, cwd):
    command = [sys.executable, "-m", "kvoracle", *arguments]
    return subprocess.run(
        command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False
    )


def shown(arguments, done):
    text = f"$ kvoracle {' '.join(arguments)}\n{done.stdout}{done.stderr}Exit code: {done.returncode}\n"
    text = re.sub(r"^ +[\d,]+ s .*witnesses\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"\n{3,}", "\n\n", text)  # progress, if there was time for any, ends with one
    text = re.sub(r"in [\d.,]+ s \([\d,]+ a second\)", "in 0.0 s (0 a second)", text)
    text = re.sub(r"[\d.]+ s, [\d,]+ transitions a second", "0.0 s, 0 transitions a second", text)
    text = re.sub(r"operations and [\d.]+ s$", "operations and 0.0 s", text, flags=re.MULTILINE)
    text = re.sub(r"^allocator .* step .*$|^.*µs .*µs .*$", without_times, text, flags=re.MULTILINE)
    return re.sub(r"kvoracle \d+\.\d+\.\d+", "kvoracle 0.0.0", text)


def without_times(row):
    """A row of measured times, and the heads above it: their widths vary too."""
    return re.sub(r" +", " ", re.sub(r"[\d,]+ µs|[\d.,]+ s$", "0", row[0]))


def hold_against_golden(name, arguments, cwd):
    text = shown(arguments, kvoracle(arguments, cwd))
    path = HERE / "golden" / f"{name}.txt"
    if os.environ.get("KVORACLE_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
    return text


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "empty").mkdir()
    whole = (SEEDS / "bugs" / "copy-shares-the-data.json").read_text(encoding="utf-8")
    (tmp_path / "one.json").write_text(whole, encoding="utf-8")
    (tmp_path / "truncated.json").write_text(whole[:100], encoding="utf-8")
    (tmp_path / "version.json").write_text('{"version": 99}', encoding="utf-8")
    (tmp_path / "narrow.py").write_text(
        "from kvoracle.model.adapters.impl import ImplAdapter\n"
        "class Narrow(ImplAdapter):\n    block_sizes = range(64, 65)\n",
        encoding="utf-8",
    )
    return tmp_path


@pytest.mark.parametrize("command", ["", "fuzz", "replay", "mutants", "allocators"])
def test_help(command, folder):
    hold_against_golden(f"help-{command or 'kvoracle'}", [*command.split(), "--help"], folder)


def test_fuzz_finds_nothing_and_prints_the_same_numbers_twice(folder):
    arguments = ["fuzz", "--engine", "walk", "--budget", "20000ops", "--seed", "1"]

    hold_against_golden("fuzz-impl", arguments, folder)
    hold_against_golden("fuzz-impl", arguments, folder)


def test_fuzz_with_both_engines_and_two_workers(folder):
    arguments = ["fuzz", "--budget", "2000ops", "--seed", "1", "--workers", "2"]

    hold_against_golden("fuzz-both", arguments, folder)


@pytest.mark.parametrize("engine", ["walk", "hypothesis"])
@pytest.mark.parametrize("allocator", ["Crashes", "Exits", "Raises", "LosesTheLastToken"])
def test_fuzz_finds(allocator, engine, folder):
    arguments = ["fuzz", "--allocator", f"broken_allocators:{allocator}", "--engine", engine]
    name = f"fuzz-{allocator}-{engine}"

    text = hold_against_golden(name, [*arguments, "--budget", "20000ops", "--seed", "1"], folder)

    assert text.endswith("Exit code: 1\n")
    (saved,) = (folder / "seeds" / "found").iterdir()
    replayed = kvoracle(["replay", str(saved)], folder)
    assert replayed.returncode == 1
    repaired = kvoracle(["replay", str(saved), "--allocator", "impl"], folder)
    assert repaired.returncode == 0


def test_fuzz_finds_a_hang(folder):
    arguments = ["fuzz", "--allocator", "broken_allocators:Hangs", "--engine", "walk"]

    text = hold_against_golden(
        "fuzz-Hangs", [*arguments, "--budget", "9s", "--seed", "1", "--hang-after", "0.3"], folder
    )

    assert text.endswith("Exit code: 1\n")


def test_fuzz_of_a_factory_function(folder):
    arguments = ["fuzz", "--allocator", "broken_allocators:a_factory", "--engine", "walk"]

    hold_against_golden("fuzz-factory", [*arguments, "--budget", "500ops", "--seed", "1"], folder)


@pytest.mark.parametrize("engine", ["walk", "hypothesis"])
def test_fuzz_of_an_allocator_that_cannot_be_made(engine, folder):
    arguments = ["fuzz", "--allocator", "broken_allocators:CannotBeMade", "--engine", engine]

    text = hold_against_golden(f"fuzz-CannotBeMade-{engine}", [*arguments, "--seed", "1"], folder)

    assert "the allocator cannot be made" in text


def test_replay(folder):
    hold_against_golden("replay-passes", ["replay", "one.json"], folder)


@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_bad_arguments_get_one_sentence_and_exit_code_2(name, folder):
    done = kvoracle(BAD_ARGUMENTS[name], folder)

    hold_against_golden(f"bad-{name}", BAD_ARGUMENTS[name], folder)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert not (folder / "seeds").exists()


def test_ctrl_c_ends_with_the_summary(folder):
    command = [sys.executable, "-m", "kvoracle", "fuzz", "--engine", "walk", "--budget", "60s"]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(2.5)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=20)

    assert process.returncode == 130
    assert "Interrupted: nothing found so far." in out
    assert "Reproduce with: kvoracle fuzz" in out
    assert error == ""
