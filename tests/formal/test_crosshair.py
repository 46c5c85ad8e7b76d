"""CrossHair on the arithmetic: contracts confirmed on all paths, both rooms alike, planted bugs found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvoracle.model.proof import contracts
from kvoracle.reference import capacity, group_records, slots

pytest.importorskip("crosshair")

HERE = Path(__file__).parent
CHECK = ["check", "--report_all", "--analysis_kind"]
SLOTS = [
    "ceil_div",
    "blocks_needed",
    "tail_waste",
    "slot_at",
    "block_and_offset",
    "kernel_block_size",
    "rank_of",
]
"""Without bounds; those with loops or products of variables are in `contracts`, with bounds."""

CAPACITY = ["blocks_for", "blocks_in", "contiguous_admissions", "unused_slots"]
SCALARS = ["blocks_needed", "tail_waste", "block_and_offset", "kernel_blocks", "slot_of"]

IN_SLOTS = {
    "ceil_div": ("return -(-dividend // divisor)", "return dividend // divisor + 1"),
    "blocks_needed": ("return ceil_div(tokens, ", "return ceil_div(tokens + 1, "),
    "tail_waste": ("block_size) * block_size - tokens", "block_size) * block_size - tokens + 1"),
    "slot_at": ("return block * block_size + offset", "return block * block_size + offset + 1"),
    "block_and_offset": ("return slot // block_size,", "return (slot + 1) // block_size,"),
    "kernel_block_size": ("return block_size // ratio", "return block_size // ratio + 1"),
    "rank_of": (
        "return position // interleave % world",
        "return position // interleave % (world + 1)",
    ),
}
IN_CAPACITY = {
    "blocks_for": ("return -(-tokens // block_size)", "return tokens // block_size + 1"),
    "blocks_in": ("return pool_bytes //", "return 1 + pool_bytes //"),
    "contiguous_admissions": (
        "return slots // max_model_len",
        "return (slots - 1) // max_model_len",
    ),
    "unused_slots": ("return max_model_len - tokens", "return max_model_len - tokens - 1"),
}
BEHIND_CLAIMS = {
    "kernel_blocks_are_split_in_order": (
        slots,
        "block * ratio + ratio)",
        "block * ratio + ratio + 1)",
    ),
    "local_positions_stay_in_their_block": (
        slots,
        "turn * interleave +",
        "(turn + 1) * interleave +",
    ),
    "positions_are_on_one_rank": (slots, "% world\n\n\ndef", "% (world + 1)\n\n\ndef"),
    "local_slots_are_injective": (
        slots,
        "turn = virtual_offset //",
        "turn = (virtual_offset + 1) //",
    ),
    "a_split_changes_no_slot": (
        slots,
        "return block_size // ratio",
        "return -(-block_size // (ratio + 1))",
    ),
    "padding_fills_the_buffer": (slots, "(length - len(slots))]", "(length - len(slots) + 1)]"),
    "windows_begin_in_the_first_block_seen": (
        group_records,
        "- self.window + 1)",
        "- self.window)",
    ),
    "as_many_requests_as_fit": (
        capacity,
        "return blocks // blocks_for",
        "return 1 + blocks // blocks_for",
    ),
    "pools_fit_what_they_have_slots_for": (
        capacity,
        "return -(-tokens // block_size)",
        "return tokens // block_size + 1",
    ),
}
"""For every claim of `contracts`: a module that it is about, and an off-by-one in there."""


def crosshair(arguments, *path, seconds):
    found = os.pathsep.join([*map(str, path), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "crosshair", *arguments]
    done = subprocess.run(
        [*command, "--per_condition_timeout", str(seconds)],
        env={**os.environ, "PYTHONPATH": found},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(("module", "names"), [(slots, SLOTS), (capacity, CAPACITY)])
def test_every_contract_is_confirmed_over_all_paths(module, names):
    targets = [f"{module.__name__}.{name}" for name in names]
    postconditions = sum(getattr(module, name).__doc__.count("post: ") for name in names)

    code, said = crosshair([*CHECK, "PEP316", *targets], seconds=60)

    assert code == 0, said
    assert said.count("Confirmed over all paths") == postconditions, said


def test_every_claim_is_confirmed_over_all_paths():
    claims = [function for function in vars(contracts).values() if is_claim(function)]

    code, said = crosshair([*CHECK, "asserts", contracts.__name__], seconds=60)

    assert code == 0, said
    assert said.count("Confirmed over all paths") == len(claims) == len(BEHIND_CLAIMS), said


def is_claim(value):
    return getattr(value, "__module__", "") == contracts.__name__


@pytest.mark.parametrize("name", SCALARS)
def test_both_rooms_answer_alike(name):
    pair = [f"reference_scalars.{name}", f"impl_scalars.{name}"]

    code, said = crosshair(["diffbehavior", *pair], HERE, seconds=120)

    assert code == 0, said
    assert "No differences found" in said
    assert "All paths exhausted" in said


def plant(module, bug, folder, name):
    """A copy of a module with one change."""
    text = Path(module.__file__).read_text(encoding="utf-8")
    right, wrong = bug
    assert text.count(right) == 1, f"{right!r} is there {text.count(right)} times"
    (folder / f"{name}.py").write_text(text.replace(right, wrong), encoding="utf-8")


@pytest.mark.parametrize(
    ("module", "name", "bug"),
    [(slots, *item) for item in IN_SLOTS.items()]
    + [(capacity, *item) for item in IN_CAPACITY.items()],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_off_by_one_is_found(module, name, bug, tmp_path):
    plant(module, bug, tmp_path, "planted")

    code, said = crosshair([*CHECK, "PEP316", f"planted.{name}"], tmp_path, seconds=30)

    assert code == 1, said
    assert "error: " in said


@pytest.mark.parametrize("name", BEHIND_CLAIMS)
def test_an_off_by_one_behind_a_claim_is_found(name, tmp_path):
    module, *bug = BEHIND_CLAIMS[name]
    plant(module, bug, tmp_path, "planted_module")
    imported = (f"from {module.__name__} import", "from planted_module import")
    plant(contracts, imported, tmp_path, "planted")

    code, said = crosshair([*CHECK, "asserts", f"planted.{name}"], tmp_path, seconds=60)

    assert code == 1, said
    assert "error: " in said


def test_a_difference_between_the_rooms_is_found(tmp_path):
    plant(slots, IN_SLOTS["blocks_needed"], tmp_path, "planted_slots")
    text = (HERE / "reference_scalars.py").read_text(encoding="utf-8")
    planted = text.replace("from kvoracle.reference import slots", "import planted_slots as slots")
    (tmp_path / "planted_scalars.py").write_text(planted, encoding="utf-8")
    pair = ["planted_scalars.blocks_needed", "impl_scalars.blocks_needed"]

    code, said = crosshair(["diffbehavior", *pair], tmp_path, HERE, seconds=60)

    assert code == 1, said
    assert "impl_scalars.blocks_needed" in said
