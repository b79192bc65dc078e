"""Figures of the package: lines by folder, long files and functions, duplicated lines, errors, docstrings of exports.

    python scripts/figures.py [--duplicates]   # the table; with the option also where the repeated lines stand

Only syntax trees are read, nothing is imported. `tests/test_figures.py` holds the limits.
"""

import argparse
import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "hf_ptm_ext"
# So many equal lines in a row, blanks, comments and imports aside, are a repetition.
WINDOW = 8
ROOT = "root files"


def sources() -> dict[Path, str]:
    """The package's files with their text, by path relative to the package."""
    return {path.relative_to(PACKAGE): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


def lines_by_folder(files: dict[Path, str]) -> Counter[str]:
    """Lines of each folder of the package, and of the files beside them."""
    count: Counter[str] = Counter()
    for path, text in files.items():
        count[path.parts[0] if len(path.parts) > 1 else ROOT] += len(text.splitlines())
    return count


def long_functions(files: dict[Path, str], limit: int) -> list[str]:
    """Functions of more lines than the limit, as `file:name`."""
    return [
        f"{path}:{node.name}"
        for path, text in files.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno + 1 > limit
    ]


def duplicated_lines(files: dict[Path, str]) -> tuple[dict[Path, list[int]], int]:
    """Lines that stand in more than one place, by file, and the number of lines that were compared."""
    compared = {
        path: [
            (number, line.strip())
            for number, line in enumerate(text.splitlines(), 1)
            if line.strip() and not line.strip().startswith(("#", "import ", "from ", '"""'))
        ]
        for path, text in files.items()
    }
    windows: dict[tuple[str, ...], set[tuple[Path, int]]] = defaultdict(set)
    for path, lines in compared.items():
        for first in range(len(lines) - WINDOW + 1):
            windows[tuple(line for _, line in lines[first : first + WINDOW])].add((path, first))
    repeated: dict[Path, set[int]] = defaultdict(set)
    for places in windows.values():
        for path, first in places if len(places) > 1 else ():
            repeated[path].update(number for number, _ in compared[path][first : first + WINDOW])
    return {path: sorted(numbers) for path, numbers in repeated.items()}, sum(map(len, compared.values()))


def raises(files: dict[Path, str]) -> Iterator[tuple[str, bool]]:
    """Every `raise` of a new error, as `file:line`, and whether its message has a value in it."""
    for path, text in files.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                yield (
                    f"{path}:{node.lineno}",
                    any(
                        isinstance(part, ast.JoinedStr | ast.FormattedValue | ast.BinOp) for part in ast.walk(node.exc)
                    ),
                )


def undocumented_exports(files: dict[Path, str]) -> list[str]:
    """Public definitions that an `__init__` names in `__all__` and that have no docstring."""
    exported = {
        (path.parent, name)
        for path, text in files.items()
        if path.name == "__init__.py"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
        for name in (alias.asname or alias.name for alias in node.names)
    }
    names = {name for _, name in exported}
    return [
        f"{path}:{node.name}"
        for path, text in files.items()
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names and not ast.get_docstring(node)
    ]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--duplicates", action="store_true", help="say where repeated lines stand")
    arguments = parser.parse_args()
    files = sources()
    folders = lines_by_folder(files)
    for folder, lines in sorted(folders.items()):
        print(f"{folder:16}{lines:7}")
    repeated, compared = duplicated_lines(files)
    found = list(raises(files))
    print(f"{'all':16}{folders.total():7} in {len(files)} files")
    print(f"files over 600 lines: {[str(path) for path, text in files.items() if len(text.splitlines()) > 600]}")
    print(f"functions over 80 lines: {long_functions(files, 80)}")
    print(f"duplicated lines: {sum(map(len, repeated.values())) / compared:.1%}")
    print(f"errors that print a value: {sum(value for _, value in found)} of {len(found)}")
    print(f"exports without a docstring: {undocumented_exports(files)}")
    if arguments.duplicates:
        for path, numbers in sorted(repeated.items(), key=lambda item: -len(item[1])):
            print(f"{path}: {len(numbers)} lines, {numbers}")


if __name__ == "__main__":
    main()
