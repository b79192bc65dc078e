"""`hf-ptm-ext convert houlsby|pfeiffer`: the library's folders to PEFT's and back."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import BertConfig, BertModel

from hf_ptm_ext import cli
from hf_ptm_ext.conversion.adapter_library import base_state_dict
from hf_ptm_ext.hub import validate_model_card
from tests.tolerance import assert_agrees

GOLDENS = Path(__file__).parents[1] / "goldens"
METHODS = ("houlsby", "pfeiffer")


def golden(method: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    return json.loads((GOLDENS / f"{method}-a.json").read_text("utf-8")), load_file(
        GOLDENS / f"{method}-a.safetensors"
    )


def library_folder(folder: Path, method: str) -> dict[str, torch.Tensor]:
    """A folder as `model.save_adapter` of the library leaves it."""
    case, tensors = golden(method)
    weights = {key.removeprefix("state_dict."): value for key, value in tensors.items() if ".adapters." in key}
    weights = {key: value for key, value in weights.items() if not key.startswith("grad.")}
    folder.mkdir()
    torch.save(weights, folder / "pytorch_adapter.bin")
    torch.save({"heads.task.1.weight": torch.ones(2, 32)}, folder / "pytorch_model_head.bin")
    description = {
        "config": case["adapter_config"],
        "hidden_size": 32,
        "model_name": "someone/tiny-bert",
        "model_type": "bert",
        "name": "task",
        "version": "adapters.1.3.0",
    }
    (folder / "adapter_config.json").write_text(json.dumps(description), encoding="utf-8")
    return weights


@pytest.mark.parametrize("method", METHODS)
def test_the_librarys_folder_loads_as_a_peft_adapter(method: str, tmp_path: Path, capsys: Any) -> None:
    library_folder(tmp_path / "theirs", method)
    assert cli.main(["convert", method, str(tmp_path / "theirs"), str(tmp_path / "ours")]) == 0
    said = capsys.readouterr().out
    assert "pytorch_model_head.bin: a head of the library's own kind" in said
    assert {path.name for path in (tmp_path / "ours").iterdir()} == {
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    validate_model_card(tmp_path / "ours")
    card = (tmp_path / "ours" / "README.md").read_text("utf-8")
    assert 'AutoModel.from_pretrained("someone/tiny-bert")' in card
    case, tensors = golden(method)
    base = BertModel(BertConfig(**case["bert_config"]), add_pooling_layer=False)
    original = {key.removeprefix("state_dict."): value for key, value in tensors.items() if "state_dict." in key}
    base.load_state_dict(base_state_dict(original))
    model = PeftModel.from_pretrained(base, tmp_path / "ours").eval()
    inputs = {key.removeprefix("input."): value for key, value in tensors.items() if key.startswith("input.")}
    with torch.no_grad():
        output = model(**inputs).last_hidden_state
    assert_agrees(output, tensors["output.last_hidden_state"], **case["tolerance"])


@pytest.mark.parametrize("method", METHODS)
def test_and_back(method: str, tmp_path: Path) -> None:
    weights = library_folder(tmp_path / "theirs", method)
    assert cli.main(["convert", method, str(tmp_path / "theirs"), str(tmp_path / "ours")]) == 0
    command = ["convert", method, str(tmp_path / "ours"), str(tmp_path / "task"), "--to-original"]
    assert cli.main(command) == 0
    again = torch.load(tmp_path / "task" / "pytorch_adapter.bin", weights_only=True)
    assert again.keys() == weights.keys()
    assert all(torch.equal(again[key], value) for key, value in weights.items())
    description = json.loads((tmp_path / "task" / "adapter_config.json").read_text("utf-8"))
    assert (description["name"], description["hidden_size"]) == ("task", 32)
    original = golden(method)[0]["adapter_config"]
    assert {name: original[name] for name in description["config"]} == description["config"]
    assert cli.main([*command, "--overwrite"]) == 0


def test_mistakes_are_named(tmp_path: Path, capsys: Any) -> None:
    library_folder(tmp_path / "theirs", "houlsby")
    for arguments, message in (
        (["pfeiffer", str(tmp_path / "theirs"), str(tmp_path / "x")], "must be pfeiffer's, got houlsby's"),
        (["houlsby", str(tmp_path / "nowhere.bin"), str(tmp_path / "x")], "does not exist"),
        (["houlsby", str(tmp_path / "theirs"), str(tmp_path / "x"), "--config", "nowhere.json"], "`--config`"),
    ):
        assert cli.main(["convert", *arguments]) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "x").exists()
