"""Weights of five layouts, there and back; vocabularies out of pickles."""

import json
import pickle
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_ptm_ext import AwdLstmConfig, AwdLstmForCausalLM, convert_fastai, transfer_vocabulary
from hf_ptm_ext.cli import main
from hf_ptm_ext.conversion import awd_lstm
from tests.tolerance import assert_agrees

GOLDENS = Path(__file__).parents[1] / "goldens"
FILES = GOLDENS / "awd-lstm-a.files"
NAMES = ("lstm_fwd_v1.pth", "lstm_fwd_v2.pth", "fwd_wt103_v0.h5", "encoder.pth")
TENSORS = load_file(GOLDENS / "awd-lstm-a.safetensors")
ITOS = json.loads((FILES / "README.json").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_every_layout_is_the_same_model(name):
    model, tokenizer = convert_fastai(FILES / name, FILES / "lstm_fwd_itos.pkl", pad_token_id=1)
    assert tokenizer.words == ITOS["old_vocab"]
    ids = TENSORS["input.stream"][:, :7]
    if name == "encoder.pth":
        assert_agrees(model(ids).last_hidden_state, TENSORS["out.seg0.last_hidden"], 1e-5, 1e-4)
        return
    expected = TENSORS["out.seg0.logits"]
    if name.endswith(".h5"):
        assert model.lm_head.bias is None
        expected = expected - TENSORS["param.1.decoder.bias"]
    assert_agrees(model(ids).logits, expected, 1e-5, 1e-4)


@pytest.mark.parametrize("layout", list(awd_lstm.FILES))
def test_the_way_back_and_again(layout):
    original = {key.removeprefix("param."): value for key, value in TENSORS.items() if key.startswith("param.")}
    if layout == "fastai0.7":
        del original["1.decoder.bias"]
    found = awd_lstm.LAYOUT.convert_checkpoint(original, {})
    written, options = awd_lstm.LAYOUT.for_options({"layout": layout}).revert_checkpoint(found.tensors, found.config)
    if layout == "fastai2":
        assert written.keys() == original.keys()
        assert all(torch.equal(written[key], value) for key, value in original.items())
    if layout == "fastai1":
        assert written.keys() > original.keys()
    again = awd_lstm.LAYOUT.convert_checkpoint(written, options)
    assert again.architecture == ("AwdLstmModel" if layout == "encoder" else "AwdLstmForCausalLM")
    assert all(torch.equal(value, found.tensors[name]) for name, value in again.tensors.items())
    assert again.config.weight_p == 0.2
    assert again.config.pad_token_id == (None if layout == "salesforce" else 1)


@pytest.mark.parametrize("layout", ["fastai2", "fastai1"])
def test_classifiers_there_and_back(layout):
    tensors = load_file(GOLDENS / "awd-lstm-clas-a.safetensors")
    original = {key.removeprefix("param."): value for key, value in tensors.items() if key.startswith("param.")}
    found = awd_lstm.LAYOUT.convert_checkpoint(original, {})
    assert (found.architecture, found.config.num_labels) == ("AwdLstmForSequenceClassification", 3)
    ours = awd_lstm.LAYOUT.convert_state_dict(original, found.config)
    written = awd_lstm.LAYOUT.for_options({"layout": layout}).revert_state_dict(ours, found.config)
    assert ("1.layers.4.weight" in written) == (layout == "fastai1")
    if layout == "fastai2":
        assert written.keys() == original.keys()
    again = awd_lstm.LAYOUT.convert_state_dict(written, found.config)
    assert again.keys() == ours.keys()
    assert all(torch.equal(value, ours[name]) for name, value in again.items())


def test_a_classifier_without_dropout_has_no_module_of_it():
    tensors = load_file(GOLDENS / "awd-lstm-clas-a.safetensors")
    original = {key.removeprefix("param."): value for key, value in tensors.items() if key.startswith("param.")}
    closer = {re.sub(r"^(1\.layers\.\d)\.2\.", r"\1.1.", key): value for key, value in original.items()}
    assert closer.keys() != original.keys()
    expected, found = (awd_lstm.LAYOUT.convert_checkpoint(one, {}).tensors for one in (original, closer))
    assert found.keys() == expected.keys()


@pytest.mark.parametrize("layout", list(awd_lstm.FILES))
def test_a_model_of_ours_there_and_back(layout):
    untied = {} if layout in ("fastai0.7", "salesforce") else {"tie_word_embeddings": False, "output_size": 16}
    config = AwdLstmConfig(vocab_size=30, embedding_size=8, lstm_size=12, **untied)
    model = AwdLstmForCausalLM(config)
    written, options = awd_lstm.LAYOUT.for_options({"layout": layout}).revert_checkpoint(model.state_dict(), config)
    again = awd_lstm.LAYOUT.convert_checkpoint(written, options).config
    assert again.layer_sizes == config.layer_sizes
    assert again.decoder_bias == (layout != "fastai0.7")


def test_the_command_both_ways(tmp_path, capsys):
    assert (
        main(
            [
                "convert",
                "awd_lstm",
                str(FILES / "lstm_fwd_v1.pth"),
                str(tmp_path / "ours"),
                "--vocab",
                str(FILES / "lstm_fwd_itos.pkl"),
            ]
        )
        == 0
    )
    assert "as some call dropped it" in capsys.readouterr().out
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "ours").eval()
    assert isinstance(model, AwdLstmForCausalLM)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert tokenizer("word3 word4 unheard")["input_ids"] == [2, 12, 13, 0]
    assert_agrees(model(TENSORS["input.stream"][:, :7]).logits, TENSORS["out.seg0.logits"], 1e-5, 1e-4)
    back = tmp_path / "back"
    assert (
        main(["convert", "awd_lstm", str(tmp_path / "ours"), str(back), "--to_original", "--layout", "fastai1"]) == 0
    )
    again, words = convert_fastai(back / "lstm_fwd.pth", back / "lstm_fwd_itos.pkl")
    assert words.words == tokenizer.words
    assert torch.equal(again.lm_head.weight, model.lm_head.weight)


