"""The kernels of the installed engines under the layers: skipped, with the reason, where they are absent."""

import pytest

pytest.importorskip("torch", reason="the layers need torch: kvoracle[gpu]")
triton = pytest.importorskip("triton", reason="the layers need Triton, which is for Linux")

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


def test_the_language_is_left_as_it_was_found():
    import triton.language as tl

    with gpu_peers._interpretable_library():
        assert not isinstance(tl.sum, triton.JITFunction)

    assert isinstance(tl.sum, triton.JITFunction)
