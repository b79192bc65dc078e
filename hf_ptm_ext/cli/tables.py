"""What commands show: tables and reports as plain text for a terminal, figures for a file."""

import sys
from collections.abc import Collection, Sequence
from typing import Any

# Cells of an attention mask.
SEEN, HIDDEN = "■", "·"


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned by blanks, a rule below the header."""
    lines = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def print_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], best: Collection[tuple[int, int]] = ()
) -> None:
    """Print a table below its title, on a terminal with a mark on the best cells (row and column, from 0)."""
    print(f"\n{title}")
    if not sys.stdout.isatty():
        print(text_table(header, rows))
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*header, box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for place, row in enumerate(rows):
        marks = ["bold green" if (place, column) in best else "" for column in range(len(row))]
        table.add_row(*(Text(f"{cell} *" if mark else cell, mark) for cell, mark in zip(row, marks, strict=True)))
    Console(width=1000, highlight=False).print(table)  # wide: the terminal itself breaks lines


def highest(values: Sequence[float | None]) -> list[int]:
    """The places of the highest number, none if all are the same."""
    known = [value for value in values if value is not None]
    return [place for place, value in enumerate(values) if value == max(known)] if len(set(known)) > 1 else []


def print_report(lines: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Print what was done, a word in front of each line."""
    for word, entries in lines:
        for entry in entries:
            print(f"{word:<12} {entry}")


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table whose first column has no name."""
    return [
        f"| | {' | '.join(header)} |",
        f"| --- | {' | '.join('---' for _ in header)} |",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def new_figure(what: str, width: float, height: float) -> Any:
    """An empty figure of matplotlib, which needs no display."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(f"{what} needs matplotlib: pip install hf-ptm-ext[viz]") from error
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure
