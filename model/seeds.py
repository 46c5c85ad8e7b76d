"""The fixed seeds of the source document: 25 walks of 200 create, append, fork, pin, unpin, release.

`python -m kvoracle.model.seeds FOLDER` writes them; a test holds the files in `seeds/document`
against what this module makes.
"""

import sys
from pathlib import Path

import msgspec

from kvoracle.model.adapters.impl import ImplAdapter
from kvoracle.model.operations import Append, Create, Fork, Pin, Release, Unpin
from kvoracle.model.run import with_expected
from kvoracle.model.trace import Trace, write
from kvoracle.model.walk import walk

DOCUMENT_SEEDS = range(25)
DOCUMENT_STEPS = 200
DOCUMENT_OPERATIONS = (Create, Append, Fork, Pin, Unpin, Release)


def document_trace(seed: int) -> Trace:
    """One of the fixed seeds, with the outcomes that are right."""
    trace = walk(seed, DOCUMENT_OPERATIONS, steps=DOCUMENT_STEPS, options=frozenset())
    return with_expected(
        msgspec.structs.replace(trace, flags=["document"], notes={"document": f"seed {seed}"}),
        ImplAdapter,
    )


def write_all(folder: Path) -> None:
    """Write every fixed seed."""
    for seed in DOCUMENT_SEEDS:
        write(document_trace(seed), folder / f"seed-{seed:02}.json")


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
