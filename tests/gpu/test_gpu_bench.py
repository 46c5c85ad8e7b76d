"""The script for a GPU, rehearsed on the CPU."""

import json
import sys

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch: kvoracle[gpu]")
pytest.importorskip("triton", reason="the kernels need Triton, which is for Linux")

from kvoracle.gpu import bench, bench_compare, bench_times  # noqa: E402
from kvoracle.gpu.bench_pool import DOCUMENT, REHEARSAL  # noqa: E402
from kvoracle.gpu.functions import KERNELS  # noqa: E402
from kvoracle.gpu.mutants import Mutant  # noqa: E402
from kvoracle.model.adapters import gpu_peers, gpu_times  # noqa: E402

WAYS = ("disjoint", "any pairs", "copy_", "fancy index", "layer loop")
SMALL = REHEARSAL._replace(blocks=80)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(bench_times, "PAIRS", (1, 16))


def run(monkeypatch, *arguments, rivals=()):
    monkeypatch.setattr(sys, "argv", ["bench", *arguments])
    return bench.main(rivals)


def test_a_rehearsal_compares_the_pool_in_every_dtype_and_times_everything(
    monkeypatch, small, tmp_path, capsys
):
    file = tmp_path / "figures.json"
    rivals = [bench_times.Rival("theirs", "kv_write", KERNELS["kv_write"])]
    rivals += [bench_times.Rival("absent", "kv_write", KERNELS["kv_write"], "it is not here")]

    code = run(monkeypatch, "--rehearse", "--json", str(file), rivals=rivals)

    figures, text = json.loads(file.read_text()), capsys.readouterr().out
    assert code == 0
    assert len(figures["wrong"]) == text.count("every word is right") == 6
    assert not any(figures["wrong"].values())
    assert figures["goals"] == []
    assert figures["skipped"] == {"absent": "it is not here"}
    assert "skipped    absent: it is not here\n" in text
    assert list(figures["microseconds"]) == [
        "smallest kernel",
        *(f"{way}, {count} pairs" for count in (1, 16) for way in WAYS),
        *("slot_mapping, 64 tokens", "alloc_extend, 64 tokens", "alloc_decode, 2 requests"),
        *("kv_write, 64 tokens", "theirs, 64 tokens", "paged_gather, 64 tokens"),
    ]


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_without_a_gpu_it_says_so(monkeypatch, capsys):
    assert run(monkeypatch) == 0
    assert capsys.readouterr().out.startswith("skipped: no CUDA device is here")


def test_every_tensor_is_made_where_the_pool_is(small):
    """A tensor that is made without saying where lies on `meta` here, and does not fit the others."""
    storage = REHEARSAL.make("cpu")

    with torch.device("meta"):
        wrong = dict(bench_compare.compare_whole_pool(storage, REHEARSAL))
        times = bench_times.measure(storage, REHEARSAL, gpu_times.rivals())

    assert not any(wrong.values())
    assert all(times.values())


def test_the_document_s_calls_stay_within_the_smallest_pool_that_is_timed():
    size = DOCUMENT._replace(blocks=bench.BLOCKS_MIN)

    written = [call for call in bench_times.calls(size.make("meta"), size) if "kv" in call.function]

    (key, _, key_cache, _, slots), *_ = written[0].turns
    read_from = key.storage_offset() // key_cache.stride(0)
    assert len(written[0].turns) * len(slots) // key_cache.shape[1] <= read_from


def astray(function, name):
    """The function, which in bytes alone also spoils the next block."""

    def copy(planes, pairs):
        function(planes, pairs)
        bench_compare.as_integers(planes[0])[70, -1] ^= 1

    def write(key, value, key_cache, value_cache, slots):
        function(key, value, key_cache, value_cache, slots)
        bench_compare.as_integers(value_cache)[70, -1, -1, -1] ^= 1

    return copy if name == "copy_blocks" else write


