"""The wheel is complete: built, installed into an empty environment outside the checkout, and used there."""

import os
import subprocess
import sys
import venv
import zipfile
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.cli.jobs import flags, read_metrics

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [file] = folder.glob("*.whl")
    return file


def test_the_wheel_holds_resources_corpora_and_type_marker(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "hf_ptm_ext/py.typed",
        "hf_ptm_ext/_resources/model_cards/spanbert.md",
        "hf_ptm_ext/_resources/configs/quickstart.yaml",
        "hf_ptm_ext/_resources/decoding/unilm_cnn_dailymail.yaml",
        "hf_ptm_ext/data/corpora/english.txt.gz",
        "hf_ptm_ext/data/corpora/chinese.txt.gz",
        "hf_ptm_ext/data/corpora/NOTICE.md",
    } <= names
    assert not [name for name in names if name.startswith(("tests/", "scripts/"))]


def test_file_names_suit_every_system(wheel):
    for name in zipfile.ZipFile(wheel).namelist():
        assert not set(name) & set(':<>"|?*\\'), name


def needed(wheel):
    """Names of all that the wheel asks for, and of what that asks for."""
    [file] = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".dist-info/METADATA")]
    own = Parser().parsestr(zipfile.ZipFile(wheel).read(file).decode()).get_all("Requires-Dist")
    waiting, found = [(Requirement(one), "") for one in own], set()
    while waiting:
        one, extra = waiting.pop()
        key = one.name, frozenset(one.extras)
        if key not in found and (not one.marker or one.marker.evaluate({"extra": extra})):
            found.add(key)
            asked = [Requirement(text) for text in metadata.requires(one.name) or ()]
            waiting += [(each, name) for each in asked for name in ("", *one.extras)]
    return {name for name, _ in found}


@pytest.mark.slow
def test_an_empty_environment_runs_the_commands(wheel, tmp_path):
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    python, script = environment / "bin" / "python", environment / "bin" / "hf-ptm-ext"
    [site] = environment.glob("lib/python*/site-packages")
    for name in needed(wheel):
        distribution = metadata.distribution(name)
        for part in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__", *os.listdir(site)}:
            (site / part).symlink_to(distribution.locate_file(part))

    def run(*command):
        result = subprocess.run(
            [str(word) for word in command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
        return result.stdout

    run(python, "-m", "pip", "install", "--quiet", "--no-index", wheel)  # finds what it needs there, or fails
    assert "--mlm_probability" in run(script, "pretrain", "--help")
    assert "SpanBERT" in run(script, "systems")
    output = tmp_path / "out"
    run(script, "pretrain", "quickstart.yaml", *flags(output_dir=output, max_steps=5))
    assert read_metrics(output)["eval_mlm_targets"] > 0
    assert "How to load" in (output / "README.md").read_text(encoding="utf-8")
    run(script, "verify", output)
