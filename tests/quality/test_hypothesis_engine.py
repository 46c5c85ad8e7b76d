"""The state machine: one test item a fixed seed, the same under CI, and honest settings."""

import os
import subprocess
import sys

import pytest
from hypothesis import settings

from kvoracle.model.adapters.impl import ImplAdapter
from kvoracle.model.check import as_target
from kvoracle.model.machine import (
    AllocatorMachine,
    check_seed,
    explore_seed,
    machine_for,
    machine_settings,
)
from kvoracle.model.operations import OPERATIONS
from kvoracle.model.witnesses import required

FIXED_SEEDS = range(25)


@pytest.mark.parametrize("seed", FIXED_SEEDS)
def test_impl_keeps_every_rule(seed):
    tally = check_seed(ImplAdapter, seed, examples=10)

    assert tally.operations > 100


def test_the_fixed_seeds_reach_most_witnesses():
    target = as_target("impl")
    unmet = set(required(target))
    for seed in range(6):
        unmet -= set(explore_seed(target, seed, examples=20).tally.witnesses)

    assert len(unmet) <= len(required(target)) / 6, unmet


def test_the_machine_has_one_rule_an_operation_and_one_invariant():
    members = vars(AllocatorMachine) | vars(machine_for(as_target("impl")))

    def marked(mark):
        return {name for name, member in members.items() if hasattr(member, mark)}

    assert marked("hypothesis_stateful_rule") == {operation.verb for operation in OPERATIONS}
    assert len(marked("hypothesis_stateful_invariant")) == 1
    assert marked("hypothesis_stateful_preconditions") == set()


def test_every_setting_is_stated():
    stated = machine_settings(examples=7)
    with_ci_profile = settings(settings.get_profile("ci"))

    for name in ("database", "derandomize", "deadline", "phases", "print_blob", "backend"):
        assert hasattr(stated, name)
    assert stated.derandomize is False
    assert stated.database is None
    assert with_ci_profile.derandomize is True


def test_a_seed_does_the_same_with_and_without_ci():
    program = (
        "from kvoracle.model.machine import explore_seed\n"
        "from kvoracle.model.check import as_target\n"
        "print(sorted(explore_seed(as_target('impl'), 5, examples=5).tally.outcomes.items()))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, **extra},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for extra in ({"CI": "1"}, {"CI": "", "PYTHONHASHSEED": "7"}, {"GITHUB_ACTIONS": "true"})
    }

    assert len(outputs) == 1
    assert "append" in outputs.pop()


def test_a_failing_seed_says_everything_and_replays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(AssertionError, match="VIOLATION") as failed:
        check_seed(ForgetsToCopy, 1, examples=200)

    text = str(failed.value)
    assert "kvoracle replay seeds" in text
    assert "check(" in text
    assert list((tmp_path / "seeds" / "found").glob("*.json"))


class ForgetsToCopy(ImplAdapter):
    def append(self, request, tokens):
        done = super().append(request, tokens)
        done.copies.clear()
        return done

    def append_each(self, requests, tokens):
        done = super().append_each(requests, tokens)
        done.copies.clear()
        return done
