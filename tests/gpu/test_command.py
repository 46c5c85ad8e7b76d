"""`kvoracle gpu` and `fuzz --memory device`, as a user meets them."""

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the command needs torch: kvoracle[gpu]")

from kvoracle.model import gpu_command  # noqa: E402
from kvoracle.model.adapters import gpu_layers  # noqa: E402
from kvoracle.model.cli import main  # noqa: E402
from kvoracle.model.operations import Append, Create, Fork  # noqa: E402
from kvoracle.model.trace import Configuration, Trace, write  # noqa: E402

SEEDS = Path(__file__).parents[2] / "seeds"


def kvoracle(capsys, *arguments):
    """Exit code, and what was printed."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code, "".join(capsys.readouterr())


def test_a_trace_runs_on_device_memory(capsys, tmp_path):
    operations = [Create("a"), Append("a", [1, 2, 3]), Fork("a", "b"), Append("b", [4])]
    write(Trace(Configuration(4, 2), operations), tmp_path / "fork.json")

    code, text = kvoracle(capsys, "gpu", str(tmp_path))

    assert code == 0
    assert "fork.json on cpu: 4 tokens, 1 copies, 2 whole-pool comparisons" in text
    assert "1 passed, 0 failed, 0 skipped" in text


def test_a_violation_is_shown_and_fails(capsys):
    path = SEEDS / "bugs" / "copy-skipped-on-shared-tail.json"

    code, text = kvoracle(
        capsys, "gpu", str(path), "--allocator", "mutant:copy-skipped-on-shared-tail"
    )

    assert code == 1
    assert "0 passed, 1 failed, 0 skipped" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gpu"], "give traces, or --check"),
        (["gpu", ""], "A file has an empty name"),
        (["gpu", "--check", "--allocator", "nope"], "There is no allocator 'nope'"),
        (["gpu", "x.json", "--device", "tpu"], "There is no device 'tpu'; give cpu or cuda."),
        (["fuzz", "--memory", "tape"], "There is no memory 'tape'; give list or device."),
    ],
)
def test_bad_usage_is_a_sentence(capsys, arguments, said):
    code, text = kvoracle(capsys, *arguments)

    assert code == 2
    assert said in text


def test_no_trace_is_run_where_one_cannot_be_read(capsys, tmp_path):
    write(Trace(Configuration(4, 2), [Create("a")]), tmp_path / "good.json")
    (tmp_path / "later.json").write_text("{")

    code, text = kvoracle(capsys, "gpu", str(tmp_path))

    assert code == 2
    assert "later.json is not a trace" in text
    assert "passed" not in text


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_cuda_without_a_device_is_a_sentence(capsys):
    code, text = kvoracle(capsys, "gpu", "x.json", "--device", "cuda")

    assert code == 2
    assert "no CUDA device" in text


def test_without_torch_it_says_how_to_get_it(capsys, monkeypatch):
    monkeypatch.setattr(gpu_command.importlib.util, "find_spec", lambda name: None)

    code, text = kvoracle(capsys, "gpu", "--check")

    assert code == 2
    assert "pip install 'kvoracle[gpu]'" in text


def layer(name, *problems, needs_triton=False):
    finding = gpu_layers.Finding(list(problems), "1 call", ["a line"])
    return gpu_layers.Layer(name, "about it", lambda: finding, needs_triton)


def broken():
    raise OSError("no compiler")


def test_check_says_what_passed_what_failed_and_what_was_not_run(capsys, monkeypatch):
    monkeypatch.setattr(gpu_layers, "HAS_TRITON", False)
    stopped = gpu_layers.Layer("C", "about it", broken, needs_triton=False)
    layers = (layer("A"), layer("B", "wrong"), stopped, layer("D", needs_triton=True))
    monkeypatch.setattr(gpu_layers, "LAYERS", layers)

    code, text = kvoracle(capsys, "gpu", "--check")

    assert code == 1
    assert re.findall(r"^(passed|FAILED|NOT RUN) +(\w)", text, re.M) == [
        *(("passed", "A"), ("FAILED", "B"), ("FAILED", "C"), ("NOT RUN", "D")),
    ]
    assert "    wrong\n" in text
    assert "OSError: no compiler" in text
    assert "NOT SHOWN here: speed" in text


def test_fuzz_on_device_memory_says_how_to_do_it_again(capsys):
    code, text = kvoracle(
        *(capsys, "fuzz", "--memory", "device", "--engine", "walk"),
        *("--budget", "20ops", "--seed", "3"),
    )

    assert code == 0
    assert text.endswith("--budget 20ops --seed 3 --memory device\n")
