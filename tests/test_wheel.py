"""The wheel is complete: built, installed into an empty environment outside the checkout, and used there."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.cli.jobs import flags, read_metrics

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "scripts" / "constraints.txt"


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


@pytest.mark.slow
def test_an_empty_environment_runs_the_commands(wheel, tmp_path):
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    python, script = environment / "bin" / "python", environment / "bin" / "hf-ptm-ext"
    torch = next(line for line in CONSTRAINTS.read_text("utf-8").splitlines() if line.startswith("torch=="))

    def run(*command):
        result = subprocess.run(
            [str(word) for word in command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
        return result.stdout

    run(python, "-m", "pip", "install", "--quiet", torch)
    run(python, "-m", "pip", "install", "--quiet", "--constraint", CONSTRAINTS, wheel)
    assert "--mlm_probability" in run(script, "pretrain", "--help")
    assert "SpanBERT" in run(script, "systems")
    output = tmp_path / "out"
    run(script, "pretrain", "quickstart.yaml", *flags(output_dir=output, max_steps=5))
    assert read_metrics(output)["eval_mlm_targets"] > 0
    assert "How to load" in (output / "README.md").read_text(encoding="utf-8")
    run(script, "verify", output)
