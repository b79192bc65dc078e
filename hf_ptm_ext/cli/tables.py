"""Plain text tables for a terminal."""

from collections.abc import Sequence


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned by blanks, a rule below the header.

    Args:
        header: names of the columns.
        rows: cells, as many per row as there are columns.

    Returns:
        The lines, without a line break at the end.

    Raises:
        ValueError: a row has more or fewer cells than there are columns.

    Example:
        >>> print(text_table(["term", "value"], [["mlm", "3.21"]]))
        term  value
        ----  -----
        mlm   3.21
    """
    lines = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
