"""NEZHA checkpoints in the shapes in which people have them: the original project's and transformers 4's."""

import json

import pytest
import torch

from hf_ptm_ext import cli
from hf_ptm_ext.conversion.nezha import (
    convert_checkpoint,
    convert_config,
    convert_state_dict,
    revert_checkpoint,
    revert_config,
)
from hf_ptm_ext.models.configuration_nezha import NezhaConfig
from hf_ptm_ext.models.modeling_nezha import NezhaForMaskedLM, NezhaForPreTraining, NezhaModel

OPTIONS = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 24,
    "max_relative_position": 3,
    "type_vocab_size": 2,
    "use_relative_position": True,
}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return NezhaForPreTraining(convert_config(OPTIONS)).eval()


@pytest.fixture(scope="module")
def original(model):
    return revert_checkpoint(model.state_dict(), model.config)[0]


def same(first, second):
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def as_transformers_4(original):
    """Its prefix, and the fixed encodings that it stored with every layer."""
    older = {
        f"nezha.{name.removeprefix('bert.')}" if name.startswith("bert.") else name: original[name]
        for name in original
    }
    for layer in range(2):
        name = f"nezha.encoder.layer.{layer}.attention.self.relative_positions_encoding.positions_encoding"
        older[name] = torch.zeros(24, 24, 8)
    older["nezha.embeddings.token_type_ids"] = torch.zeros(1, 24, dtype=torch.long)
    return older


def as_tensorflow(original):
    names = {
        name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        for name in original
    }
    return {f"module.{names[name]}": value for name, value in original.items()}


@pytest.mark.parametrize("form", [dict, as_transformers_4, as_tensorflow])
def test_every_form_converts(model, original, form):
    same(convert_state_dict(form(original), model.config), model.state_dict())


@pytest.mark.parametrize("form", [dict, as_transformers_4, as_tensorflow])
@torch.no_grad()
def test_every_form_loads_without_conversion(model, original, form, tmp_path):
    """With transformers 4's config.json, which has fields that nothing here reads."""
    torch.save(form(original), tmp_path / "pytorch_model.bin")
    fields = {"architectures": ["NezhaForPreTraining"], "model_type": "nezha", "bos_token_id": 2, "eos_token_id": 3}
    text = json.dumps({**OPTIONS, **fields, "use_cache": True, "classifier_dropout": 0.1})
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    ids = torch.tensor([[2, 7, 9, 3]])
    loaded, info = NezhaForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert torch.equal(loaded(ids).prediction_logits, model(ids).prediction_logits)
    assert torch.equal(NezhaModel.from_pretrained(tmp_path)(ids).pooler_output, model.bert(ids).pooler_output)


def test_the_config_of_the_original_project_loads(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(OPTIONS), encoding="utf-8")
    assert NezhaConfig.from_pretrained(tmp_path).max_relative_position == 3
    (tmp_path / "config.json").write_text(json.dumps({**OPTIONS, "model_type": "bert"}), encoding="utf-8")
    assert NezhaConfig.from_pretrained(tmp_path).model_type == "nezha"


def test_a_bert_is_refused(tmp_path):
    """Its table of positions would be dropped."""
    fields = {name: OPTIONS[name] for name in OPTIONS if "relative" not in name}
    (tmp_path / "config.json").write_text(json.dumps({**fields, "model_type": "bert"}), encoding="utf-8")
    with pytest.raises(ValueError, match="absolute positions"):
        NezhaConfig.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="`use_relative_position` must be True"):
        convert_config({**OPTIONS, "use_relative_position": False})


def test_options_go_both_ways():
    options = revert_config(convert_config(OPTIONS))
    assert {name: options[name] for name in OPTIONS} == OPTIONS
    with pytest.raises(ValueError, match="`hidden_size` is missing"):
        convert_config({name: OPTIONS[name] for name in OPTIONS if name != "hidden_size"})


def test_heads_that_a_file_lacks_are_said(original):
    encoder = {name.removeprefix("bert."): value for name, value in original.items() if name.startswith("bert.")}
    conversion = convert_checkpoint(encoder, OPTIONS)
    assert conversion.architecture == "NezhaModel"
    assert set(conversion.initialised) == {"cls.predictions.*", "cls.seq_relationship.*"}
    tokens = {name: value for name, value in original.items() if "seq_relationship" not in name}
    assert convert_checkpoint(tokens, OPTIONS).architecture == "NezhaForMaskedLM"


def without_a_weight(original):
    del original["bert.encoder.layer.1.attention.self.key.weight"]


def with_a_stranger(original):
    original["bert.embeddings.position_embeddings.weight"] = torch.zeros(24, 16)


def twice(original):
    original["nezha.pooler.dense.bias"] = original["bert.pooler.dense.bias"]


def untied(original):
    original["cls.predictions.decoder.weight"] = original["cls.predictions.decoder.weight"] + 1


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (without_a_weight, {}, "lacks weights: `bert.encoder.layer.1.attention.self.key.weight`"),
        (with_a_stranger, {}, "`bert.embeddings.position_embeddings.weight`"),
        (twice, {}, "both stand for `bert.pooler.dense.bias`"),
        (untied, {}, "trained untied"),
        (dict, {"num_hidden_layers": 3}, "`num_hidden_layers` must be the number of layers in the file, 2, got 3"),
        (dict, {"vocab_size": 61}, "`vocab_size` is 61 in the config, 60 in the file"),
        (dict, {"intermediate_size": 31}, "`intermediate_size`"),
        (dict, {"hidden_size": 18}, "`hidden_size` is 18 in the config, 16 in the file"),
    ],
)
def test_files_that_do_not_fit_are_refused_by_name(original, change, options, message):
    file = dict(original)
    change(file)
    with pytest.raises(ValueError, match=message):
        convert_state_dict(file, convert_config({**OPTIONS, **options}))


def test_the_command_converts_and_goes_back(model, original, tmp_path, capsys):
    source = tmp_path / "original"
    source.mkdir()
    torch.save(as_transformers_4(original), source / "pytorch_model.bin")
    (source / "bert_config.json").write_text(json.dumps(OPTIONS), encoding="utf-8")
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij"]
    (source / "vocab.txt").write_text("\n".join(vocab) + "\n", encoding="utf-8")
    assert cli.main(["convert", "nezha", str(source), str(tmp_path / "ours"), "--language", "zh"]) == 0
    assert "prefix `nezha.` to `bert.`" in capsys.readouterr().out
    loaded, info = NezhaForMaskedLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not info["missing_keys"]
    assert torch.equal(loaded.bert.embeddings.word_embeddings.weight, model.bert.embeddings.word_embeddings.weight)
    assert cli.main(["convert", "nezha", str(tmp_path / "ours"), str(tmp_path / "back"), "--to-original"]) == 0
    same(torch.load(tmp_path / "back" / "model.pt", weights_only=True), original)
