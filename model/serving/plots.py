"""What was served, as pictures: SVG files, with the same bytes for the same numbers."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from kvoracle.model.errors import UsageError
from kvoracle.model.serving.experiments import BLOCKS, LONG, PROMPT, Experiment
from kvoracle.model.trace import make_folder
from kvoracle.model.traffic.reuse import Reuse

Json = dict[str, Any]
Points = Sequence[tuple[float, float]]

INCHES = (6.4, 4.0)
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Told apart by colour-blind readers too (Okabe and Ito: Color Universal Design, 2008)."""
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P")
GREY = "0.4"
STYLE = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "figure.constrained_layout.h_pad": 0.06,
    "figure.constrained_layout.w_pad": 0.06,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "lines.markerfacecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "kvoracle",
}
METADATA = {"Creator": "kvoracle", "Date": None}
ADMISSION = {"without credits": "", "with credits": " with credits"}
"""How the series of each are named."""
OVER_TIME = "simulated time, seconds"
CURVE_POINTS = 200
LEGEND_WIDTH = 66
"""Characters that fit beside each other."""


def check_plots(folder: Path) -> None:
    """A UsageError, before the work rather than after it, where nothing can be drawn."""
    _matplotlib("figure")
    make_folder(folder)


def draw_results(results: Sequence[Json], folder: Path) -> list[Path]:
    """Rows as `result.as_json` has them; hits only of those that cache prefixes."""
    running = {_name(row): row["series"]["running"] for row in results}
    used = {_name(row): _scaled(row["series"]["used"], 100 / row["blocks"]) for row in results}
    waste = {
        "tails, of held slots": [row["tail_waste"] for row in results],
        "reserved, of held and promised slots": [row["reserved_waste"] for row in results],
    }
    drawn = [
        _draw_lines(folder / "running.svg", "Requests that run", OVER_TIME, "requests", running),
        _draw_lines(folder / "used.svg", "Blocks that are held", OVER_TIME, "% of blocks", used),
        _draw_bars(folder / "waste.svg", "Slots that hold no token", "% of slots", results, waste),
    ]
    cached = [row for row in results if row["hit_rate"] is not None]
    return [*drawn, _draw_hits(folder / "hits.svg", cached)] if cached else drawn


def draw_experiments(experiments: Sequence[Experiment], folder: Path) -> list[Path]:
    """Those that have series; one in which something went wrong has none."""
    series = {experiment.name: experiment.series for experiment in experiments}
    drawn = []
    if series["two prompts"]:
        drawn.append(_draw_at_once(folder / "at-once.svg", series["two prompts"]))
    if series["concurrency"]:
        drawn.append(_draw_preemptions(folder / "preemptions.svg", series["concurrency"]))
    return drawn


def draw_curve(results: Sequence[Json], reuse: Reuse, folder: Path) -> Path:
    """Hit rates over sizes of the pool, and what reuse distances say of blocks of one size."""
    measured: dict[str, list[tuple[float, float]]] = {}
    for row in [row for row in results if row["hit_rate"] is not None]:
        name = f"{row['allocator']}, blocks of {row['block_size']:,}"
        point = (row["blocks"] * row["block_size"], row["hit_rate"])
        measured.setdefault(name, []).append(point)
    sizes = [int(x) for points in measured.values() for x, _ in points]
    file = folder / "curve.svg"
    with _figure(file) as figure:
        label = {"xlabel": "slots of the pool", "ylabel": "% of prompt tokens"}
        axes = figure.add_subplot(xscale="log", **label)
        axes.set_title("Prompt tokens found in the prefix cache")
        unlimited = 100 * reuse.unlimited / reuse.prompt_tokens
        axes.axhline(unlimited, color=GREY, linestyle=":", label="unlimited memory")
        lru = _lru(reuse, min(sizes), max(sizes))
        axes.plot(*zip(*lru, strict=True), color=GREY, label="LRU, one request at a time")
        for number, (name, points) in enumerate(measured.items()):
            style = {**_style(number), "linestyle": "", "marker": _of(MARKERS, number)}
            axes.plot(*zip(*_scaled(points, 100), strict=True), **style, label=name)
        axes.set_ylim(0)
        _add_legend(figure, axes)
    return file


