"""Columns of text, as wide as their widest cell; then an empty line."""

from collections.abc import Sequence

from rich.console import Console


def show_columns(
    out: Console, heads: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int]
) -> None:
    """The columns in `left` begin alike; the others end alike."""
    lines = [heads, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for number, line in enumerate(lines):
        cells = [
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        out.print("  ".join(cells).rstrip(), style=None if number else "bold", markup=False)
    out.print()
