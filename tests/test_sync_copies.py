"""The families' copies of the canonical files are up to date, and the script says so when they are not."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts" / "sync_copies.py"


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("sync_copies", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_copies_are_up_to_date():
    result = subprocess.run([sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, encoding="utf-8")
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_canonical_file_is_copied_somewhere(script):
    stems = {
        path.stem.removesuffix("_canonical") for path in (ROOT / "hf_ptm_ext/models/canonical").glob("*_canonical.py")
    }
    assert stems == set(script.COPIES)


def test_copies_name_their_source_and_nothing_canonical(script):
    for stem, families in script.COPIES.items():
        for family in families:
            text = (ROOT / "hf_ptm_ext/models" / family / f"{stem}_{family}.py").read_text(encoding="utf-8")
            first, rest = text.split("\n", 1)
            assert f"{stem}_canonical.py" in first
            assert "Canonical" not in rest


def test_extracts_hold_their_names_and_nothing_else(script):
    for name, (stem, parts, _, families) in script.EXTRACTS.items():
        for family in families:
            text = (ROOT / "hf_ptm_ext/models" / family / f"{name}_{family}.py").read_text(encoding="utf-8")
            assert f"{stem}_canonical.py" in text.split("\n", 1)[0]
            body = ast.parse(text).body
            defined = [
                node.targets[0].id if isinstance(node, ast.Assign) else node.name
                for node in body
                if isinstance(node, ast.Assign | ast.FunctionDef | ast.ClassDef)
            ]
            prefix = script.COPIES["loading"][family]
            assert defined == [part.replace("Canonical", prefix) for part in parts]


def test_a_changed_copy_is_stale_until_it_is_written_again(script, tmp_path, monkeypatch, capsys):
    models = tmp_path / "hf_ptm_ext" / "models"
    (models / "canonical").mkdir(parents=True)
    (models / "spanbert").mkdir()
    for stem in script.COPIES:
        (models / "canonical" / f"{stem}_canonical.py").write_text(
            "class CanonicalThing:\n    pass\n", encoding="utf-8"
        )
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\nline-length = 119\n", encoding="utf-8")
    for stem, parts, _, families in script.EXTRACTS.values():
        source = models / "canonical" / f"{stem}_canonical.py"
        functions = "".join(f"\n\ndef {name}():\n    pass\n" for name in parts)
        source.write_text(source.read_text(encoding="utf-8") + functions, encoding="utf-8")
        assert families
    monkeypatch.setattr(script, "MODELS", models)
    monkeypatch.setattr(script, "ROOT", tmp_path)
    assert script.main(["--check"]) == 1
    assert not list((models / "spanbert").iterdir())
    assert script.main([]) == 0
    assert "class SpanBertThing" in (models / "spanbert" / "encoder_spanbert.py").read_text(encoding="utf-8")
    assert script.main(["--check"]) == 0
    copy = models / "spanbert" / "encoder_spanbert.py"
    copy.write_text(copy.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")
    capsys.readouterr()
    assert script.main(["--check"]) == 1
    assert "encoder_spanbert.py" in capsys.readouterr().out
