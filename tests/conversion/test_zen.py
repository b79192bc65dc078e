"""ZEN checkpoints of the original project, weights and lexicon, both ways."""

import json

import pytest
import torch
from transformers import AutoTokenizer, pipeline

from hf_ptm_ext import cli
from hf_ptm_ext.conversion.zen import (
    convert_checkpoint,
    convert_config,
    convert_state_dict,
    revert_checkpoint,
    revert_config,
)
from hf_ptm_ext.hub import verify
from hf_ptm_ext.models.configuration_zen import ZenConfig
from hf_ptm_ext.models.modeling_zen import ZenForMaskedLM, ZenForPreTraining, ZenModel

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"提高速公路的人口数量增长"]
LEXICON = "提高,3\n高速公路,2\n公路,1\n"
OPTIONS = {
    "vocab_size": len(VOCAB),
    "word_size": 4,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_hidden_word_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 24,
    "type_vocab_size": 2,
}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return ZenForPreTraining(convert_config({**OPTIONS, "initializer_range": 0.5})).eval()


@pytest.fixture(scope="module")
def original(model):
    return revert_checkpoint(model.state_dict(), model.config)[0]


@pytest.fixture
def source(tmp_path, original):
    """A folder as the original project leaves it."""
    folder = tmp_path / "original"
    folder.mkdir()
    torch.save(original, folder / "pytorch_model.bin")
    (folder / "config.json").write_text(json.dumps(OPTIONS), encoding="utf-8")
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    (folder / "ngram.txt").write_text(LEXICON, encoding="utf-8")
    return folder


def older(original):
    def name_of(name):
        return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    return {f"module.{name_of(name)}": value for name, value in original.items()}


def same(first, second):
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("form", [dict, older])
def test_every_form_converts(model, original, form):
    same(convert_state_dict(form(original), model.config), model.state_dict())


@torch.no_grad()
def test_the_original_folder_loads_without_conversion(model, source):
    ids = torch.tensor([[2, 6, 7, 3]])
    ngrams = {"ngram_ids": [[2]], "ngram_positions": [[1]], "ngram_lengths": [[2]]}
    ngrams = {name: torch.tensor(value) for name, value in ngrams.items()}
    loaded, info = ZenForPreTraining.from_pretrained(source, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    expected = model(ids, **ngrams)
    assert torch.equal(loaded(ids, **ngrams).prediction_logits, expected.prediction_logits)
    assert not torch.equal(loaded(ids).prediction_logits, expected.prediction_logits)
    assert ZenConfig.from_pretrained(source).word_vocab_size == 4


def test_options_go_both_ways():
    options = revert_config(convert_config(OPTIONS))
    assert {name: options[name] for name in OPTIONS} == OPTIONS
    assert "word_vocab_size" not in options
    with pytest.raises(ValueError, match="`hidden_size` is missing"):
        convert_config({name: OPTIONS[name] for name in OPTIONS if name != "hidden_size"})
    with pytest.raises(ValueError, match=r"`num_hidden_word_layers` must be in \[0, `num_hidden_layers` = 2\], got 3"):
        convert_config({**OPTIONS, "num_hidden_word_layers": 3})


def test_an_encoder_without_prefix_converts(original):
    encoder = {name.removeprefix("bert."): value for name, value in original.items() if name.startswith("bert.")}
    conversion = convert_checkpoint(encoder, OPTIONS)
    assert conversion.architecture == "ZenModel"
    assert set(conversion.initialised) == {"cls.predictions.*", "cls.seq_relationship.*"}
    assert "bert.word_embeddings.word_embeddings.weight" in conversion.tensors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"word_size": 5}, "`word_vocab_size` is 5 in the config, 4 in the file"),
        ({"num_hidden_word_layers": 2}, "`num_hidden_word_layers` must be the number of layers in the file, 1, got 2"),
        ({"num_hidden_word_layers": 0}, "`num_hidden_word_layers` must be the number of layers in the file, 1, got 0"),
        ({"num_hidden_layers": 3}, "`num_hidden_layers`"),
        ({"max_position_embeddings": 9}, "`max_position_embeddings` is 9 in the config, 24 in the file"),
    ],
)
def test_files_that_do_not_fit_are_refused_by_name(original, options, message):
    with pytest.raises(ValueError, match=message):
        convert_state_dict(original, convert_config({**OPTIONS, **options}))


def test_the_command_converts_and_goes_back(model, original, source, tmp_path, capsys):
    target, back = tmp_path / "ours", tmp_path / "back"
    assert cli.main(["convert", "zen", str(source), str(target), "--language", "zh"]) == 0
    assert "ngram.txt" in capsys.readouterr().out
    assert (target / "ngram.txt").read_text(encoding="utf-8") == LEXICON
    loaded, info = ZenForMaskedLM.from_pretrained(target, output_loading_info=True)
    assert not info["missing_keys"]
    tokenizer = AutoTokenizer.from_pretrained(target)
    assert tokenizer("提高速公路")["ngram_ids"] == [1, 3, 2]
    filled = pipeline("fill-mask", model=loaded, tokenizer=tokenizer, top_k=1)("提高速[MASK]路的")
    with torch.no_grad():
        logits = model(**tokenizer("提高速[MASK]路的", return_tensors="pt")).prediction_logits
    assert filled[0]["token"] == int(logits[0, 4].argmax())
    assert cli.main(["convert", "zen", str(target), str(back), "--to-original"]) == 0
    same(torch.load(back / "pytorch_model.bin", weights_only=True), original)
    for name in ("ngram.txt", "vocab.txt"):
        assert (back / name).read_text(encoding="utf-8") == (source / name).read_text(encoding="utf-8")
    assert json.loads((back / "config.json").read_text(encoding="utf-8"))["word_size"] == 4


def test_the_command_wants_a_lexicon_that_fits(source, tmp_path, capsys):
    (source / "ngram.txt").write_text(LEXICON + "路的,1\n", encoding="utf-8")
    assert cli.main(["convert", "zen", str(source), str(tmp_path / "ours")]) == 2
    assert "has 4 n-grams, and the table of the weights `word_vocab_size` = 4 rows" in capsys.readouterr().err
    (source / "ngram.txt").unlink()
    assert cli.main(["convert", "zen", str(source), str(tmp_path / "ours")]) == 2
    assert "ngram.txt must be beside" in capsys.readouterr().err
    (source / "vocab.txt").unlink()  # weights alone need none
    assert cli.main(["convert", "zen", str(source), str(tmp_path / "ours")]) == 0
    assert not (tmp_path / "ours" / "tokenization_zen.py").exists()
    assert ZenModel.from_pretrained(tmp_path / "ours").config.word_vocab_size == 4


@pytest.mark.slow
def test_verify_accepts_the_folder(source, tmp_path):
    assert cli.main(["convert", "zen", str(source), str(tmp_path / "ours")]) == 0
    found = verify(tmp_path / "ours")
    assert found.ok, found.problems
    assert all(result.resaved for result in found.results)
