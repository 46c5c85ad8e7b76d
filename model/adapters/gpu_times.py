"""Our kernels on a GPU, compared and timed, with the installed engines' kernels timed beside them.

python -m kvoracle.model.adapters.gpu_times [--rehearse] [--json FILE]
"""

from kvoracle.gpu.bench import main
from kvoracle.gpu.bench_times import Rival
from kvoracle.model.adapters.gpu_peers import PEERS, Peer, launch_of, version_of


def rivals() -> list[Rival]:
    """The engines' kernels, the absent ones with the reason."""
    return [_rival(peer) for peer in PEERS]


def _rival(peer: Peer) -> Rival:
    version = version_of(peer.engine)
    name = f"{peer.engine} {version}, {peer.kernel}" if version else f"{peer.engine}, {peer.kernel}"
    return Rival(name, peer.function, peer.call, _why_not(peer))


def _why_not(peer: Peer) -> str:
    if version_of(peer.engine) is None:
        return f"{peer.engine} is not installed"
    try:
        launch_of(peer)
    except (OSError, LookupError) as error:
        return str(error)
    return ""


if __name__ == "__main__":
    raise SystemExit(main(rivals()))
