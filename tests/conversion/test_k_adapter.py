"""K-Adapter's files by command: with the encoder that they stood on, and without."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import RobertaConfig, RobertaModel

from hf_ptm_ext import (
    KAdapterConfig,
    KAdapterForDependencyHeads,
    KAdapterForSequenceClassification,
    KAdapterModel,
    cli,
)
from hf_ptm_ext.conversion.k_adapter import convert_state_dict
from tests.conversion.sources import source_of

SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file whose sizes are mostly left to be read from it."""
    source = source_of("k_adapter")
    kept = ("base_layers", "adapter_list", "adapter_heads")
    return source.write(tmp_path / "source", options={name: source.options[name] for name in kept})


def test_the_encoder_is_put_in(source: Path, tmp_path: Path, capsys: Any) -> None:
    encoder = RobertaModel(RobertaConfig(**SIZES), add_pooling_layer=False)
    encoder.save_pretrained(tmp_path / "roberta")
    command = ["convert", "k_adapter", str(source), str(tmp_path / "ours"), "--encoder", str(tmp_path / "roberta")]
    assert cli.main(command) == 0
    assert "initialised  nothing" in capsys.readouterr().out
    model, info = KAdapterForDependencyHeads.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert (model.config.adapter_layers, model.config.adapter_num_hidden_layers) == ([0, 2, 4], 2)
    state = model.state_dict()
    for name, value in convert_state_dict(source_of("k_adapter").tensors, model.config).items():
        assert torch.equal(state[name], value)
    for name, value in encoder.state_dict().items():
        assert torch.equal(state[f"k_adapter.encoder.model.{name}"], value)


def test_an_encoder_that_is_not_named_is_told(source: Path, tmp_path: Path, capsys: Any) -> None:
    assert cli.main(["convert", "k_adapter", str(source), str(tmp_path / "ours")]) == 0
    assert "initialised  k_adapter.encoder.* (encoder, which `--encoder` names)" in capsys.readouterr().out


def test_several_adapters_have_no_file_of_the_original(source: Path, tmp_path: Path, capsys: Any) -> None:
    assert cli.main(["convert", "k_adapter", str(source), str(tmp_path / "ours")]) == 0
    path = tmp_path / "ours" / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, "adapters": ["lin", "fac"]}), encoding="utf-8")
    assert cli.main(["convert", "k_adapter", str(tmp_path / "ours"), str(tmp_path / "back"), "--to-original"]) == 2
    assert "`adapters` must be one" in capsys.readouterr().err


def test_a_head_that_the_original_has_not_is_named(tmp_path: Path, capsys: Any) -> None:
    config = KAdapterConfig(encoder_config={"model_type": "bert", **SIZES}, adapter_layers=[0, 2, 4])
    for cls in (KAdapterModel, KAdapterForSequenceClassification):
        cls(config).save_pretrained(tmp_path / "ours")
        assert cli.main(["convert", "k_adapter", str(tmp_path / "ours"), str(tmp_path / "back"), "--to-original"]) == 2
        assert f"KAdapterForDependencyHeads, whose head an original file has, got {cls.__name__}" in (
            capsys.readouterr().err
        )


def test_the_option_is_refused_for_others(source: Path, tmp_path: Path, capsys: Any) -> None:
    assert cli.main(["convert", "nezha", str(source), str(tmp_path / "ours"), "--encoder", "roberta"]) == 2
    assert "`--encoder` is one of the options of k_adapter" in capsys.readouterr().err
