"""MASS-NMT checkpoints in the shapes in which people have them."""

import json
import sys
import types

import pytest
import torch
from transformers import AutoTokenizer

from hf_ptm_ext.cli import main
from hf_ptm_ext.conversion.mass_nmt import (
    convert_checkpoint,
    convert_config,
    convert_state_dict,
    revert_checkpoint,
    revert_state_dict,
)
from hf_ptm_ext.conversion.xlm_vocabulary import SPECIAL, read_codes, read_dictionary
from hf_ptm_ext.models.modeling_mass_nmt import MassNmtForConditionalGeneration

PIECES = ["l@@", "ow", "lo@@", "w", "n@@", "e@@", "low"]
CODES = ["l o 9", "o w</w> 4", "lo w</w> 3"]
WORDS = {word: number for number, word in enumerate([*SPECIAL, *PIECES])}
PARAMS = {
    "n_words": len(WORDS),
    "emb_dim": 16,
    "n_heads": 2,
    "n_layers": 1,
    "n_dec_layers": 2,
    "n_langs": 2,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "gelu_activation": True,
    "attention_setting": "v1",
    "lang2id": {"en": 0, "fr": 1},
    "id2lang": {0: "en", 1: "fr"},
    "mono_dataset": {"en": {"train": "train.en.pth"}},
    "asm": False,
}


def original(**changes):
    """A file of the original as a dict, with every option of `PARAMS`."""
    params = {**PARAMS, **changes}
    config = convert_config({**params, "max_positions": 12})
    torch.manual_seed(0)
    model = MassNmtForConditionalGeneration(config)
    model.encoder_lm_bias.normal_()
    with torch.no_grad():
        model.lm_head.bias.normal_()
    flat = revert_checkpoint(model.state_dict(), config)[0]
    halves = {
        part: {name.removeprefix(f"{part}."): value for name, value in flat.items() if name.startswith(part)}
        for part in ("encoder", "decoder")
    }
    words = {
        "dico_id2word": {number: word for word, number in WORDS.items()},
        "dico_word2id": WORDS,
        "dico_counts": dict.fromkeys(WORDS, 1),
    }
    return {**halves, "params": params, **words}


def model_of(conversion):
    model = MassNmtForConditionalGeneration(conversion.config)
    report = model.load_state_dict(conversion.tensors, strict=False)
    assert report.missing_keys in ([], ["lm_head.weight"])
    assert not report.unexpected_keys
    return model.eval()


@pytest.mark.parametrize("prefix", ["", "module."])
@pytest.mark.parametrize("flat", [False, True])
def test_prefixes_and_both_layouts(prefix, flat):
    file = original()
    halves = {part: {f"{prefix}{name}": v for name, v in file[part].items()} for part in ("encoder", "decoder")}
    if flat:
        halves = {f"{part}.{name}": value for part, half in halves.items() for name, value in half.items()}
    expected, got = convert_checkpoint(file, PARAMS), convert_checkpoint(halves, PARAMS)
    assert got.tensors.keys() == expected.tensors.keys()
    assert all(torch.equal(got.tensors[name], value) for name, value in expected.tensors.items())
    assert any("module." in change for change in got.renamed) == bool(prefix)
    assert "lm_head.weight" not in got.tensors  # tied
    assert {"encoder.pred_layer.proj.weight", "decoder.pred_layer.proj.weight"} == set(got.dropped)


@pytest.mark.parametrize("setting", ["v1", "v2"])
@pytest.mark.parametrize("n_langs", [1, 2, 4])
@pytest.mark.parametrize("tied", [True, False])
def test_languages_settings_and_tying_round_trip(setting, n_langs, tied):
    changes = {"attention_setting": setting, "n_langs": n_langs, "lang2id": None, "id2lang": None}
    file = original(**changes, share_inout_emb=tied)
    conversion = convert_checkpoint(file, file["params"])
    model = model_of(conversion)
    assert (model.model.encoder.embed_languages is None) == (n_langs == 1)
    attention = model.model.decoder.layers[0].encoder_attn
    assert len(attention.out_proj) == n_langs
    assert isinstance(attention.k_proj, torch.nn.Linear) == (setting == "v1")
    back, options = revert_checkpoint(model.state_dict(), conversion.config)
    assert options["attention_setting"] == setting
    for part in ("encoder", "decoder"):
        for name, value in file[part].items():
            if tied or (part, name) != ("encoder", "pred_layer.proj.weight"):
                assert torch.equal(back[f"{part}.{name}"], value), name


