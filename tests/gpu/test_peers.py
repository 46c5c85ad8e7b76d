"""The kernels of the installed engines under the layers: skipped, with the reason, where they are absent."""

import pytest

torch = pytest.importorskip("torch", reason="the layers need torch: kvoracle[gpu]")
triton = pytest.importorskip("triton", reason="the layers need Triton, which is for Linux")

from kvoracle.gpu.kernel import launching_with  # noqa: E402
from kvoracle.gpu.sanitizer import Sanitizer  # noqa: E402
from kvoracle.model.adapters import gpu_peers  # noqa: E402

UNDEFINED = "masked lane: computes with what a masked lane loaded without an `other`"
REPORTS = {
    "alloc_extend_kernel": [UNDEFINED],
    "alloc_decode_kernel": [UNDEFINED],
    "copy_pages": [],
    "slot mapping": [],
}


@pytest.mark.parametrize("peer", gpu_peers.PEERS, ids=lambda peer: f"{peer.engine} {peer.kernel}")
def test_within_its_contract_a_peers_kernel_is_right(peer):
    if gpu_peers.version_of(peer.engine) is None:
        pytest.skip(f"{peer.engine} is not installed")

    seen = gpu_peers.look_at(peer)

    assert seen.calls >= 5
    assert seen.differences == []
    assert seen.reports == REPORTS[peer.kernel]
    assert "registers" in seen.machine


def test_an_engine_that_is_not_here_is_said_to_be_skipped(monkeypatch):
    monkeypatch.setattr(gpu_peers, "version_of", lambda engine: None)

    (line,) = gpu_peers.in_lines(gpu_peers.PEERS[0])

    assert line == "sglang, alloc_extend_kernel: skipped, sglang is not installed"


@pytest.mark.skipif(gpu_peers.version_of("sglang") is None, reason="sglang is not installed")
def test_pages_of_many_tiles_take_a_second_axis_of_programs():
    storage = torch.arange(4 * 5000).view(4, 5000)
    expected = storage[[0, 0, 3, 3]]
    sanitizer = Sanitizer(1)

    with launching_with(sanitizer.carry_out):
        gpu_peers.sglang_copy_pages([storage], [(0, 1), (3, 2)])

    assert torch.equal(storage, expected)
    assert sanitizer.reports == []


def test_the_language_is_left_as_it_was_found():
    import triton.language as tl

    with gpu_peers._interpretable_library():
        assert not isinstance(tl.sum, triton.JITFunction)

    assert isinstance(tl.sum, triton.JITFunction)
