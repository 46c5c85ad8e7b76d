"""The document's figures: all of them follow, and how is pinned."""

from fractions import Fraction

import pytest

from kvoracle.model.capacity.document import Figure, figures

ROUNDED = {
    "pool": "52.32 GiB",
    "13 of them": "0.97 GiB",
    "waste": "98.13 %",
    "token table": "32.1 MiB",
    "its ratio": "16",
    "686 tails at 16": "1.3 GiB",
    "686 tails at 128": "10.6 GiB",
    "share at 16": "2.4 %",
    "share at 128": "20 %",
    "block size 32": "2",
}


def test_which_figures_follow_exactly_and_which_rounded():
    found = {figure.name: figure for figure in figures()}

    assert len(found) == len(figures()) == 32
    assert {n: f.stated for n, f in found.items() if f.follows == "rounded"} == ROUNDED
    (rest,) = [f for f in found.values() if f.follows not in ("exactly", "rounded")]
    assert (rest.stated, rest.computed, rest.follows) == ("26,785", 26_787, "within rounding")


@pytest.mark.parametrize(
    ("stated", "computed", "follows"),
    [
        ("2 MiB", 2, "exactly"),
        ("2.0", 2, "exactly"),
        ("1.3 GiB", Fraction("1.2561"), "rounded"),
        ("1.3 GiB", Fraction("1.36"), "NO"),
        ("26,785", 26_785, "exactly"),
        ("26,785", 26_787, "NO"),
    ],
)
def test_a_figure_that_does_not_follow_says_so(stated, computed, follows):
    assert Figure("", stated, computed, "").follows == follows
