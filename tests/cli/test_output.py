"""Where the output cannot go: nobody reads it on, or there is nothing to write to."""

import subprocess
import sys

import pytest
from test_golden import ENVIRONMENT

COMMANDS = [["allocators"], ["capacity"], ["waste", "5", "6"], ["fuzz", "--budget", "500ops"]]


def run(command, cwd, **how):
    return subprocess.run(
        command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, check=False, **how
    )


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
def test_a_reader_that_goes_away_is_no_violation(arguments, tmp_path):
    line = f"{sys.executable} -m kvoracle {' '.join(arguments)}"

    done = run(["bash", "-c", f"{line} | true; exit ${{PIPESTATUS[0]}}"], tmp_path)

    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
def test_without_standard_output_it_says_so(arguments, tmp_path):
    line = f"{sys.executable} -m kvoracle {' '.join(arguments)}"

    done = run(["bash", "-c", f"{line} >&-"], tmp_path)

    assert done.returncode == 2
    assert done.stderr == "kvoracle: There is no standard output; send it somewhere.\n"
