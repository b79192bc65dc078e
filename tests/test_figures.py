"""The package does not grow unnoticed: lines by folder, long files and functions, repetition, errors, docstrings."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "figures.py"
# Most lines of each folder. A folder that shrinks lowers its limit; one that must grow says so by raising it here.
MOST_LINES = {
    "adapters": 1_350,
    "cli": 14_620,
    "collators": 6_900,
    "compression": 2_100,
    "conversion": 6_300,
    "data": 11_000,
    "distillation": 4_050,
    "hub": 2_300,
    "masking": 3_020,
    "metrics": 1_600,
    "models": 25_000,
    "objectives": 1_800,
    "pipelines": 1_000,
    "root files": 2_050,
    "trainers": 7_400,
}
LONGEST_FILE, LONGEST_FUNCTION, REPETITION = 600, 80, 0.05
# Errors that name what is wrong without printing a value, since there is none to print.
WITHOUT_VALUE = 50


@pytest.fixture(scope="module")
def figures():
    spec = importlib.util.spec_from_file_location("figures", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def files(figures):
    return figures.sources()


def test_no_folder_outgrows_its_limit(figures, files):
    found = figures.lines_by_folder(files)
    assert set(found) == set(MOST_LINES)
    assert {folder: lines for folder, lines in found.items() if lines > MOST_LINES[folder]} == {}


def test_files_and_functions_can_be_read_at_once(figures, files):
    assert [str(path) for path, text in files.items() if len(text.splitlines()) > LONGEST_FILE] == []
    assert figures.long_functions(files, LONGEST_FUNCTION) == []


def test_nothing_is_written_twice(figures, files):
    repeated, compared = figures.duplicated_lines(files)
    assert sum(map(len, repeated.values())) <= REPETITION * compared


def test_a_repetition_would_be_found(figures):
    lines = "\n".join(f"x_{number} = {number}" for number in range(figures.WINDOW))
    repeated, compared = figures.duplicated_lines({Path("a.py"): lines, Path("b.py"): f"import os\n\n{lines}"})
    assert repeated == {Path("a.py"): [*range(1, 9)], Path("b.py"): [*range(3, 11)]}
    assert compared == 2 * figures.WINDOW


def test_errors_print_what_they_got(figures, files):
    assert len([place for place, has_value in figures.raises(files) if not has_value]) <= WITHOUT_VALUE


def test_exports_are_documented(figures, files):
    assert figures.undocumented_exports(files) == []