@pytest.mark.parametrize(
    ("name", "kinds"), [("copy_blocks", ["disjoint pairs"]), ("kv_write", ["tokens"])]
)
def test_bytes_that_went_astray_are_found_in_every_dtype(monkeypatch, name, kinds):
    monkeypatch.setattr(bench_compare, name, astray(KERNELS[name], name))

    wrong = dict(bench_compare.compare_whole_pool(SMALL.make("cpu"), SMALL))

    assert [said[0].partition(":")[0] for said in wrong.values()] == kinds * 6
    assert all(said[0].endswith("1 blocks are wrong, 70 first") for said in wrong.values())


def test_work_that_is_not_done_is_found(monkeypatch):
    for name in ("copy_blocks", "kv_write"):
        monkeypatch.setattr(bench_compare, name, lambda *arguments: None)

    wrong = dict(bench_compare.compare_whole_pool(SMALL.make("cpu"), SMALL))["bfloat16"]

    assert [said.partition(":")[0] for said in wrong[:2]] == ["disjoint pairs", "fan-out"]
    assert "tokens: layer 3 reads back otherwise" in wrong


def test_a_dtype_that_raises_is_wrong_and_the_others_go_on(monkeypatch, tmp_path, capsys):
    def only_int8(planes, pairs):
        if planes[0].dtype != torch.int8:
            raise RuntimeError("no such dtype")
        KERNELS["copy_blocks"](planes, pairs)

    monkeypatch.setattr(bench_compare, "copy_blocks", only_int8)
    monkeypatch.setattr(bench, "REHEARSAL", SMALL)
    file = tmp_path / "figures.json"

    code = run(monkeypatch, "--rehearse", "--json", str(file))

    wrong, text = json.loads(file.read_text())["wrong"], capsys.readouterr().out
    assert code == 1
    assert wrong.pop("int8") == []
    assert list(wrong.values()) == [["RuntimeError: no such dtype"]] * 5
    assert "compared   int8: every word is right\ntimes      none" in text


def test_a_kernel_that_leaves_the_pool_is_reported_and_the_process_goes_on(monkeypatch):
    mutant = Mutant("astray", "kv_write", "place = slot", "place = (slot + 10**11)")
    with mutant.functions() as functions:
        monkeypatch.setattr(bench_compare, "kv_write", functions["kv_write"])

        wrong = bench.compared(SMALL.make("cpu"), SMALL)

    assert all(any("kv_write, line" in one for one in said) for said in wrong.values())


def test_a_file_that_cannot_be_written_is_refused_before_the_work(monkeypatch, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "--rehearse", "--json", str(tmp_path / "none" / "figures.json"))

    assert ended.value.code == 2
    assert "figures.json cannot be written (No such file or directory)" in capsys.readouterr().err


def test_goals_are_ratios_within_one_run():
    times = {f"{name}, {count} pairs": 1.0 * count for name in WAYS for count in bench.PAIRS}
    times |= {"smallest kernel": 2.0, "slot_mapping, 8192 tokens": 3.0}

    missed = [goal.name for goal in bench.goals(times) if not goal.is_met]

    assert missed == [
        *("layer loop, 1 pairs", "layer loop, 16 pairs"),
        *("fancy index, 64 pairs", "fancy index, 256 pairs"),
    ]


def test_an_engine_that_is_absent_or_has_changed_is_a_reason(monkeypatch):
    def gone(*arguments):
        raise LookupError("there is no function kernel any more")

    monkeypatch.setattr(gpu_times, "version_of", {"vllm": "9.9"}.get)
    monkeypatch.setattr(gpu_peers, "_kernel", gone)

    reasons = {rival.name: rival.why_not for rival in gpu_times.rivals()}

    assert reasons["sglang, copy_pages"] == "sglang is not installed"
    assert reasons["vllm 9.9, slot mapping"] == "there is no function kernel any more"


@pytest.mark.parametrize("rival", gpu_times.rivals(), ids=lambda rival: rival.name)
def test_a_rival_is_timed_under_its_name(rival, small):
    if rival.why_not:
        pytest.skip(rival.why_not)

    times = bench_times.measure(REHEARSAL.make("cpu"), REHEARSAL, [rival])

    assert any(name.startswith(rival.name) for name in times)


def test_a_pool_too_small_for_its_pairs_is_refused():
    with pytest.raises(ValueError, match="the blocks of the pool must be a whole number from 128"):
        bench_times.measure(SMALL.make("cpu"), SMALL)
