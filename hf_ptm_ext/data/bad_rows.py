"""Rows that a reader cannot use: all of them are told at once, or left out and counted."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any

logger = logging.getLogger(__name__)

ERROR, SKIP = "error", "skip"
ON_BAD_ROWS = (ERROR, SKIP)
SHOWN = 12
"""So many reasons, and so many places of each, are shown."""


class BadRows:
    """What becomes of bad rows: those of all readers that are used inside the context.

    Without a context each reader tells its own bad rows, all at once, where its files end.

    Args:
        on_bad_rows: `"error"` tells all of them at the end of the context; `"skip"` leaves them out and says which.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from hf_ptm_ext.data import read_labelled_texts
        >>> file = Path(tempfile.mkdtemp()) / "rows.tsv"
        >>> _ = file.write_text("text\\tlabel\\nfine\\tgood\\n\\tgood\\n", encoding="utf-8")
        >>> with BadRows("skip") as bad:
        ...     len(list(read_labelled_texts(file))), bad.left_out
        (1, {'rows.tsv': 1})
    """

    def __init__(self, on_bad_rows: str = ERROR) -> None:
        if on_bad_rows not in ON_BAD_ROWS:
            raise ValueError(f"`on_bad_rows` must be one of {', '.join(ON_BAD_ROWS)}, got {on_bad_rows!r}.")
        self.on_bad_rows = on_bad_rows
        self.read = 0
        self.errors: list[tuple[str, ValueError]] = []
        self.numbers: list[list[int]] = []  # of each reader's examples, among its rows
        self._ids: dict[tuple[str, Any], str] = {}
        self._twice: list[str] = []
        self._token: Token[BadRows | None] | None = None

    @property
    def left_out(self) -> dict[str, int]:
        """How many rows of each file cannot be used, by the file's name."""
        return dict(Counter(_file(where).replace("\\", "/").rpartition("/")[2] for where, _ in self.errors))

    def results(self) -> dict[str, Any]:
        """What a job's results say of them: nothing if there are none."""
        return {"rows_left_out": self.left_out} if self.errors else {}

    def __enter__(self) -> "BadRows":
        self._token = _CURRENT.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _CURRENT.reset(self._token)
        # What goes wrong with the rest of the rows is a consequence.
        if kind is None or (self.errors and issubclass(kind, ValueError)):
            self.tell()

    def named(self, where: str, name: Any) -> None:
        """Note the name of a row, which no other row of its file should have."""
        if name is None:
            return
        first = self._ids.setdefault((_file(where), name), where)
        if first != where:
            self._twice.append(f"{name!r} ({first} and {where.removeprefix(_file(where)).lstrip(', ')})")

    def tell(self) -> None:
        """Say which rows cannot be used, and which names stand twice."""
        if self._twice:
            logger.warning(
                "%d ids stand more than once in their file, so predictions cannot be told apart by them: %s%s.",
                len(self._twice),
                "; ".join(self._twice[:SHOWN]),
                "; ..." if len(self._twice) > SHOWN else "",
            )
            self._twice = []
        if not self.errors:
            return
        if self.on_bad_rows == SKIP:
            logger.warning("%d of %d rows are left out: %s", len(self.errors), self.read, self._report())
        elif len(self.errors) == 1:
            raise self.errors[0][1]
        else:
            few = len(self.errors) < self.read
            advice = "Mend them, or leave them out with `on_bad_rows` = skip." if few else "No row is left."
            raise ValueError(f"{len(self.errors)} of {self.read} rows cannot be used: {self._report()} {advice}")

    def _report(self) -> str:
        """Places by reason, in the order of the rows."""
        reasons: dict[tuple[str, str], list[str]] = {}
        for where, error in self.errors:
            file, reason = _file(where), str(error).removeprefix(where).lstrip(":, ")
            reasons.setdefault((file, reason), []).append(where.removeprefix(file).lstrip(", "))
        parts = [
            f"{file}, {', '.join(places[:SHOWN])}{', ...' if len(places) > SHOWN else ''}: {reason}"
            for (file, reason), places in list(reasons.items())[:SHOWN]
        ]
        more = len(self.errors) - sum(len(places) for places in list(reasons.values())[:SHOWN])
        return " ".join([*parts, *([f"And {more} more."] if more else [])])


_CURRENT: ContextVar[BadRows | None] = ContextVar("bad_rows", default=None)


def usable(
    rows: Iterable[tuple[str, Any]], convert: Callable[[Any, str], Any], *, named: bool = True
) -> Iterator[Any]:
    """Turn rows into examples; rows of which none can be made are collected."""
    collecting = _CURRENT.get()
    bad = BadRows() if collecting is None else collecting
    bad.numbers.append(numbers := [])
    for number, (where, row) in enumerate(rows):
        bad.read += 1
        try:
            if isinstance(row, ValueError):
                raise row
            example = convert(row, where)
        except (ValueError, OverflowError) as error:
            placed = str(error) if str(error).startswith(where) else f"{where}: {error}"
            bad.errors.append((where, _caused(placed, error)))
            continue
        if named and getattr(example, "group", None) is None:  # the rows of a group may share its name
            bad.named(where, getattr(example, "id", None))
        if example is not None and (collecting is not None or not bad.errors):
            numbers.append(number)
            yield example
    if collecting is None:
        bad.tell()


def _caused(text: str, cause: ValueError | OverflowError) -> ValueError:
    if isinstance(cause, ValueError) and str(cause) == text:
        return cause
    error = ValueError(text)
    error.__cause__ = cause
    return error


def _file(where: str) -> str:
    """The file of a place, which is behind its last comma."""
    return where.rpartition(", ")[0] or where


__all__ = ["ERROR", "ON_BAD_ROWS", "SKIP", "BadRows", "usable"]
