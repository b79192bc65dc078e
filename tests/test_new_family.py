"""`scripts/new_family.py` writes a family that imports and passes the conformance suite, but for its golden test."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = ("hf_ptm_ext", "scripts", "tests", "docs", "model_cards")
FILES = ("mkdocs.yml", "pyproject.toml", "README.md", "CONTRIBUTING.md")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the sources with a new family."""
    folder = tmp_path_factory.mktemp("tree")
    for name in (*PARTS, *FILES):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        else:
            shutil.copy(source, folder / name)
    result = scaffold(folder, "ro_former", "--title", "RoFormer-like")
    assert result.returncode == 0, result.stderr
    return folder


def python(folder, *words):
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def scaffold(folder, *words):
    return python(folder, "scripts/new_family.py", *words)


@pytest.mark.slow
def test_a_new_family_passes_all_but_its_golden_test(tree):
    chosen = "golden or Config or load or forward or attention or packed or gradient or peft"
    tested = python(tree, "-m", "pytest", "tests/models/ro_former", "-k", chosen, "-p", "no:cacheprovider")
    failed = [line for line in tested.stdout.splitlines() if line.startswith("FAILED")]
    assert len(failed) == 2, tested.stdout[-3000:]
    assert all("::test_the_golden[" in line for line in failed)
    assert "There is no tests/goldens/ro-former-a.json yet" in tested.stdout
    assert "Run the\nreference code on a tiny random model" in tested.stdout


@pytest.mark.slow
def test_a_new_family_is_known_everywhere(tree):
    known = "tests/cli/test_systems.py", "tests/test_public_api.py", "tests/test_layering.py"
    tested = python(tree, "-m", "pytest", *known, "-m", "not slow", "-k", "not fresh", "-p", "no:cacheprovider", "-x")
    assert tested.returncode == 0, tested.stdout[-3000:]
    checked = python(tree, "-m", "ruff", "check", ".")
    assert checked.returncode == 0, checked.stdout
    formatted = python(tree, "-m", "ruff", "format", "--check", ".")
    assert formatted.returncode == 0, formatted.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("ro_former", "there is a family 'ro_former' already"),
        ("bert", "transformers has a model 'bert' already"),
        ("Ro-Former", "NAME must be small letters"),
        ("../x", "NAME must be small letters"),
    ],
)
def test_names_that_cannot_be_are_refused(tree, name, problem):
    result = scaffold(tree, name)
    assert result.returncode == 2
    assert problem in result.stderr
