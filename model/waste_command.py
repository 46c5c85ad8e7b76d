"""The command `kvoracle waste`."""

from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kvoracle import __version__
from kvoracle.model import report
from kvoracle.model.capacity.sizes import number, percent
from kvoracle.model.columns import show_columns
from kvoracle.model.errors import UsageError
from kvoracle.model.traffic.lengths import lengths_of
from kvoracle.model.traffic.read import read_traffic
from kvoracle.model.traffic.workload import Workload, workload
from kvoracle.reference.capacity import uniform_tail
from kvoracle.reference.slots import expected_tail_waste

BLOCK_SIZE_MAX = 65_536
BLOCK_SIZES_MAX = 64
BARS_MAX = 16
BAR_WIDTH = 50


def waste(
    lengths: Annotated[
        list[str],
        typer.Argument(
            help="Tokens of each request; or one file: lengths, a Mooncake or Azure trace."
        ),
    ],
    block_size: Annotated[int, typer.Option(help="The block size whose tails are drawn.")] = 16,
    block_sizes: Annotated[
        str, typer.Option(help="The block sizes compared.")
    ] = "1,8,16,32,64,128",
) -> None:
    """Show what last blocks leave empty: the mean by block size, and the distribution of one."""
    sizes = _sizes(block_sizes, block_size)
    source, whole = _traffic(lengths)
    out = report.console()
    out.print(f"kvoracle {__version__} waste", style="bold")
    out.print(f"  requests   {whole.requests:,} from {source}", markup=False)
    out.print(
        f"  tokens     {whole.tokens:,}, {min(whole.lengths):,} to {max(whole.lengths):,} each"
    )
    out.print(f"  prefixes   {_prefixes(whole)}\n")
    show_columns(
        out,
        ("block size", "mean tail", "if uniform", "blocks", "shared once", "tails", "of the slots"),
        [_row(whole, size) for size in sizes],
        left=(),
    )
    _draw(out, whole, block_size)
    out.print("~ is rounded for display; every other number is exact.")


def _sizes(text: str, drawn: int) -> list[int]:
    parts = text.split(",")
    if len(parts) > BLOCK_SIZES_MAX or not all(part.strip().isdecimal() for part in parts):
        raise UsageError(
            f"The block sizes {text!r} are none; write up to {BLOCK_SIZES_MAX} as 8,16,32."
        )
    sizes = sorted({drawn, *map(int, parts)})
    for size in sizes:
        if not 1 <= size <= BLOCK_SIZE_MAX:
            raise UsageError(f"A block of {size} slots cannot be; give 1 to {BLOCK_SIZE_MAX}.")
    return sizes


def _traffic(arguments: list[str]) -> tuple[str, Workload]:
    if len(arguments) == 1 and not arguments[0].isdecimal():
        path = Path(arguments[0])
        name, arrivals = read_traffic(path)
        whole = workload(arrivals)
        if not whole.requests:
            raise UsageError(f"{path} holds no request; give a file with some.")
        return f"{path} ({name})", whole
    return "the arguments", workload(lengths_of(arguments))


def _prefixes(whole: Workload) -> str:
    if not whole.prefixes:
        return "none in the data, so no block is shared"
    return f"{len(whole.prefixes):,} different blocks of 512 tokens; full blocks are shared"


def _row(whole: Workload, block_size: int) -> list[str]:
    mean = expected_tail_waste(whole.lengths, block_size)
    physical, tails = whole.physical_blocks(block_size), mean * whole.requests
    return [
        f"{block_size:,}",
        number(mean),
        number(uniform_tail(block_size)),
        f"{whole.logical_blocks(block_size):,}",
        f"{physical:,}",
        f"{number(tails)} slots",
        percent(Fraction(tails, physical * block_size)),
    ]


def _draw(out: Console, whole: Workload, block_size: int) -> None:
    """A bar for each number of empty slots, or for each of several numbers in a row."""
    tails, width = whole.tails(block_size), -(-block_size // BARS_MAX)
    begins = range(0, block_size, width)
    counts = [sum(tails[n] for n in range(b, min(b + width, block_size))) for b in begins]
    out.print(f"empty slots of the last block, of {block_size:,}", style="bold")
    for begin, count in zip(begins, counts, strict=True):
        end = min(begin + width, block_size) - 1
        label = f"{begin:,}" if begin == end else f"{begin:,}-{end:,}"
        bar = "#" * round(Fraction(BAR_WIDTH * count, max(counts)))
        share = f"{100 * count / whole.requests:5.1f} %"
        out.print(f"{label:>13}  {count:>10,}  {share}  {bar}".rstrip())
    out.print()
