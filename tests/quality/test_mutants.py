"""Both engines catch every mutant, on other seeds than the one that the table shows."""

import pytest

from kvoracle.impl import PagedAllocator
from kvoracle.model.cli import main
from kvoracle.model.engines import ENGINES
from kvoracle.model.mutants import MUTANTS, Mutant
from kvoracle.model.mutation import OPERATIONS_MAX, catch, save
from kvoracle.model.trace import read

MINIMAL_OPERATIONS_MAX = {"core": 6, "groups": 6, "prefix": 10}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_is_caught_and_shrinks(mutant, engine, seed):
    caught = catch(mutant.name, engine, seed)

    assert caught.failure is not None
    assert caught.operations < OPERATIONS_MAX
    assert (
        len(caught.failure.trace.operations)
        <= (MINIMAL_OPERATIONS_MAX[mutant.allocator.__module__.rpartition(".")[2]])
    )


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
