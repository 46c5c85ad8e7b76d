"""The script for a GPU, rehearsed on the CPU."""

import json
import sys

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch: kvoracle[gpu]")
pytest.importorskip("triton", reason="the kernels need Triton, which is for Linux")

from kvoracle.gpu import bench  # noqa: E402


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(bench, "PAIRS", (1, 16))


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["bench", *arguments])
    return bench.main()


def test_a_rehearsal_compares_the_pool_and_times_everything(monkeypatch, small, tmp_path, capsys):
    code = run(monkeypatch, "--rehearse", "--json", str(tmp_path / "figures.json"))

    figures = json.loads((tmp_path / "figures.json").read_text())
    assert code == 0
    assert figures["wrong"] == []
    assert figures["goals"] == []
    assert len(figures["microseconds"]) == 2 + 5 * 2
    assert "every word is right" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_without_a_gpu_it_says_so(monkeypatch, capsys):
    assert run(monkeypatch) == 0
    assert capsys.readouterr().out.startswith("skipped: no CUDA device is here")


def test_a_copy_that_went_astray_is_found(monkeypatch):
    storage = torch.empty((80, 4), dtype=torch.int64)
    monkeypatch.setattr(bench, "copy_prepared", lambda pool, copies: None)

    wrong = bench.compare_whole_pool(storage)

    assert [said.partition(":")[0] for said in wrong][:2] == ["disjoint pairs", "fan-out"]


def test_goals_are_ratios_within_one_run():
    names = ("disjoint", "any pairs", "copy_", "fancy index", "layer loop")
    times = {f"{name}, {count} pairs": 1.0 * count for name in names for count in bench.PAIRS}
    times |= {"smallest kernel": 2.0, "slot mapping, 8192 tokens": 3.0}

    missed = [goal.name for goal in bench.goals(times) if not goal.is_met]

    assert missed == [
        *("layer loop, 1 pairs", "layer loop, 16 pairs"),
        *("fancy index, 64 pairs", "fancy index, 256 pairs"),
    ]