def test_one_language_may_have_no_list():
    """A plain `out_lin` is that of the only language."""
    file = original(n_langs=1, lang2id=None, id2lang=None)
    plain = {name.replace("out_lin.0.", "out_lin."): value for name, value in file["decoder"].items()}
    assert plain.keys() != file["decoder"].keys()
    config = convert_config({**file["params"], "max_positions": 12})
    expected = convert_state_dict(file, config)
    got = convert_state_dict({"encoder": file["encoder"], "decoder": plain}, config)
    assert all(torch.equal(got[name], value) for name, value in expected.items())


def test_options_of_older_files_have_the_originals_defaults():
    """No `attention_setting`, no `n_dec_layers`: v1, and 6 decoder layers whatever `n_layers` says."""
    config = convert_config({name: PARAMS[name] for name in ("n_words", "emb_dim", "n_heads", "n_layers", "n_langs")})
    assert (config.encoder_layers, config.decoder_layers, config.attention_setting) == (1, 6, "v1")
    assert (config.max_position_embeddings, config.encoder_ffn_dim, config.layer_norm_eps) == (512, 64, 1e-12)
    assert (config.pad_token_id, config.mask_token_id, config.decoder_start_token_id) == (2, 5, 1)
    assert convert_config({**PARAMS, "gelu_activation": False}).activation_function == "relu"
    # A whole file knows better: its own layers and positions count.
    file = original()
    seen = convert_checkpoint(
        file, {n: v for n, v in PARAMS.items() if n not in ("n_dec_layers", "attention_setting")}
    )
    assert (seen.config.decoder_layers, seen.config.max_position_embeddings) == (2, 12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_layers": 3}, "n_layers.*is 3 and the file has 1"),
        ({"n_dec_layers": 6}, "n_dec_layers.*is 6 and the file has 2"),
        ({"n_words": 60}, "n_words"),
        ({"n_langs": 3, "lang2id": None, "id2lang": None}, "out_proj.2"),
        ({"n_langs": 1, "lang2id": None, "id2lang": None}, "n_langs"),
        ({"attention_setting": "v2"}, "q_proj|lacks"),
        ({"ffn_dim": 20}, "fc1"),
        ({"emb_dim": None}, "emb_dim"),
        ({"asm": True}, "asm"),
    ],
)
def test_options_that_do_not_fit_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        convert_checkpoint(original(), {**PARAMS, **change})


def test_other_files_are_refused():
    with pytest.raises(ValueError, match="`decoder`"):
        convert_checkpoint({"encoder": original()["encoder"]}, PARAMS)
    file = original()
    file["decoder"]["memories.values.weight"] = torch.zeros(2)
    with pytest.raises(ValueError, match="memories"):
        convert_checkpoint(file, PARAMS)