def _lru(reuse: Reuse, least: int, most: int) -> Points:
    """Slots, evenly by ratio, and the percentage that is hit in so many."""
    steps = range(CURVE_POINTS + 1)
    sizes = [round(least * (most / least) ** (step / CURVE_POINTS)) for step in steps]
    hits = [reuse.hit_tokens(size // reuse.block_size) for size in sizes]
    return [(x, 100 * hit / reuse.prompt_tokens) for x, hit in zip(sizes, hits, strict=True)]


def _draw_hits(file: Path, rows: Sequence[Json]) -> Path:
    hits = {
        "hits": [row["hit_rate"] for row in rows],
        "LRU, one request at a time": [row["hit_rate_lru"] for row in rows],
        "unlimited memory": [row["hit_rate_unlimited"] for row in rows],
    }
    title = "Prompt tokens found in the prefix cache"
    return _draw_bars(file, title, "% of prompt tokens", rows, hits)


def _draw_at_once(file: Path, series: Mapping[str, list[int]]) -> Path:
    come = series["requests"]
    kinds = ("paged", "contiguous")
    run = {kind: list(zip(come, series[kind], strict=True)) for kind in kinds}
    paged, whole = (max(series[kind]) for kind in kinds)
    title = f"Prompts of {PROMPT:,} tokens: {paged} run at once when paged, {whole} when contiguous"
    return _draw_lines(
        file, title, "requests that come at once", "requests that run at once", run, MARKERS
    )


def _draw_preemptions(file: Path, series: Mapping[str, list[int]]) -> Path:
    come = series["requests"]
    title = f"Most blocks held, and preemptions: prompts of {PROMPT:,} tokens, answers of {LONG:,}"
    with _figure(file) as figure:
        upper, lower = figure.subplots(2, 1, sharex=True)
        for number, (label, ending) in enumerate(ADMISSION.items()):
            style = {**_style(number), "marker": _of(MARKERS, number), "label": label}
            used = [100 * blocks / BLOCKS for blocks in series[f"used{ending}"]]
            upper.plot(come, used, **style)
            lower.plot(come, series[f"preemptions{ending}"], **style)
        upper.set(title=title, ylabel="% of blocks")
        lower.set(xlabel="requests that come at once", ylabel="preemptions")
        upper.set_ylim(0)
        _count(lower.yaxis)
        _count(lower.xaxis)
        figure.align_ylabels()
        _add_legend(figure, upper)
    return file


# How


def _draw_lines(
    file: Path,
    title: str,
    x: str,
    y: str,
    lines: Mapping[str, Points],
    markers: Sequence[str] = ("",),
) -> Path:
    with _figure(file) as figure:
        axes = figure.add_subplot(title=title, xlabel=x, ylabel=y)
        for number, (name, points) in enumerate(lines.items()):
            marker = _of(markers, number)
            axes.plot(*zip(*points, strict=True), **_style(number), marker=marker, label=name)
        axes.set_ylim(0)
        _add_legend(figure, axes)
    return file


def _draw_bars(
    file: Path, title: str, x: str, rows: Sequence[Json], bars: Mapping[str, list[float]]
) -> Path:
    """A group of bars a row; the lengths are shares."""
    height = 0.8 / len(bars)
    with _figure(file) as figure:
        axes = figure.add_subplot(title=title, xlabel=x)
        for number, (name, shares) in enumerate(bars.items()):
            places = [place + number * height for place in range(len(rows))]
            percents = [100 * share for share in shares]
            drawn = axes.barh(places, percents, height, color=_of(COLOURS, number), label=name)
            axes.bar_label(drawn, fmt="%.1f", padding=3)
        middle = (len(bars) - 1) * height / 2
        axes.set_yticks([place + middle for place in range(len(rows))], map(_name, rows))
        axes.invert_yaxis()
        axes.margins(x=0.1)
        _add_legend(figure, axes)
    return file


@contextmanager
def _figure(file: Path) -> Iterator[Any]:
    """A figure that becomes a file, whatever the reader's own settings of matplotlib are."""
    check_plots(file.parent)
    with _matplotlib("style").context(["default", STYLE]):
        figure = _matplotlib("figure").Figure(figsize=INCHES, layout="constrained")
        yield figure
        try:
            figure.savefig(file, format="svg", metadata=METADATA)
        except OSError as error:
            problem = error.strerror or str(error)
            raise UsageError(f"{file} cannot be written ({problem}); choose another.") from error


def _matplotlib(module: str) -> Any:
    try:
        return import_module(f"matplotlib.{module}")
    except ImportError as error:
        raise UsageError(
            f"Plots need matplotlib, which is not here ({error}); pip install 'kvoracle[plots]'"
        ) from error


def _add_legend(figure: Any, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    columns = max(LEGEND_WIDTH // max(map(len, labels)), 1)
    figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, 3))


def _count(axis: Any) -> None:
    axis.get_major_locator().set_params(integer=True)


def _style(number: int) -> dict[str, str]:
    return {"color": _of(COLOURS, number), "linestyle": _of(DASHES, number)}


def _of(values: Sequence[str], number: int) -> str:
    return values[number % len(values)]


def _scaled(points: Points, factor: float) -> Points:
    return [(x, factor * y) for x, y in points]


def _name(row: Json) -> str:
    return f"{row['allocator']}, {row['blocks']:,} of {row['block_size']:,}"
