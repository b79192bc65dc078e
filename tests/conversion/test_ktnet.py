"""KT-NET's layers by command: the golden on an encoder, there and back, and what a file may lack."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForQuestionAnswering, BertConfig, BertModel

from hf_ptm_ext import cli

GOLDENS = Path(__file__).parents[1] / "goldens"


@pytest.fixture(scope="module")
def original():
    """The golden's weights under their own names, tables included."""
    tensors = load_file(GOLDENS / "ktnet-a.safetensors")
    state = {name.removeprefix("param."): one for name, one in tensors.items() if name.startswith("param.")}
    return state | {f"{base}_concept_emb_mat": tensors[f"input.{base}_table"] for base in ("wn", "nell")}


@pytest.fixture(scope="module")
def encoder(original, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    width = original["wn_memory_layer_projection.w_0"].shape[0]
    sizes = {"hidden_size": width, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=20, max_position_embeddings=16, **sizes)).save_pretrained(folder)
    return folder


def convert(*words):
    return cli.main(["convert", "ktnet", *map(str, words)])


def test_the_layers_go_onto_an_encoder_and_back(original, encoder, tmp_path, capsys):
    save_file({**original, "word_embedding": torch.ones(2)}, tmp_path / "model.safetensors")
    assert convert(tmp_path / "model.safetensors", tmp_path / "ours", "--encoder", encoder) == 0
    said = capsys.readouterr().out
    assert "initialised  nothing" in said
    assert "word_embedding: not of the layers on the encoder" in said
    model, info = AutoModelForQuestionAnswering.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not info["missing_keys"]
    assert list(model.config.knowledge_bases) == ["wn", "nell"]
    assert torch.equal(model.qa_outputs.weight, original["cls_squad_out_w"].T)
    inside = BertModel.from_pretrained(encoder, add_pooling_layer=False).state_dict()
    assert all(torch.equal(one, inside[name]) for name, one in model.ktnet.encoder.model.state_dict().items())
    assert convert(tmp_path / "ours", tmp_path / "back", "--to_original") == 0
    back = torch.load(tmp_path / "back" / "model.pt", weights_only=True)
    assert back.keys() == original.keys()
    assert all(torch.equal(one, original[name]) for name, one in back.items())
    # Its options are enough for the way here again, without the encoder's weights.
    assert convert(tmp_path / "back", tmp_path / "again") == 0
    assert "ktnet.encoder.* (encoder, which `--encoder` names)" in capsys.readouterr().out


def test_one_base_and_a_file_without_its_table(original, encoder, tmp_path, capsys):
    names = {name: name.removeprefix("wn_") for name in original if not name.startswith("nell_")}
    rest = {names[name]: original[name] for name in names if "concept_emb_mat" not in name}
    width = original["wn_memory_layer_projection.w_0"].shape[0] + original["wn_memory_layer_sentinel"].shape[0]
    rest |= {f"self_matching_layer_{part}": torch.ones(width) for part in ("weight1", "weight2", "weightmul")}
    rest["cls_squad_out_w"] = torch.ones(6 * width, 2)
    save_file(rest, tmp_path / "model.safetensors")
    assert convert(tmp_path / "model.safetensors", tmp_path / "ours", "--encoder", encoder) == 2
    assert 'must say `knowledge_bases`, {"wn": [rows, width]}' in capsys.readouterr().err
    bases = {"wn": [7, len(original["wn_memory_layer_sentinel"])]}
    (tmp_path / "config.json").write_text(json.dumps({"knowledge_bases": bases}), encoding="utf-8")
    assert convert(tmp_path / "model.safetensors", tmp_path / "ours", "--encoder", encoder) == 0
    assert "table of concepts, which `set_concept_table` sets" in capsys.readouterr().out
    rest.pop("memory_layer_sentinel")
    save_file(rest, tmp_path / "model.safetensors")
    assert convert(tmp_path / "model.safetensors", tmp_path / "other", "--encoder", encoder) == 2
    assert "`memory_layer_sentinel`" in capsys.readouterr().err
