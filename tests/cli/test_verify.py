"""`hf-ptm-ext verify`: a good checkpoint passes, and each way to spoil one is named."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from hf_ptm_ext import cli
from hf_ptm_ext.hub import verify
from tests.hub.checkpoints import write_checkpoint


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("verify") / "good")


@pytest.fixture
def folder(good, tmp_path):
    return shutil.copytree(good, tmp_path / "folder")


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changes}), encoding="utf-8")


def test_a_good_checkpoint_passes_and_its_code_is_shown_first(good, capsys):
    assert cli.main(["verify", str(good)]) == 0
    said = capsys.readouterr().out
    assert "modeling_spanbert.py  (as installed)" in said.split("auto class")[0]
    rows = [line.split() for line in said.splitlines() if line.startswith("AutoModel")]
    assert len(rows) == 7
    assert all(row[-2] == "0.0e+00" and row[-1] == "complete" for row in rows)
    assert "works without the package" in said


def test_code_that_computes_something_else_is_found(folder, capsys):
    """Also in heads that the checkpoint lacks, whose weights are the same in both processes; and one head crashes."""
    path = folder / "modeling_spanbert.py"
    code = path.read_text(encoding="utf-8")
    changed = code.replace("logits = self.classifier(self.dropout(outputs.last_hidden_state))", "logits = 1 / 0", 1)
    changed = changed.replace("outputs.last_hidden_state).unbind(-1)", "2 * outputs.last_hidden_state).unbind(-1)", 1)
    assert changed != code
    path.write_text(changed, encoding="utf-8")
    assert cli.main(["verify", str(folder)]) == 1
    said = capsys.readouterr().out
    assert "modeling_spanbert.py  (differs from the installed package)" in said
    assert "FAILED  AutoModelForTokenClassification: does not load in a fresh process: ZeroDivisionError" in said
    assert "FAILED  AutoModelForQuestionAnswering: outputs differ" in said
    assert "FAILED  AutoModelForMaskedLM" not in said


class TestWithoutRunningAnything:
    """These are found before a process is started."""

    @pytest.fixture(autouse=True)
    def never_run(self, monkeypatch):
        def refuse(*args, **kwargs):
            raise AssertionError("code was run")

        monkeypatch.setattr("subprocess.run", refuse)

    @pytest.mark.parametrize("name", ["modeling_spanbert.py", "encoder_spanbert.py", "configuration_spanbert.py"])
    def test_deleted_code_file(self, folder, name):
        (folder / name).unlink()
        found = verify(folder)
        assert any(f"{name} is missing" in problem for problem in found.problems)

    def test_missing_auto_map_entry(self, folder):
        auto_map = json.loads((folder / "config.json").read_text(encoding="utf-8"))["auto_map"]
        del auto_map["AutoModelForQuestionAnswering"]
        change_config(folder, auto_map=auto_map)
        found = verify(folder)
        assert any("lacks AutoModelForQuestionAnswering" in problem for problem in found.problems)

    def test_no_auto_map(self, folder):
        change_config(folder, auto_map=None, model_type="unheard-of")
        assert any("no `auto_map`" in problem for problem in verify(folder).problems)

    @pytest.mark.parametrize(
        ("entry", "message"),
        [
            ("modeling_spanbert.Nothing", "has no class Nothing"),
            ("someone/else--modeling_spanbert.SpanBertModel", "another repository"),
            ("../modeling_spanbert.SpanBertModel", "is missing"),
        ],
    )
    def test_wrong_auto_map_entry(self, folder, entry, message):
        auto_map = json.loads((folder / "config.json").read_text(encoding="utf-8"))["auto_map"]
        change_config(folder, auto_map={**auto_map, "AutoModel": entry})
        assert any(message in problem and "AutoModel" in problem for problem in verify(folder).problems)

    def test_weights_cut_short(self, folder):
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-100])
        assert any("model.safetensors is damaged" in problem for problem in verify(folder).problems)

    def test_weights_that_are_not_finite(self, folder):
        tensors = load_file(folder / "model.safetensors")
        name = "bert.encoder.layer.1.output.dense.weight"
        tensors[name] = torch.full_like(tensors[name], float("nan"))
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        assert any(name in problem for problem in verify(folder).problems)

    def test_no_weights(self, folder):
        (folder / "model.safetensors").unlink()
        assert any("has no weights" in problem for problem in verify(folder).problems)

    def test_no_config(self, folder):
        (folder / "config.json").unlink()
        assert any("config.json" in problem for problem in verify(folder).problems)

    def test_code_that_is_no_python(self, folder):
        (folder / "modeling_spanbert.py").write_text("class SpanBertModel(:", encoding="utf-8")
        assert any("not valid Python" in problem for problem in verify(folder).problems)

    def test_hub_id_needs_trust(self, capsys):
        assert cli.main(["verify", "someone/tiny"]) == 2
        assert "--trust-remote-code" in capsys.readouterr().err

    @pytest.mark.parametrize("source", ["./nowhere", "/nowhere/at/all", "a/b/c"])
    def test_folder_that_does_not_exist(self, source, capsys):
        assert cli.main(["verify", source]) == 2
        assert "no such folder" in capsys.readouterr().err


def test_it_ends_in_time(good):
    found = verify(good, timeout=0.2)
    assert any("did not finish within 0.2 s" in problem for problem in found.problems)


@pytest.mark.slow
def test_encoder_weights_that_are_missing_are_named(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["bert.encoder.layer.1.output.dense.weight"]
    del tensors["cls.predictions.bias"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    problems = verify(folder).problems
    assert any("encoder.layer.1.output.dense.weight" in problem for problem in problems)


@pytest.mark.slow
def test_a_part_of_a_head_is_named(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["cls.predictions.transform.dense.bias"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    problems = verify(folder).problems
    assert any("only a part of cls.predictions" in problem for problem in problems)


@pytest.mark.slow
def test_a_tokenizer_that_does_not_load_is_named(folder):
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert any("AutoTokenizer" in problem for problem in verify(folder).problems)


@pytest.mark.slow
def test_code_that_needs_the_package_is_found(folder):
    path = folder / "modeling_spanbert.py"
    code = path.read_text(encoding="utf-8")
    path.write_text(code.replace("import torch\n", "import hf_ptm_ext.version\nimport torch\n", 1), encoding="utf-8")
    problems = verify(folder).problems
    assert any("hf_ptm_ext" in problem for problem in problems)


@pytest.mark.slow
def test_a_checkpoint_of_transformers_own_needs_no_code(tmp_path):
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64
    )
    BertForMaskedLM(config).save_pretrained(tmp_path / "bert")
    found = verify(tmp_path / "bert")
    assert found.ok, found.problems
    assert [result.class_name for result in found.results] == ["BertModel", "BertForMaskedLM"]