def test_what_runs_code_or_is_no_list_of_words_is_refused(tmp_path):
    path = tmp_path / "itos.pkl"
    path.write_bytes(pickle.dumps(Path("x")))
    with pytest.raises(ValueError, match=r"itos\.pkl is no pickled list of words: it names pathlib"):
        awd_lstm.read_itos(path)
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ValueError, match="must hold a list of words, got a dict"):
        awd_lstm.read_itos(path)
    quasi = {"0.encoder.weight": torch.zeros(4, 2), "0.rnns.0.layers.0.linear.weight_raw": torch.zeros(2, 2)}
    with pytest.raises(ValueError, match="quasi-recurrent"):
        awd_lstm.LAYOUT.convert_checkpoint(quasi, {})
    other = {key.removeprefix("param."): value.clone() for key, value in TENSORS.items() if key.startswith("param.")}
    other["0.encoder_dp.emb.weight"][0] += 1
    with pytest.raises(ValueError, match=r"differs from `encoder\.weight`"):
        awd_lstm.LAYOUT.convert_checkpoint(other, {})


def test_a_new_vocabulary():
    model, _ = convert_fastai(FILES / "lstm_fwd_v2.pth")
    expected = load_file(FILES / "transferred.safetensors")
    unknown = transfer_vocabulary(model, ITOS["old_vocab"], ITOS["new_vocab"])
    assert unknown == ["brandnew", "another", "xxfake", "xxfake"]
    rows = next(value for value in expected.values() if value.dim() == 2)
    bias = next(value for value in expected.values() if value.dim() == 1)
    assert_agrees(model.lm_head.weight, rows, 1e-6)
    assert_agrees(model.lm_head.bias, bias, 1e-6)
    assert model.lm_head.weight is model.get_input_embeddings().weight
    assert model.config.vocab_size == 10
