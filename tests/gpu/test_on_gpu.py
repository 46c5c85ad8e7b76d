"""The kernels compiled and run on a GPU: skipped, with the reason, where there is none."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch: kvoracle[gpu]")

from kvoracle.gpu.functions import KERNELS, TWINS  # noqa: E402
from kvoracle.model.adapters.device_memory import run_on_device  # noqa: E402
from kvoracle.model.adapters.gpu_cases import edge_cases, random_cases  # noqa: E402
from kvoracle.model.adapters.impl import ImplAdapter  # noqa: E402
from kvoracle.model.trace import read  # noqa: E402

DOCUMENT = sorted((Path(__file__).parents[2] / "seeds" / "document").glob("*.json"))
ON_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here")


def test_a_case_moves_with_its_views():
    for case in random_cases(0):
        before = case.difference()

        moved = case.on("cpu")
        moved.run(TWINS[case.function])

        assert moved.difference() is None
        assert case.difference() == before


@ON_GPU
@pytest.mark.parametrize("functions", [KERNELS, TWINS], ids=["triton", "torch"])
@pytest.mark.parametrize("seed", range(8))
def test_calls_on_the_gpu_leave_what_the_reference_says(functions, seed):
    for case in [*random_cases(seed), *edge_cases(seed)]:
        moved = case.on("cuda")
        moved.run(functions[case.function])

        assert moved.difference() is None, (case.function, case.about)


@ON_GPU
@pytest.mark.parametrize("path", DOCUMENT, ids=lambda path: path.stem)
def test_document_seeds_on_the_gpu(path):
    failure, _ = run_on_device(read(path), ImplAdapter, "cuda")

    assert failure is None
