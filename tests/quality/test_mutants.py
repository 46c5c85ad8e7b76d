"""The engines catch every mutant, and the pages on bugs and mutants say so."""

import re
from collections import Counter
from pathlib import Path

import pytest

from kvoracle.impl import PagedAllocator
from kvoracle.model.cli import main
from kvoracle.model.engines import ENGINES
from kvoracle.model.mutants import MUTANTS, Mutant
from kvoracle.model.mutation import OPERATIONS_MAX, Caught, catch, save
from kvoracle.model.report import mutants_page
from kvoracle.model.trace import read

BUGS = (Path(__file__).parents[2] / "docs" / "bugs.md").read_text("utf-8")
MINIMAL_OPERATIONS_MAX = 10
HYPOTHESIS_ONE_IN = 8
"""It takes a second or more for each; `kvoracle mutants` hunts all of them with it."""

HUNTS = [(mutant, "walk") for mutant in MUTANTS]
HUNTS += [(mutant, "hypothesis") for mutant in MUTANTS[::HYPOTHESIS_ONE_IN]]


def rows_of(page):
    """The cells of every row of a page's tables, without their headings."""
    rows = re.findall(r"^\| (.*) \|$", page, re.M)
    return [row.split(" | ") for row in rows if not row.startswith(("---", "id |", "bugs |"))]


@pytest.mark.parametrize(
    ("mutant", "engine"), HUNTS, ids=[f"{engine}-{mutant.name}" for mutant, engine in HUNTS]
)
def test_every_mutant_is_caught_and_shrinks(mutant, engine):
    caught = catch(mutant.name, engine, 1)

    assert caught.failure is not None
    assert caught.operations < OPERATIONS_MAX
    assert len(caught.failure.trace.operations) <= MINIMAL_OPERATIONS_MAX


def test_every_bug_is_told_once_with_the_mutants_that_stand_for_it():
    with_mutants, without = map(rows_of, BUGS.split("## Without a mutant"))
    told = {
        (bug, name.strip("`")) for bug, _, _, names in with_mutants for name in names.split(", ")
    }

    assert told == {(bug, mutant.name) for mutant in MUTANTS for bug in mutant.bugs}
    assert max(Counter(row[0] for row in with_mutants + without).values()) == 1
    assert all(why for _, _, _, why in without)


def test_no_two_mutants_have_one_name():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_the_page_on_mutants_has_a_row_for_each_hunt_by_name():
    caught = [catch(name, "walk", 1) for name in ("removal-order", "fork-misses-an-owner")]
    survivor = Caught("removal-order", "hypothesis", 7, None)

    rows = rows_of(mutants_page([*caught, survivor], 1))

    assert [row[1:3] for row in rows] == [
        ["`fork-misses-an-owner`", "walk"],
        ["`removal-order`", "hypothesis"],
        ["`removal-order`", "walk"],
    ]
    assert rows[0][0] == "RC01"
    assert rows[0][4] == "holder count"
    assert rows[1][3] == "SURVIVED"


def test_every_mutant_says_what_it_does_wrong_and_which_bugs_it_stands_for():
    for mutant in MUTANTS:
        assert mutant.bugs
        assert mutant.wrong.endswith(".")


def test_a_mutant_that_was_repaired_survives_and_is_named(monkeypatch, capsys):
    repaired = Mutant("repaired", ("RC01",), "It does nothing wrong.", PagedAllocator)
    monkeypatch.setattr("kvoracle.model.mutation.MUTANTS", [MUTANTS[1], repaired])
    monkeypatch.setattr("kvoracle.model.mutation.OPERATIONS_MAX", 1_000)

    with pytest.raises(SystemExit) as left:
        main(["mutants"])

    out = capsys.readouterr().out
    assert left.value.code == 1
    assert "walk       1/2 caught, SURVIVED: repaired" in out
    assert "hypothesis 1/2 caught, SURVIVED: repaired" in out


def test_saved_traces_are_those_in_the_repository(tmp_path):
    caught = [catch("fork-misses-an-owner", engine, 1) for engine in ENGINES]

    (path,) = save(caught, tmp_path)

    assert read(path).expected
    assert len(read(path).operations) <= 3