def test_the_command_there_and_back(tmp_path, capsys, monkeypatch):
    file = original()
    torch.save(file, tmp_path / "mass.pth")
    (tmp_path / "codes").write_text("\n".join(CODES) + "\n", encoding="utf-8")
    target = tmp_path / "ours"
    assert main(["convert", "mass_nmt", str(tmp_path / "mass.pth"), str(target)]) == 0
    report = capsys.readouterr().out
    assert "XLMTokenizer" in report
    assert "encoder and decoder" in report
    card = (target / "README.md").read_text(encoding="utf-8")
    assert "pipeline_tag: translation" in card
    assert "- en\n- fr" in card

    model = MassNmtForConditionalGeneration.from_pretrained(target).eval()
    assert model.config.lang2id == {"en": 0, "fr": 1}
    assert model.lm_head.weight is model.model.decoder.embed_tokens.weight
    assert torch.equal(model.encoder_lm_bias, file["encoder"]["pred_layer.proj.bias"])

    # Upstream's tokenizer asks for sacremoses when it is made; its BPE, word by word, does without.
    monkeypatch.setitem(sys.modules, "sacremoses", types.ModuleType("sacremoses"))
    tokenizer = AutoTokenizer.from_pretrained(target)
    pieces = [piece for word in ("low", "slow", "n") for piece in tokenizer.bpe(word).split(" ")]
    assert tokenizer.convert_tokens_to_ids(pieces) == [WORDS[word] for word in ("low", "<unk>", "low", "<unk>")]
    ids = tokenizer.build_inputs_with_special_tokens(tokenizer.convert_tokens_to_ids(pieces))
    assert (ids[0], ids[-1]) == (1, 1)
    assert (tokenizer.pad_token_id, tokenizer.mask_token_id, tokenizer.eos_token_id) == (2, 5, 1)
    assert tokenizer.decode([WORDS["lo@@"], WORDS["w"], WORDS["low"]]) == "low low"

    back = tmp_path / "back"
    assert main(["convert", "mass_nmt", str(target), str(back), "--to-original"]) == 0
    again = torch.load(back / "model.pth", weights_only=True)
    for part in ("encoder", "decoder"):
        assert again[part].keys() == file[part].keys()
        assert all(torch.equal(again[part][name], value) for name, value in file[part].items())
    for name in ("n_words", "emb_dim", "n_heads", "n_layers", "n_dec_layers", "n_langs", "lang2id", "gelu_activation"):
        assert again["params"][name] == PARAMS[name]
    assert again["dico_word2id"] == WORDS
    assert again["dico_id2word"] == file["dico_id2word"]
    assert read_codes(back / "codes") == [code.rsplit(" ", 1)[0] for code in CODES]


def test_a_file_without_codes_has_no_tokenizer(tmp_path, capsys):
    torch.save(original(), tmp_path / "mass.pth")
    assert main(["convert", "mass_nmt", str(tmp_path / "mass.pth"), str(tmp_path / "ours")]) == 0
    assert "`--codes`" in capsys.readouterr().out
    assert not (tmp_path / "ours" / "tokenizer_config.json").exists()


def test_a_dictionary_of_another_model_is_refused(tmp_path, capsys):
    torch.save(original(), tmp_path / "mass.pth")
    (tmp_path / "codes").write_text("l o 9\n", encoding="utf-8")
    (tmp_path / "vocab").write_text("low 5\nlo@@ 3\n", encoding="utf-8")
    assert read_dictionary(tmp_path / "vocab") == {
        **{word: n for n, word in enumerate(SPECIAL)},
        "low": 14,
        "lo@@": 15,
    }
    command = ["convert", "mass_nmt", str(tmp_path / "mass.pth"), str(tmp_path / "ours")]
    assert main([*command, "--vocab", str(tmp_path / "vocab")]) != 0
    message = capsys.readouterr().err
    assert "16 words" in message
    assert "`vocab_size` = 21" in message
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(
    ("reader", "text", "message"),
    [
        (read_dictionary, "low\n", "line 1 must be"),
        (read_dictionary, "low 1\nlow 2\n", "line 2: 'low' is there twice"),
        (read_codes, "l o w w\n", "line 1 must be"),
    ],
)
def test_damaged_vocabulary_files_are_named(reader, text, message, tmp_path):
    (tmp_path / "file").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        reader(tmp_path / "file")


def test_tied_copies_are_no_part_of_the_reverted_state_dict():
    config = convert_config({**PARAMS, "max_positions": 12})
    names = revert_state_dict(MassNmtForConditionalGeneration(config).state_dict(), config)
    assert "decoder.pred_layer.proj.weight" not in names
    assert "decoder.pred_layer.proj.bias" in names


def test_json_configs_keep_their_languages(tmp_path):
    config = convert_config(json.loads(json.dumps(PARAMS)))
    config.save_pretrained(tmp_path)
    again = type(config).from_pretrained(tmp_path)
    assert (again.lang2id, again.id2lang) == ({"en": 0, "fr": 1}, {0: "en", 1: "fr"})
