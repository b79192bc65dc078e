"""IB-BERT under the original TensorFlow names, both ways, and what does not fit."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM

from hf_ptm_ext import IBBertConfig, IBBertForPreTraining, cli
from hf_ptm_ext.conversion.ib_bert import (
    convert_checkpoint,
    convert_config,
    convert_state_dict,
    revert_config,
    revert_state_dict,
)

# The sizes that the original's JSON has, small.
OPTIONS = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 24,
    "initializer_range": 0.02,
    "intermediate_size": 40,
    "max_position_embeddings": 16,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "type_vocab_size": 2,
    "vocab_size": 30,
    "embedding_size": 8,
    "trigram_input": True,
    "use_bottleneck": True,
    "intra_bottleneck_size": 32,
}
# Names and shapes as the original's code makes them.
VARIABLES = {
    "bert/embeddings/word_embeddings": (30, 8),
    "bert/embeddings/embedding_transformation/kernel": (24, 24),
    "bert/embeddings/position_embeddings": (16, 24),
    "bert/embeddings/LayerNorm/gamma": (24,),
    "bert/encoder/layer_1/bottleneck/input/dense/kernel": (24, 32),
    "bert/encoder/layer_1/bottleneck/input/LayerNorm/beta": (32,),
    "bert/encoder/layer_1/attention/self/query/kernel": (24, 32),
    "bert/encoder/layer_1/attention/output/dense/kernel": (32, 32),
    "bert/encoder/layer_1/intermediate/dense/kernel": (32, 40),
    "bert/encoder/layer_1/output/dense/kernel": (40, 32),
    "bert/encoder/layer_1/output/bottleneck/dense/kernel": (32, 24),
    "bert/encoder/layer_1/output/bottleneck/LayerNorm/gamma": (24,),
    "bert/pooler/dense/kernel": (24, 24),
    "cls/predictions/extra_output_weights": (30, 16),
    "cls/predictions/output_bias": (30,),
    "cls/predictions/transform/LayerNorm/gamma": (24,),
    "cls/seq_relationship/output_weights": (2, 24),
}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    made = IBBertForPreTraining(convert_config(OPTIONS))
    for parameter in made.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return made.eval()


@pytest.fixture
def original(model):
    return revert_state_dict(model.state_dict(), model.config)


def test_the_originals_names_and_shapes(original):
    found = {name: tuple(original[name].shape) for name in VARIABLES}
    assert found == VARIABLES
    assert not any("decoder" in name or "." in name for name in original)


def test_both_ways(model, original):
    ours = convert_state_dict(original, model.config)
    expected = model.state_dict()
    assert ours.keys() == expected.keys()
    assert all(torch.equal(ours[name], expected[name]) for name in expected)
    assert convert_state_dict(expected, model.config).keys() == expected.keys()  # our names are read as they are


def test_the_config_and_back():
    config = convert_config(OPTIONS)
    assert isinstance(config, IBBertConfig)
    assert not hasattr(config, "use_bottleneck")
    reverted = revert_config(config)
    assert {name: reverted[name] for name in OPTIONS} == OPTIONS
    with pytest.raises(ValueError, match="`num_feedforward_networks` must be 1"):
        convert_config({**OPTIONS, "num_feedforward_networks": 4})
    with pytest.raises(ValueError, match="`intra_bottleneck_size` is missing"):
        convert_config({name: value for name, value in OPTIONS.items() if name != "intra_bottleneck_size"})


def test_the_command(model, original, tmp_path, capsys):
    source = tmp_path / "original"
    source.mkdir()
    np.savez(source / "model.npz", **{name: value.numpy() for name, value in original.items()})
    (source / "config.json").write_text(json.dumps(OPTIONS), encoding="utf-8")
    assert cli.main(["convert", "ib_bert", str(source), str(tmp_path / "ours")]) == 0
    assert "to IBBertForPreTraining" in capsys.readouterr().out
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path / "ours").eval()
    ids = torch.tensor([[2, 7, 8, 3]])
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, model(ids).prediction_logits)
    assert cli.main(["convert", "ib_bert", str(tmp_path / "ours"), str(tmp_path / "back"), "--to-original"]) == 0
    back = torch.load(tmp_path / "back" / "model.pt", weights_only=True)
    assert back.keys() == original.keys()
    assert all(torch.equal(back[name], original[name]) for name in original)


def test_optimiser_variables_are_dropped_and_others_refused(original):
    state = {**original, "bert/pooler/dense/kernel/adam_m": torch.zeros(24, 24), "global_step": torch.tensor(1)}
    report = convert_checkpoint(state, OPTIONS)
    assert {"bert/pooler/dense/kernel/adam_m", "global_step"} <= report.dropped.keys()
    state = {**original, "bert/encoder/layer_0/ffn_layer_0/output/dense/bias": torch.zeros(32)}
    with pytest.raises(ValueError, match="fit nowhere in IB-BERT's pre-training model: `bert/encoder/layer_0/ffn_l"):
        convert_checkpoint(state, OPTIONS)
    with pytest.raises(ValueError, match="`intra_bottleneck_size` is 40 in the config, 32 in the file"):
        convert_checkpoint(original, {**OPTIONS, "intra_bottleneck_size": 40})


def test_an_untied_decoder_is_not_lost_silently(model):
    state = {**model.state_dict(), "cls.predictions.decoder.weight": torch.ones(30, 8)}
    with pytest.raises(ValueError, match="it would be lost"):
        revert_state_dict(state, model.config)
