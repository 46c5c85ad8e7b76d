"""Plots: SVG files of a known size, the same bytes again, and sentences where nothing can be drawn."""

import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from serving_traffic import conversations

from kvoracle.model.errors import UsageError
from kvoracle.model.registry import resolve
from kvoracle.model.serving.contestant import contestant
from kvoracle.model.serving.experiments import Experiment, experiments
from kvoracle.model.serving.plots import check_plots, draw_curve, draw_experiments, draw_results
from kvoracle.model.serving.replay import Conduct, Replay
from kvoracle.model.serving.result import as_json, result_of
from kvoracle.model.serving.scheduler import Scheduler
from kvoracle.model.traffic.reuse import reuse_distances

matplotlib = pytest.importorskip("matplotlib", reason="plots need matplotlib")

PAGE = Path(__file__).parents[2] / "docs" / "experiments"
SVG = "{http://www.w3.org/2000/svg}"
POINTS_IN_A_PIXEL = 72 / 96

COUNTS = [1, 2, 3]
EXPERIMENTS = [
    Experiment(
        "two prompts", "", series={"requests": COUNTS, "paged": [1, 2, 2], "contiguous": [1, 1, 1]}
    ),
    Experiment(
        "concurrency",
        "",
        series={
            "requests": COUNTS,
            "used": [900, 1_800, 2_048],
            "used with credits": [900, 1_800, 1_800],
            "preemptions": [0, 0, 1],
            "preemptions with credits": [0, 0, 0],
        },
    ),
    Experiment("startup", ""),
]


@pytest.fixture(scope="module")
def rows():
    """As `kvoracle serve --json` has them: two block sizes, and the contiguous baseline."""
    return [served("impl", 4), served("impl", 16), served("contiguous", 256)]


def served(name, block_size, slots=2_048):
    arrivals = conversations(seed=1, requests=60)
    on = contestant(resolve(name), slots, block_size, 256)
    pool = on.pool()
    replay = Replay(iter(arrivals), Scheduler(pool, 64, credited=False), Conduct())
    measures = replay.run()
    reuse = reuse_distances(arrivals, block_size) if pool.finds_prefixes else None
    return as_json(result_of(on, measures, replay.arrived, reuse), measures)


def draw_all(rows, folder):
    reuse = reuse_distances(conversations(seed=1, requests=60), 4)
    return [
        *draw_results(rows, folder),
        *draw_experiments(EXPERIMENTS, folder),
        draw_curve([rows[0], served("impl", 4, slots=512), rows[2]], reuse, folder),
    ]


@pytest.fixture(scope="module")
def drawn(rows, tmp_path_factory):
    return draw_all(rows, tmp_path_factory.mktemp("once") / "new" / "folder")


def texts(file):
    return [text.text for text in ElementTree.parse(file).iter(f"{SVG}text")]


def test_every_picture_is_an_svg_of_at_most_640_by_400_pixels(drawn):
    assert [file.name for file in drawn] == [
        *("running.svg", "used.svg", "waste.svg", "hits.svg"),
        *("at-once.svg", "preemptions.svg", "curve.svg"),
    ]
    for file in drawn:
        root = ElementTree.parse(file).getroot()
        assert root.tag == f"{SVG}svg"
        assert float(root.get("width").removesuffix("pt")) <= 640 * POINTS_IN_A_PIXEL
        assert float(root.get("height").removesuffix("pt")) <= 400 * POINTS_IN_A_PIXEL


def test_they_are_the_same_bytes_again_whatever_the_readers_settings(drawn, rows, tmp_path):
    with matplotlib.rc_context({"lines.linewidth": 9, "svg.hashsalt": "other", "font.size": 20}):
        again = draw_all(rows, tmp_path)

    assert [file.read_bytes() for file in drawn] == [file.read_bytes() for file in again]


def test_rows_are_named_and_axes_have_units(drawn, rows):
    running, used, waste, hits = drawn[:4]

    for file in (running, used, waste):
        assert {"impl, 512 of 4", "impl, 128 of 16", "contiguous, 8 of 256"} <= {*texts(file)}
    assert {"simulated time, seconds", "requests"} <= {*texts(running)}
    assert {"simulated time, seconds", "% of blocks"} <= {*texts(used)}
    assert "contiguous, 8 of 256" not in texts(hits)
    for row in rows:
        assert f"{100 * row['tail_waste']:.1f}" in texts(waste)
    for share in ("hit_rate", "hit_rate_lru", "hit_rate_unlimited"):
        assert f"{100 * rows[0][share]:.1f}" in texts(hits)


def test_no_hits_are_drawn_where_nothing_is_cached(rows, tmp_path):
    drawn = draw_results(rows[2:], tmp_path)

    assert [file.name for file in drawn] == ["running.svg", "used.svg", "waste.svg"]


def test_the_curve_has_what_was_served_beside_what_reuse_distances_say(drawn):
    assert {"impl, blocks of 4", "LRU, one request at a time", "unlimited memory"} <= {
        *texts(drawn[-1])
    }


def test_the_experiments_say_what_ran_at_once(drawn):
    at_once = drawn[4]

    title = "Prompts of 4,000 tokens: 2 run at once when paged, 1 when contiguous"
    assert title in texts(at_once)


def test_the_pictures_of_the_page_are_these(tmp_path):
    for file in draw_experiments(experiments(resolve("impl")), tmp_path):
        assert (PAGE / file.name).read_bytes() == file.read_bytes(), "draw docs/experiments anew"


def test_an_experiment_that_went_wrong_is_not_drawn(tmp_path):
    wrong = [replace(experiment, series={}) for experiment in EXPERIMENTS]

    assert draw_experiments(wrong, tmp_path) == []


def test_without_matplotlib_it_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    with pytest.raises(UsageError, match=r"pip install 'kvoracle\[plots\]'"):
        check_plots(tmp_path)


def test_a_path_that_is_no_folder_is_refused_in_a_sentence(rows, tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match="file cannot be a folder"):
        check_plots(tmp_path / "file")
    with pytest.raises(UsageError, match="file cannot be a folder"):
        draw_results(rows, tmp_path / "file")


def test_a_file_that_cannot_be_written_is_refused_in_a_sentence(rows, tmp_path):
    (tmp_path / "running.svg").mkdir()

    with pytest.raises(UsageError, match=r"running\.svg cannot be written"):
        draw_results(rows, tmp_path)
